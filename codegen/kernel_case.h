// SPDX-License-Identifier: Apache-2.0
// One kernel of a program before anything is chosen about it: what it computes, without its graph. Plain
// data, shared by lowering and by those who choose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "codegen/matmul.h"
#include "codegen/target.h"
#include "ir/loop.h"

namespace kiln {

/// A kernel to print into the matmul; its parameter `accumulator` is the matmul's result.
struct Epilogue {
  loop::Kernel kernel;  ///< canonical, roles kept
  int accumulator = -1;
  bool keep = false;  ///< the result itself is stored, too
};
/// A kernel to print where the matmul packs an operand, which is its parameter `packed`.
struct Prologue {
  loop::Kernel kernel;  ///< canonical, roles kept
  int packed = -1;
};
/// What is printed into one matmul.
struct Fused {
  std::optional<Prologue> prologue[2];
  std::optional<Epilogue> epilogue;
};

/// A matmul with what is fused into it. The first `joint` batch axes belong to both operands.
struct MatmulCase {
  MatmulSpec spec;
  size_t joint = 0;
  Fused fused;
  MatmulTarget target;
  MatmulPrologues prologues() const { return {fused.prologue[0].has_value(), fused.prologue[1].has_value()}; }
};

/// A kernel that something may be chosen about.
using KernelCase = std::variant<loop::Kernel, MatmulCase>;

/// Canonical text of all that decides how fast a schedule of the kernel is, its shapes included: loop IR,
/// sizes and strides, target, compiler, code generator. No rank, path, line or thread count.
std::string kernel_key(const KernelCase& kernel, const Target& target);
/// The name of a kernel among choices: the hash of its key.
std::string kernel_id(const KernelCase& kernel, const Target& target);

}  // namespace kiln
