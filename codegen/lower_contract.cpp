// SPDX-License-Identifier: Apache-2.0
// dot_general over operands in memory -> the matmul template: index sets become batch axes, m, n and k.
#include <algorithm>

#include "codegen/fused_text.h"
#include "codegen/lower_parts.h"
#include "codegen/matmul.h"
#include "ir/access.h"
#include "ir/base/hash.h"

namespace kiln::detail {

using loop::AxisRole;

namespace {

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

/// Whether a contraction over the runs `k` needs no copy, or else which operand is made dense first. `runs`:
/// it may walk several, which `a` takes in place. Then only b is copied, where b alone breaks them up.
bool walks_contracted(const Graph& g, const Node& n, const std::vector<Operand>& operands, const Joint& k,
                      bool runs, bool which[2]) {
  which[0] = which[1] = false;
  if (k.sizes.size() <= 1) return true;
  const size_t by_a =
      merge_runs(g.type(n.in[0]).shape, operands[0].layout.strides, dims_attr(n, 2)).sizes.size();
  const size_t by_b =
      merge_runs(g.type(n.in[1]).shape, operands[1].layout.strides, dims_attr(n, 3)).sizes.size();
  KILN_ASSERT(by_a > 1 || by_b > 1, "contracted dims of dot_general are walked in two orders");
  if (runs && k.sizes.size() == by_a) return true;
  which[0] = by_a > 1 && !(runs && by_b > 1);
  which[1] = by_b > 1;
  return false;
}

/// Index sets as batch axes, m, n and k. False when an operand must be copied first: `which`. `joint` counts
/// the batch axes of both operands, which come first.
bool contract_spec(const Graph& g, const Node& n, const std::vector<Operand>& operands, bool runs,
                   MatmulSpec& spec, size_t& joint, bool which[2]) {
  const Shape &sa = g.type(n.in[0]).shape, &sb = g.type(n.in[1]).shape;
  const TensorLayout &la = operands[0].layout, &lb = operands[1].layout;
  const Joint k = merge_both(sa, dims_attr(n, 2), la.strides, dims_attr(n, 3), lb.strides);
  if (!walks_contracted(g, n, operands, k, runs, which)) return false;
  spec.dtype = g.type(n.out).dtype;
  spec.a.offset = la.offset;
  spec.b.offset = lb.offset;
  const Joint batch = merge_both(sa, dims_attr(n, 0), la.strides, dims_attr(n, 1), lb.strides);
  spec.batch = batch.sizes;
  joint = spec.batch.size();
  spec.a.batch_stride = batch.a;
  spec.b.batch_stride = batch.b;
  spec.k = k.sizes.empty() ? Dim(1) : k.sizes.back();
  spec.a.col_stride = k.sizes.empty() ? Dim(1) : k.a.back();
  spec.b.row_stride = k.sizes.empty() ? Dim(1) : k.b.back();
  for (size_t i = 0; i + 1 < k.sizes.size(); ++i) {
    spec.k_outer.push_back(k.sizes[i]);
    spec.a.k_stride.push_back(k.a[i]);
    spec.b.k_stride.push_back(k.b[i]);
  }
  matrix_dim(merge_runs(sa, la.strides, free_dims(g, n, 0)), spec, spec.a, spec.b, spec.m, spec.a.row_stride);
  const size_t from_b = spec.batch.size();  // batch axes from here on are free dims of b
  matrix_dim(merge_runs(sb, lb.strides, free_dims(g, n, 1)), spec, spec.b, spec.a, spec.n, spec.b.col_stride);
  lay_result(spec, from_b);
  return true;
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
  const std::vector<int64_t> free = free_dims(g, n, i);
  order = dims_attr(n, i);
  for (const auto* list :
       {inner_last ? &free : &dims_attr(n, 2 + i), inner_last ? &dims_attr(n, 2 + i) : &free})
    order.insert(order.end(), list->begin(), list->end());
  TensorLayout l{std::vector<Dim>(s.size(), Dim(0)), Dim(0)};
  Dim stride(1);
  for (size_t d = order.size(); d-- > 0; stride = stride * s[order[d]]) l.strides[order[d]] = stride;
  return l;
}

bool contract_case(const Graph& g, const Node& n, const std::vector<Operand>& operands, const Target& target,
                   const Fused& fused, MatmulCase& out, bool which[2]) {
  out = {};
  // Several runs of k are walked in A where it lies, and not in halves: on the CPU these are widened.
  const DType t = g.type(n.out).dtype;
  const bool runs = loop::computed(t) == t && !fused.prologue[0];
  if (!contract_spec(g, n, operands, runs, out.spec, out.joint, which)) return false;
  if (const auto* cpu = std::get_if<CpuTarget>(&target)) {
    out.target.vector_bytes = cpu->vector_bytes;
    out.target.vector_registers = cpu->vector_bytes == 64 ? 32 : 16;
    out.target.bf16_pairs = cpu->has("avx512bf16") && cpu->has("avx512vl");
    if (loop::computed(t) != t) {
      out.spec.dtype = loop::computed(t);
      out.spec.a.half = out.spec.b.half = out.spec.c.half = t;
    }
  }
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

NodeKernel print_contract(const MatmulCase& c, const MatmulSchedule& schedule) {
  NodeKernel out;
  const MatmulSource m = named_by_text([&](const std::string& name) {
    DimTable dims;
    FusedText text(c);
    MatmulSpec spec = c.spec;
    spec.c.buffer = text.result();
    MatmulSource s = print_matmul(name, spec, schedule, text.hooks(dims), dims, text.buffers());
    out.source = {
        name + ".cpp", heading(c.fused) + "#include \"kiln_cpu.h\"\nusing namespace kn;\n" + s.text, {}};
    out.dims = dims.dims();
    return s;
  });
  Dim scratch(0);
  for (const MatmulLaunch& l : m.launches) {
    const bool known = l.scratch_bytes.is_const() && scratch.is_const();
    scratch = known ? Dim(std::max(scratch.value(), l.scratch_bytes.value())) : max(scratch, l.scratch_bytes);
  }
  for (const MatmulLaunch& l : m.launches) {
    out.source.symbols.push_back(l.symbol);
    out.launches.push_back({l.symbol, l.tasks, scratch});
  }
  out.has_workspace = m.workspace_buffer >= 0;
  out.workspace = m.workspace_bytes;
  return out;
}

}  // namespace kiln::detail
