// SPDX-License-Identifier: Apache-2.0
// Comparisons, logic on bool and bits of integers. Nothing here has a gradient to pass on.
#include <cmath>
#include <concepts>

#include "ir/ops/loops.h"
#include "ir/ops/rules.h"

namespace kiln {

namespace {

using namespace rules;  // NOLINT: the rows are written in terms of its words
using I = int64_t;

// clang-format off
struct Eq { template <typename T> static bool f(T a, T b) { return a == b; } };
struct Ne { template <typename T> static bool f(T a, T b) { return a != b; } };
struct Lt { template <typename T> static bool f(T a, T b) { return a < b; } };
struct Le { template <typename T> static bool f(T a, T b) { return a <= b; } };
struct Gt { template <typename T> static bool f(T a, T b) { return a > b; } };
struct Ge { template <typename T> static bool f(T a, T b) { return a >= b; } };
struct Isnan { template <std::floating_point T> static bool f(T a) { return a != a; } };
struct Not { static bool f(I a) { return a == 0; } };
struct And { static I f(I a, I b) { return a & b; } };
struct Or { static I f(I a, I b) { return a | b; } };
struct Xor { static I f(I a, I b) { return a ^ b; } };
struct BitNot { static I f(I a) { return ~a; } };
// clang-format on

/// Counts outside the width shift everything out, as torch defines it.
template <int kBits>
struct Shl {
  static I f(I a, I n) { return n < 0 || n >= kBits ? 0 : I(uint64_t(a) << n); }
};
template <int kBits>
struct Shr {
  static I f(I a, I n) { return a >> (n < 0 || n >= kBits ? 63 : n); }
};
template <template <int> class F>
void eval_shift(const EvalArgs& a) {
  switch (dtype_size(a.in[0].dtype)) {
    case 1: return loops::eval<F<8>, 2>(a);
    case 4: return loops::eval<F<32>, 2>(a);
    default: return loops::eval<F<64>, 2>(a);
  }
}

/// Shapes: [...] twice -> [...], bool. Throws: invalid, on different types.
Type compare(const InferArgs& a) { return {DType::boolean, pair_any(a).shape}; }
/// Shapes: [...] -> [...], bool. Throws: invalid, unless it is floating.
Type test_floating(const InferArgs& a) { return {DType::boolean, same_floating(a).shape}; }
/// Shapes: [...] twice -> [...]. Throws: invalid, on different types, and floating ones.
Type pair_bits(const InferArgs& a) {
  want_equal(a, 0, 1);
  if (is_floating(a.in[0].dtype)) a.fail("needs an integer dtype or bool; got {}", a.in[0].str());
  return a.in[0];
}

// clang-format off
constinit const OpDef rows[] = {
    {.name = "eq", .inputs = 2, .infer = compare, .constant_gradient = true,
     .eval = loops::eval<Eq, 2>, .body = "kn::eq({0}, {1})",
     .doc = "Whether a equals b; false for NaN.", .source = "torch.eq"},
    {.name = "ne", .inputs = 2, .infer = compare, .constant_gradient = true,
     .eval = loops::eval<Ne, 2>, .body = "kn::ne({0}, {1})",
     .doc = "Whether a differs from b; true for NaN.", .source = "torch.ne"},
    {.name = "lt", .inputs = 2, .infer = compare, .constant_gradient = true,
     .eval = loops::eval<Lt, 2>, .body = "kn::lt({0}, {1})",
     .doc = "Whether a is below b.", .source = "torch.lt"},
    {.name = "le", .inputs = 2, .infer = compare, .constant_gradient = true,
     .eval = loops::eval<Le, 2>, .body = "kn::le({0}, {1})",
     .doc = "Whether a is at most b.", .source = "torch.le"},
    {.name = "gt", .inputs = 2, .infer = compare, .constant_gradient = true,
     .eval = loops::eval<Gt, 2>, .body = "kn::gt({0}, {1})",
     .doc = "Whether a is above b.", .source = "torch.gt"},
    {.name = "ge", .inputs = 2, .infer = compare, .constant_gradient = true,
     .eval = loops::eval<Ge, 2>, .body = "kn::ge({0}, {1})",
     .doc = "Whether a is at least b.", .source = "torch.ge"},
    {.name = "isnan", .infer = test_floating, .constant_gradient = true,
     .eval = loops::eval<Isnan, 1>, .body = "kn::isnan({0})",
     .doc = "Whether x is NaN.", .source = "torch.isnan"},
    {.name = "logical_and", .inputs = 2, .infer = pair_bool, .constant_gradient = true,
     .eval = loops::eval<And, 2>, .body = "{0} & {1}",
     .doc = "Logical and of bools.", .source = "torch.logical_and"},
    {.name = "logical_or", .inputs = 2, .infer = pair_bool, .constant_gradient = true,
     .eval = loops::eval<Or, 2>, .body = "{0} | {1}",
     .doc = "Logical or of bools.", .source = "torch.logical_or"},
    {.name = "logical_xor", .inputs = 2, .infer = pair_bool, .constant_gradient = true,
     .eval = loops::eval<Xor, 2>, .body = "{0} ^ {1}",
     .doc = "Logical xor of bools.", .source = "torch.logical_xor"},
    {.name = "logical_not", .infer = same_bool, .constant_gradient = true,
     .eval = loops::eval<Not, 1>, .body = "!{0}",
     .doc = "Logical not of a bool.", .source = "torch.logical_not"},
    {.name = "bitwise_and", .inputs = 2, .infer = pair_bits, .constant_gradient = true,
     .eval = loops::eval<And, 2>, .body = "{0} & {1}",
     .doc = "Bitwise and of integers or bools.", .source = "torch.bitwise_and"},
    {.name = "bitwise_or", .inputs = 2, .infer = pair_bits, .constant_gradient = true,
     .eval = loops::eval<Or, 2>, .body = "{0} | {1}",
     .doc = "Bitwise or of integers or bools.", .source = "torch.bitwise_or"},
    {.name = "bitwise_xor", .inputs = 2, .infer = pair_bits, .constant_gradient = true,
     .eval = loops::eval<Xor, 2>, .body = "{0} ^ {1}",
     .doc = "Bitwise xor of integers or bools.", .source = "torch.bitwise_xor"},
    {.name = "bitwise_not", .infer = same_integer, .constant_gradient = true,
     .eval = loops::eval<BitNot, 1>, .body = "~{0}",
     .doc = "All bits flipped; bool takes logical_not.", .source = "torch.bitwise_not"},
    {.name = "shift_left", .inputs = 2, .infer = pair_integer, .constant_gradient = true,
     .eval = eval_shift<Shl>, .body = "kn::shift_left({0}, {1})",
     .doc = "a * 2^b; 0 when b is not below the width.", .source = "torch.bitwise_left_shift"},
    {.name = "shift_right", .inputs = 2, .infer = pair_integer, .constant_gradient = true,
     .eval = eval_shift<Shr>, .body = "kn::shift_right({0}, {1})",
     .doc = "a / 2^b rounded down; only the sign is left when b is not below the width.",
     .source = "torch.bitwise_right_shift"},
};
// clang-format on

}  // namespace

std::span<const OpDef> logic_ops() { return rows; }

}  // namespace kiln
