// SPDX-License-Identifier: Apache-2.0
// Rates of their own for each element: Adagrad, RMSprop, Adadelta, Adafactor. Options are torch.optim's
// arguments.
#pragma once

#include "frontend/optim/optimizer.h"

namespace kiln::optim {

struct AdagradOptions {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  bool maximize = false;
  std::vector<Hyper> hypers();
  /// Throws: invalid, for what is out of range.
  void check(std::span<const Tensor> params) const;
};
/// Source: torch.optim.Adagrad (Duchi et al. 2011).
class Adagrad : public OptimizerWith<AdagradOptions> {
 public:
  Adagrad(std::vector<Tensor> params, const AdagradOptions& options = {})
      : OptimizerWith("Adagrad.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  void update(size_t group, Update& u) const override;
};

struct RMSpropOptions {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false, maximize = false;
  std::vector<Hyper> hypers();
  /// Throws: invalid, for what is out of range.
  void check(std::span<const Tensor> params) const;
};
/// Source: torch.optim.RMSprop (Hinton 2012; centered: Graves 2013).
class RMSprop : public OptimizerWith<RMSpropOptions> {
 public:
  RMSprop(std::vector<Tensor> params, const RMSpropOptions& options = {})
      : OptimizerWith("RMSprop.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  bool alike(size_t, const Progress&, const Progress&) const override { return true; }
  void update(size_t group, Update& u) const override;
};

struct AdadeltaOptions {
  double lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0;
  bool maximize = false;
  std::vector<Hyper> hypers();
  /// Throws: invalid, for what is out of range.
  void check(std::span<const Tensor> params) const;
};
/// Source: torch.optim.Adadelta (Zeiler 2012).
class Adadelta : public OptimizerWith<AdadeltaOptions> {
 public:
  Adadelta(std::vector<Tensor> params, const AdadeltaOptions& options = {})
      : OptimizerWith("Adadelta.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  bool alike(size_t, const Progress&, const Progress&) const override { return true; }
  void update(size_t group, Update& u) const override;
};

struct AdafactorOptions {
  double lr = 1e-2, beta2_decay = -0.8;
  double eps1 =
      0;  ///< keeps the second moment above its square; 0: epsilon of the group's dtype (PyTorch's None)
  double eps2 = 1e-3;  ///< the least scale of a parameter
  double d = 1;        ///< limit of an update's root mean square
  double weight_decay = 0;
  bool maximize = false;
  std::vector<Hyper> hypers();
  /// Throws: invalid, for what is out of range.
  void check(std::span<const Tensor> params) const;
};
/// Second moments of matrices by rows and columns alone: state of A + B numbers for [A,B].
/// Source: torch.optim.Adafactor (Shazeer & Stern 2018).
class Adafactor : public OptimizerWith<AdafactorOptions> {
 public:
  Adafactor(std::vector<Tensor> params, const AdafactorOptions& options = {})
      : OptimizerWith("Adafactor.step", std::move(params), options) {}

 protected:
  std::vector<StateSpec> specs(size_t group, const Tensor& param) const override;
  std::vector<int64_t> modes(size_t group) const override;
  std::vector<Number> take_step(size_t group, Pace& p) const override;
  void update(size_t group, Update& u) const override;
};

}  // namespace kiln::optim
