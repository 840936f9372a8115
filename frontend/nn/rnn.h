// SPDX-License-Identifier: Apache-2.0
// Recurrent modules, with torch.nn's constructor arguments, names and initialisation: all parameters are
// uniform in +-1/sqrt(hidden_size).
#pragma once

#include <deque>

#include "frontend/nn/module.h"
#include "frontend/packed_sequence.h"
#include "frontend/rnn.h"

namespace kiln::nn {

enum class Nonlinearity : uint8_t { tanh, relu };

struct RNNOptions {
  int64_t num_layers = 1;
  Nonlinearity nonlinearity = Nonlinearity::tanh;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  ///< of the results of every layer but the last
  bool bidirectional = false;
};
struct GRUOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
};
struct LSTMOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  int64_t proj_size = 0;  ///< width of h, where it is not hidden_size
};

struct PackedRecurrentResult {
  PackedSequence output;
  Tensor h;
};
struct PackedLSTMResult {
  PackedSequence output;
  LSTMState state;
};

/// What RNN, GRU and LSTM share: parameters weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0
/// (weight_hr_l0), those of the other direction with _reverse at their end, then those of layer 1, and so on.
/// Forward hooks get the output sequence; pre-hooks x, the states and the lengths (undefined where not
/// given).
class Recurrent : public Module {
 public:
  /// The output sequence alone: what Sequential hands on.
  Tensor forward(const Tensor& x) override;
  /// By layer, then direction, in the order of kiln::lstm.
  const std::vector<Tensor> all_weights() const { return {weights_.begin(), weights_.end()}; }

 protected:
  struct Shape {
    int64_t gates, input_size, hidden_size, proj_size = 0;
  };
  Recurrent(const char* name, const Shape& shape, RecurrentOptions options);
  /// Inputs: x, h, c, lengths. Results: output, h, and c of an LSTM.
  virtual std::vector<Tensor> run(const std::vector<Tensor>& inputs, Loc loc) = 0;
  std::vector<Tensor> called(const Tensor& x, const LSTMState& state, const Tensor& lengths, Loc loc);
  PackedLSTMResult called(const PackedSequence& x, const LSTMState& state, Loc loc);
  RecurrentOptions options_with(const Tensor& lengths) const;

 private:
  RecurrentOptions options_;
  std::deque<Tensor> weights_;
};

/// See kiln::rnn_tanh and rnn_relu for shapes. Source: torch.nn.RNN.
class RNN : public Recurrent {
 public:
  RNN(int64_t input_size, int64_t hidden_size, const RNNOptions& options = {});
  /// `lengths`: see RecurrentOptions.
  RecurrentResult operator()(const Tensor& x, const Tensor& h0 = {}, const Tensor& lengths = {},
                             Loc loc = Loc::current());
  PackedRecurrentResult operator()(const PackedSequence& x, const Tensor& h0 = {}, Loc loc = Loc::current());

 protected:
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, Loc loc) override;

 private:
  Nonlinearity nonlinearity_;
};

/// See kiln::gru. Source: torch.nn.GRU.
class GRU : public Recurrent {
 public:
  GRU(int64_t input_size, int64_t hidden_size, const GRUOptions& options = {});
  RecurrentResult operator()(const Tensor& x, const Tensor& h0 = {}, const Tensor& lengths = {},
                             Loc loc = Loc::current());
  PackedRecurrentResult operator()(const PackedSequence& x, const Tensor& h0 = {}, Loc loc = Loc::current());

 protected:
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, Loc loc) override;
};

/// See kiln::lstm. `auto [output, state] = lstm(x)`. Source: torch.nn.LSTM.
class LSTM : public Recurrent {
 public:
  LSTM(int64_t input_size, int64_t hidden_size, const LSTMOptions& options = {});
  LSTMResult operator()(const Tensor& x, const LSTMState& state = {}, const Tensor& lengths = {},
                        Loc loc = Loc::current());
  PackedLSTMResult operator()(const PackedSequence& x, const LSTMState& state = {}, Loc loc = Loc::current());

 protected:
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, Loc loc) override;
};

/// What the cells share.
class RecurrentCell : public Module {
 public:
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;  ///< [gates * hidden, in], [.., hidden], [..], [..]

 protected:
  RecurrentCell(const char* name, int64_t gates, int64_t input_size, int64_t hidden_size, bool bias);
};
/// x and h give the next h; without h it is zeros. Source: torch.nn.RNNCell.
class RNNCell : public RecurrentCell {
 public:
  RNNCell(int64_t input_size, int64_t hidden_size, bool bias = true,
          Nonlinearity nonlinearity = Nonlinearity::tanh)
      : RecurrentCell("RNNCell", 1, input_size, hidden_size, bias), nonlinearity_(nonlinearity) {}
  Tensor forward(const Tensor& x) override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const Tensor& h) override;

 private:
  Nonlinearity nonlinearity_;
};
/// Source: torch.nn.GRUCell.
class GRUCell : public RecurrentCell {
 public:
  GRUCell(int64_t input_size, int64_t hidden_size, bool bias = true)
      : RecurrentCell("GRUCell", 3, input_size, hidden_size, bias) {}
  Tensor forward(const Tensor& x) override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const Tensor& h) override;
};
/// Forward hooks get h. Source: torch.nn.LSTMCell.
class LSTMCell : public RecurrentCell {
 public:
  LSTMCell(int64_t input_size, int64_t hidden_size, bool bias = true)
      : RecurrentCell("LSTMCell", 4, input_size, hidden_size, bias) {}
  LSTMState operator()(const Tensor& x, const LSTMState& state = {}, Loc loc = Loc::current());
};

}  // namespace kiln::nn
