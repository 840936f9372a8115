// SPDX-License-Identifier: Apache-2.0
// The names of all of libcuda's functions where fake_libcuda.cpp has none of its own. Nobody calls them.
#include "runtime/cuda/driver.h"

#define KILN_FAKE(member, name, parameters)                         \
  extern "C" __attribute__((weak)) int fake_##member __asm__(name); \
  int fake_##member = 0;
KILN_CUDA_DRIVER_FUNCTIONS(KILN_FAKE)
