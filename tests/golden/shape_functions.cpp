// SPDX-License-Identifier: Apache-2.0
// The rows of torch's creation, shape and indexing functions.
#include "frontend/random.h"
#include "frontend/shapes.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

Value range(const Bound& b) {
  if (!b.given("b")) return arange(operand(b["a"]).scalar);
  return arange(operand(b["a"]).scalar, operand(b["b"]).scalar, operand(b["step"]).scalar);
}

Value spaced(const Bound& b) {
  TensorOptions o;
  if (b.given("dtype")) o.dtype = std::get<DType>(b["dtype"].v);
  return linspace(b["a"].real(), b["b"].real(), b["steps"].integer(), o);
}

Value split_parts(const Bound& b) {
  const int64_t dim = b["dim"].integer();
  if (b["size"].is<List>()) return list_of(split_with_sizes(b["x"].tensor(), b["size"].integers(), dim));
  return list_of(split(b["x"].tensor(), b["size"].integer(), dim));
}

Value sections(const Bound& b) {
  const int64_t dim = b["dim"].integer();
  if (b["n"].is<List>()) return list_of(tensor_split_at(b["x"].tensor(), b["n"].integers(), dim));
  return list_of(tensor_split(b["x"].tensor(), b["n"].integer(), dim));
}

Value interleaved(const Bound& b) {
  std::optional<int64_t> dim;
  if (b.given("dim")) dim = b["dim"].integer();
  if (b["n"].is<Tensor>()) return repeat_interleave(b["x"].tensor(), b["n"].tensor(), dim);
  return repeat_interleave(b["x"].tensor(), b["n"].integer(), dim);
}

Value grid(const Bound& b) {
  const MeshIndexing order = b["indexing"].text() == "ij" ? MeshIndexing::ij : MeshIndexing::xy;
  return list_of(meshgrid({b["x"].tensor(), b["y"].tensor()}, order));
}

Value along(const Bound& b) {
  std::optional<int64_t> dim;
  if (b.given("dim")) dim = b["dim"].integer();
  return take_along_dim(b["x"].tensor(), b["index"].tensor(), dim);
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
  if (b.given("dim")) return squeeze(b["x"].tensor(), b["dim"].integers());
  return squeeze(b["x"].tensor());
}

Value reshaped(const Bound& b) { return reshape(b["x"].tensor(), sizes_of(b)); }
Value expanded(const Bound& b) { return expand(b["x"].tensor(), sizes_of(b)); }
Value permuted(const Bound& b) { return permute(b["x"].tensor(), sizes_of(b)); }
Value flipped(const Bound& b) { return flip(b["x"].tensor(), b["dims"].integers()); }

constexpr Function kShapeFunctions[] = {
    {"F.one_hot", "x classes=-1",
     [](const Bound& b) -> Value { return one_hot(b["x"].tensor(), b["classes"].integer()); }},
    {"torch.as_strided", "x sizes strides offset=0",
     [](const Bound& b) -> Value {
       return as_strided(b["x"].tensor(), b["sizes"].integers(), b["strides"].integers(),
                         b["offset"].integer());
     }},
    {"torch.bincount", "x weights=None minlength=0",
     [](const Bound& b) -> Value {
       return bincount(b["x"].tensor(), b["weights"].tensor_or_undefined(), b["minlength"].integer());
     }},
    {"torch.diag", "x offset=0",
     [](const Bound& b) -> Value { return diag(b["x"].tensor(), b["offset"].integer()); }},
    {"torch.diag_embed", "x offset=0 dim1=-2 dim2=-1",
     [](const Bound& b) -> Value {
       return diag_embed(b["x"].tensor(), b["offset"].integer(), b["dim1"].integer(), b["dim2"].integer());
     }},
    {"torch.diagonal", "x offset=0 dim1=0 dim2=1",
     [](const Bound& b) -> Value {
       return diagonal(b["x"].tensor(), b["offset"].integer(), b["dim1"].integer(), b["dim2"].integer());
     }},
    {"torch.diff", "x n=1 dim=-1",
     [](const Bound& b) -> Value { return diff(b["x"].tensor(), b["n"].integer(), b["dim"].integer()); }},
    {"torch.linspace", "a b steps dtype=None", spaced},
    {"torch.meshgrid", "x y indexing='ij'", grid},
    {"torch.movedim", "x source destination",
     [](const Bound& b) -> Value {
       return movedim(b["x"].tensor(), b["source"].integers(), b["destination"].integers());
     }},
    {"torch.repeat", "x a=None b=None c=None d=None e=None",
     [](const Bound& b) -> Value { return repeat(b["x"].tensor(), sizes_of(b)); }},
    {"torch.repeat_interleave", "x n dim=None", interleaved},
    {"torch.roll", "x shifts dims=None",
     [](const Bound& b) -> Value {
       return roll(b["x"].tensor(), b["shifts"].integers(), b["dims"].integers());
     }},
    {"torch.select_scatter", "x src dim index",
     [](const Bound& b) -> Value {
       return select_scatter(b["x"].tensor(), b["src"].tensor(), b["dim"].integer(), b["index"].integer());
     }},
    {"torch.slice_scatter", "x src dim=0 start=0 end=0 step=1",
     [](const Bound& b) -> Value {
       return slice_scatter(b["x"].tensor(), b["src"].tensor(), b["dim"].integer(), b["start"].integer(),
                            b["end"].integer(), b["step"].integer());
     }},
    {"torch.take_along_dim", "x index dim=None", along},
    {"torch.tensor_split", "x n dim=0", sections},
    {"torch.tile", "x dims",
     [](const Bound& b) -> Value { return tile(b["x"].tensor(), b["dims"].integers()); }},
    {"torch.unbind", "x dim=0",
     [](const Bound& b) -> Value { return list_of(unbind(b["x"].tensor(), b["dim"].integer())); }},
    {"torch.unflatten", "x dim sizes",
     [](const Bound& b) -> Value {
       return unflatten(b["x"].tensor(), b["dim"].integer(), b["sizes"].integers());
     }},
    {"torch.arange", "a b=None step=1", range},
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
    {"torch.index_add", "x dim index src alpha=1",
     [](const Bound& b) -> Value {
       return index_add(b["x"].tensor(), b["dim"].integer(), b["index"].tensor(), b["src"].tensor(),
                        operand(b["alpha"]).scalar);
     }},
    {"torch.index_select", "x dim index",
     [](const Bound& b) -> Value {
       return index_select(b["x"].tensor(), b["dim"].integer(), b["index"].tensor());
     }},
    {"torch.masked_fill", "x mask value",
     [](const Bound& b) -> Value {
       return masked_fill(b["x"].tensor(), b["mask"].tensor(), b["value"].real());
     }},
    {"torch.narrow", "x dim start length",
     [](const Bound& b) -> Value {
       return narrow(b["x"].tensor(), b["dim"].integer(), b["start"].integer(), b["length"].integer());
     }},
    {"torch.permute", "x a=None b=None c=None d=None e=None", permuted},
    {"torch.reshape", "x a=None b=None c=None d=None e=None", reshaped},
    {"torch.scatter_add", "x dim index src",
     [](const Bound& b) -> Value {
       return scatter_add(b["x"].tensor(), b["dim"].integer(), b["index"].tensor(), b["src"].tensor());
     }},
    {"torch.split", "x size dim=0", split_parts},
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

std::span<const Function> shape_functions() { return kShapeFunctions; }

}  // namespace kiln::golden
