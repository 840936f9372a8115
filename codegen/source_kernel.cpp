// SPDX-License-Identifier: Apache-2.0
#include "codegen/source_kernel.h"

#include "ir/graph.h"

namespace kiln::detail {

using loop::AxisRole;
using loop::Instr;
using loop::InstrKind;

std::string KernelText::comment() const {
  std::set<std::string_view> seen;
  std::string names;
  for (const Instr& i : k_.body)
    if ((i.kind == InstrKind::elementwise || i.kind == InstrKind::reduce || i.kind == InstrKind::partial) &&
        seen.insert(def(i.op).name).second)
      names += " " + std::string(def(i.op).name);
  std::string s = names.empty() ? "// copy\n" : "//" + names + "\n";
  std::string ir = loop::print(k_);
  for (size_t at = 0; at < ir.size();) {
    const size_t end = ir.find('\n', at);
    s += "//   " + ir.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return s;
}

void KernelText::parameters(int width) {
  indent_ = 1;
  if (has_cols_) line("constexpr int W = {};", width);
  for (size_t i = 0; i < k_.params.size(); ++i) {
    const loop::Param& p = k_.params[i];
    const char* c = p.written ? "" : "const ";
    line("{0}{1}* p{2} = static_cast<{0}{1}*>(buffers[{2}]);", c, storage_name(p.dtype), i);
  }
  for (size_t i = 0; i < k_.dims.size(); ++i) line("const i64 d{0} = dims[{0}];", i);
}

std::string KernelText::rows_text() const {
  std::string s;
  for (int a = k_.axis_begin(AxisRole::row); a < k_.axis_end(AxisRole::row); ++a)
    s += (s.empty() ? "" : " * ") + size(k_.axes[a].extent);
  return s.empty() ? "1" : k_.axis_end(AxisRole::row) - k_.axis_begin(AxisRole::row) > 1 ? "(" + s + ")" : s;
}

/// Axes [from, to) of a linear index over them.
void KernelText::decode(const std::string& linear, int from, int to) {
  if (to - from == 1) {
    line("const {} a{} = {};", integer_, from, linear);
    return;
  }
  std::string left = linear;
  for (int a = to - 1; a > from; --a) {
    line("const {} a{} = {} % {};", integer_, a, left, size(k_.axes[a].extent));
    const std::string next = fmt::format("{}_{}", linear, a);
    line("const {} {} = {} / {};", integer_, next, left, size(k_.axes[a].extent));
    left = next;
  }
  line("const {} a{} = {};", integer_, from, left);
}

/// Scalars that are ready for `pass`; the uniform ones stand before the task loop.
void KernelText::scalars(int pass, bool uniform) {
  for (int v = 0; v < static_cast<int>(k_.body.size()); ++v) {
    const Instr& i = k_.body[v];
    if (p_.vector[v] || i.kind == InstrKind::store || i.kind == InstrKind::partial) continue;
    if (i.kind == InstrKind::reduce) {
      if (!has_cols_ && p_.at[v] == pass && !uniform) line("const auto v{} = v{};", v, i.args[0]);
      continue;
    }
    const bool hoisted = is_uniform(v) && p_.at[v] == 0;
    if (uniform ? !hoisted : (hoisted || p_.at[v] != pass)) continue;
    compute(v, false, false);
  }
}

std::string KernelText::scalar_store(const Instr& i) const {
  return fmt::format("store<1>(p{} + {}, v{})", i.param, index_text(i.index, false), i.args[0]);
}

std::vector<int> KernelText::reduces_in(int pass) const {
  std::vector<int> out;
  for (int v = 0; v < static_cast<int>(k_.body.size()); ++v)
    if (k_.body[v].kind == InstrKind::reduce && p_.at[v] == pass + 1 && has_cols_) out.push_back(v);
  return out;
}

/// Scalars that vector code of this pass uses, spread over the lanes once.
void KernelText::splats(int pass) {
  std::set<int> used;
  const auto want = [&](int v) {
    if (!p_.vector[v]) used.insert(v);
  };
  for (int v : p_.compute[pass]) {
    const Instr& i = k_.body[v];
    if (i.kind == InstrKind::elementwise || i.kind == InstrKind::store || i.kind == InstrKind::partial)
      for (int a : i.args) want(a);
  }
  for (int v : reduces_in(pass)) want(k_.body[v].args[0]);
  for (int v : used) {
    if (splatted_.count(v)) continue;
    const DType t = k_.body[v].dtype;
    if (t == DType::boolean) line("const Mask<W> w{0} = broadcast_mask<W>(v{0}.lanes);", v);
    else line("const {0} w{1} = broadcast<W>(v{1});", value_type(t, true), v);
    splatted_.insert(v);
  }
}

std::string KernelText::linear_column() const {
  std::string s = fmt::format("a{}", vec_axis_);
  Dim stride = k_.axes[vec_axis_].extent;
  std::string product = size(stride);
  for (int a = vec_axis_ - 1; a >= col_begin_; --a) {
    s += fmt::format(" + a{} * ({})", a, product);
    product += " * " + size(k_.axes[a].extent);
  }
  return s;
}

std::string KernelText::combined_vector(int v, bool tail) const {
  const Instr& i = k_.body[v];
  const std::string x = vec(i.args[0]);
  if (!tail) return x;
  return fmt::format("select(first<W>(tail), {}, broadcast<W>({}({})))", x, storage_name(i.dtype),
                     identity_text(i.op, i.dtype));
}

std::string KernelText::load_columns(const std::string& at, bool tail) {
  return tail ? fmt::format("load_n<W>({}, tail)", at) : fmt::format("load<W>({})", at);
}

void KernelText::store_columns(const std::string& at, const std::string& x, bool tail) {
  if (tail) line("store_n<W>({}, tail, {});", at, x);
  else line("store<W>({}, {});", at, x);
}

std::string KernelText::accumulators_text(int v, int count) const {
  const Instr& i = k_.body[v];
  std::string all = fmt::format("r{}[0]", v);
  for (int u = 1; u < count; ++u) all = combine(i.op, i.dtype, all, fmt::format("r{}[{}]", v, u));
  return all;
}

}  // namespace kiln::detail
