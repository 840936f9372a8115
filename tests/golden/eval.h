// SPDX-License-Identifier: Apache-2.0
// Runs the expressions of ops.json on Kiln's tensors: names of torch and F are looked up in a table.
// What the table does not have is Unsupported, and so is an argument that its row does not name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "frontend/functional.h"
#include "tests/golden/expr.h"

namespace kiln::golden {

/// Neither pass nor fail: Kiln has no such function, or not with this argument.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Ellipsis {};
struct Value;
using List = std::vector<Value>;

/// A Python value, as far as the golden files use them.
struct Value {
  std::variant<std::monostate, bool, int64_t, double, std::string, Tensor, DType, Ellipsis, List> v;

  Value() = default;
  template <typename T>
  requires(!std::is_same_v<std::decay_t<T>, Value>) Value(T&& x) : v(std::forward<T>(x)) {}  // NOLINT
  Value(int x) : v(int64_t{x}) {}                                                            // NOLINT

  bool none() const { return v.index() == 0; }
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(v);
  }
  /// Conversions that Python would do. Throws: Unsupported.
  const Tensor& tensor() const;
  Tensor tensor_or_undefined() const;  ///< None gives an undefined tensor
  int64_t integer() const;
  double real() const;
  bool flag() const;
  const std::string& text() const;
  std::vector<int64_t> integers() const;  ///< a number stands for a list of one; None for an empty one
  std::vector<Tensor> tensors() const;
};

/// The arguments of a call, bound to the names of its row.
class Bound {
 public:
  /// The argument, or None where it was left out (and the row gives no default).
  const Value& operator[](std::string_view name) const;
  bool given(std::string_view name) const { return !(*this)[name].none(); }
  void set(std::string name, Value value) { values_[std::move(name)] = std::move(value); }

 private:
  std::map<std::string, Value, std::less<>> values_;
};

/// One function: its Python name, its parameters in order ("x dim=None keepdim=False"), what it does.
struct Function {
  std::string_view name;
  std::string_view params;
  Value (*run)(const Bound&);
};

/// The rows, by file.
std::span<const Function> image_functions();
std::span<const Function> index_functions();
std::span<const Function> math_functions();
std::span<const Function> shape_functions();
std::span<const Function> nn_functions();
std::span<const Function> elementwise_functions();
std::span<const Function> reduction_functions();
std::span<const Function> activation_functions();
std::span<const Function> linalg_functions();
std::span<const Function> loss_functions();

/// Arguments as several tables read them.
TensorArg operand(const Value& v);
Reduction reduction_of(const Value& v);
List list_of(std::vector<Tensor> tensors);
/// x.f(1, 2, 3) and x.f((1, 2, 3)) are the same: the parameters a to e.
std::vector<int64_t> sizes_of(const Bound& b);
std::span<const Function> sequence_functions();

using Variables = std::map<std::string, Value>;

/// Evaluates an expression. Throws: Unsupported, and what the functions throw.
Value evaluate(const Node& node, const Variables& variables);

/// Operators and indexing, used by evaluate().
Value binary_operator(const std::string& op, const Value& a, const Value& b);
Value unary_operator(const std::string& op, const Value& a);
Value index_value(const Value& base, const std::vector<Value>& index);

/// A slice as a value: a list of three that begins with the string ":".
Value slice_value(Value begin, Value end, Value step);

// Rows of functions of x, and of x and y.
template <Tensor (*F)(const Tensor&, Loc)>
Value unary(const Bound& b) {
  return F(b["x"].tensor(), Loc::current());
}

template <Tensor (*F)(const TensorArg&, const TensorArg&)>
Value binary(const Bound& b) {
  return F(operand(b["x"]), operand(b["y"]));
}

}  // namespace kiln::golden
