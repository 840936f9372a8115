// SPDX-License-Identifier: Apache-2.0
// Parameters that are computed from others: weight_norm and spectral_norm. Names are those of
// torch.nn.utils.parametrizations: "parametrizations.<name>.original..." stands where <name> was.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "frontend/nn/module.h"

namespace kiln::nn {

/// What stands in for a parameter of a module. The module's member is computed anew at each call of the
/// module, before its forward and the hooks that are registered later, and undefined between calls: see
/// parametrized_value. Modules that read it without calling its module find it undefined.
class Parametrization : public Module {
 public:
  /// The parameter as it is now.
  virtual Tensor value(Loc loc) = 0;
  /// Puts `p` in the place of parameter `name`, whose tensor `p` was made from. Throws: invalid, when the
  /// module itself has no such parameter.
  static void install(Module& module, const std::string& name, std::shared_ptr<Parametrization> p, Loc loc);
  /// Makes `name` a parameter again, of the value that it has.
  static void remove(Module& module, const std::string& name, Loc loc);
  /// That of the parameter. Throws: invalid, when there is none.
  static Parametrization& of(Module& module, const std::string& name, Loc loc);
  static bool exists(Module& module, const std::string& name);
  /// The member of that name, as it is before install(). Throws: invalid, as that.
  static Tensor original(Module& module, const std::string& name, Loc loc);

 private:
  struct All;
  static All* all_of(Module& module);
};

/// weight = g v / |v|, the norm over all dims but `dim`, or over all when none: parameters original0 (g) and
/// original1 (v). Gives the module back. Source: Salimans & Kingma 2016;
/// torch.nn.utils.parametrizations.weight_norm.
Module& weight_norm(Module& module, const std::string& name = "weight", std::optional<int64_t> dim = 0,
                    Loc loc = Loc::current());

struct SpectralNormOptions {
  int64_t n_power_iterations = 1;  ///< in each forward while training
  double eps = 1e-12;
  /// Outputs of the weight as a matrix; absent: 0, or 1 of the transposed convolutions.
  std::optional<int64_t> dim = {};
};
/// weight = original / sigma, its largest singular value as estimated by power iteration: the parameter
/// original, and the buffers 0._u and 0._v of its vectors. Throws: invalid, as install. Source: Miyato et al.
/// 2018; torch.nn.utils.parametrizations.spectral_norm.
Module& spectral_norm(Module& module, const std::string& name = "weight",
                      const SpectralNormOptions& options = {}, Loc loc = Loc::current());

bool is_parametrized(Module& module, const std::string& name = "weight");
/// The parameter as the next call would compute it; while training that is a power iteration of
/// spectral_norm.
Tensor parametrized_value(Module& module, const std::string& name = "weight", Loc loc = Loc::current());
/// Makes the value a parameter, in place of what it was computed from. Optimizers are to be made afterwards.
Module& remove_parametrizations(Module& module, const std::string& name = "weight", Loc loc = Loc::current());

}  // namespace kiln::nn
