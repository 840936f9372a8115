// SPDX-License-Identifier: Apache-2.0
// dot_general over operands in memory -> the matmul template: index sets become batch axes, m, n and k.
#include <algorithm>

#include "codegen/lower_parts.h"
#include "codegen/matmul.h"
#include "codegen/source_region.h"
#include "ir/base/hash.h"

namespace kiln::detail {

using loop::AxisRole;

namespace {

/// Some dims of an operand, outermost first, merged where their strides allow.
struct Runs {
  std::vector<Dim> sizes, strides;
};
Runs merge(const Shape& shape, const std::vector<Dim>& strides, const std::vector<int64_t>& dims) {
  Runs r;
  for (int64_t d : dims) {
    if (shape[d].is(1)) continue;
    if (!r.sizes.empty() && r.strides.back() == strides[d] * shape[d]) {
      r.sizes.back() = r.sizes.back() * shape[d];
      r.strides.back() = strides[d];
    } else {
      r.sizes.push_back(shape[d]);
      r.strides.push_back(strides[d]);
    }
  }
  return r;
}

/// One or two tensors walked together over the same dims: merged only where both allow it.
struct Joint {
  std::vector<Dim> sizes, a, b;
};
Joint merge_both(const Shape& shape, const std::vector<int64_t>& da, const std::vector<Dim>& sa,
                 const std::vector<int64_t>& db, const std::vector<Dim>& sb) {
  Joint j;
  for (size_t i = 0; i < da.size(); ++i) {
    const Dim& n = shape[da[i]];
    if (n.is(1)) continue;
    const Dim &x = sa[da[i]], &y = sb[db[i]];
    if (!j.sizes.empty() && j.a.back() == x * n && j.b.back() == y * n) {
      j.sizes.back() = j.sizes.back() * n;
      j.a.back() = x;
      j.b.back() = y;
    } else {
      j.sizes.push_back(n);
      j.a.push_back(x);
      j.b.push_back(y);
    }
  }
  return j;
}

const std::vector<int64_t>& dims_attr(const Node& n, size_t i) {
  return std::get<std::vector<int64_t>>(n.attrs[i]);
}

std::vector<int64_t> free_dims(const Node& n, size_t operand, size_t rank) {
  std::vector<int64_t> out;
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d)
    if (!std::count(dims_attr(n, operand).begin(), dims_attr(n, operand).end(), d) &&
        !std::count(dims_attr(n, 2 + operand).begin(), dims_attr(n, 2 + operand).end(), d))
      out.push_back(d);
  return out;
}

/// The last run is the matrix's own dim, the ones before become batch axes of this operand alone.
void matrix_dim(const Runs& r, MatmulSpec& spec, MatmulOperand& own, MatmulOperand& other, Dim& size,
                Dim& stride) {
  for (size_t i = 0; i + 1 < r.sizes.size(); ++i) {
    spec.batch.push_back(r.sizes[i]);
    own.batch_stride.push_back(r.strides[i]);
    other.batch_stride.push_back(Dim(0));
  }
  size = r.sizes.empty() ? Dim(1) : r.sizes.back();
  stride = r.sizes.empty() ? Dim(1) : r.strides.back();
}

/// The result is row-major over [batch, free a, free b]: m stands before the batch axes that are free dims of
/// b.
void lay_result(MatmulSpec& spec, size_t from_b) {
  Dim stride = spec.n;
  spec.c.col_stride = Dim(1);
  spec.c.batch_stride.assign(spec.batch.size(), Dim(0));
  for (size_t i = spec.batch.size(); i-- > from_b;) {
    spec.c.batch_stride[i] = stride;
    stride = stride * spec.batch[i];
  }
  spec.c.row_stride = stride;
  stride = stride * spec.m;
  for (size_t i = from_b; i-- > 0;) {
    spec.c.batch_stride[i] = stride;
    stride = stride * spec.batch[i];
  }
}

std::string commented(const std::string& text) {
  std::string s;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    s += "//   " + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return s;
}

/// Index sets as batch axes, m, n and k. False when an operand must be copied first: see lower_contract.
/// `joint` counts the batch axes of both operands, which come first.
bool contract_spec(const Graph& g, const Node& n, const std::vector<Operand>& operands, MatmulSpec& spec,
                   size_t& joint, bool which[2]) {
  const Shape &sa = g.type(n.in[0]).shape, &sb = g.type(n.in[1]).shape;
  const TensorLayout &la = operands[0].layout, &lb = operands[1].layout;
  which[0] = which[1] = false;
  const Joint k = merge_both(sa, dims_attr(n, 2), la.strides, dims_attr(n, 3), lb.strides);
  if (k.sizes.size() > 1) {
    // Make dense what does not walk its contracted dims as one.
    which[0] = merge(sa, la.strides, dims_attr(n, 2)).sizes.size() > 1;
    which[1] = merge(sb, lb.strides, dims_attr(n, 3)).sizes.size() > 1;
    KILN_ASSERT(which[0] || which[1], "contracted dims of dot_general are walked in two orders");
    return false;
  }
  spec.dtype = g.type(n.out).dtype;
  spec.a.offset = la.offset;
  spec.b.offset = lb.offset;
  const Joint batch = merge_both(sa, dims_attr(n, 0), la.strides, dims_attr(n, 1), lb.strides);
  spec.batch = batch.sizes;
  joint = spec.batch.size();
  spec.a.batch_stride = batch.a;
  spec.b.batch_stride = batch.b;
  spec.k = k.sizes.empty() ? Dim(1) : k.sizes[0];
  spec.a.col_stride = k.sizes.empty() ? Dim(1) : k.a[0];
  spec.b.row_stride = k.sizes.empty() ? Dim(1) : k.b[0];
  matrix_dim(merge(sa, la.strides, free_dims(n, 0, sa.size())), spec, spec.a, spec.b, spec.m,
             spec.a.row_stride);
  const size_t from_b = spec.batch.size();  // batch axes from here on are free dims of b
  matrix_dim(merge(sb, lb.strides, free_dims(n, 1, sb.size())), spec, spec.b, spec.a, spec.n,
             spec.b.col_stride);
  lay_result(spec, from_b);
  return true;
}

/// Hooks that print what is fused, in scopes with names of their own.
struct FusedText {
  std::optional<PrologueText> prologue[2];
  std::optional<EpilogueText> epilogue;
  int result = 2;   ///< the parameter of the result, or the first of the epilogue
  int buffers = 3;  ///< parameters before the workspace

  FusedText(const Fused& f, const MatmulSpec& spec, size_t joint) {
    const std::vector<Dim> shared(spec.batch.begin(), spec.batch.begin() + static_cast<ptrdiff_t>(joint));
    for (size_t i = 0; i < 2; ++i) {
      if (!f.prologue[i]) continue;
      const Prologue& p = *f.prologue[i];
      KILN_ASSERT(walks_batch(p.kernel, shared), "prologue of operand {} walks other batch axes", i);
      prologue[i].emplace(p.kernel, p.packed, shared, result, i == 0 ? "pa0_" : "pb0_");
      result += static_cast<int>(p.kernel.params.size());
    }
    buffers = result + 1;
    if (!f.epilogue) return;
    const Epilogue& e = *f.epilogue;
    epilogue.emplace(e.kernel, e.accumulator, e.keep, spec.batch, result);
    buffers = result + static_cast<int>(e.kernel.params.size());
  }
  MatmulHooks hooks(DimTable& dims) {
    MatmulHooks h;
    const auto set = [&](std::optional<PrologueText>& p, MatmulHook& line, MatmulHook& at) {
      if (!p) return;
      h.setup += p->setup(dims);
      line = [&p](const MatmulVector& v) { return p->before(v); };
      at = [&p](const MatmulVector& v) { return p->at(v); };
    };
    set(prologue[0], h.line_a, h.prologue_a);
    set(prologue[1], h.line_b, h.prologue_b);
    if (!epilogue) return h;
    h.setup += epilogue->setup(dims);
    h.epilogue = [this](const MatmulVector& v) { return epilogue->at(v); };
    return h;
  }
};

/// What the source says it is.
std::string heading(const Fused& f) {
  std::string s = "// dot_general\n";
  for (size_t i = 0; i < 2; ++i)
    if (f.prologue[i])
      s += fmt::format("// prologue of {}\n", "ab"[i]) + commented(loop::print(f.prologue[i]->kernel));
  return f.epilogue ? s + "// epilogue\n" + commented(loop::print(f.epilogue->kernel)) : s;
}

}  // namespace

bool walks_columns(const loop::Kernel& k) {
  const int row = k.axis_begin(AxisRole::row), col = k.axis_begin(AxisRole::col);
  if (k.axis_end(AxisRole::row) == row || k.axis_end(AxisRole::col) == col)
    return k.axis_end(AxisRole::col) != col;
  int by_row = 0, by_col = 0;
  for (const loop::Instr& i : k.body) {
    if (i.kind != loop::InstrKind::load || !(i.axes >> row & 1) || !(i.axes >> col & 1)) continue;
    for (const loop::IndexTerm& t : i.index.terms) {
      by_row += t.axis == row && t.stride.is(1);
      by_col += t.axis == col && t.stride.is(1);
    }
  }
  return by_col >= by_row;
}

TensorLayout dense_operand(const Graph& g, const Node& n, size_t i, bool inner_last,
                           std::vector<int64_t>& order) {
  const Shape& s = g.type(n.in[i]).shape;
  const std::vector<int64_t> free = free_dims(n, i, s.size());
  order = dims_attr(n, i);
  for (const auto* list :
       {inner_last ? &free : &dims_attr(n, 2 + i), inner_last ? &dims_attr(n, 2 + i) : &free})
    order.insert(order.end(), list->begin(), list->end());
  TensorLayout l{std::vector<Dim>(s.size(), Dim(0)), Dim(0)};
  Dim stride(1);
  for (size_t d = order.size(); d-- > 0; stride = stride * s[order[d]]) l.strides[order[d]] = stride;
  return l;
}

bool contract_case(const Graph& g, const Node& n, const std::vector<Operand>& operands,
                   const CpuTarget& target, const Fused& fused, MatmulCase& out, bool which[2]) {
  out = {};
  if (!contract_spec(g, n, operands, out.spec, out.joint, which)) return false;
  out.target.vector_bytes = target.vector_bytes;
  out.target.vector_registers = target.vector_bytes == 64 ? 32 : 16;
  out.fused = fused;
  if (fused.epilogue && !is_epilogue(fused.epilogue->kernel, out.spec.batch)) out.fused.epilogue.reset();
  return true;
}

Dim contract_flops(const Graph& g, const Node& n, const Fused& fused) {
  Dim f = numel(g.type(n.out).shape) * Dim(2);
  for (const int64_t d : dims_attr(n, 2)) f = f * g.type(n.in[0]).shape[static_cast<size_t>(d)];
  for (const std::optional<Prologue>& p : fused.prologue)
    if (p) f = f + flops(p->kernel);
  return fused.epilogue ? f + flops(fused.epilogue->kernel) : f;
}

ContractKernel print_contract(const MatmulCase& c, const MatmulSchedule& schedule) {
  ContractKernel out;
  MatmulSpec spec = c.spec;
  // Printed twice: the name is the hash of the text.
  std::string name = "k_matmul";
  for (int pass = 0; pass < 2; ++pass) {
    DimTable dims;
    FusedText text(c.fused, spec, c.joint);
    spec.c.buffer = text.result;
    const MatmulSource m = print_matmul(name, spec, schedule, text.hooks(dims), dims, text.buffers);
    if (pass == 0) {
      name = "k_" + hash128(m.text).hex();
      continue;
    }
    out.source = {
        name + ".cpp", heading(c.fused) + "#include \"kiln_cpu.h\"\nusing namespace kn;\n" + m.text, {}};
    out.scratch = Dim(0);
    for (const MatmulLaunch& l : m.launches) {
      out.source.symbols.push_back(l.symbol);
      out.launches.emplace_back(l.symbol, l.tasks);
      const bool known = l.scratch_bytes.is_const() && out.scratch.is_const();
      out.scratch = known ? Dim(std::max(out.scratch.value(), l.scratch_bytes.value()))
                          : max(out.scratch, l.scratch_bytes);
    }
    out.dims = dims.dims();
    out.has_workspace = m.workspace_buffer >= 0;
    out.workspace = m.workspace_bytes;
  }
  return out;
}

}  // namespace kiln::detail
