// SPDX-License-Identifier: Apache-2.0
// Layers: arguments that they take, and what they refuse. See argument_errors_test.cpp.
#pragma once

#include "tests/argument_errors.h"

namespace kiln::testing {

inline Functions activation_functions() {
  const Tensor x = f32({2, 4}), n = i64({2, 4}), y = f32({3});
  return {
      {"gelu", {"x"}, {x}, [](T t) { gelu(t[0]); }, {{0, n}}},
      {"leaky_relu", {"x"}, {x}, [](T t) { leaky_relu(t[0]); }, {{0, n}}},
      {"softplus", {"x"}, {x}, [](T t) { softplus(t[0]); }, {{0, n}}},
      {"softmax", {"x"}, {x}, [](T t) { softmax(t[0], 0); }, {{0, n}}},
      {"log_softmax", {"x"}, {x}, [](T t) { log_softmax(t[0], 0); }, {{0, n}}},
      {"softmax", {"x"}, {x}, [](T t) { softmax(t[0], 0, DType::f64); }},
      {"log_softmax", {"x"}, {x}, [](T t) { log_softmax(t[0], 0, DType::f64); }},
      {"softmin", {"x"}, {x}, [](T t) { softmin(t[0], 0); }, {{0, n}}},
      {"hardtanh", {"x"}, {x}, [](T t) { hardtanh(t[0]); }, {{0, n}}},
      {"hardshrink", {"x"}, {x}, [](T t) { hardshrink(t[0]); }, {{0, n}}},
      {"softshrink", {"x"}, {x}, [](T t) { softshrink(t[0]); }, {{0, n}}},
      {"elu", {"x"}, {x}, [](T t) { elu(t[0]); }, {{0, n}}},
      {"celu", {"x"}, {x}, [](T t) { celu(t[0]); }, {{0, n}}},
      {"glu", {"x"}, {x}, [](T t) { glu(t[0]); }, {{0, n}, {0, y}}},
      {"prelu",
       {"x", "weight"},
       {x, f32({4})},
       [](T t) { prelu(t[0], t[1]); },
       {{0, n}, {1, y}, {1, f64({4})}}},
      {"rrelu", {"x"}, {x}, [](T t) { rrelu(t[0]); }, {{0, n}}},
      {"threshold", {"x"}, {x}, [](T t) { threshold(t[0], 0, 1); }, {{0, n}}},
      {"normalize", {"x"}, {x}, [](T t) { normalize(t[0]); }, {{0, n}}},
      {"cosine_similarity",
       {"x", "y"},
       {x, x},
       [](T t) { cosine_similarity(t[0], t[1]); },
       {{0, n}, {1, n}, {0, y}, {1, y}}},
      {"pairwise_distance",
       {"x", "y"},
       {x, x},
       [](T t) { pairwise_distance(t[0], t[1]); },
       {{0, n}, {1, n}, {0, y}, {1, y}}},
      {"dropout", {"x"}, {x}, [](T t) { dropout(t[0]); }, {{0, n}}},
      {"layer_norm",
       {"x", "?weight", "?bias"},
       {x, f32({4}), f32({4})},
       [](T t) { layer_norm(t[0], {4}, t[1], t[2]); },
       {{0, n}, {0, y}, {1, y}, {2, y}}},
      {"rms_norm",
       {"x", "?weight"},
       {x, f32({4})},
       [](T t) { rms_norm(t[0], {4}, t[1]); },
       {{0, n}, {0, y}, {1, y}}},
      {"linear",
       {"x", "weight", "?bias"},
       {x, f32({3, 4}), y},
       [](T t) { linear(t[0], t[1], t[2]); },
       {{0, n}, {0, y}, {1, x.select(0, 0).view({2, 2})}, {1, f64({3, 4})}, {2, f32({4})}}},
  };
}

inline Function conv_function(const char* name, int64_t n, bool transposed,
                              std::function<void(const Tensors&)> call) {
  const auto filled = [n](Sizes s, int64_t size) {
    s.resize(s.size() + static_cast<size_t>(n), size);
    return s;
  };
  const Sizes weight = filled(transposed ? Sizes{2, 3} : Sizes{3, 2}, 2);
  return {name,
          {"x", "weight", "?bias"},
          {f32(filled({1, 2}, 4)), f32(weight), f32({3})},
          std::move(call),
          {{0, f32({2})},
           {0, f32(filled({1, 5}, 4))},
           {0, i64(filled({1, 2}, 4))},
           {1, f32({2, 2})},
           {1, i64(weight)},
           {1, f64(weight)},
           {2, f32({4})},
           {2, f64({3})}}};
}

inline Functions conv_functions() {
  const Tensor image = f32({1, 2, 4, 4}), line = f32({3});
  return {
      conv_function("conv1d", 1, false, [](T t) { conv1d(t[0], t[1], t[2]); }),
      conv_function("conv2d", 2, false, [](T t) { conv2d(t[0], t[1], t[2]); }),
      conv_function("conv3d", 3, false, [](T t) { conv3d(t[0], t[1], t[2]); }),
      conv_function("conv_transpose1d", 1, true, [](T t) { conv_transpose1d(t[0], t[1], t[2]); }),
      conv_function("conv_transpose2d", 2, true, [](T t) { conv_transpose2d(t[0], t[1], t[2]); }),
      conv_function("conv_transpose3d", 3, true, [](T t) { conv_transpose3d(t[0], t[1], t[2]); }),
      {"unfold", {"x"}, {image}, [](T t) { unfold(t[0], 2); }, {{0, line}}},
      {"fold", {"x"}, {f32({1, 4, 9})}, [](T t) { fold(t[0], 4, 2); }, {{0, line}, {0, f32({1, 5, 9})}}},
      {"pad",
       {"x"},
       {image},
       [](T t) {
         kiln::pad(t[0], {1, 1});
       },
       {{0, full({}, 1.0)}}},
      {"interpolate",
       {"x"},
       {image},
       [](T t) { interpolate(t[0], {.size = {2}}); },
       {{0, line}, {0, i64({1, 2, 4, 4})}}},
      {"pixel_shuffle", {"x"}, {f32({4, 2, 2})}, [](T t) { pixel_shuffle(t[0], 2); }, {{0, line}}},
      {"pixel_unshuffle", {"x"}, {image}, [](T t) { pixel_unshuffle(t[0], 2); }, {{0, line}}},
      {"channel_shuffle", {"x"}, {image}, [](T t) { channel_shuffle(t[0], 2); }, {{0, line}}},
      {"batch_norm",
       {"x", "?running_mean", "?running_var", "?weight", "?bias"},
       {image, f32({2}), f32({2}), f32({2}), f32({2})},
       [](T t) { batch_norm(t[0], t[1], t[2], t[3], t[4]); },
       {{0, line}, {0, i64({1, 2})}, {1, line}, {2, line}, {3, line}, {4, f64({2})}}},
      {"group_norm",
       {"x", "?weight", "?bias"},
       {image, f32({2}), f32({2})},
       [](T t) { group_norm(t[0], 2, t[1], t[2]); },
       {{0, line}, {0, i64({1, 2})}, {1, line}, {2, f64({2})}}},
      {"instance_norm",
       {"x", "?running_mean", "?running_var", "?weight", "?bias"},
       {image, f32({2}), f32({2}), f32({2}), f32({2})},
       [](T t) { instance_norm(t[0], t[1], t[2], t[3], t[4]); },
       {{0, line}, {0, i64({1, 2, 4})}, {1, line}, {2, line}, {3, line}, {4, f64({2})}}},
      {"local_response_norm",
       {"x"},
       {image},
       [](T t) { local_response_norm(t[0], 2); },
       {{0, line}, {0, i64({1, 2, 4})}}},
  };
}

inline Functions pooling_functions() {
  const Tensor wrong = f32({2}), one = f32({1, 2, 4}), two = f32({1, 2, 4, 4}), three = f32({1, 2, 4, 4, 4});
  const auto row = [&](const char* name, const Tensor& x, std::function<void(const Tensors&)> call) {
    return Function{name, {"x"}, {x}, std::move(call), {{0, wrong}, {0, x.to(DType::i64)}}};
  };
  const auto unpool = [&](const char* name, const Tensor& x, std::function<void(const Tensors&)> call) {
    return Function{name,
                    {"x", "indices"},
                    {x, i64(x.sizes())},
                    std::move(call),
                    {{0, wrong}, {0, x.to(DType::i64)}, {1, x}, {1, i64({2})}}};
  };
  return {
      row("max_pool1d", one, [](T t) { max_pool1d(t[0], 2); }),
      row("max_pool2d", two, [](T t) { max_pool2d(t[0], 2); }),
      row("max_pool3d", three, [](T t) { max_pool3d(t[0], 2); }),
      row("max_pool1d_with_indices", one, [](T t) { max_pool1d_with_indices(t[0], 2); }),
      row("max_pool2d_with_indices", two, [](T t) { max_pool2d_with_indices(t[0], 2); }),
      row("max_pool3d_with_indices", three, [](T t) { max_pool3d_with_indices(t[0], 2); }),
      row("avg_pool1d", one, [](T t) { avg_pool1d(t[0], 2); }),
      row("avg_pool2d", two, [](T t) { avg_pool2d(t[0], 2); }),
      row("avg_pool3d", three, [](T t) { avg_pool3d(t[0], 2); }),
      row("adaptive_avg_pool1d", one, [](T t) { adaptive_avg_pool1d(t[0], 2); }),
      row("adaptive_avg_pool2d", two, [](T t) { adaptive_avg_pool2d(t[0], 2); }),
      row("adaptive_avg_pool3d", three, [](T t) { adaptive_avg_pool3d(t[0], 2); }),
      row("adaptive_max_pool1d", one, [](T t) { adaptive_max_pool1d(t[0], 2); }),
      row("adaptive_max_pool2d", two, [](T t) { adaptive_max_pool2d(t[0], 2); }),
      row("adaptive_max_pool3d", three, [](T t) { adaptive_max_pool3d(t[0], 2); }),
      row("adaptive_max_pool2d_with_indices", two, [](T t) { adaptive_max_pool2d_with_indices(t[0], 2); }),
      row("lp_pool1d", one, [](T t) { lp_pool1d(t[0], 2, 2); }),
      row("lp_pool2d", two, [](T t) { lp_pool2d(t[0], 2, 2); }),
      row("lp_pool3d", three, [](T t) { lp_pool3d(t[0], 2, 2); }),
      unpool("max_unpool1d", one, [](T t) { max_unpool1d(t[0], t[1], 2); }),
      unpool("max_unpool2d", two, [](T t) { max_unpool2d(t[0], t[1], 2); }),
      unpool("max_unpool3d", three, [](T t) { max_unpool3d(t[0], t[1], 2); }),
  };
}

inline Functions attention_functions() {
  const Tensor q = f32({3, 2, 4}), w = f32({12, 4}), n = i64({3, 2, 4}), y = f32({5});
  return {
      {"scaled_dot_product_attention",
       {"q", "k", "v", "?mask"},
       {q, q, q, f32({2, 2})},
       [](T t) { scaled_dot_product_attention(t[0], t[1], t[2], t[3]); },
       {{0, n},
        {1, n},
        {2, n},
        {0, y},
        {1, y},
        {2, y},
        {1, f64({3, 2, 4})},
        {3, f32({3})},
        {3, f64({2, 2})}}},
      {"flex_attention",
       {"q", "k", "v"},
       {f32({1, 2, 3, 4}), f32({1, 2, 5, 4}), f32({1, 2, 5, 6})},
       [](T t) { flex_attention(t[0], t[1], t[2]); },
       {{0, f32({2, 3, 4})}, {1, f32({1, 2, 5, 3})}, {2, f32({1, 2, 4, 6})}}},
      {"multi_head_attention_forward",
       {"query", "key", "value", "?in_proj_weight", "out_proj_weight", "?attn_mask"},
       {q, q, q, w, f32({4, 4}), f32({3, 3})},
       [](T t) {
         MultiheadAttentionWeights weights;
         weights.in_proj_weight = t[3];
         weights.out_proj_weight = t[4];
         multi_head_attention_forward(t[0], t[1], t[2], 2, weights, {.attn_mask = t[5]});
       },
       {{0, n},
        {1, n},
        {2, n},
        {0, y},
        {1, y},
        {2, y},
        {1, f64({3, 2, 4})},
        {3, y},
        {3, f64({12, 4})},
        {4, y},
        {5, y},
        {5, f64({3, 3})}}},
  };
}

inline Functions recurrent_functions() {
  Functions all;
  const Tensor y = f32({7});
  const auto layer = [&](const char* name, int64_t gates, const auto& f) {
    const Tensors good{f32({5, 2, 3}),      f32({1, 2, 4}),   f32({gates * 4, 3}),
                       f32({gates * 4, 4}), f32({gates * 4}), f32({gates * 4})};
    std::vector<std::string> args{"x", "?h0"};
    for (const char* w : {"w_ih", "w_hh", "b_ih", "b_hh"}) args.push_back(std::string(w) + " of layer 0");
    args[2] = "?" + args[2];  // it is looked at before its layer is
    all.push_back({name,
                   args,
                   good,
                   [f](T t) { f(t[0], t[1], Tensors(t.begin() + 2, t.end())); },
                   {{0, y}, {0, i64({5, 2, 3})}, {1, y}, {3, y}, {4, f32({3})}, {5, f32({3})}}});
  };
  const auto cell = [&](const char* name, int64_t gates, const auto& f) {
    all.push_back({name,
                   {"x", "?h", "w_ih", "w_hh", "?b_ih", "?b_hh"},
                   {f32({2, 3}), f32({2, 4}), f32({gates * 4, 3}), f32({gates * 4, 4}), f32({gates * 4}),
                    f32({gates * 4})},
                   [f](T t) { f(t[0], t[1], t[2], t[3], t[4], t[5]); },
                   {{0, full({}, 1.0)},
                    {0, i64({2, 3})},
                    {1, y},
                    {1, f64({2, 4})},
                    {2, y},
                    {3, y},
                    {3, f64({gates * 4, 4})},
                    {4, f32({3})},
                    {5, f32({3})}}});
  };
  layer("rnn_tanh", 1, [](const auto&... t) { rnn_tanh(t...); });
  layer("rnn_relu", 1, [](const auto&... t) { rnn_relu(t...); });
  layer("gru", 3, [](const auto&... t) { gru(t...); });
  layer("lstm", 4, [](const Tensor& x, const Tensor& h, T w) { lstm(x, {h, h}, w); });
  cell("rnn_tanh_cell", 1, [](const auto&... t) { rnn_tanh_cell(t...); });
  cell("rnn_relu_cell", 1, [](const auto&... t) { rnn_relu_cell(t...); });
  cell("gru_cell", 3, [](const auto&... t) { gru_cell(t...); });
  cell("lstm_cell", 4, [](const Tensor& x, const Tensor& h, const auto&... w) {
    lstm_cell(x, {h, h}, w...);
  });
  return all;
}

inline Functions layer_functions() {
  Functions all;
  for (const Functions& part : {activation_functions(), conv_functions(), pooling_functions(),
                                attention_functions(), recurrent_functions()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace kiln::testing
