// SPDX-License-Identifier: Apache-2.0
// What every generated CPU source includes as "kiln_cpu.h": the integer types and the kernel mark. There are
// no system headers where it is compiled, and it must compile for every target.
#pragma once

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using size_t = unsigned long;

/// Marks a kernel: its name is exported as written.
#define KILN_KERNEL extern "C" __attribute__((visibility("default")))
