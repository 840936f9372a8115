// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/rnn.h"

#include <cmath>

#include "frontend/compile.h"
#include "frontend/functional.h"
#include "frontend/nn/layers.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Names = std::vector<std::string>;

Names names(const nn::NamedTensors& tensors) {
  Names out;
  for (const auto& [name, t] : tensors) out.push_back(name);
  return out;
}
Tensor ramp(Sizes sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return sin(reshape(arange(n).to(DType::f32), std::move(sizes)));
}

TEST(NnRnn, NamesAndShapesArePyTorchs) {
  nn::LSTM lstm(3, 4, {.num_layers = 2, .bidirectional = true, .proj_size = 2});
  EXPECT_EQ(
      names(lstm.state_dict()),
      (Names{
          "weight_ih_l0",         "weight_hh_l0",         "bias_ih_l0",           "bias_hh_l0",
          "weight_hr_l0",         "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
          "bias_hh_l0_reverse",   "weight_hr_l0_reverse", "weight_ih_l1",         "weight_hh_l1",
          "bias_ih_l1",           "bias_hh_l1",           "weight_hr_l1",         "weight_ih_l1_reverse",
          "weight_hh_l1_reverse", "bias_ih_l1_reverse",   "bias_hh_l1_reverse",   "weight_hr_l1_reverse"}));
  EXPECT_EQ(lstm.get_parameter("weight_ih_l1").sizes(), (Sizes{16, 4}));
  EXPECT_EQ(lstm.get_parameter("weight_hh_l1").sizes(), (Sizes{16, 2}));
  EXPECT_EQ(lstm.get_parameter("weight_hr_l1").sizes(), (Sizes{2, 4}));
  EXPECT_EQ(names(nn::GRU(3, 4, {.bias = false}).state_dict()), (Names{"weight_ih_l0", "weight_hh_l0"}));
  EXPECT_EQ(names(nn::LSTMCell(3, 4).state_dict()), (Names{"weight_ih", "weight_hh", "bias_ih", "bias_hh"}));
  EXPECT_EQ(nn::GRUCell(3, 4).weight_ih.sizes(), (Sizes{12, 3}));
  for (const float v : values(lstm.get_parameter("bias_hh_l1"))) EXPECT_LE(std::abs(v), 0.5f);
}

TEST(NnRnn, ModulesCallTheFunctions) {
  const Tensor x = ramp({5, 2, 3}), h = ramp({1, 2, 4});
  nn::RNN rnn(3, 4, {.nonlinearity = nn::Nonlinearity::relu});
  const auto [y, last] = rnn(x, h);
  EXPECT_EQ(values(y), values(rnn_relu(x, h, rnn.all_weights()).output));
  EXPECT_EQ(values(last), values(select(y, 0, 4)));
  nn::GRU gru(3, 4);
  EXPECT_EQ(values(gru(x, h).output), values(kiln::gru(x, h, gru.all_weights()).output));
  nn::LSTM lstm(3, 4);
  const auto [output, state] = lstm(x, {h, h * 2.0});
  const LSTMResult expected = kiln::lstm(x, {h, h * 2.0}, lstm.all_weights());
  EXPECT_EQ(values(output), values(expected.output));
  EXPECT_EQ(values(state.c), values(expected.state.c));
  nn::LSTMCell cell(3, 4);
  const Tensor x0 = select(x, 0, 0);
  const LSTMState s = cell(x0);
  EXPECT_EQ(values(s.h),
            values(lstm_cell(x0, {}, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh).h));
  nn::GRUCell gru_cell(3, 4);
  EXPECT_EQ(values(gru_cell(x0)), values(gru_cell(x0, zeros({2, 4}))));
  nn::RNNCell rnn_cell(3, 4, false);
  EXPECT_EQ(values(rnn_cell(x0)), values(rnn_tanh_cell(x0, {}, rnn_cell.weight_ih, rnn_cell.weight_hh)));
}

TEST(NnRnn, PackedSequencesAreAsLengths) {
  nn::LSTM lstm(3, 4, {.num_layers = 2, .batch_first = true, .bidirectional = true});
  const Tensor x = ramp({3, 5, 3});
  const std::vector<int64_t> lengths{2, 5, 3};
  const auto [packed, state] = lstm(pack_padded_sequence(x, lengths, true, false));
  const LSTMResult expected = lstm(x, {}, ids(lengths));
  EXPECT_EQ(values(pad_packed_sequence(packed, true).first), values(expected.output));
  EXPECT_EQ(values(state.h), values(expected.state.h));
  EXPECT_EQ(values(state.c), values(expected.state.c));
  nn::GRU gru(3, 4);
  const nn::PackedRecurrentResult r = gru(pack_padded_sequence(x.transpose(0, 1), lengths, false, false));
  EXPECT_EQ(values(r.h), values(gru(x.transpose(0, 1), {}, ids(lengths)).h));
}

class CompiledNnRnn : public ::testing::TestWithParam<Backend> {};

TEST_P(CompiledNnRnn, TrainsAndEvaluatesWithHooks) {
  nn::LSTM lstm(3, 4, {.num_layers = 2, .dropout = 1});
  CompileOptions o;
  o.backend = GetParam();
  auto f = compile([&](const Tensor& x) { return lstm(x).output; }, o);
  const Tensor x = ramp({3, 2, 3});
  for (int i = 0; i < 2; ++i) {
    lstm.train();
    const Floats training = values(f(x));
    lstm.eval();
    const Floats evaluated = values(f(x)), eager = values(lstm(x).output);
    EXPECT_NE(training, evaluated);
    for (size_t k = 0; k < eager.size(); ++k) EXPECT_NEAR(evaluated[k], eager[k], 1e-6f);
  }
  EXPECT_EQ(f.stats().builds.size(), 2u);
  HookHandle pre = lstm.register_forward_pre_hook([](nn::Module&, std::vector<Tensor>& in) {
    EXPECT_EQ(in.size(), 4u);
    in[0] = in[0] * 0.0;
  });
  HookHandle post =
      lstm.register_forward_hook([](nn::Module&, const std::vector<Tensor>&, Tensor& y) { y = y + 100.0; });
  const Floats hooked = values(f(x)), eager = values(lstm(x).output);
  for (size_t k = 0; k < eager.size(); ++k) EXPECT_NEAR(hooked[k], eager[k], 1e-4f);
  EXPECT_GT(hooked[0], 90);
  pre.remove();
  post.remove();
  EXPECT_LT(values(f(x))[0], 2);
}
INSTANTIATE_TEST_SUITE_P(Backends, CompiledNnRnn, ::testing::Values(Backend::reference, Backend::native));

TEST(NnRnn, SequentialHandsOnTheOutput) {
  nn::Sequential net;
  net.emplace_back<nn::LSTM>(3, 4);
  net.emplace_back<nn::Linear>(4, 2);
  EXPECT_EQ(net(ramp({5, 2, 3})).sizes(), (Sizes{5, 2, 2}));
}

TEST(NnRnn, Mistakes) {
  EXPECT_EQ(error_of([] { nn::LSTM(3, 4, {.proj_size = 4}); }),
            "invalid: LSTM: proj_size is 4, expected 0 (none) or less than hidden_size 4");
  EXPECT_EQ(error_of([] { nn::GRU(3, 0); }),
            "invalid: GRU: input_size 3, hidden_size 0, num_layers 1, expected at least 1 each");
  EXPECT_EQ(error_of([] { nn::RNN(3, 4, {.dropout = -1}); }), "invalid: RNN: dropout is -1, expected 0 to 1");
  nn::GRU gru(3, 4);
  EXPECT_ERROR(gru(zeros({5, 2, 2})),
               "invalid: gru (@): got w_ih of layer 0 f32[12,3], expected f32[12,2] for x f32[5,2,2]");
}

}  // namespace KILN_FILE
}  // namespace kiln
