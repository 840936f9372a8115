// SPDX-License-Identifier: Apache-2.0
// DimTable: how a kernel's source names its sizes. Constants are printed as literals; every distinct symbolic
// expression gets one slot of the kernel's `dims` argument, in the order of first use.
// Must not evaluate anything: the runtime evaluates the expressions once per call.
#pragma once

#include <string>
#include <vector>

#include "ir/base/dim.h"

namespace kiln {

/// The sizes one kernel reads at run time.
class DimTable {
 public:
  /// C++ text of `d` inside the kernel: "384" or "dims[2]".
  std::string text(const Dim& d) {
    if (d.is_const()) return std::to_string(d.value());
    for (size_t i = 0; i < dims_.size(); ++i)
      if (dims_[i] == d) return "dims[" + std::to_string(i) + "]";
    dims_.push_back(d);
    return "dims[" + std::to_string(dims_.size() - 1) + "]";
  }
  /// The expressions, in the order of the kernel's `dims` argument.
  const std::vector<Dim>& dims() const { return dims_; }

 private:
  std::vector<Dim> dims_;
};

}  // namespace kiln
