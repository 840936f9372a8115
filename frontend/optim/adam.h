// SPDX-License-Identifier: Apache-2.0
// Adam and its kin: Adam, AdamW, NAdam, RAdam, Adamax, LAMB. Options are torch.optim's arguments.
#pragma once

#include "frontend/optim/optimizer.h"

namespace kiln::optim {

struct AdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool amsgrad = false, maximize = false, decoupled_weight_decay = false;
  std::vector<Hyper> hypers();
  /// Throws: invalid, for what is out of range.
  void check(std::span<const Tensor> params) const;
};
/// Bias-corrected. Source: torch.optim.Adam (Kingma & Ba 2015; amsgrad: Reddi et al. 2018).
class Adam : public OptimizerWith<AdamOptions> {
 public:
  Adam(std::vector<Tensor> params, const AdamOptions& options = {})
      : OptimizerWith("Adam.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  void update(size_t group, Update& u) const override;
};

struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  bool amsgrad = false, maximize = false;
  std::vector<Hyper> hypers();
  /// Throws: invalid, for what is out of range.
  void check(std::span<const Tensor> params) const;
};
/// Decoupled weight decay, bias-corrected. Source: torch.optim.AdamW (Loshchilov & Hutter 2019).
class AdamW : public OptimizerWith<AdamWOptions> {
 public:
  AdamW(std::vector<Tensor> params, const AdamWOptions& options = {})
      : OptimizerWith("AdamW.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  void update(size_t group, Update& u) const override;
};

struct NAdamOptions {
  double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3;
  bool decoupled_weight_decay = false, maximize = false;
  std::vector<Hyper> hypers();
  /// Throws: invalid, for what is out of range.
  void check(std::span<const Tensor> params) const;
};
/// Adam with Nesterov momentum. Source: torch.optim.NAdam (Dozat 2016).
class NAdam : public OptimizerWith<NAdamOptions> {
 public:
  NAdam(std::vector<Tensor> params, const NAdamOptions& options = {})
      : OptimizerWith("NAdam.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<const char*> host_state() const override { return {"mu_product"}; }
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  void update(size_t group, Update& u) const override;
};

struct RAdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled_weight_decay = false, maximize = false;
  std::vector<Hyper> hypers();
  /// Throws: invalid, for what is out of range.
  void check(std::span<const Tensor> params) const;
};
/// Adam that goes without the second moment until its variance is known. Source: torch.optim.RAdam (Liu et
/// al. 2020).
class RAdam : public OptimizerWith<RAdamOptions> {
 public:
  RAdam(std::vector<Tensor> params, const RAdamOptions& options = {})
      : OptimizerWith("RAdam.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  void update(size_t group, Update& u) const override;
};

struct AdamaxOptions {
  double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool maximize = false;
  std::vector<Hyper> hypers();
  /// Throws: invalid, for what is out of range.
  void check(std::span<const Tensor> params) const;
};
/// Adam by the infinity norm. Source: torch.optim.Adamax (Kingma & Ba 2015).
class Adamax : public OptimizerWith<AdamaxOptions> {
 public:
  Adamax(std::vector<Tensor> params, const AdamaxOptions& options = {})
      : OptimizerWith("Adamax.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  void update(size_t group, Update& u) const override;
};

struct LAMBOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0;
  bool maximize = false;
  std::vector<Hyper> hypers();
  /// Throws: invalid, for what is out of range.
  void check(std::span<const Tensor> params) const;
};
/// AdamW's direction, scaled so that its norm is that of the parameter. Source: You et al. 2020, "Large Batch
/// Optimization for Deep Learning", algorithm 2, with phi(x) = x.
class LAMB : public OptimizerWith<LAMBOptions> {
 public:
  LAMB(std::vector<Tensor> params, const LAMBOptions& options = {})
      : OptimizerWith("LAMB.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  void update(size_t group, Update& u) const override;
};

}  // namespace kiln::optim
