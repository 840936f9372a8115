// SPDX-License-Identifier: Apache-2.0
// What is fused into a matmul, as hooks for the template of any target. Included by lower_contract*.cpp only.
#pragma once

#include <optional>
#include <string>

#include "codegen/kernel_case.h"
#include "codegen/source_region.h"
#include "ir/base/hash.h"

namespace kiln::detail {

/// Hooks that print what is fused, in scopes with names of their own.
class FusedText {
 public:
  explicit FusedText(const MatmulCase& c);
  /// Must not outlive this.
  MatmulHooks hooks(DimTable& dims);
  int result() const { return result_; }    ///< the parameter of the result, or the first of the epilogue
  int buffers() const { return buffers_; }  ///< parameters before the workspace

 private:
  const MatmulCase& case_;
  std::optional<PrologueText> prologue_[2];
  std::optional<EpilogueText> epilogue_;
  int result_ = 2, buffers_ = 3;
};

/// What `print(name)` gives for the name that is the hash of its own text.
template <typename Print>
auto named_by_text(Print&& print) {
  return print("k_" + hash128(print("k_matmul").text).hex());
}

/// What the source says it is.
std::string heading(const Fused& f);

}  // namespace kiln::detail
