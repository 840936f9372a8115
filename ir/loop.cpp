// SPDX-License-Identifier: Apache-2.0
#include "ir/loop.h"

#include "ir/graph.h"

#include <algorithm>
#include <map>

namespace kiln::loop {

void Index::add_axis(int axis, const Dim& stride) {
  if (stride.is(0)) return;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].axis != axis) continue;
    terms[i].stride = terms[i].stride + stride;
    if (terms[i].stride.is(0)) terms.erase(terms.begin() + static_cast<ptrdiff_t>(i));
    return;
  }
  terms.push_back({axis, -1, stride});
}

void Index::add_value(int value, const Dim& stride) {
  if (stride.is(0)) return;
  for (IndexTerm& t : terms)
    if (t.value == value) {
      t.stride = t.stride + stride;
      return;
    }
  terms.push_back({-1, value, stride});
}

void Index::add(const Index& other, const Dim& factor) {
  offset = offset + other.offset * factor;
  for (const IndexTerm& t : other.terms) {
    if (t.axis >= 0) add_axis(t.axis, t.stride * factor);
    else add_value(t.value, t.stride * factor);
  }
}

int Kernel::axis_begin(AxisRole r) const {
  int i = 0;
  while (i < static_cast<int>(axes.size()) && axes[i].role < r) ++i;
  return i;
}
int Kernel::axis_end(AxisRole r) const {
  int i = axis_begin(r);
  while (i < static_cast<int>(axes.size()) && axes[i].role == r) ++i;
  return i;
}
Dim Kernel::extent(AxisRole r) const {
  Dim n(1);
  for (const Axis& a : axes)
    if (a.role == r) n = n * a.extent;
  return n;
}
uint32_t Kernel::mask(AxisRole r) const { return (1u << axis_end(r)) - (1u << axis_begin(r)); }
bool Kernel::has(InstrKind kind) const {
  return std::any_of(body.begin(), body.end(), [&](const Instr& i) { return i.kind == kind; });
}
std::string Kernel::size_str(const Dim& d) const {
  const auto at = std::find(dims.begin(), dims.end(), d);
  if (at == dims.end() && d.is_const()) return d.str();
  KILN_ASSERT(at != dims.end(), "size {} has no number", d.str());
  return fmt::format("d{}", at - dims.begin());
}

namespace {
constexpr int64_t kTaskElements = 16384;  ///< least work of a task, in elements: some 5 us
constexpr int64_t kMaxChunks = 64;
/// Rows of a task at most, for one float adds up a column of them: an error that stays near that of one
/// addition.
constexpr int64_t kMaxRows = 128, kMaxShortRows = 256;
}  // namespace

bool is_flat(const Kernel& k) {
  return k.axes.size() == 1 && k.axes[0].role == AxisRole::col && !k.has(InstrKind::reduce) &&
         !k.has(InstrKind::partial);
}

Dim rows_per_task(const Kernel& k) {
  const Dim cols = k.extent(AxisRole::col), rows = k.extent(AxisRole::row);
  const int64_t c = cols.is_const() ? std::max<int64_t>(cols.value(), 1) : 256;
  const int64_t least = std::clamp<int64_t>(kTaskElements / c, 1, kMaxShortRows);
  if (!rows.is_const()) return Dim(std::max<int64_t>(least, 8));
  const int64_t even = std::min((rows.value() + kMaxChunks - 1) / kMaxChunks, kMaxRows);
  return Dim(std::max(least, even));
}

Dim row_chunks(const Kernel& k) { return ceildiv(k.extent(AxisRole::row), rows_per_task(k)); }

namespace {

/// Every index of an instruction, with those of its bounds.
template <typename I, typename F>
void each_index(I& instr, F&& f) {
  f(instr.index);
  for (auto& b : instr.bounds) f(b.index);
}

uint32_t index_axes(const Kernel& k, const Index& x) {
  uint32_t m = 0;
  for (const IndexTerm& t : x.terms) m |= t.axis >= 0 ? 1u << t.axis : k.body[t.value].axes;
  return m;
}

Dim stride_of(const Index& x, int axis) {
  for (const IndexTerm& t : x.terms)
    if (t.axis == axis) return t.stride;
  return Dim(0);
}

void remove_axis(Kernel& k, int axis) {
  for (Instr& i : k.body)
    each_index(i, [&](Index& x) {
      std::erase_if(x.terms, [&](const IndexTerm& t) { return t.axis == axis; });
      for (IndexTerm& t : x.terms)
        if (t.axis > axis) --t.axis;
    });
  k.axes.erase(k.axes.begin() + axis);
}

bool mergeable(const Kernel& k, int outer) {
  if (k.axes[outer].role != k.axes[outer + 1].role) return false;
  bool ok = true;
  for (const Instr& i : k.body)
    each_index(i, [&](const Index& x) {
      ok = ok && stride_of(x, outer) == stride_of(x, outer + 1) * k.axes[outer + 1].extent;
    });
  return ok;
}

void sort_terms(Kernel& k) {
  for (Instr& i : k.body)
    each_index(i, [](Index& x) {
      std::sort(x.terms.begin(), x.terms.end(), [](const IndexTerm& a, const IndexTerm& b) {
        return a.axis != b.axis ? static_cast<unsigned>(a.axis) < static_cast<unsigned>(b.axis)
                                : a.value < b.value;
      });
    });
}

void add_dim(Kernel& k, const Dim& d) {
  if (!d.is_const() && std::find(k.dims.begin(), k.dims.end(), d) == k.dims.end()) k.dims.push_back(d);
}

void number_dims(Kernel& k) {
  constexpr int64_t kShared = 64;  // smaller sizes are worth code of their own
  k.dims.clear();
  if (is_flat(k) && k.axes[0].extent.is_const() && k.axes[0].extent.value() >= kShared)
    k.dims.push_back(k.axes[0].extent);
  for (const Axis& a : k.axes) add_dim(k, a.extent);
  for (const Instr& i : k.body) {
    each_index(i, [&](const Index& x) {
      add_dim(k, x.offset);
      for (const IndexTerm& t : x.terms) add_dim(k, t.stride);
    });
    for (const Bound& b : i.bounds) add_dim(k, b.extent);
    add_dim(k, i.count);
    add_dim(k, i.step);
  }
  for (AxisRole r : {AxisRole::batch, AxisRole::row, AxisRole::col}) add_dim(k, k.extent(r));
}

/// Without reductions, and when each store walks all axes, every axis is free.
bool is_free(const Kernel& k) {
  if (k.has(InstrKind::reduce) || k.has(InstrKind::partial)) return false;
  const uint32_t all = (1u << k.axes.size()) - 1;
  return std::all_of(k.body.begin(), k.body.end(),
                     [&](const Instr& i) { return i.kind != InstrKind::store || i.axes == all; });
}

}  // namespace

void infer_axes(Kernel& k) {
  for (Instr& i : k.body) {
    i.axes = 0;
    for (int a : i.args) i.axes |= k.body[a].axes;
    each_index(i, [&](const Index& x) { i.axes |= index_axes(k, x); });
    if (i.kind == InstrKind::reduce) i.axes &= ~k.mask(AxisRole::col);
    if (i.by_col) i.axes |= k.mask(AxisRole::col);
  }
}

void canonicalize(Kernel& k, bool keep_roles) {
  for (int a = static_cast<int>(k.axes.size()); a-- > 0;)
    if (k.axes[a].extent.is(1)) remove_axis(k, a);
  infer_axes(k);
  const bool free = !keep_roles && is_free(k);
  if (free)
    for (Axis& a : k.axes) a.role = AxisRole::col;
  for (int a = static_cast<int>(k.axes.size()) - 1; a-- > 0;) {
    if (!mergeable(k, a) || (keep_roles && k.axes[a].role == AxisRole::batch)) continue;
    k.axes[a + 1].extent = k.axes[a].extent * k.axes[a + 1].extent;
    remove_axis(k, a);
  }
  // The last free axis becomes the vector axis, the rest are rows.
  for (size_t i = 0; free && i + 1 < k.axes.size(); ++i) k.axes[i].role = AxisRole::row;
  sort_terms(k);
  infer_axes(k);
  number_dims(k);
}

namespace {

/// Every size of an instruction but the count of a fold.
template <typename F>
void each_size(Instr& i, F&& f) {
  each_index(i, [&](Index& x) {
    f(x.offset);
    for (IndexTerm& t : x.terms) f(t.stride);
  });
  for (Bound& b : i.bounds) f(b.extent);
  f(i.step);
}

/// What no trace calls a symbol.
Dim any_extent() { return Dim::symbol("$extent"); }

}  // namespace

std::optional<AnySize> any_size(const Kernel& k) {
  const uint32_t all = (1u << k.axes.size()) - 1;
  if (!(is_flat(k) || k.axes.empty()) || k.has(InstrKind::reduce) || k.has(InstrKind::partial)) return {};
  for (const Instr& i : k.body)
    if (i.kind == InstrKind::store && i.axes != all) return {};
  AnySize out{k, {}};
  std::map<std::string, Dim> sizes;  // by symbol
  for (Axis& a : out.kernel.axes) {
    sizes.emplace(any_extent().str(), a.extent);
    a.extent = any_extent();
  }
  for (size_t v = 0; v < k.body.size(); ++v) {
    Instr& i = out.kernel.body[v];
    // Sizes that are the extent stay so: they are in no other way a size of the launch.
    each_size(i, [&](Dim& d) {
      if (!k.axes.empty() && d == k.axes[0].extent) d = any_extent();
    });
    if (i.kind != InstrKind::fold) continue;
    const Dim count = Dim::symbol(fmt::format("$count{}", v));
    sizes.emplace(count.str(), i.count);
    i.count = count;
  }
  number_dims(out.kernel);
  for (const Dim& d : out.kernel.dims) {
    const auto at = sizes.find(d.str());
    out.sizes.push_back(at == sizes.end() ? d : at->second);
  }
  return out;
}

Kernel one_element(const Kernel& any) {
  Kernel k = any;
  const auto to_one = [](Dim& d) {
    if (d == any_extent()) d = Dim(1);
  };
  for (Axis& a : k.axes) to_one(a.extent);
  for (Instr& i : k.body) each_size(i, to_one);
  canonicalize(k);
  return k;
}

namespace {

std::string index_str(const Kernel& k, const Index& x) {
  std::string s;
  for (const IndexTerm& t : x.terms) {
    s += s.empty() ? "" : " + ";
    s += t.axis >= 0 ? fmt::format("a{}", t.axis) : fmt::format("%{}", t.value);
    if (!t.stride.is(1)) s += "*" + k.size_str(t.stride);
  }
  if (s.empty() || !x.offset.is(0)) s += (s.empty() ? "" : " + ") + k.size_str(x.offset);
  return s;
}

std::string bounds_str(const Kernel& k, const Instr& i) {
  std::string s;
  for (const Bound& b : i.bounds)
    s +=
        fmt::format("{}0 <= {} < {}", s.empty() ? " if " : ", ", index_str(k, b.index), k.size_str(b.extent));
  return s;
}

std::string args_str(const Instr& i) {
  std::string s;
  for (int a : i.args) s += fmt::format("{}%{}", s.empty() ? " " : ", ", a);
  return s;
}

std::string attrs_str(const Instr& i) {
  std::string s;
  for (size_t n = 0; n < i.attrs.size(); ++n)
    s += fmt::format("{}{}={}", n ? ", " : " {", def(i.op).attrs[n].name, attr_str(i.attrs[n]));
  return s.empty() ? s : s + "}";
}

std::string instr_str(const Kernel& k, const Instr& i) {
  const auto at = [&] { return fmt::format("p{}[{}]", i.param, index_str(k, i.index)); };
  switch (i.kind) {
    case InstrKind::load: return "load " + at() + bounds_str(k, i);
    case InstrKind::fold:
      return fmt::format("fold {} {} + i*{}, i < {}", def(i.op).name, at(), k.size_str(i.step),
                         k.size_str(i.count));
    case InstrKind::constant: return fmt::format("constant {}", attr_str(AttrValue(i.number)));
    case InstrKind::index: return "index " + index_str(k, i.index);
    case InstrKind::inside: return "inside" + bounds_str(k, i);
    case InstrKind::elementwise:
      return std::string(i.rounded ? "rounded " : "").append(def(i.op).name) + args_str(i) + attrs_str(i);
    case InstrKind::reduce: return fmt::format("reduce {}{}", def(i.op).name, args_str(i));
    case InstrKind::store: return fmt::format("store {} ={}{}", at(), args_str(i), bounds_str(k, i));
    case InstrKind::partial:
      return fmt::format("partial {} p{} ={}{}", def(i.op).name, i.param, args_str(i),
                         i.all_cols ? " over all"
                         : i.by_col ? " by column"
                                    : "");
  }
  return {};
}

constexpr const char* kRoleNames[] = {"batch", "row", "col"};

}  // namespace

int64_t known_start(const Dim& offset, DType t) {
  const int64_t unit = std::max<int64_t>(1, kPointerBytes / static_cast<int64_t>(dtype_size(t)));
  return offset.is_const() && offset.value() > 0 ? offset.value() / unit * unit : 0;
}

std::vector<int64_t> rebase(Kernel& k, int kept) {
  std::vector<int64_t> starts(k.params.size(), INT64_MAX);
  const auto places = [&](auto&& f) {
    for (Instr& i : k.body)
      if (i.param >= 0 && i.kind != InstrKind::partial) f(i.index, static_cast<size_t>(i.param));
  };
  places([&](const Index& x, size_t p) {
    starts[p] = std::min(starts[p], known_start(x.offset, k.params[p].dtype));
  });
  for (size_t p = 0; p < starts.size(); ++p)
    if (starts[p] == INT64_MAX || static_cast<int>(p) == kept) starts[p] = 0;
  places([&](Index& x, size_t p) { x.offset = x.offset - Dim(starts[p]); });
  return starts;
}

std::string print(const Kernel& k) {
  std::string s = "kernel";
  for (size_t i = 0; i < k.axes.size(); ++i)
    s += fmt::format(" a{}:{}[{}]", i, kRoleNames[static_cast<int>(k.axes[i].role)],
                     k.size_str(k.axes[i].extent));
  s += "\n";
  for (size_t i = 0; i < k.params.size(); ++i) {
    const Param& p = k.params[i];
    s += fmt::format("  p{} {}{}{}\n", i, dtype_name(p.dtype), p.read ? " read" : "",
                     p.written ? " write" : "");
  }
  for (size_t i = 0; i < k.body.size(); ++i) {
    const Instr& x = k.body[i];
    const bool defines = x.kind != InstrKind::store && x.kind != InstrKind::partial;
    s += defines ? fmt::format("  %{} = {} {}\n", i, dtype_name(x.dtype), instr_str(k, x))
                 : fmt::format("  {}\n", instr_str(k, x));
  }
  return s;
}

void verify(const Kernel& k) {
  for (size_t i = 1; i < k.axes.size(); ++i)
    KILN_ASSERT(k.axes[i - 1].role <= k.axes[i].role, "axis {} is out of order", i);
  KILN_ASSERT(k.axes.size() < 32, "{} axes", k.axes.size());
  for (size_t i = 0; i < k.body.size(); ++i) {
    const Instr& x = k.body[i];
    const auto used = [&](int v) {
      KILN_ASSERT(v >= 0 && v < static_cast<int>(i), "instruction {} uses %{} before it is defined", i, v);
      KILN_ASSERT(k.body[v].kind != InstrKind::store && k.body[v].kind != InstrKind::partial,
                  "instruction {} uses a store as a value", i);
    };
    for (int a : x.args) used(a);
    each_index(x, [&](const Index& y) {
      for (const IndexTerm& t : y.terms) {
        if (t.axis < 0) used(t.value);
        else KILN_ASSERT(t.axis < static_cast<int>(k.axes.size()), "instruction {} uses axis {}", i, t.axis);
      }
    });
    if (x.param >= 0)
      KILN_ASSERT(x.param < static_cast<int>(k.params.size()), "instruction {}: no p{}", i, x.param);
    if (x.kind == InstrKind::store || x.kind == InstrKind::partial)
      KILN_ASSERT(
          x.args.size() == 1 && computed(k.body[x.args[0]].dtype) == computed(k.params[x.param].dtype),
          "instruction {} stores {} into p{}", i, dtype_name(k.body[x.args[0]].dtype), x.param);
    if (x.kind == InstrKind::elementwise)
      KILN_ASSERT(!def(x.op).body.empty(), "instruction {}: {} has no body", i, def(x.op).name);
  }
}

}  // namespace kiln::loop
