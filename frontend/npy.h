// SPDX-License-Identifier: Apache-2.0
// numpy's files: .npy, one array, and .npz, a zip archive of them. Nothing in them runs code: arrays of
// Python objects are refused. Source: numpy.lib.format.
#pragma once

#include <string>

#include "frontend/tensor.h"

namespace kiln {

/// Reads a .npy file, of format version 1, 2 or 3, any byte order and numpy's bool, int, uint and float
/// types; i1, i2 and u2 become i32, and u4 and u8 i64. An array in Fortran order is a tensor with such
/// strides. Throws: io; invalid, if it is damaged or a u8 does not fit i64; unsupported, for another type.
Tensor load_npy(const std::string& path, Loc loc = Loc::current());

/// Reads all arrays of a .npz file, by numpy.savez or numpy.savez_compressed, in the order in which they were
/// saved. Throws: like load_npy.
NamedTensors load_npz(const std::string& path, Loc loc = Loc::current());

/// Replaces `path`, atomically, by a .npy file of version 1. Throws: io; invalid, for an undefined tensor;
/// unsupported, for bf16, which numpy has not.
void save_npy(const Tensor& tensor, const std::string& path, Loc loc = Loc::current());

}  // namespace kiln
