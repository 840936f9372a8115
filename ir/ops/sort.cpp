// SPDX-License-Identifier: Apache-2.0
// The order of elements along a dim, and searches in what is sorted. Equal elements keep their order; NaN is
// larger than every number, as in PyTorch.
#include <algorithm>
#include <numeric>

#include "ir/ops/loops.h"
#include "ir/ops/rules.h"

namespace kiln {

namespace {

using namespace rules;  // NOLINT: the rows are written in terms of its words

constexpr AttrDef sort_attrs[] = {{"dim", AttrKind::integer}, {"descending", AttrKind::boolean}};
constexpr AttrDef search_attrs[] = {{"right", AttrKind::boolean}};

bool flag(const Attrs& a, size_t i) { return std::get<bool>(a[i]); }

/// Shapes: [...] -> [...], i64. Throws: invalid, on a dim out of range.
Type argsort_infer(const InferArgs& a) {
  const int64_t dim = integer(a.attrs, 0);
  want_dims(a, {&dim, 1}, a.in[0].rank(), "dim");
  return {DType::i64, a.in[0].shape};
}
/// One sorted line for all values, or one for each of theirs. Shapes: [n] or [..., n], [..., m] -> [...,
/// m], i64. Throws: invalid, on other shapes, different dtypes, and bool.
Type search_infer(const InferArgs& a) {
  const Type &line = a.in[0], &x = a.in[1];
  want_number(a, 0);
  bool ok = line.dtype == x.dtype && (line.rank() == 1 || line.rank() == x.rank()) && line.rank() > 0;
  for (int d = 0; ok && line.rank() > 1 && d + 1 < line.rank(); ++d) ok = line.shape[d] == x.shape[d];
  if (!ok)
    a.fail(
        "sorted sequence and values do not fit; got {} and {}, expected one dtype, and one dim or equal "
        "sizes beside the last dim",
        line.str(), x.str());
  return {DType::i64, x.shape};
}

template <typename C>
bool less(C a, C b) {
  return a < b || (b != b && a == a);
}

HostTensor computed(const TensorRef& x) {
  const DType c = loops::compute_dtype(x.dtype);
  const HostTensor whole{x, nullptr};
  return contiguous(x.dtype == c ? whole : evaluate(op("cast"), {{whole}}, {c}));
}
template <typename F>
void by_type(DType t, const F& f) {
  switch (loops::compute_dtype(t)) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    default: return f(int64_t{});
  }
}

void argsort_eval(const EvalArgs& a) {
  const auto dim = static_cast<size_t>(integer(a.attrs, 0));
  const bool descending = flag(a.attrs, 1);
  const HostTensor x = computed(a.in[0]);
  if (x.ref.numel() == 0) return;
  int64_t outer = 1, inner = 1;
  for (size_t d = 0; d < x.ref.shape.size(); ++d)
    if (d != dim) (d < dim ? outer : inner) *= x.ref.shape[d];
  const int64_t n = x.ref.shape[dim];
  int64_t* out = static_cast<int64_t*>(a.out[0].data);
  by_type(a.in[0].dtype, [&]<typename C>(C) {
    const C* data = static_cast<const C*>(x.ref.data);
    parallel_for(outer * inner, std::max<int64_t>(1, (1 << 12) / n), [&](int64_t begin, int64_t end) {
      std::vector<int64_t> order(static_cast<size_t>(n));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i / inner * n * inner + i % inner;
        const auto at = [&](int64_t k) { return data[first + k * inner]; };
        std::iota(order.begin(), order.end(), 0);
        if (descending)
          std::stable_sort(order.begin(), order.end(),
                           [&](int64_t p, int64_t q) { return less(at(q), at(p)); });
        else
          std::stable_sort(order.begin(), order.end(),
                           [&](int64_t p, int64_t q) { return less(at(p), at(q)); });
        for (int64_t k = 0; k < n; ++k) out[first + k * inner] = order[static_cast<size_t>(k)];
      }
    });
  });
}

void search_eval(const EvalArgs& a) {
  const bool right = flag(a.attrs, 0);
  const HostTensor line = computed(a.in[0]), x = computed(a.in[1]);
  const int64_t count = x.ref.numel(), n = line.ref.shape.back();
  if (count == 0) return;
  const int64_t each = line.ref.shape.size() == 1 ? count : x.ref.shape.back();
  int64_t* out = static_cast<int64_t*>(a.out[0].data);
  by_type(a.in[0].dtype, [&]<typename C>(C) {
    const C *sorted = static_cast<const C*>(line.ref.data), *values = static_cast<const C*>(x.ref.data);
    parallel_for(count, 1 << 12, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const C* from = sorted + i / each * n;
        const C* at = right ? std::upper_bound(from, from + n, values[i], less<C>)
                            : std::lower_bound(from, from + n, values[i], less<C>);
        out[i] = at - from;
      }
    });
  });
}

// clang-format off
constinit const OpDef rows[] = {
    {.name = "argsort", .kind = OpKind::sort, .attrs = sort_attrs, .infer = argsort_infer,
     .constant_gradient = true, .eval = argsort_eval, .flops = 20,
     .doc = "Places of the elements along a dim in order; equal ones stay in theirs.",
     .source = "torch.argsort(stable=True)"},
    {.name = "searchsorted", .kind = OpKind::sort, .attrs = search_attrs, .inputs = 2,
     .infer = search_infer, .constant_gradient = true, .eval = search_eval, .flops = 20,
     .doc = "Where each value would be put into the sorted last dim; right: after its equals.",
     .source = "torch.searchsorted"},
};
// clang-format on

}  // namespace

std::span<const OpDef> sort_ops() { return rows; }

}  // namespace kiln
