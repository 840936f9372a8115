// SPDX-License-Identifier: Apache-2.0
// What an outdated libkiln_jit.so looks like to Kiln; compile_clang_library_test opens it.
#include "codegen/clang/jit_abi.h"

extern "C" const kiln::jit::Api* kiln_jit_api() {
  static constexpr kiln::jit::Api kOld = {0, "18.1.0", nullptr, nullptr, nullptr};
  return &kOld;
}
