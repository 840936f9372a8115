// SPDX-License-Identifier: Apache-2.0
// The rows of torch's creation, shape, indexing and linear algebra functions.
#include "frontend/ops.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

List list_of(std::vector<Tensor> tensors) {
  List out;
  for (Tensor& t : tensors) out.emplace_back(std::move(t));
  return out;
}

// x.f(1, 2, 3) and x.f((1, 2, 3)) are the same.
std::vector<int64_t> sizes_of(const Bound& b) {
  if (b["a"].is<List>()) return b["a"].integers();
  std::vector<int64_t> out;
  for (const char* name : {"a", "b", "c", "d", "e"})
    if (b.given(name)) out.push_back(b[name].integer());
  return out;
}

Value range(const Bound& b) {
  if (!b.given("b")) return arange(b["a"].integer());
  return arange(b["a"].integer(), b["b"].integer(), b["step"].integer());
}

Value constant_tensor(const Bound& b) {
  const std::vector<int64_t> v = b["x"].integers();
  return Tensor::from_vector(v, {static_cast<int64_t>(v.size())});
}

Value zeros_of(const Bound& b) {
  const Tensor& x = b["x"].tensor();
  if (!b.given("dtype")) return zeros_like(x);
  return zeros(x.sizes(), {std::get<DType>(b["dtype"].v)});
}

Value squeeze_dims(const Bound& b) {
  Tensor t = b["x"].tensor();
  if (b.given("dim")) return squeeze(t, b["dim"].integer());
  for (int64_t d = t.dim() - 1; d >= 0; --d)
    if (t.size(d) == 1) t = squeeze(t, d);
  return t;
}

Value reshaped(const Bound& b) { return reshape(b["x"].tensor(), sizes_of(b)); }
Value expanded(const Bound& b) { return expand(b["x"].tensor(), sizes_of(b)); }
Value permuted(const Bound& b) { return permute(b["x"].tensor(), sizes_of(b)); }
Value flipped(const Bound& b) { return flip(b["x"].tensor(), b["dims"].integers()); }

constexpr Function kFunctions[] = {
    {"torch.arange", "a b=None step=1", range},
    {"torch.bmm", "x y", [](const Bound& b) -> Value { return matmul(b["x"].tensor(), b["y"].tensor()); }},
    {"torch.cat", "x dim=0",
     [](const Bound& b) -> Value { return cat(b["x"].tensors(), b["dim"].integer()); }},
    {"torch.chunk", "x n dim=0",
     [](const Bound& b) -> Value {
       return list_of(chunk(b["x"].tensor(), b["n"].integer(), b["dim"].integer()));
     }},
    {"torch.contiguous", "x", [](const Bound& b) -> Value { return contiguous(b["x"].tensor()); }},
    {"torch.detach", "x", [](const Bound& b) -> Value { return b["x"].tensor().detach(); }},
    {"torch.expand", "x a=None b=None c=None d=None e=None", expanded},
    {"torch.flatten", "x start=0 end=-1",
     [](const Bound& b) -> Value {
       return flatten(b["x"].tensor(), b["start"].integer(), b["end"].integer());
     }},
    {"torch.flip", "x dims", flipped},
    {"torch.float", "x", [](const Bound& b) -> Value { return to(b["x"].tensor(), DType::f32); }},
    {"torch.gather", "x dim index",
     [](const Bound& b) -> Value {
       return gather(b["x"].tensor(), b["dim"].integer(), b["index"].tensor());
     }},
    {"torch.index_add", "x dim index src",
     [](const Bound& b) -> Value {
       return index_add(b["x"].tensor(), b["dim"].integer(), b["index"].tensor(), b["src"].tensor());
     }},
    {"torch.index_select", "x dim index",
     [](const Bound& b) -> Value {
       return index_select(b["x"].tensor(), b["dim"].integer(), b["index"].tensor());
     }},
    {"torch.masked_fill", "x mask value",
     [](const Bound& b) -> Value {
       return masked_fill(b["x"].tensor(), b["mask"].tensor(), b["value"].real());
     }},
    {"torch.matmul", "x y", [](const Bound& b) -> Value { return matmul(b["x"].tensor(), b["y"].tensor()); }},
    {"torch.mv", "x y", [](const Bound& b) -> Value { return matmul(b["x"].tensor(), b["y"].tensor()); }},
    {"torch.narrow", "x dim start length",
     [](const Bound& b) -> Value {
       return narrow(b["x"].tensor(), b["dim"].integer(), b["start"].integer(), b["length"].integer());
     }},
    {"torch.outer", "x y", [](const Bound& b) -> Value { return outer(b["x"].tensor(), b["y"].tensor()); }},
    {"torch.permute", "x a=None b=None c=None d=None e=None", permuted},
    {"torch.reshape", "x a=None b=None c=None d=None e=None", reshaped},
    {"torch.scatter_add", "x dim index src",
     [](const Bound& b) -> Value {
       return scatter_add(b["x"].tensor(), b["dim"].integer(), b["index"].tensor(), b["src"].tensor());
     }},
    {"torch.split", "x size dim=0",
     [](const Bound& b) -> Value {
       return list_of(split(b["x"].tensor(), b["size"].integer(), b["dim"].integer()));
     }},
    {"torch.squeeze", "x dim=None", squeeze_dims},
    {"torch.stack", "x dim=0",
     [](const Bound& b) -> Value { return stack(b["x"].tensors(), b["dim"].integer()); }},
    {"torch.tensor", "x", constant_tensor},
    {"torch.to", "x dtype",
     [](const Bound& b) -> Value { return to(b["x"].tensor(), std::get<DType>(b["dtype"].v)); }},
    {"torch.transpose", "x a b",
     [](const Bound& b) -> Value { return transpose(b["x"].tensor(), b["a"].integer(), b["b"].integer()); }},
    {"torch.tril", "x diagonal=0",
     [](const Bound& b) -> Value { return tril(b["x"].tensor(), b["diagonal"].integer()); }},
    {"torch.triu", "x diagonal=0",
     [](const Bound& b) -> Value { return triu(b["x"].tensor(), b["diagonal"].integer()); }},
    {"torch.unsqueeze", "x dim",
     [](const Bound& b) -> Value { return unsqueeze(b["x"].tensor(), b["dim"].integer()); }},
    {"torch.view", "x a=None b=None c=None d=None e=None", reshaped},
    {"torch.zeros_like", "x dtype=None", zeros_of},
};

}  // namespace

std::span<const Function> shape_functions() { return kFunctions; }

}  // namespace kiln::golden
