// SPDX-License-Identifier: Apache-2.0
// All optimizers, made with hyper-parameters of which none is at rest, and a training loop for them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontend/compile.h"
#include "frontend/ops.h"
#include "frontend/optim/adagrad.h"
#include "frontend/optim/adam.h"
#include "frontend/optim/sgd.h"

namespace kiln::optim {

struct Maker {
  const char* name;
  std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)> make;
  bool matrices_only = false;
};

template <typename Class, typename Options>
Maker maker(const char* name, const Options& o, bool matrices_only = false) {
  return {name, [o](std::vector<Tensor> p) { return std::make_unique<Class>(std::move(p), o); },
          matrices_only};
}

inline std::vector<Maker> all_optimizers() {
  return {
      maker<SGD, SGDOptions>("sgd", {.lr = 0.1, .weight_decay = 0.1}),
      maker<SGD, SGDOptions>(
          "sgd_momentum",
          {.lr = 0.1, .momentum = 0.9, .dampening = 0.2, .weight_decay = 0.1, .maximize = true}),
      maker<SGD, SGDOptions>("sgd_nesterov", {.lr = 0.1, .momentum = 0.9, .nesterov = true}),
      maker<ASGD, ASGDOptions>("asgd", {.lr = 0.1, .lambd = 0.1, .t0 = 1, .weight_decay = 0.1}),
      maker<Rprop, RpropOptions>("rprop", {.lr = 0.1, .step_size_max = 0.11}),
      maker<Lion, LionOptions>("lion", {.lr = 0.1, .weight_decay = 0.1}),
      maker<Muon, MuonOptions>("muon", {.lr = 0.1, .ns_steps = 3}, true),
      maker<Adam, AdamOptions>("adam", {.lr = 0.1, .weight_decay = 0.1, .amsgrad = true}),
      maker<Adam, AdamOptions>("adam_decoupled",
                               {.lr = 0.1, .weight_decay = 0.1, .decoupled_weight_decay = true}),
      maker<AdamW, AdamWOptions>("adamw", {.lr = 0.1, .maximize = true}),
      maker<NAdam, NAdamOptions>("nadam", {.lr = 0.1, .weight_decay = 0.1}),
      maker<RAdam, RAdamOptions>("radam", {.lr = 0.1, .beta2 = 0.9, .weight_decay = 0.1}),
      maker<Adamax, AdamaxOptions>("adamax", {.lr = 0.1, .weight_decay = 0.1}),
      maker<LAMB, LAMBOptions>("lamb", {.lr = 0.1, .weight_decay = 0.1}),
      maker<Adagrad, AdagradOptions>("adagrad", {.lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.1}),
      maker<RMSprop, RMSpropOptions>("rmsprop", {.lr = 0.1, .weight_decay = 0.1}),
      maker<RMSprop, RMSpropOptions>("rmsprop_centered", {.lr = 0.1, .momentum = 0.5, .centered = true}),
      maker<Adadelta, AdadeltaOptions>("adadelta", {.lr = 1, .weight_decay = 0.1}),
      maker<Adafactor, AdafactorOptions>("adafactor", {.lr = 0.1, .weight_decay = 0.1}),
  };
}

inline Tensor weights(Sizes sizes, DType dtype = DType::f64) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(std::cos(1.7 * static_cast<double>(i)));
  return Tensor::from_vector(v, std::move(sizes)).to(dtype).requires_grad_();
}

/// Gradient number `step` of a parameter.
inline Tensor gradient(const Tensor& p, int step) {
  std::vector<double> v;
  for (int64_t i = 0; i < p.numel(); ++i)
    v.push_back(0.3 + std::sin(0.9 * static_cast<double>(i) + 1.3 * step));
  return Tensor::from_vector(v, p.sizes()).to(p.dtype());
}

/// A matrix, and a vector unless matrices are all that the optimizer takes.
inline std::vector<Tensor> some_weights(const Maker& m) {
  std::vector<Tensor> p = {weights({4, 3})};
  if (!m.matrices_only) p.push_back(weights({3}));
  return p;
}

/// One step with gradients that come from a backward.
inline void train(Optimizer& optimizer, const std::vector<Tensor>& gradients) {
  optimizer.zero_grad();
  Tensor loss;
  for (size_t k = 0; k < gradients.size(); ++k) {
    const Tensor part = sum(optimizer.params()[k] * gradients[k]);
    loss = loss.defined() ? loss + part : part;
  }
  loss.backward();
  optimizer.step();
}

inline std::vector<Tensor> gradients(const std::vector<Tensor>& params, int step) {
  std::vector<Tensor> out;
  for (const Tensor& p : params) out.push_back(gradient(p, step));
  return out;
}

inline std::vector<double> elements(const Tensor& t) { return t.detach().to(DType::f64).to_vector<double>(); }

inline void expect_near(const Tensor& t, const std::vector<double>& expected, double tolerance = 1e-12) {
  const std::vector<double> got = elements(t);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << i;
}

}  // namespace kiln::optim
