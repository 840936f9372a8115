// SPDX-License-Identifier: Apache-2.0
// A pointwise kernel of the loop IR as the epilogue of a matmul: the same values, printed where the template
// has a vector of the result in registers. Included by lower_contract.cpp and source_epilogue.cpp only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/dim_table.h"
#include "codegen/matmul.h"
#include "codegen/source_values.h"

namespace kiln::detail {

class EpilogueText : ValueText {
 public:
  /// `k`: axes batch..., one row, one column, kept by canonicalize; parameter `accumulator` is the matmul's
  /// result, whose batch axes are `batch`. The matmul's buffers are a, b, then the parameters of `k`.
  EpilogueText(const loop::Kernel& k, int accumulator, bool keep, std::vector<Dim> batch)
      : ValueText(k), accumulator_(accumulator), keep_(keep), batch_(std::move(batch)) {}

  /// Declarations at the start of the kernel.
  std::string setup(DimTable& dims);
  /// Statements for one vector of the result.
  std::string at(const MatmulVector& v);

 private:
  void batch_axes(const MatmulVector& v);

  int accumulator_;
  bool keep_;
  std::vector<Dim> batch_;
};

/// Whether EpilogueText can print `k` for a result with these batch axes: each is one of the kernel's or
/// several neighbours walked as one.
bool is_epilogue(const loop::Kernel& k, const std::vector<Dim>& batch);

}  // namespace kiln::detail
