// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/rules.h"

#include <algorithm>

namespace kiln::rules {

std::vector<int64_t> values(const Shape& s) {
  std::vector<int64_t> out;
  out.reserve(s.size());
  for (const Dim& d : s) out.push_back(d.value());
  return out;
}

void want_floating(const InferArgs& a, size_t i) {
  if (!is_floating(a.in[i].dtype)) a.fail("needs a floating dtype; got {} (cast first)", a.in[i].str());
}
void want_integer(const InferArgs& a, size_t i) {
  if (!is_integer(a.in[i].dtype)) a.fail("needs an integer dtype; got {}", a.in[i].str());
}
void want_number(const InferArgs& a, size_t i) {
  if (a.in[i].dtype == DType::boolean) a.fail("does not take bool; got {} (cast first)", a.in[i].str());
}
void want_bool(const InferArgs& a, size_t i) {
  if (a.in[i].dtype != DType::boolean) a.fail("needs bool; got {} (compare with 0 first)", a.in[i].str());
}
void want_equal(const InferArgs& a, size_t i, size_t j) {
  if (a.in[i] != a.in[j])
    a.fail("operands differ; got {} and {}, expected equal types (expand or cast first)", a.in[i].str(),
           a.in[j].str());
}
void want_dims(const InferArgs& a, std::span<const int64_t> dims, int rank, std::string_view what) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0 || dims[i] >= rank)
      a.fail("{} out of range; got {}, expected 0 to {}", what, dims[i], rank - 1);
    if (std::find(dims.begin(), dims.begin() + i, dims[i]) != dims.begin() + i)
      a.fail("{} repeat; got ({})", what, fmt::join(dims, ","));
  }
}

Type same_floating(const InferArgs& a) { return want_floating(a, 0), a.in[0]; }
Type same_number(const InferArgs& a) { return want_number(a, 0), a.in[0]; }
Type same_integer(const InferArgs& a) { return want_integer(a, 0), a.in[0]; }
Type same_bool(const InferArgs& a) { return want_bool(a, 0), a.in[0]; }
Type pair_floating(const InferArgs& a) { return want_equal(a, 0, 1), want_floating(a, 0), a.in[0]; }
Type pair_number(const InferArgs& a) { return want_equal(a, 0, 1), want_number(a, 0), a.in[0]; }
Type pair_integer(const InferArgs& a) { return want_equal(a, 0, 1), want_integer(a, 0), a.in[0]; }
Type pair_bool(const InferArgs& a) { return want_equal(a, 0, 1), want_bool(a, 0), a.in[0]; }
Type pair_any(const InferArgs& a) { return want_equal(a, 0, 1), a.in[0]; }

Value unreduce(Builder& b, Value reduced, Value like, std::span<const int64_t> dims) {
  const Shape to = b.type(like).shape;
  Shape kept = to;
  for (int64_t d : dims) kept[d] = 1;
  return b.expand(b.reshape(reduced, kept), to);
}

std::vector<Value> zero_grad(const GradArgs& a) {
  std::vector<Value> out;
  for (size_t i = 0; i < a.in.size(); ++i) out.push_back(a.needs[i] ? zeros_like(a.b, a.in[i]) : Value{});
  return out;
}

}  // namespace kiln::rules
