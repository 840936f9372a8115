// SPDX-License-Identifier: Apache-2.0
// The rows of torch.nn.functional.
#include "frontend/functional.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

CrossEntropyOptions class_options(const Bound& b) {
  CrossEntropyOptions o;
  o.reduction = reduction_of(b["reduction"]);
  o.ignore_index = b["ignore_index"].integer();
  return o;
}

Value run_cross_entropy(const Bound& b) {
  CrossEntropyOptions o = class_options(b);
  o.label_smoothing = b["label_smoothing"].real();
  return cross_entropy(b["x"].tensor(), b["t"].tensor(), b["weight"].tensor_or_undefined(), o);
}

Value run_nll_loss(const Bound& b) {
  return nll_loss(b["x"].tensor(), b["t"].tensor(), b["weight"].tensor_or_undefined(), class_options(b));
}

template <Tensor (*F)(const Tensor&, const Tensor&, Reduction, Loc)>
Value pair_loss(const Bound& b) {
  return F(b["x"].tensor(), b["y"].tensor(), reduction_of(b["reduction"]), Loc::current());
}

Value run_gelu(const Bound& b) {
  const bool tanh = b["approximate"].text() == "tanh";
  return gelu(b["x"].tensor(), tanh ? GeluApproximate::tanh : GeluApproximate::none);
}

Value run_layer_norm(const Bound& b) {
  return layer_norm(b["x"].tensor(), b["shape"].integers(), b["weight"].tensor_or_undefined(),
                    b["bias"].tensor_or_undefined(), b["eps"].real());
}

Value run_rms_norm(const Bound& b) {
  std::optional<double> eps;
  if (b.given("eps")) eps = b["eps"].real();
  return rms_norm(b["x"].tensor(), b["shape"].integers(), b["weight"].tensor_or_undefined(), eps);
}

Value run_linear(const Bound& b) {
  return linear(b["x"].tensor(), b["weight"].tensor(), b["bias"].tensor_or_undefined());
}

Value run_attention(const Bound& b) {
  AttentionOptions o;
  o.is_causal = b["is_causal"].flag();
  o.enable_gqa = b["enable_gqa"].flag();
  if (b.given("scale")) o.scale = b["scale"].real();
  return scaled_dot_product_attention(b["q"].tensor(), b["k"].tensor(), b["v"].tensor(),
                                      b["attn_mask"].tensor_or_undefined(), o);
}

constexpr Function kNnFunctions[] = {
    {"F.cross_entropy", "x t weight=None ignore_index=-100 reduction='mean' label_smoothing=0",
     run_cross_entropy},
    {"F.embedding", "i weight padding_idx=None",
     [](const Bound& b) -> Value {
       std::optional<int64_t> padding;
       if (b.given("padding_idx")) padding = b["padding_idx"].integer();
       return embedding(b["i"].tensor(), b["weight"].tensor(), padding);
     }},
    {"F.gelu", "x approximate='none'", run_gelu},
    {"F.l1_loss", "x y reduction='mean'", pair_loss<l1_loss>},
    {"F.layer_norm", "x shape weight=None bias=None eps=1e-5", run_layer_norm},
    {"F.leaky_relu", "x slope=0.01",
     [](const Bound& b) -> Value { return leaky_relu(b["x"].tensor(), b["slope"].real()); }},
    {"F.linear", "x weight bias=None", run_linear},
    {"F.log_softmax", "x dim",
     [](const Bound& b) -> Value { return log_softmax(b["x"].tensor(), b["dim"].integer()); }},
    {"F.mse_loss", "x y reduction='mean'", pair_loss<mse_loss>},
    {"F.nll_loss", "x t weight=None ignore_index=-100 reduction='mean'", run_nll_loss},
    {"F.relu", "x", [](const Bound& b) -> Value { return relu(b["x"].tensor()); }},
    {"F.rms_norm", "x shape weight=None eps=None", run_rms_norm},
    {"F.scaled_dot_product_attention", "q k v attn_mask=None is_causal=False scale=None enable_gqa=False",
     run_attention},
    {"F.silu", "x", [](const Bound& b) -> Value { return silu(b["x"].tensor()); }},
    {"F.softmax", "x dim",
     [](const Bound& b) -> Value { return softmax(b["x"].tensor(), b["dim"].integer()); }},
    {"F.softplus", "x beta=1 threshold=20",
     [](const Bound& b) -> Value {
       return softplus(b["x"].tensor(), b["beta"].real(), b["threshold"].real());
     }},
    {"torch.softmax", "x dim",
     [](const Bound& b) -> Value { return softmax(b["x"].tensor(), b["dim"].integer()); }},
};

}  // namespace

std::span<const Function> nn_functions() { return kNnFunctions; }

}  // namespace kiln::golden
