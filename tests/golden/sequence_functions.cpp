// SPDX-License-Identifier: Apache-2.0
// The rows that work on sequences: recurrent networks (torch._VF), attention with its projections.
#include "frontend/attention.h"
#include "frontend/rnn.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

RecurrentOptions options_of(const Bound& b) {
  RecurrentOptions o;
  o.bias = b["has_biases"].flag();
  o.num_layers = b["num_layers"].integer();
  o.dropout = b["dropout"].real();
  o.training = b["train"].flag();
  o.bidirectional = b["bidirectional"].flag();
  o.batch_first = b["batch_first"].flag();
  return o;
}
constexpr std::string_view kParameters =
    "x hx params has_biases num_layers dropout train bidirectional batch_first";

template <RecurrentResult (*F)(const Tensor&, const Tensor&, const std::vector<Tensor>&,
                               const RecurrentOptions&, Loc)>
Value run_recurrent(const Bound& b) {
  const RecurrentResult r =
      F(b["x"].tensor(), b["hx"].tensor(), b["params"].tensors(), options_of(b), Loc::current());
  return List{r.output, r.h};
}

LSTMState state_of(const Bound& b) {
  const std::vector<Tensor> state = b["hx"].tensors();
  return {state.at(0), state.at(1)};
}

Value run_attention(const Bound& b) {
  MultiheadAttentionWeights w;
  w.in_proj_weight = b["in_proj_weight"].tensor();
  w.in_proj_bias = b["in_proj_bias"].tensor_or_undefined();
  w.bias_k = b["bias_k"].tensor_or_undefined();
  w.bias_v = b["bias_v"].tensor_or_undefined();
  w.out_proj_weight = b["out_proj_weight"].tensor();
  w.out_proj_bias = b["out_proj_bias"].tensor_or_undefined();
  MultiheadAttentionOptions o;
  o.add_zero_attn = b["add_zero_attn"].flag();
  o.dropout_p = b["dropout_p"].real();
  o.need_weights = b["need_weights"].flag();
  const MultiheadAttentionResult r = multi_head_attention_forward(
      b["query"].tensor(), b["key"].tensor(), b["value"].tensor(), b["num_heads"].integer(), w, o);
  return List{r.output, o.need_weights ? Value(r.weights) : Value()};
}

constexpr Function kSequenceFunctions[] = {
    {"F.multi_head_attention_forward",
     "query key value embed_dim num_heads in_proj_weight in_proj_bias bias_k bias_v add_zero_attn dropout_p "
     "out_proj_weight out_proj_bias need_weights=True",
     run_attention},
    {"torch._VF.gru", kParameters, run_recurrent<gru>},
    {"torch._VF.lstm", kParameters,
     [](const Bound& b) -> Value {
       const LSTMResult r = lstm(b["x"].tensor(), state_of(b), b["params"].tensors(), options_of(b));
       return List{r.output, r.state.h, r.state.c};
     }},
    {"torch._VF.lstm_cell", "x hx w_ih w_hh b_ih=None b_hh=None",
     [](const Bound& b) -> Value {
       const LSTMState s = lstm_cell(b["x"].tensor(), state_of(b), b["w_ih"].tensor(), b["w_hh"].tensor(),
                                     b["b_ih"].tensor_or_undefined(), b["b_hh"].tensor_or_undefined());
       return List{s.h, s.c};
     }},
    {"torch._VF.rnn_relu", kParameters, run_recurrent<rnn_relu>},
    {"torch._VF.rnn_tanh", kParameters, run_recurrent<rnn_tanh>},
};

}  // namespace

std::span<const Function> sequence_functions() { return kSequenceFunctions; }

}  // namespace kiln::golden
