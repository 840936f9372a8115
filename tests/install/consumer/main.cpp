// SPDX-License-Identifier: Apache-2.0
// Uses headers of several layers, the libraries behind them, and the compiler that is found at run time.
#include <iostream>

#include "codegen/compile_clang.h"
#include "frontend/version.h"
#include "ir/base/dim.h"

int main() {
  const kiln::Dim tokens = kiln::Dim::symbol("B") * 128;
  const kiln::CpuSource source{"one.cpp", "#include \"kiln_cpu.h\"\nKILN_KERNEL void one() {}\n", {}};
  const auto objects = kiln::compile_objects({&source, 1}, kiln::host_target(), 1);
  std::cout << "kiln " << kiln::version() << " " << tokens.str() << " objects " << objects.size() << "\n";
  return 0;
}
