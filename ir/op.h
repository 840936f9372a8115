// SPDX-License-Identifier: Apache-2.0
// What an op is: its row in the table. One op, one row, in ir/ops/<family>.cpp; everything else reads rows
// through def(Op) and switches on kind, never on op.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/base/dim.h"
#include "ir/base/dtype.h"
#include "ir/base/error.h"
#include "ir/op_names.h"

namespace kiln {

/// An op: an index into the table. Write op("add"); a misspelt name does not compile.
struct Op {
  uint16_t id = 0;
  constexpr bool operator==(const Op&) const = default;
};
consteval Op op(std::string_view name) {
  for (uint16_t i = 0; i < kOpCount; ++i)
    if (kOpNames[i] == name) return Op{i};
  throw "no op of that name in ir/ops/*.cpp";
}
/// Lookup by text at run time (parser). Empty when there is none.
std::optional<Op> find_op(std::string_view name);

/// dtype and shape of a value.
struct Type {
  DType dtype = DType::f32;
  Shape shape;
  int rank() const { return static_cast<int>(shape.size()); }
  /// "f32[B,784]".
  std::string str() const;
  bool operator==(const Type&) const = default;
};

/// What lowers an op, what fuses with it, and how it differentiates by default.
enum class OpKind : uint8_t {
  elementwise,  ///< same-shape inputs; out[i] = f(in[i]...). Includes iota, constant, random (no inputs'
                ///< data)
  reduce,       ///< attr 0 "dims": reduced away
  view,         ///< affine index map with bounds; no arithmetic
  gather,       ///< index map that reads a tensor
  scatter,      ///< combine at computed indices, deterministic order
  scan,         ///< attr 0 "dim": each element combines those before it along the dim
  sort,         ///< order of elements along attr 0 "dim", and searches in what is sorted
  contract,     ///< sums of products over index sets: dot_general
  effect,       ///< collective, host callback
};

/// Value of one attribute. Shape is used for sizes that may be symbolic.
using AttrValue = std::variant<int64_t, double, bool, DType, std::vector<int64_t>, Shape>;
/// In the order the op's row declares.
using Attrs = std::vector<AttrValue>;

enum class AttrKind : uint8_t { integer, real, boolean, dtype, ints, dims };
struct AttrDef {
  std::string_view name;
  AttrKind kind;
};

/// A value of a graph (or of the eager evaluator's table). Invalid by default: "no gradient".
struct Value {
  int32_t id = -1;
  bool valid() const { return id >= 0; }
  bool operator==(const Value&) const = default;
};

/// A strided tensor in memory. Strides in elements.
struct TensorRef {
  DType dtype = DType::f32;
  void* data = nullptr;
  std::vector<int64_t> shape, strides;
  int64_t numel() const;
};

/// How a view op reads its input: shape and strides of the result, and the offset in elements.
struct ViewLayout {
  std::vector<int64_t> shape, strides;
  int64_t offset = 0;
};

class Builder;

/// Arguments of a type rule. fail() throws invalid: "<op>: <text>" (the builder adds the user's line).
struct InferArgs {
  std::span<const Type> in;
  const Attrs& attrs;
  std::string_view name;
  template <typename... A>
  [[noreturn]] void fail(fmt::format_string<A...> f, A&&... a) const {
    throw Error(ErrorKind::invalid, fmt::format("{}: {}", name, fmt::format(f, std::forward<A>(a)...)));
  }
};

/// Arguments of a derivative rule, which returns one gradient per input (invalid: none flows).
/// Gradients have the type of their input.
struct GradArgs {
  Builder& b;
  std::span<const Value> in;
  std::span<const Value> out;
  std::span<const Value> grad;  ///< per output; always valid
  const Attrs& attrs;
  std::vector<bool> needs;  ///< per input: whether its gradient is wanted
};

/// Arguments of a reference evaluation; outputs are contiguous and uninitialised.
struct EvalArgs {
  std::span<const TensorRef> in;
  std::span<const TensorRef> out;
  const Attrs& attrs;
};

/// The row of an op.
struct OpDef {
  std::string_view name;
  OpKind kind = OpKind::elementwise;
  std::span<const AttrDef> attrs = {};
  int8_t inputs = 1;                                      ///< -1: any number
  Type (*infer)(const InferArgs&) = nullptr;              ///< shape-and-dtype rule
  std::vector<Value> (*grad)(const GradArgs&) = nullptr;  ///< null: backward through it is an error
  bool constant_gradient = false;           ///< derivative is zero everywhere: nothing flows, no error
  void (*eval)(const EvalArgs&) = nullptr;  ///< reference evaluation; null where `view` always can
  /// View kind: the layout that reads `in` without a copy, or nothing when one is needed. Null: always
  /// copies.
  std::optional<ViewLayout> (*view)(const TensorRef& in, const Attrs&) = nullptr;
  /// For writers: the scalar body, "{0} + {1}" or "kn::<op>({0})"; reduce and scatter: the combine of {0} and
  /// {1}, empty where it carries indices (argmax); scan: what a line carries (codegen/prelude/scan.h). Beside
  /// operands a body may name {T}, the result's element type; {value}, attribute 0; {index}, the index along
  /// attribute 0; {flat}, the row-major index.
  std::string_view body = {};
  double flops = 1;        ///< per output element (reduce: per input element)
  double lo = -2, hi = 2;  ///< domain of inputs for generated tests
  std::string_view doc = {};
  std::string_view source = {};  ///< PyTorch op or paper
};

/// The row of `o`.
const OpDef& def(Op o);
/// All rows, indexed by Op::id.
std::span<const OpDef* const> all_ops();

/// Emits ops. Derivative rules and passes are written against this: a graph builder appends nodes,
/// the eager builder evaluates at once.
/// How a value came about.
struct Made {
  Op op;
  std::vector<Value> in;
  Attrs attrs;
};

class Builder {
 public:
  virtual ~Builder() = default;
  /// Appends `o` and returns its result. Throws: invalid, from the op's type rule.
  virtual Value emit(Op o, std::span<const Value> in, Attrs attrs) = 0;
  virtual Type type(Value v) const = 0;
  /// The op that made `v`, if that is known: rules may then take another way to the same values. Nothing for
  /// inputs, and where values are computed as they are emitted.
  virtual std::optional<Made> made(Value) const { return std::nullopt; }

  Value emit(Op o, std::initializer_list<Value> in, Attrs attrs = {}) {
    return emit(o, std::span<const Value>(in.begin(), in.size()), std::move(attrs));
  }
  /// `v` in every element of a tensor of type `t`.
  Value constant(double v, const Type& t);
  Value constant_like(double v, Value like) { return constant(v, type(like)); }
  Value cast(Value v, DType to);
  /// Broadcasts to `shape`, right-aligned.
  Value expand(Value v, const Shape& shape);
  Value reshape(Value v, const Shape& shape);
  Value permute(Value v, std::vector<int64_t> dims);
  Value sum(Value v, std::vector<int64_t> dims);
  /// Sums `v` down to `shape`, the adjoint of expand.
  Value sum_to(Value v, const Shape& shape);
};

}  // namespace kiln
