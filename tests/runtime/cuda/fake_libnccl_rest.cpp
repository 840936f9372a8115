// SPDX-License-Identifier: Apache-2.0
// The names of all of NCCL's functions where fake_libnccl.cpp has none of its own. Nobody calls them.
#include "runtime/cuda/nccl.h"

#define KILN_FAKE(member, name, result, parameters)                 \
  extern "C" __attribute__((weak)) int fake_##member __asm__(name); \
  int fake_##member = 0;
KILN_NCCL_FUNCTIONS(KILN_FAKE)
