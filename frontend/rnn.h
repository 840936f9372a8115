// SPDX-License-Identifier: Apache-2.0
// Recurrent networks: all steps of all layers, and single steps of a cell. Names, order of the weights and
// numerics are PyTorch's (torch._VF.lstm and its like); the inputs of all steps are projected by one product,
// so that only what depends on the state is done step by step.
#pragma once

#include <vector>

#include "frontend/ops.h"

namespace kiln {

struct RecurrentOptions {
  int64_t num_layers = 1;
  bool bias = true;  ///< there are b_ih and b_hh among the weights
  bool bidirectional = false;
  bool batch_first = false;
  double dropout = 0;  ///< of the results of every layer but the last, while training
  bool training = false;
  /// Steps of each sequence, i64 [batch], 1 to T: later steps give zeros and leave the state alone, and the
  /// other direction begins at the last of them, as with a PackedSequence. Run-time values of a compiled
  /// callable.
  Tensor lengths = {};
};
struct RecurrentResult {
  Tensor output, h;
};
struct LSTMState {
  Tensor h, c;
};
struct LSTMResult {
  Tensor output;
  LSTMState state;
};

/// h' = tanh(x w_ih^T + b_ih + h w_hh^T + b_hh). Shapes: x [T, batch, in] ([batch, T, in] with batch_first,
/// or [T, in]), h0 [layers * directions, batch, hidden] or undefined (zeros) -> output [T, batch, hidden *
/// directions] and the last h. `weights`: for each layer, and in it for each direction, w_ih [hidden, in],
/// w_hh [hidden, hidden], b_ih and b_hh [hidden]. Throws: invalid, on shapes, the number of weights, dtypes
/// that differ or are not floating, a dropout outside 0 to 1, and lengths (inside a compiled callable when
/// the stage has run). Source: torch.nn.RNN.
RecurrentResult rnn_tanh(const Tensor& x, const Tensor& h0, const std::vector<Tensor>& weights,
                         const RecurrentOptions& options = {}, Loc loc = Loc::current());
/// rnn_tanh with relu in place of tanh. Shapes: as rnn_tanh. Throws: invalid, as rnn_tanh. Source:
/// torch.nn.RNN(nonlinearity="relu").
RecurrentResult rnn_relu(const Tensor& x, const Tensor& h0, const std::vector<Tensor>& weights,
                         const RecurrentOptions& options = {}, Loc loc = Loc::current());
/// r = sigmoid(x_r + h_r), z = sigmoid(x_z + h_z), n = tanh(x_n + r h_n), h' = (1 - z) n + z h, where x_
/// and h_ are the rows of x w_ih^T + b_ih and h w_hh^T + b_hh. Shapes: as rnn_tanh, weights with 3 hidden
/// rows: reset, update, new. Throws: invalid, as rnn_tanh. Source: torch.nn.GRU; Cho et al. 2014.
RecurrentResult gru(const Tensor& x, const Tensor& h0, const std::vector<Tensor>& weights,
                    const RecurrentOptions& options = {}, Loc loc = Loc::current());
/// c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'), where i, f, g and o are the rows of x
/// w_ih^T + b_ih + h w_hh^T + b_hh. Shapes: as rnn_tanh, c as h, weights with 4 hidden rows: input, forget,
/// cell, output. A fifth one (third without bias) of each group, w_hr [projection, hidden], makes h' = w_hr
/// (sigmoid(o) tanh(c')). Throws: invalid, as rnn_tanh, and on h or c alone. Source: torch.nn.LSTM;
/// Hochreiter & Schmidhuber 1997; Sak et al. 2014.
LSTMResult lstm(const Tensor& x, const LSTMState& state, const std::vector<Tensor>& weights,
                const RecurrentOptions& options = {}, Loc loc = Loc::current());

// One step. Shapes: x [batch, in], h and c [batch, hidden] (or without batch), weights as of the network ->
// as h. Throws: invalid, on shapes, dtypes that differ or are not floating, and on b_ih or b_hh alone.
/// h' of rnn_tanh. Source: torch.nn.RNNCell.
Tensor rnn_tanh_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih = {}, const Tensor& b_hh = {}, Loc loc = Loc::current());
/// h' of rnn_relu. Source: torch.nn.RNNCell(nonlinearity="relu").
Tensor rnn_relu_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih = {}, const Tensor& b_hh = {}, Loc loc = Loc::current());
/// h' of gru. Source: torch.nn.GRUCell.
Tensor gru_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                const Tensor& b_ih = {}, const Tensor& b_hh = {}, Loc loc = Loc::current());
/// h' and c' of lstm. Throws: invalid, on h or c alone. Source: torch.nn.LSTMCell.
LSTMState lstm_cell(const Tensor& x, const LSTMState& state, const Tensor& w_ih, const Tensor& w_hh,
                    const Tensor& b_ih = {}, const Tensor& b_hh = {}, Loc loc = Loc::current());

}  // namespace kiln
