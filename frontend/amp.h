// SPDX-License-Identifier: Apache-2.0
// Mixed precision with torch.amp's names: autocast chooses the dtype that ops compute in, GradScaler keeps
// the gradients of f16 from vanishing. docs/PRECISION.md has the lists of ops.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "frontend/tensor.h"

namespace kiln {

namespace optim {
class Optimizer;
}

/// While alive, ops that this thread calls take their operands in the dtype of their list: matrix products
/// and convolutions in `dtype`, functions and sums that need the range in f32, some in the widest of their
/// operands' dtypes. Parameters stay as they are, and so do the dtypes of their gradients. Guards nest;
/// `enabled` = false switches autocast off. Inside a compiled callable each cast is an op like any other.
/// Throws: invalid, for a dtype other than bf16 and f16. Source: torch.autocast, whose lists for CUDA are
/// used on every device.
class Autocast {
 public:
  explicit Autocast(DType dtype = DType::bf16, bool enabled = true, Loc loc = Loc::current());
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  std::optional<DType> previous_;
};
/// PyTorch's spelling.
using autocast = Autocast;
bool is_autocast_enabled();

struct GradScalerOptions {
  double init_scale = 65536, growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  bool enabled = true;
};

/// Scales a loss, so that small gradients do not vanish in f16, and skips steps at which a gradient has
/// overflowed. All of it runs on the device, also inside a compiled callable: whether a step is skipped is
/// selected there, element by element, and no value is read. Source: torch.amp.GradScaler.
class GradScaler {
 public:
  /// `device`: of the gradients; none: that of the first loss or gradients it is given. Throws: invalid, for
  /// factors or an interval that PyTorch refuses.
  explicit GradScaler(const GradScalerOptions& options = {}, std::optional<Device> device = {},
                      Loc loc = Loc::current());
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;

  /// loss * scale.
  Tensor scale(const Tensor& loss, Loc loc = Loc::current());
  /// Divides the gradients of the optimizer's parameters by the scale, in place, and looks for infinities and
  /// NaNs among them: for clipping before step(). Throws: invalid, when it was called since the last
  /// update(), for gradients in f16, and when there are none.
  void unscale_(optim::Optimizer& optimizer, Loc loc = Loc::current());
  /// optimizer.step(), after unscale_() if that was not called; where a gradient had overflowed, parameters,
  /// state and step counts stay as they are. Throws: invalid, when it was called since the last update().
  void step(optim::Optimizer& optimizer, Loc loc = Loc::current());
  /// Ends the iteration: the scale shrinks if a gradient has overflowed, and grows after `growth_interval`
  /// iterations in which none has.
  void update(Loc loc = Loc::current());
  /// Sets the scale, and ends the iteration.
  void update(double new_scale, Loc loc = Loc::current());

  bool is_enabled() const { return options_.enabled; }
  /// A host read; 1 where scaling is disabled.
  double get_scale() const;
  /// "scale", "growth_factor", "backoff_factor", "growth_interval" and "_growth_tracker" as 0-d f64 tensors;
  /// empty where scaling is disabled.
  NamedTensors state_dict() const;
  /// Throws: invalid, for other names, and for values that the constructor refuses.
  void load_state_dict(const NamedTensors& state, Loc loc = Loc::current());

 private:
  /// What is known of an optimizer since the last update().
  struct Known {
    Tensor overflow;  ///< 0-d f32: whether a gradient is not finite
    bool unscaled = false, stepped = false;
  };
  void end_iteration();
  /// Makes the numbers on `device`, the first time. Throws: invalid, when they are on another.
  void settle(Device device, const char* what, Loc loc);
  double tracker() const;

  GradScalerOptions options_;
  double first_tracker_ = 0;  ///< of the first iteration
  Tensor scale_, tracker_;    ///< undefined until a device is known
  std::map<optim::Optimizer*, Known> known_;
};

}  // namespace kiln
