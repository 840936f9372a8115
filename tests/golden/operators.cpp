// SPDX-License-Identifier: Apache-2.0
// Python's operators and indexing on the values of golden expressions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "frontend/elementwise.h"
#include "frontend/ops.h"
#include "frontend/ops_index.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

Value on_numbers(const std::string& op, const Value& a, const Value& b) {
  const bool whole = !a.is<double>() && !b.is<double>();
  const double x = a.real(), y = b.real();
  double r = 0;
  if (op == "+") r = x + y;
  else if (op == "-") r = x - y;
  else if (op == "*") r = x * y;
  else if (op == "/") return x / y;
  else if (op == "//") r = std::floor(x / y);
  else throw Unsupported("operator " + op + " on numbers");
  if (whole) return static_cast<int64_t>(r);
  return r;
}

Value on_bits(const std::string& op, const TensorArg& x, const TensorArg& y) {
  if (op == "&") return bitwise_and(x, y);
  if (op == "|") return bitwise_or(x, y);
  if (op == "^") return bitwise_xor(x, y);
  if (op == "<<") return bitwise_left_shift(x, y);
  return bitwise_right_shift(x, y);
}

Value compare_values(const std::string& op, const TensorArg& x, const TensorArg& y) {
  if (op == "==") return eq(x, y);
  if (op == "!=") return ne(x, y);
  if (op == "<") return lt(x, y);
  if (op == "<=") return le(x, y);
  if (op == ">") return gt(x, y);
  if (op == ">=") return ge(x, y);
  throw Unsupported("operator " + op);
}

bool is_slice(const Value& v) {
  const auto* l = std::get_if<List>(&v.v);
  return l && l->size() == 4 && (*l)[0].is<std::string>();
}

/// Applies one index to `dim`; returns the next dim.
int64_t apply_index(Tensor& t, int64_t dim, const Value& index) {
  if (index.none()) {
    t = unsqueeze(t, dim);
    return dim + 1;
  }
  if (is_slice(index)) {
    const List& p = std::get<List>(index.v);
    const int64_t begin = p[1].none() ? 0 : p[1].integer();
    const int64_t end = p[2].none() ? kEnd : p[2].integer();
    t = slice(t, dim, begin, end, p[3].none() ? 1 : p[3].integer());
    return dim + 1;
  }
  t = select(t, dim, index.integer());
  return dim;
}

int64_t dims_of(const std::vector<Value>& index, size_t from) {
  int64_t n = 0;
  for (size_t i = from; i < index.size(); ++i) n += index[i].none() ? 0 : 1;
  return n;
}

Value index_list(const List& list, const Value& index) {
  const auto n = static_cast<int64_t>(list.size());
  const auto wrap = [n](int64_t i) { return std::max<int64_t>(0, std::min(n, i < 0 ? i + n : i)); };
  if (!is_slice(index)) {
    const int64_t i = index.integer();
    if (i < -n || i >= n) throw Unsupported("a list index out of range");
    return list[static_cast<size_t>(i < 0 ? i + n : i)];
  }
  const List& p = std::get<List>(index.v);
  const int64_t begin = p[1].none() ? 0 : wrap(p[1].integer());
  const int64_t end = p[2].none() ? n : wrap(p[2].integer());
  if (!p[3].none() || end < begin) throw Unsupported("a list slice with a step");
  return List(list.begin() + begin, list.begin() + end);
}

}  // namespace

Value binary_operator(const std::string& op, const Value& a, const Value& b) {
  if (!a.is<Tensor>() && !b.is<Tensor>()) return on_numbers(op, a, b);
  const TensorArg x = operand(a), y = operand(b);
  if (op == "&" || op == "|" || op == "^" || op == "<<" || op == ">>") return on_bits(op, x, y);
  if (op == "+") return add(x, y);
  if (op == "-") return sub(x, y);
  if (op == "*") return mul(x, y);
  if (op == "/") return div(x, y);
  if (op == "//") return floor_divide(x, y);
  if (op == "%") return remainder(x, y);
  if (op == "**") return pow(x, y);
  if (op == "@") return matmul(a.tensor(), b.tensor());
  return compare_values(op, x, y);
}

Value unary_operator(const std::string& op, const Value& a) {
  if (op == "-" && a.is<Tensor>()) return neg(a.tensor());
  if (op == "-" && a.is<double>()) return -std::get<double>(a.v);
  if (op == "-") return -a.integer();
  if (a.is<Tensor>()) return bitwise_not(a.tensor());
  throw Unsupported("operator " + op);
}

namespace {
/// One place of an index that has tensors among it.
TensorIndex tensor_index(const Value& v) {
  if (v.none()) return NewDim{};
  if (v.is<Ellipsis>()) return kiln::Ellipsis{};
  if (v.is<Tensor>()) return std::get<Tensor>(v.v);
  if (!is_slice(v)) return v.integer();
  const List& p = std::get<List>(v.v);
  Slice s;
  if (!p[1].none()) s.begin = p[1].integer();
  if (!p[2].none()) s.end = p[2].integer();
  if (!p[3].none()) s.step = p[3].integer();
  return s;
}
}  // namespace

Value index_value(const Value& base, const std::vector<Value>& index) {
  if (base.is<List>()) return index_list(std::get<List>(base.v), index.at(0));
  if (std::any_of(index.begin(), index.end(), [](const Value& v) { return v.is<Tensor>(); })) {
    TensorIndices all;
    for (const Value& v : index) all.push_back(tensor_index(v));
    return kiln::index(base.tensor(), all);
  }
  Tensor t = base.tensor();
  int64_t dim = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    if (index[i].is<Ellipsis>()) {
      dim = t.dim() - dims_of(index, i + 1);
    } else {
      dim = apply_index(t, dim, index[i]);
    }
  }
  return t;
}

}  // namespace kiln::golden
