// SPDX-License-Identifier: Apache-2.0
// The rows that sort, and that read and write at places tensors name.
#include "frontend/ops_index.h"
#include "frontend/ops_sort.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

Value pair_of(const std::pair<Tensor, Tensor>& p) { return List{p.first, p.second}; }

TensorIndices indices_of(const Value& v) {
  TensorIndices all;
  for (const Tensor& t : v.tensors()) all.emplace_back(t);
  return all;
}

Value run_scatter(const Bound& b) {
  if (b["src"].is<Tensor>())
    return scatter(b["x"].tensor(), b["dim"].integer(), b["index"].tensor(), b["src"].tensor());
  return scatter(b["x"].tensor(), b["dim"].integer(), b["index"].tensor(), b["src"].real());
}
Value run_scatter_reduce(const Bound& b) {
  const std::string& name = b["reduce"].text();
  const ScatterReduce how = name == "sum"    ? ScatterReduce::sum
                            : name == "prod" ? ScatterReduce::prod
                            : name == "mean" ? ScatterReduce::mean
                            : name == "amax" ? ScatterReduce::amax
                                             : ScatterReduce::amin;
  return scatter_reduce(b["x"].tensor(), b["dim"].integer(), b["index"].tensor(), b["src"].tensor(), how,
                        b["include_self"].flag());
}
Value run_embedding_bag(const Bound& b) {
  EmbeddingBagOptions o;
  const std::string& mode = b["mode"].text();
  o.mode = mode == "sum" ? BagMode::sum : mode == "max" ? BagMode::max : BagMode::mean;
  if (b.given("padding_idx")) o.padding_idx = b["padding_idx"].integer();
  return embedding_bag(b["i"].tensor(), b["w"].tensor(), b["offsets"].tensor_or_undefined(), o,
                       b["per_sample_weights"].tensor_or_undefined());
}

constexpr Function kIndexFunctions[] = {
    {"F.embedding_bag", "i w offsets=None mode='mean' padding_idx=None per_sample_weights=None",
     run_embedding_bag},
    {"torch.argsort", "x dim=-1 descending=False stable=False",
     [](const Bound& b) -> Value {
       return argsort(b["x"].tensor(), b["dim"].integer(), b["descending"].flag());
     }},
    {"torch.cummax", "x dim",
     [](const Bound& b) -> Value { return pair_of(cummax(b["x"].tensor(), b["dim"].integer())); }},
    {"torch.cumprod", "x dim",
     [](const Bound& b) -> Value { return cumprod(b["x"].tensor(), b["dim"].integer()); }},
    {"torch.cumsum", "x dim",
     [](const Bound& b) -> Value { return cumsum(b["x"].tensor(), b["dim"].integer()); }},
    {"torch.index_copy", "x dim index src",
     [](const Bound& b) -> Value {
       return index_copy(b["x"].tensor(), b["dim"].integer(), b["index"].tensor(), b["src"].tensor());
     }},
    {"torch.index_fill", "x dim index value",
     [](const Bound& b) -> Value {
       return index_fill(b["x"].tensor(), b["dim"].integer(), b["index"].tensor(), b["value"].real());
     }},
    {"torch.index_put", "x indices values accumulate=False",
     [](const Bound& b) -> Value {
       return index_put(b["x"].tensor(), indices_of(b["indices"]), b["values"].tensor(),
                        b["accumulate"].flag());
     }},
    {"torch.kthvalue", "x k dim=-1",
     [](const Bound& b) -> Value {
       return pair_of(kthvalue(b["x"].tensor(), b["k"].integer(), b["dim"].integer()));
     }},
    {"torch.logcumsumexp", "x dim",
     [](const Bound& b) -> Value { return logcumsumexp(b["x"].tensor(), b["dim"].integer()); }},
    {"torch.masked_scatter", "x mask source",
     [](const Bound& b) -> Value {
       return masked_scatter(b["x"].tensor(), b["mask"].tensor(), b["source"].tensor());
     }},
    {"torch.masked_select", "x mask",
     [](const Bound& b) -> Value { return masked_select(b["x"].tensor(), b["mask"].tensor()); }},
    {"torch.nonzero", "x", [](const Bound& b) -> Value { return nonzero(b["x"].tensor()); }},
    {"torch.scatter", "x dim index src", run_scatter},
    {"torch.scatter_reduce", "x dim index src reduce include_self=True", run_scatter_reduce},
    {"torch.searchsorted", "sorted x right=False",
     [](const Bound& b) -> Value {
       return searchsorted(b["sorted"].tensor(), b["x"].tensor(), b["right"].flag());
     }},
    {"torch.sort", "x dim=-1 descending=False stable=False",
     [](const Bound& b) -> Value {
       return pair_of(sort(b["x"].tensor(), b["dim"].integer(), b["descending"].flag()));
     }},
    {"torch.take", "x index",
     [](const Bound& b) -> Value { return kiln::take(b["x"].tensor(), b["index"].tensor()); }},
    {"torch.topk", "x k dim=-1 largest=True",
     [](const Bound& b) -> Value {
       return pair_of(topk(b["x"].tensor(), b["k"].integer(), b["dim"].integer(), b["largest"].flag()));
     }},
};

}  // namespace

std::span<const Function> index_functions() { return kIndexFunctions; }

}  // namespace kiln::golden
