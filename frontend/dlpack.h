// SPDX-License-Identifier: Apache-2.0
// Tensors to and from other libraries in this process, without a copy. What is exchanged are the C structs of
// DLPack: include dlpack/dlpack.h or frontend/dlpack_abi.h to look into them.
#pragma once

#include "frontend/tensor.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace kiln {

/// A tensor that views the memory of `capsule`, and calls its deleter when the last view of it has gone.
/// Takes the capsule when it returns; after an error it is still the caller's. On a GPU what computes the
/// memory must be done, and the deleter blocks until what Kiln has launched on it is. Memory that is flagged
/// read-only is taken with `copy` alone, which gives the tensor memory of its own and calls the deleter at
/// once. Throws: invalid, for null pointers and bad shapes; unsupported, for read-only memory without `copy`,
/// and for dtypes, devices, negative strides and major versions that Kiln has not. Source: torch.from_dlpack.
Tensor from_dlpack(DLManagedTensor* capsule, bool copy = false, Loc loc = Loc::current());
Tensor from_dlpack(DLManagedTensorVersioned* capsule, bool copy = false, Loc loc = Loc::current());

/// A capsule that views the memory of `tensor` and holds it until its deleter is called, by whoever takes it.
/// What is written to either side is seen on the other. Inside a compiled callable this is a host read.
/// Blocks: of a GPU's tensor, until it is computed. Throws: invalid, for an undefined tensor or one that
/// requires grad (detach() it). Source: torch.utils.dlpack.to_dlpack.
DLManagedTensor* to_dlpack(const Tensor& tensor, Loc loc = Loc::current());
/// The same with DLPack 1's version and flags, which is to be preferred.
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor, Loc loc = Loc::current());

}  // namespace kiln
