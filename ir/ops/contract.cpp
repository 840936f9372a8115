// SPDX-License-Identifier: Apache-2.0
// Sums of products over index sets. Evaluated by the installed matmul on rank-3 views; a copy is made only
// when the dims of an index set do not merge by their strides.
#include <algorithm>

#include "ir/ops/loops.h"
#include "ir/ops/rules.h"

namespace kiln {

namespace {

using namespace rules;  // NOLINT: the rows are written in terms of its words
using Dims = std::vector<int64_t>;

constexpr AttrDef dot_attrs[] = {{"batch_a", AttrKind::ints},
                                 {"batch_b", AttrKind::ints},
                                 {"contract_a", AttrKind::ints},
                                 {"contract_b", AttrKind::ints}};

/// The dims of one operand by role.
struct Roles {
  Dims batch, free, contract;
};
Roles roles(const Attrs& attrs, int operand, size_t rank) {
  Roles r{ints(attrs, static_cast<size_t>(operand)), {}, ints(attrs, static_cast<size_t>(2 + operand))};
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d)
    if (std::find(r.batch.begin(), r.batch.end(), d) == r.batch.end() &&
        std::find(r.contract.begin(), r.contract.end(), d) == r.contract.end())
      r.free.push_back(d);
  return r;
}
Dims joined(const Dims& a, const Dims& b) {
  Dims out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}
Dims range(int64_t from, size_t n) {
  Dims out;
  for (size_t i = 0; i < n; ++i) out.push_back(from + static_cast<int64_t>(i));
  return out;
}

// --- type rule ---

void want_pairs(const InferArgs& a, const Dims& in_a, const Dims& in_b, std::string_view what) {
  if (in_a.size() != in_b.size())
    a.fail("{} dims differ in number; got {} and {}", what, in_a.size(), in_b.size());
  for (size_t i = 0; i < in_a.size(); ++i) {
    const Dim &x = a.in[0].shape[in_a[i]], &y = a.in[1].shape[in_b[i]];
    if (x != y)
      a.fail("{} dims differ; got {} x {}, expected {} == {}", what, a.in[0].str(), a.in[1].str(), x.str(),
             y.str());
  }
}
/// Shapes: a and b with equal batch and contracted dims -> [batch, free of a, free of b]. Throws: invalid,
/// on dims that differ, are out of range or given twice, different dtypes, and bool.
Type dot_infer(const InferArgs& a) {
  if (a.in[0].dtype != a.in[1].dtype)
    a.fail("dtypes differ; got {} and {} (cast first)", a.in[0].str(), a.in[1].str());
  want_number(a, 0);
  for (int o = 0; o < 2; ++o)
    want_dims(a, joined(ints(a.attrs, static_cast<size_t>(o)), ints(a.attrs, static_cast<size_t>(2 + o))),
              a.in[static_cast<size_t>(o)].rank());
  want_pairs(a, ints(a.attrs, 0), ints(a.attrs, 1), "batch");
  want_pairs(a, ints(a.attrs, 2), ints(a.attrs, 3), "contracted");
  const Roles ra = roles(a.attrs, 0, a.in[0].shape.size()), rb = roles(a.attrs, 1, a.in[1].shape.size());
  Type t{a.in[0].dtype, {}};
  for (int64_t d : joined(ra.batch, ra.free)) t.shape.push_back(a.in[0].shape[d]);
  for (int64_t d : rb.free) t.shape.push_back(a.in[1].shape[d]);
  return t;
}

// --- evaluation ---

/// Dims as one size and one stride, if they merge.
bool merge(const TensorRef& x, const Dims& dims, int64_t& size, int64_t& stride) {
  size = 1, stride = 0;
  for (size_t i = dims.size(); i-- > 0;) {
    const int64_t n = x.shape[dims[i]], s = x.strides[dims[i]];
    if (n == 1) continue;
    if (size == 1) stride = s;
    else if (s != stride * size) return false;
    size *= n;
  }
  return true;
}
/// x as [g0, g1, g2], each a set of dims; copied to that order when a set does not merge.
HostTensor rank3(const HostTensor& x, const Dims& g0, const Dims& g1, const Dims& g2) {
  HostTensor out{{x.ref.dtype, x.ref.data, {0, 0, 0}, {0, 0, 0}}, x.storage};
  auto &n = out.ref.shape, &s = out.ref.strides;
  if (merge(x.ref, g0, n[0], s[0]) && merge(x.ref, g1, n[1], s[1]) && merge(x.ref, g2, n[2], s[2]))
    return out;
  out = contiguous(evaluate(op("permute"), {{x}}, {joined(joined(g0, g1), g2)}));
  auto count = [&](const Dims& g) {
    int64_t c = 1;
    for (int64_t d : g) c *= x.ref.shape[d];
    return c;
  };
  out.ref.shape = {count(g0), count(g1), count(g2)};
  out.ref.strides = contiguous_strides(out.ref.shape);
  return out;
}

void integer_matmul(const TensorRef& a, const TensorRef& b, const TensorRef& c) {
  const auto *pa = static_cast<const uint64_t*>(a.data), *pb = static_cast<const uint64_t*>(b.data);
  auto* pc = static_cast<uint64_t*>(c.data);
  const int64_t rows = c.shape[0] * c.shape[1], cols = c.shape[2];
  parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t batch = r / c.shape[1], i = r % c.shape[1];
      std::fill_n(pc + r * cols, cols, 0);
      for (int64_t k = 0; k < a.shape[2]; ++k) {
        const uint64_t x = pa[batch * a.strides[0] + i * a.strides[1] + k * a.strides[2]];
        const uint64_t* row = pb + batch * b.strides[0] + k * b.strides[1];
        for (int64_t j = 0; j < cols; ++j) pc[r * cols + j] += x * row[j * b.strides[2]];
      }
    }
  });
}

void dot_eval(const EvalArgs& a) {
  const DType t = a.out[0].dtype, c = loops::compute_dtype(t);
  const Roles ra = roles(a.attrs, 0, a.in[0].shape.size()), rb = roles(a.attrs, 1, a.in[1].shape.size());
  HostTensor x{a.in[0], nullptr}, y{a.in[1], nullptr};
  if (t != c) x = evaluate(op("cast"), {{x}}, {c}), y = evaluate(op("cast"), {{y}}, {c});
  x = rank3(x, ra.batch, ra.free, ra.contract);
  y = rank3(y, rb.batch, rb.contract, rb.free);
  const std::vector<int64_t> shape = {x.ref.shape[0], x.ref.shape[1], y.ref.shape[2]};
  const HostTensor z = t == c ? HostTensor{{c, a.out[0].data, shape, contiguous_strides(shape)}, nullptr}
                              : make_host_tensor(c, shape);
  if (z.ref.numel() == 0) return;
  if (x.ref.shape[2] == 0) {
    std::fill_n(static_cast<char*>(z.ref.data), static_cast<size_t>(z.ref.numel()) * dtype_size(c), 0);
  } else {
    (c == DType::i64 ? integer_matmul : host_functions().matmul)(x.ref, y.ref, z.ref);
  }
  if (t != c) loops::store_of(t).loop(z.ref.data, 1, a.out[0].data, z.ref.numel());
}

// --- derivative ---

/// The gradient of one operand contracts g with the other over the other's free dims, then puts dims back in
/// place. Either order of the two gives it; the one that needs no permutation is taken.
Value operand_grad(const GradArgs& a, int o) {
  Builder& b = a.b;
  const Value self = a.in[static_cast<size_t>(o)], other = a.in[static_cast<size_t>(1 - o)];
  const Roles rs = roles(a.attrs, o, b.type(self).shape.size());
  const Roles ro = roles(a.attrs, 1 - o, b.type(other).shape.size());
  const int64_t nb = static_cast<int64_t>(rs.batch.size()), nf = static_cast<int64_t>(rs.free.size());
  const int64_t nc = static_cast<int64_t>(rs.contract.size());
  const Dims batch_g = range(0, rs.batch.size()), free_g = range(nb + (o == 0 ? nf : 0), ro.free.size());
  // Dims of the result: batch, then self's free dims and the contracted ones in the order they stand in
  // `other`.
  auto places = [&](int64_t free_at, int64_t contract_at) {
    Dims place(b.type(self).shape.size());
    for (int64_t i = 0; i < nb; ++i) place[rs.batch[i]] = i;
    for (int64_t i = 0; i < nf; ++i) place[rs.free[i]] = free_at + i;
    for (int64_t i = 0; i < nc; ++i)
      place[rs.contract[i]] = contract_at + std::count_if(ro.contract.begin(), ro.contract.end(),
                                                          [&](int64_t d) { return d < ro.contract[i]; });
    return place;
  };
  const Dims contract_first = places(nb + nc, nb), in_order = range(0, contract_first.size());
  if (contract_first == in_order)
    return b.emit(op("dot_general"), {other, a.grad[0]}, {ro.batch, batch_g, ro.free, free_g});
  const Value g = b.emit(op("dot_general"), {a.grad[0], other}, {batch_g, ro.batch, free_g, ro.free});
  const Dims free_first = places(nb, nb + nf);
  return free_first == in_order ? g : b.permute(g, free_first);
}
std::vector<Value> dot_grad(const GradArgs& a) {
  return {a.needs[0] ? operand_grad(a, 0) : Value{}, a.needs[1] ? operand_grad(a, 1) : Value{}};
}

// clang-format off
constinit const OpDef rows[] = {
    {.name = "dot_general", .kind = OpKind::contract, .attrs = dot_attrs, .inputs = 2,
     .infer = dot_infer, .grad = dot_grad, .eval = dot_eval, .flops = 2,
     .doc = "Sum of products over the contracted dims; dims of the result: batch, free of a, free of b.",
     .source = "xla::DotGeneral"},
};
// clang-format on

}  // namespace

std::span<const OpDef> contract_ops() { return rows; }

}  // namespace kiln
