// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/rnn.h"


#include "frontend/dispatch.h"
#include "frontend/nn/init_detail.h"

namespace kiln::nn {

using detail::caller_loc;
using detail_init::initial;

namespace {

template <typename Options>
RecurrentOptions functional_options(const Options& o) {
  return {o.num_layers, o.bias, o.bidirectional, o.batch_first, o.dropout};
}

}  // namespace

Recurrent::Recurrent(const char* name, const Shape& s, RecurrentOptions options)
    : options_(std::move(options)) {
  KILN_CHECK(s.input_size > 0 && s.hidden_size > 0 && options_.num_layers > 0, invalid,
             "{}: input_size {}, hidden_size {}, num_layers {}, expected at least 1 each", name, s.input_size,
             s.hidden_size, options_.num_layers);
  KILN_CHECK(options_.dropout >= 0 && options_.dropout <= 1, invalid, "{}: dropout is {}, expected 0 to 1",
             name, options_.dropout);
  KILN_CHECK(s.proj_size >= 0 && s.proj_size < s.hidden_size, invalid,
             "{}: proj_size is {}, expected 0 (none) or less than hidden_size {}", name, s.proj_size,
             s.hidden_size);
  const int64_t out = s.proj_size > 0 ? s.proj_size : s.hidden_size, rows = s.gates * s.hidden_size;
  const int64_t directions = options_.bidirectional ? 2 : 1;
  for (int64_t layer = 0; layer < options_.num_layers; ++layer)
    for (int64_t d = 0; d < directions; ++d) {
      const std::string suffix = fmt::format("_l{}{}", layer, d == 1 ? "_reverse" : "");
      const auto add = [&](const char* what, Sizes sizes) {
        weights_.push_back(initial(std::move(sizes), s.hidden_size));
        register_parameter(what + suffix, weights_.back());
      };
      add("weight_ih", {rows, layer == 0 ? s.input_size : out * directions});
      add("weight_hh", {rows, out});
      if (options_.bias) {
        add("bias_ih", {rows});
        add("bias_hh", {rows});
      }
      if (s.proj_size > 0) add("weight_hr", {s.proj_size, s.hidden_size});
    }
}

Tensor Recurrent::forward(const Tensor& x) { return run({x, {}, {}, {}}, caller_loc())[0]; }

std::vector<Tensor> Recurrent::called(const Tensor& x, const LSTMState& state, const Tensor& lengths,
                                      Loc loc) {
  return call_many({x, state.h, state.c, lengths}, loc, [&](const auto& in) { return run(in, loc); });
}

PackedLSTMResult Recurrent::called(const PackedSequence& x, const LSTMState& state, Loc loc) {
  const auto [padded, lengths] = pad_packed_sequence(x, options_.batch_first, 0, {}, loc);
  const Tensor steps = Tensor::from_vector(lengths, {static_cast<int64_t>(lengths.size())}, loc);
  const std::vector<Tensor> r = called(padded, state, steps.to(padded.device(), loc), loc);
  return {pack_padded_sequence(r[0], lengths, options_.batch_first, false, loc),
          {r[1], r.size() > 2 ? r[2] : Tensor()}};
}

RecurrentOptions Recurrent::options_with(const Tensor& lengths) const {
  RecurrentOptions o = options_;
  o.training = is_training();
  o.lengths = lengths;
  return o;
}

RNN::RNN(int64_t input_size, int64_t hidden_size, const RNNOptions& o)
    : Recurrent("RNN", {1, input_size, hidden_size}, functional_options(o)), nonlinearity_(o.nonlinearity) {}
std::vector<Tensor> RNN::run(const std::vector<Tensor>& in, Loc loc) {
  const auto f = nonlinearity_ == Nonlinearity::tanh ? rnn_tanh : rnn_relu;
  const RecurrentResult r = f(in.at(0), in.at(1), all_weights(), options_with(in.at(3)), loc);
  return {r.output, r.h};
}
RecurrentResult RNN::operator()(const Tensor& x, const Tensor& h0, const Tensor& lengths, Loc loc) {
  const std::vector<Tensor> r = called(x, {h0, {}}, lengths, loc);
  return {r[0], r[1]};
}
PackedRecurrentResult RNN::operator()(const PackedSequence& x, const Tensor& h0, Loc loc) {
  const PackedLSTMResult r = called(x, {h0, {}}, loc);
  return {r.output, r.state.h};
}

GRU::GRU(int64_t input_size, int64_t hidden_size, const GRUOptions& o)
    : Recurrent("GRU", {3, input_size, hidden_size}, functional_options(o)) {}
std::vector<Tensor> GRU::run(const std::vector<Tensor>& in, Loc loc) {
  const RecurrentResult r = gru(in.at(0), in.at(1), all_weights(), options_with(in.at(3)), loc);
  return {r.output, r.h};
}
RecurrentResult GRU::operator()(const Tensor& x, const Tensor& h0, const Tensor& lengths, Loc loc) {
  const std::vector<Tensor> r = called(x, {h0, {}}, lengths, loc);
  return {r[0], r[1]};
}
PackedRecurrentResult GRU::operator()(const PackedSequence& x, const Tensor& h0, Loc loc) {
  const PackedLSTMResult r = called(x, {h0, {}}, loc);
  return {r.output, r.state.h};
}

LSTM::LSTM(int64_t input_size, int64_t hidden_size, const LSTMOptions& o)
    : Recurrent("LSTM", {4, input_size, hidden_size, o.proj_size}, functional_options(o)) {}
std::vector<Tensor> LSTM::run(const std::vector<Tensor>& in, Loc loc) {
  const LSTMResult r = lstm(in.at(0), {in.at(1), in.at(2)}, all_weights(), options_with(in.at(3)), loc);
  return {r.output, r.state.h, r.state.c};
}
LSTMResult LSTM::operator()(const Tensor& x, const LSTMState& state, const Tensor& lengths, Loc loc) {
  const std::vector<Tensor> r = called(x, state, lengths, loc);
  return {r[0], {r[1], r[2]}};
}
PackedLSTMResult LSTM::operator()(const PackedSequence& x, const LSTMState& state, Loc loc) {
  return called(x, state, loc);
}

RecurrentCell::RecurrentCell(const char* name, int64_t gates, int64_t input_size, int64_t hidden_size,
                             bool bias) {
  KILN_CHECK(input_size > 0 && hidden_size > 0, invalid,
             "{}: input_size {}, hidden_size {}, expected at least 1 each", name, input_size, hidden_size);
  const int64_t rows = gates * hidden_size;
  weight_ih = initial({rows, input_size}, hidden_size);
  weight_hh = initial({rows, hidden_size}, hidden_size);
  if (bias) {
    bias_ih = initial({rows}, hidden_size);
    bias_hh = initial({rows}, hidden_size);
  }
  register_parameter("weight_ih", weight_ih);
  register_parameter("weight_hh", weight_hh);
  register_parameter("bias_ih", bias_ih);
  register_parameter("bias_hh", bias_hh);
}
Tensor RNNCell::forward(const Tensor& x, const Tensor& h) {
  const auto f = nonlinearity_ == Nonlinearity::tanh ? rnn_tanh_cell : rnn_relu_cell;
  return f(x, h, weight_ih, weight_hh, bias_ih, bias_hh, caller_loc());
}
Tensor GRUCell::forward(const Tensor& x, const Tensor& h) {
  return gru_cell(x, h, weight_ih, weight_hh, bias_ih, bias_hh, caller_loc());
}
LSTMState LSTMCell::operator()(const Tensor& x, const LSTMState& state, Loc loc) {
  const std::vector<Tensor> r = call_many({x, state.h, state.c}, loc, [&](const auto& in) {
    const LSTMState next =
        lstm_cell(in.at(0), {in.at(1), in.at(2)}, weight_ih, weight_hh, bias_ih, bias_hh, loc);
    return std::vector<Tensor>{next.h, next.c};
  });
  return {r[0], r[1]};
}

}  // namespace kiln::nn
