// SPDX-License-Identifier: Apache-2.0
// Optimizers without a second moment: SGD, ASGD, Rprop, Lion, Muon. Options are torch.optim's arguments.
#pragma once

#include "frontend/optim/optimizer.h"

namespace kiln::optim {

struct SGDOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
  std::vector<Hyper> hypers();
  /// Throws: invalid, for what is out of range.
  void check(std::span<const Tensor> params) const;
};
/// Source: torch.optim.SGD (Sutskever et al. 2013).
class SGD : public OptimizerWith<SGDOptions> {
 public:
  SGD(std::vector<Tensor> params, const SGDOptions& options = {})
      : OptimizerWith("SGD.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  void update(size_t group, Update& u) const override;
  bool alike(size_t group, const Progress& a, const Progress& b) const override {
    return options(group).momentum == 0 || (a.with_state == 0) == (b.with_state == 0);
  }
  bool may_freeze(size_t group) const override { return options(group).momentum == 0; }
};

struct ASGDOptions {
  double lr = 1e-2, lambd = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0;
  bool maximize = false;
  std::vector<Hyper> hypers();
  void check(std::span<const Tensor> params) const;
};
/// SGD whose average weights are the state "ax". Source: torch.optim.ASGD (Polyak & Juditsky 1992).
class ASGD : public OptimizerWith<ASGDOptions> {
 public:
  ASGD(std::vector<Tensor> params, const ASGDOptions& options = {})
      : OptimizerWith("ASGD.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<const char*> host_state() const override { return {"eta", "mu"}; }
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  void update(size_t group, Update& u) const override;
};

struct RpropOptions {
  double lr = 1e-2, eta_minus = 0.5, eta_plus = 1.2, step_size_min = 1e-6, step_size_max = 50;
  bool maximize = false;
  std::vector<Hyper> hypers();
  void check(std::span<const Tensor> params) const;
};
/// Steps of their own for each element, by the signs of gradients. `lr` is the first step's size.
/// Source: torch.optim.Rprop (Riedmiller & Braun 1993).
class Rprop : public OptimizerWith<RpropOptions> {
 public:
  Rprop(std::vector<Tensor> params, const RpropOptions& options = {})
      : OptimizerWith("Rprop.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  bool alike(size_t, const Progress& a, const Progress& b) const override {
    return (a.with_state == 0) == (b.with_state == 0);
  }
  void update(size_t group, Update& u) const override;
};

struct LionOptions {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  bool maximize = false;
  std::vector<Hyper> hypers();
  void check(std::span<const Tensor> params) const;
};
/// The sign of an interpolated momentum, with decoupled weight decay.
/// Source: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1.
class Lion : public OptimizerWith<LionOptions> {
 public:
  Lion(std::vector<Tensor> params, const LionOptions& options = {})
      : OptimizerWith("Lion.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  bool alike(size_t, const Progress&, const Progress&) const override { return true; }
  void update(size_t group, Update& u) const override;
};

/// How the learning rate of a matrix [A,B] is adjusted.
enum class AdjustLr : uint8_t {
  original,         ///< times sqrt(max(1, A / B)). Source: Jordan et al. 2024
  match_rms_adamw,  ///< times 0.2 sqrt(max(A, B)), which suits AdamW's rates. Source: Liu et al. 2025
};

struct MuonOptions {
  double lr = 1e-3, weight_decay = 0.1, momentum = 0.95;
  bool nesterov = true;
  double ns_a = 3.4445, ns_b = -4.7750, ns_c = 2.0315;  ///< PyTorch's ns_coefficients
  double eps = 1e-7;
  int64_t ns_steps = 5;
  AdjustLr adjust_lr_fn = AdjustLr::original;
  std::vector<Hyper> hypers();
  void check(std::span<const Tensor> params) const;
};
/// Momentum made orthogonal by Newton-Schulz iterations, which round to bf16 as PyTorch's do. For the
/// matrices of hidden layers; give embeddings, biases and norms to another optimizer. Throws, when made:
/// invalid, for parameters that are not matrices. Source: torch.optim.Muon.
class Muon : public OptimizerWith<MuonOptions> {
 public:
  Muon(std::vector<Tensor> params, const MuonOptions& options = {})
      : OptimizerWith("Muon.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  bool alike(size_t, const Progress&, const Progress&) const override { return true; }
  void update(size_t group, Update& u) const override;
};

}  // namespace kiln::optim
