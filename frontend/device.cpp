// SPDX-License-Identifier: Apache-2.0
#include "frontend/device.h"

#include <algorithm>

#include "frontend/late.h"
#include "frontend/state.h"
#include "ir/host_memory.h"
#include "ir/interpret.h"
#include "runtime/cuda/device.h"

namespace kiln::detail {

namespace {

/// The bytes that the elements of a tensor lie in: [first, first + size) from its data on.
struct Span {
  int64_t first = 0;
  size_t size = 0;
};
Span span_of(const TensorRef& t) {
  int64_t low = 0, high = 0;
  for (size_t i = 0; i < t.shape.size(); ++i) {
    if (t.shape[i] == 0) return {};
    const int64_t way = (t.shape[i] - 1) * t.strides[i];
    low += std::min<int64_t>(way, 0);
    high += std::max<int64_t>(way, 0);
  }
  const auto size = static_cast<int64_t>(dtype_size(t.dtype));
  return {low * size, static_cast<size_t>((high - low + 1) * size)};
}

char* bytes_of(const TensorRef& t) { return static_cast<char*>(t.data); }

/// Whether every byte of the span is an element's.
bool is_dense(const TensorRef& t) {
  return span_of(t).size == static_cast<size_t>(t.numel()) * dtype_size(t.dtype);
}

/// Host memory of the layout of `t`, and the tensor in it.
HostTensor host_like(const TensorRef& t) {
  const Span span = span_of(t);
  HostTensor out = make_host_tensor(DType::u8, {static_cast<int64_t>(span.size)});
  out.ref = {t.dtype, bytes_of(out.ref) - span.first, t.shape, t.strides};
  return out;
}

cuda::Address address_of(const void* p) { return reinterpret_cast<cuda::Address>(p); }

/// Blocks where the host's memory is one side, or checks have yet to say whether `from` was computed.
void copy_bytes(Device to_device, void* to, Device from_device, const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (!from_device.is_cuda()) return cuda_device(to_device.index).copy_to_device(address_of(to), from, bytes);
  CudaDevice& gpu = cuda_device(from_device.index);
  if (!to_device.is_cuda()) gpu.copy_to_host(to, address_of(from), bytes);
  settle(from_device);
  if (to_device.is_cuda()) gpu.copy_on_device(address_of(to), address_of(from), bytes);
}

/// Fresh memory of a GPU for `tensor`, with the bytes at `from` in it unless that is null.
std::shared_ptr<Storage> gpu_storage(Device device, size_t bytes, const TensorImpl& tensor,
                                     const void* from) {
  const auto what = [&] {
    const bool known = state().user_loc().known();
    return fmt::format("{}{}", type_text(tensor.type(), Device::cpu()),
                       known ? " of " + state().place() : "");
  };
  CudaDevice& gpu = cuda_device(device.index);
  const auto memory = std::make_shared<CudaMemory>(
      from && bytes > 0 ? gpu.upload(from, bytes, "tensors", what)
                        : gpu.allocate(std::max<size_t>(bytes, 1), "tensors", what));
  auto storage = std::make_shared<Storage>();
  storage->device = device;
  storage->bytes = bytes;
  storage->data = static_cast<char*>(memory->data());
  storage->owner = memory;
  return storage;
}

}  // namespace

void require_device(Device device, const char* what, SourceLoc loc) {
  if (!device.is_cuda()) return;
  try {
    cuda_device(device.index);
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("{} ({}): {}", what, loc.str(), e.what()), loc);
  }
}

std::shared_ptr<Storage> make_storage(Device device, size_t bytes, const TensorImpl& tensor) {
  if (device.is_cuda()) return gpu_storage(device, bytes, tensor, nullptr);
  auto storage = std::make_shared<Storage>();
  storage->device = device;
  storage->bytes = bytes;
  storage->owner = host_block(bytes);
  storage->data = static_cast<char*>(storage->owner.get());
  return storage;
}

void clear(const Storage& s) {
  if (s.bytes > 0) cuda_device(s.device.index).fill(address_of(s.data), 0, s.bytes);
}

void hold(Storage& s) {
  if (!s.device.is_cuda() || s.held) return;
  CudaHold held = cuda_device(s.device.index).hold(address_of(s.data), s.bytes);
  if (held) s.held = std::make_shared<CudaHold>(std::move(held));
}

void let_write(Storage& s) { s.held.reset(); }

DeviceTensor make_device_tensor(Device device, DType dtype, Sizes shape) {
  if (device.is_cuda()) return memory_of(*make_impl(dtype, std::move(shape), device));
  HostTensor t = make_host_tensor(dtype, std::move(shape));
  return {std::move(t.ref), std::move(t.storage), device};
}

DeviceTensor memory_of(const TensorImpl& t) {
  DeviceTensor out;
  memory_of(t, out);
  return out;
}
void memory_of(const TensorImpl& t, DeviceTensor& out) {
  out.ref.dtype = t.dtype;
  out.ref.data = t.device_data();
  out.ref.shape = t.shape;
  out.ref.strides = t.strides;
  out.storage = t.storage;
  out.device = t.device;
}

ImplPtr upload(const HostTensor& t, Device device) {
  const Span span = span_of(t.ref);
  auto impl = std::make_shared<TensorImpl>();
  impl->dtype = t.ref.dtype;
  impl->device = device;
  impl->shape = t.ref.shape;
  impl->strides = t.ref.strides;
  impl->offset = -span.first / static_cast<int64_t>(dtype_size(t.ref.dtype));
  impl->storage = gpu_storage(device, span.size, *impl, bytes_of(t.ref) + span.first);
  return impl;
}

HostTensor fetch(const DeviceTensor& t) {
  if (!t.device.is_cuda()) return {t.ref, t.storage};
  HostTensor out = host_like(t.ref);
  const Span span = span_of(t.ref);
  copy_bytes(Device::cpu(), bytes_of(out.ref) + span.first, t.device, bytes_of(t.ref) + span.first,
             span.size);
  return out;
}

HostTensor fetch(const TensorImpl& t) { return fetch(memory_of(t)); }

void store(const TensorRef& from, const DeviceTensor& to) {
  if (!to.device.is_cuda()) return copy_elements(from, to.ref);
  // What lies between the elements stays as it is.
  const HostTensor host = is_dense(to.ref) ? host_like(to.ref) : fetch(to);
  copy_elements(from, host.ref);
  const Span span = span_of(to.ref);
  copy_bytes(to.device, bytes_of(to.ref) + span.first, Device::cpu(), bytes_of(host.ref) + span.first,
             span.size);
}

void copy_elements(const DeviceTensor& from, const DeviceTensor& to) {
  // Between two GPUs by way of the host.
  const bool as_bytes = from.device == to.device && from.device.is_cuda() &&
                        from.ref.strides == to.ref.strides && is_dense(to.ref);
  if (!as_bytes) return store(fetch(from).ref, to);
  const Span span = span_of(to.ref);
  copy_bytes(to.device, bytes_of(to.ref) + span.first, from.device, bytes_of(from.ref) + span.first,
             span.size);
}

ImplPtr transferred(const TensorImpl& t, Device device) {
  if (device.is_cuda() && !t.device.is_cuda()) return upload(contiguous(fetch(t)), device);
  const ImplPtr out = make_impl(t.dtype, t.shape, device);
  copy_elements(memory_of(t), memory_of(*out));
  return out;
}

bool is_number(const TensorImpl& t) { return t.shape.empty() && !t.device.is_cuda(); }

DeviceTensor memory_on(Device device, const TensorImpl& t, const std::string& what) {
  DeviceTensor out;
  memory_on(device, t, what, out);
  return out;
}
void memory_on(Device device, const TensorImpl& t, const std::string& what, DeviceTensor& out) {
  if (t.device == device) return memory_of(t, out);
  KILN_CHECK(is_number(t), unsupported,
             "{}: runs on {} and needs {}, which is on {} (move it there before, with .to())", what,
             device.str(), describe(t), t.device.str());
  memory_of(*upload(host_of(t), device), out);
}

}  // namespace kiln::detail
