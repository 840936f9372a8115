// SPDX-License-Identifier: Apache-2.0
// The backward of a trace with checkpoints: what derivative rules read of a region is made again from what
// entered it. Emits ops alone; knows neither stages nor memory.
#pragma once

#include <map>
#include <utility>

#include "frontend/trace.h"

namespace kiln::detail {

/// Emits by append(). Between go_to() of a value of a region and that of another value, operands that the
/// region made are replaced by copies, made when the first rule reads them.
class RegionBuilder : public Builder {
 public:
  explicit RegionBuilder(const Recorder& r) : recorder_(r) {}
  using Builder::emit;
  Value emit(Op o, std::span<const Value> in, Attrs attrs) final;
  /// The rule of the op that made `v` emits from here on.
  void go_to(Value v) { region_ = recorder_.region_of(v); }
  /// A gradient is complete: copies that are made from here on wait for it.
  void arrived(Value gradient) { gradient_ = gradient; }

 protected:
  virtual Value append(Op o, std::span<const Value> in, Attrs attrs) = 0;

 private:
  Value append(Op o, std::initializer_list<Value> in, Attrs attrs) {
    return append(o, std::span<const Value>(in.begin(), in.size()), std::move(attrs));
  }
  Value again(int region, Value v);
  Value entered(int region, Value v);
  Value waiting(Value v, Value signal);
  Value signal_of(int region);

  const Recorder& recorder_;
  int region_ = -1;
  Value gradient_;
  std::map<std::pair<int, int>, Value> copies_;  ///< (region, value) -> what stands for it in the backward
  std::map<int, Value> signals_;                 ///< per region
};

}  // namespace kiln::detail
