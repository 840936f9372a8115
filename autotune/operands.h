// SPDX-License-Identifier: Apache-2.0
// Made-up operands of a kernel under trial: inputs of the right shapes, poisoned outputs, and the results
// that others are compared with. Values are the same on every run and rank.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codegen/tunable.h"

namespace kiln {

/// Largest difference that results of `dtype` may have, relative to the largest of them, when sums of
/// `length` terms were made in another order. 0 for types without rounding.
double trial_tolerance(DType dtype, double length);

/// Aligned memory whose elements are numbers that every function is defined for, or small integers.
class MadeUpOperand {
 public:
  /// Throws: device, when there is no memory.
  MadeUpOperand(DType dtype, int64_t bytes);
  std::byte* data() const { return memory_.get(); }
  int64_t bytes() const { return bytes_; }
  /// Elements that are integers become 0, a place in every table that has one.
  void clear_integers();

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  DType dtype_;
  int64_t bytes_;
};

/// Threads: one.
class Operands {
 public:
  explicit Operands(const TunableKernel& k);

  /// One pointer per buffer, 64-byte aligned.
  std::span<void* const> pointers() const { return pointers_; }
  /// Fills what the kernel writes, and does not read, with NaN.
  void poison();
  /// Gives back the first values to what the kernel reads and writes.
  void restore();
  /// What stands in the outputs now is right.
  void keep_expected();
  /// What is wrong with the outputs: "" if nothing. `exact`: to the bit.
  std::string difference(bool exact) const;

 private:
  const TunableKernel& kernel_;
  double length_ = 1;  // terms of the longest sum, roughly
  std::vector<MadeUpOperand> memory_;
  std::vector<void*> pointers_;
  std::vector<std::vector<std::byte>> first_, expected_;  // per buffer; empty where not needed
};

}  // namespace kiln
