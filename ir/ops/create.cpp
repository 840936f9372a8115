// SPDX-License-Identifier: Apache-2.0
// Values made from nothing: constants, indices, random numbers.
#include <algorithm>
#include <cmath>

#include "ir/base/philox.h"
#include "ir/ops/loops.h"
#include "ir/ops/rules.h"

namespace kiln {

namespace {

using namespace rules;  // NOLINT: the rows are written in terms of its words

constexpr AttrDef constant_attrs[] = {
    {"value", AttrKind::real}, {"dtype", AttrKind::dtype}, {"shape", AttrKind::dims}};
constexpr AttrDef iota_attrs[] = {{"dim", AttrKind::integer}, {"shape", AttrKind::dims}};
constexpr AttrDef random_attrs[] = {{"shape", AttrKind::dims}};

/// Shapes: [shape]. Throws: invalid, on a value with a fraction for a dtype that is not floating.
Type constant_infer(const InferArgs& a) {
  const double v = real(a.attrs, 0);
  const DType t = dtype(a.attrs, 1);
  if (!is_floating(t) && v != std::trunc(v)) a.fail("{} is not a value of {}", v, dtype_name(t));
  return {t, dims(a.attrs, 2)};
}

/// Integers are cut through int64, so that -1 is 255 as u8.
template <typename T>
T element(double v) {
  if constexpr (std::is_same_v<T, bool>) return v != 0;
  else if constexpr (std::is_integral_v<T>)
    return v >= 0x1p63 ? T(INT64_MAX) : v < -0x1p63 ? T(INT64_MIN) : T(int64_t(v));
  else return T(static_cast<loops::compute_t<T>>(v));
}
void constant_eval(const EvalArgs& a) {
  dispatch(a.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    std::fill_n(static_cast<T*>(a.out[0].data), a.out[0].numel(), element<T>(real(a.attrs, 0)));
  });
}

/// Shapes: [shape], i64. Throws: invalid, on a dim out of range.
Type iota_infer(const InferArgs& a) {
  const Shape& s = dims(a.attrs, 1);
  const int64_t d = integer(a.attrs, 0);
  want_dims(a, {&d, 1}, static_cast<int>(s.size()), "dim");
  return {DType::i64, s};
}
void iota_eval(const EvalArgs& a) {
  const TensorRef& out = a.out[0];
  const int64_t d = integer(a.attrs, 0), n = out.numel();
  if (n == 0) return;
  const int64_t inner = out.strides[d], size = out.shape[d];
  int64_t* p = static_cast<int64_t*>(out.data);
  for (int64_t i = 0; i < n; ++i) p[i] = i / inner % size;
}

/// Shapes: seed [], offset [] -> [shape], f32. Throws: invalid, unless both are i64.
Type random_infer(const InferArgs& a) {
  for (size_t i = 0; i < 2; ++i)
    if (a.in[i] != Type{DType::i64, {}}) a.fail("needs i64[] for seed and offset; got {}", a.in[i].str());
  return {DType::f32, dims(a.attrs, 0)};
}
void random_eval(const EvalArgs& a) {
  const uint64_t seed = *static_cast<const uint64_t*>(a.in[0].data);
  const uint64_t offset = *static_cast<const uint64_t*>(a.in[1].data);
  const int64_t n = a.out[0].numel();
  float* out = static_cast<float*>(a.out[0].data);
  parallel_for((n + 3) / 4, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      const auto words = philox4x32(seed, static_cast<uint64_t>(j), offset);
      for (int64_t lane = 0; lane < std::min<int64_t>(4, n - 4 * j); ++lane)
        out[4 * j + lane] = philox_float(words[lane]);
    }
  });
}

// clang-format off
constinit const OpDef rows[] = {
    {.name = "constant", .attrs = constant_attrs, .inputs = 0, .infer = constant_infer,
     .constant_gradient = true, .eval = constant_eval, .body = "{value}", .flops = 0,
     .doc = "One value in every element.", .source = "torch.full"},
    {.name = "iota", .attrs = iota_attrs, .inputs = 0, .infer = iota_infer,
     .constant_gradient = true, .eval = iota_eval, .body = "{index}", .flops = 0,
     .doc = "Each element's index along a dim, as i64.", .source = "torch.arange"},
    {.name = "random_uniform", .attrs = random_attrs, .inputs = 2, .infer = random_infer,
     .constant_gradient = true, .eval = random_eval, .body = "kn::random_uniform({0}, {1}, {flat})",
     .flops = 20,
     .doc = "Uniform f32 in [0, 1) by Philox4x32-10; element j is lane j % 4 of block j / 4.",
     .source = "Salmon et al., Parallel random numbers: as easy as 1, 2, 3"},
};
// clang-format on

}  // namespace

std::span<const OpDef> create_ops() { return rows; }

}  // namespace kiln
