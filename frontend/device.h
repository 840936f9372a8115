// SPDX-License-Identifier: Apache-2.0
// Memory of tensors on any device. Elements on a GPU reach the host by fetch() and store() alone; nothing
// else of the frontend knows how they get there.
#pragma once

#include <memory>

#include "frontend/impl.h"
#include "frontend/tensor.h"

namespace kiln::detail {

/// Elements where `device` has them, and what keeps them there.
struct DeviceTensor {
  TensorRef ref;  ///< `data` is an address of `device`
  std::shared_ptr<void> storage;
  Device device = {};
};

/// Throws: device, "<what> (<loc>): ...", when there is no such device.
void require_device(Device device, const char* what, SourceLoc loc);
/// At least `bytes` of fresh memory for `tensor`, which has its dtype and shape. Throws: device, when there
/// is no such device or no more memory; names the tensor and the op that makes it.
std::shared_ptr<Storage> make_storage(Device device, size_t bytes, const TensorImpl& tensor);
/// Fresh, contiguous. Throws: as make_storage.
DeviceTensor make_device_tensor(Device device, DType dtype, Sizes shape);

/// Makes all bytes of a GPU's memory 0.
void clear(const Storage& s);

/// From now on nothing may write there but what let_write() was called for: a result that was given out.
/// Looked after by the simulated GPU alone.
void hold(Storage& s);
/// Before a write to tensors of that memory that the user has asked for.
void let_write(Storage& s);

/// The memory of `t`. The other writes over one of before, whose vectors it takes over.
DeviceTensor memory_of(const TensorImpl& t);
void memory_of(const TensorImpl& t, DeviceTensor& out);
/// Fresh memory on `device` that holds the elements of `t` with its strides.
ImplPtr upload(const HostTensor& t, Device device);

/// The elements for the host, with their strides: shared with the CPU's memory, copied from any other's.
/// Blocks: until what was launched before is done.
HostTensor fetch(const DeviceTensor& t);
HostTensor fetch(const TensorImpl& t);
/// to[i] = from[i] over equal shapes and dtypes, any strides; `from` is the host's memory.
void store(const TensorRef& from, const DeviceTensor& to);
/// The same between any two devices. The two do not overlap.
void copy_elements(const DeviceTensor& from, const DeviceTensor& to);

/// `t` on `device`: a copy, in row-major order, without history.
ImplPtr transferred(const TensorImpl& t, Device device);

/// A tensor of the CPU that stands for a number, and so meets tensors of any device.
bool is_number(const TensorImpl& t);
/// The memory of `t` for something that runs on `device`: its own, or a copy if it is a number.
/// Throws: unsupported, when it lies elsewhere; `what` names the op and its line.
DeviceTensor memory_on(Device device, const TensorImpl& t, const std::string& what);
void memory_on(Device device, const TensorImpl& t, const std::string& what, DeviceTensor& out);

}  // namespace kiln::detail
