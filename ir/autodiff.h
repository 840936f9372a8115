// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation over a tape of ops by the rows' derivative rules. The same walk serves
// recorded graphs and the eager tape: only the Builder differs.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ir/op.h"

namespace kiln {

/// Differentiates several results at once: gets the gradient of each (invalid: none came), and passes on the
/// gradient of input i, as soon as it has it, by give(i, gradient).
using RegionRule =
    std::function<void(std::span<const Value> grads, const std::function<void(size_t, Value)>& give)>;

/// One op of a tape; `attrs` and `loc` outlive the walk. With a `region`, something that is differentiated as
/// a whole: its results are `outs`, and `op`, `out` and `attrs` are unused.
struct TapeEntry {
  Op op;
  std::vector<Value> in;
  Value out;
  const Attrs* attrs = nullptr;
  SourceLoc loc;
  std::vector<Value> outs = {};
  RegionRule region = {};
};

struct BackwardRequest {
  std::span<const TapeEntry> tape;             ///< in program order
  std::vector<std::pair<Value, Value>> seeds;  ///< (output, its gradient)
  std::function<bool(Value)> needs_grad;       ///< whether a gradient is wanted for or through this value
  /// Called once per value when its gradient is complete, in the order gradients become complete; returns the
  /// gradient to go on with (tensor hooks). May be empty.
  std::function<Value(Value, Value)> on_grad;
  /// Called before the rule of a tape entry emits (sets origins). May be empty.
  std::function<void(const TapeEntry&)> on_entry;
};

/// Emits the backward into `b` and returns (value, gradient) for every value that got a complete gradient, in
/// completion order: leaves as soon as their last contribution is in.
/// Throws: unsupported, "backward through <op> (file:line): it has no derivative".
std::vector<std::pair<Value, Value>> differentiate(Builder& b, const BackwardRequest& request);

}  // namespace kiln
