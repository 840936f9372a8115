// SPDX-License-Identifier: Apache-2.0
#include "frontend/dlpack.h"

#include <algorithm>
#include <functional>

#include "frontend/cuda.h"
#include "frontend/dlpack_abi.h"
#include "frontend/ops.h"
#include "frontend/state.h"

namespace kiln {

namespace {

constexpr uint32_t kMajor = 1, kMinor = 1;

struct TypeCode {
  DType dtype;
  uint8_t code, bits;
};
constexpr TypeCode kTypeCodes[] = {{DType::boolean, kDLBool, 8}, {DType::u8, kDLUInt, 8},
                                   {DType::i32, kDLInt, 32},     {DType::i64, kDLInt, 64},
                                   {DType::f16, kDLFloat, 16},   {DType::bf16, kDLBfloat, 16},
                                   {DType::f32, kDLFloat, 32},   {DType::f64, kDLFloat, 64}};

DType dtype_of(const DLDataType& t, Loc loc) {
  for (const TypeCode& row : kTypeCodes)
    if (t.code == row.code && t.bits == row.bits && t.lanes == 1) return row.dtype;
  constexpr const char* kNames[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  const std::string name = t.code < std::size(kNames) ? kNames[t.code] : fmt::format("code {}, ", t.code);
  throw Error(
      ErrorKind::unsupported,
      fmt::format("from_dlpack ({}): elements are {}{}{}; expected bool, uint8, int32, int64, float16, "
                  "bfloat16, float32 or float64",
                  loc.str(), name, t.bits, t.lanes == 1 ? "" : fmt::format(" x {}", t.lanes)));
}

Device device_of(const DLDevice& d, Loc loc) {
  if (d.device_type == kDLCPU || d.device_type == kDLCUDAHost) return Device::cpu();
  KILN_CHECK(d.device_type == kDLCUDA, unsupported,
             "from_dlpack ({}): memory of DLPack's device type {}; expected 1 (CPU), 2 (CUDA) or 3 (CUDA's "
             "memory of the host)",
             loc.str(), static_cast<int32_t>(d.device_type));
  KILN_CHECK(d.device_id >= 0 && d.device_id < cuda::device_count(), device,
             "from_dlpack ({}): memory of GPU {}; there are {}", loc.str(), d.device_id,
             cuda::device_count());
  return Device::cuda(d.device_id);
}

Sizes strides_of(const DLTensor& t, Loc loc) {
  if (!t.strides) return {};
  Sizes strides(t.strides, t.strides + t.ndim);
  for (const int64_t s : strides)
    KILN_CHECK(s >= 0, unsupported,
               "from_dlpack ({}): negative strides [{}] (copy it in row-major order first)", loc.str(),
               fmt::join(strides, ","));
  return strides;
}

/// Views what `t` says; `release` runs when the last view has gone.
Tensor view_of(const DLTensor& t, std::function<void()> release, Loc loc) {
  constexpr int32_t kMostDims = 64;
  KILN_CHECK(t.ndim >= 0 && t.ndim <= kMostDims && (t.ndim == 0 || t.shape), invalid,
             "from_dlpack ({}): got {} dims{}, expected 0 to {}, and their sizes", loc.str(), t.ndim,
             t.shape ? "" : " without sizes", kMostDims);
  const DType dtype = dtype_of(t.dtype, loc);
  const Device device = device_of(t.device, loc);
  char* data = t.data ? static_cast<char*>(t.data) + t.byte_offset : nullptr;
  const bool empty = std::any_of(t.shape, t.shape + t.ndim, [](int64_t d) { return d == 0; });
  KILN_CHECK(data || empty, invalid, "from_dlpack ({}): null data for sizes [{}]", loc.str(),
             fmt::join(t.shape, t.shape + t.ndim, ","));
  // The deleter must not run before all is known to be right: it is given last.
  Tensor out = Tensor::from_blob(data, Sizes(t.shape, t.shape + t.ndim), dtype, strides_of(t, loc), {}, loc);
  detail::Storage& storage = *out.impl()->storage;
  out.impl()->device = storage.device = device;
  storage.owner = std::shared_ptr<void>(&storage, [device, release = std::move(release)](void*) {
    if (device.is_cuda()) {
      try {
        cuda::synchronize(device.index);
      } catch (const Error&) {  // a GPU that has failed runs nothing any more
      }
    }
    release();
  });
  return out;
}

template <typename Managed>
Tensor take(Managed* capsule, bool copy, Loc loc) {
  const auto release = [capsule] {
    if (capsule->deleter) capsule->deleter(capsule);
  };
  if (!copy) return view_of(capsule->dl_tensor, release, loc);
  Tensor out;
  {
    const NoGrad guard;
    out = view_of(
              capsule->dl_tensor, [] {}, loc)
              .clone(loc);
  }
  if (out.is_cuda()) cuda::synchronize(out.device().index);
  release();
  return out;
}

/// What a capsule points to.
template <typename Managed>
struct Exported {
  Managed managed{};
  detail::ImplPtr tensor;  ///< shares the memory, and has the shape and strides
};

template <typename Managed>
Managed* exported(const Tensor& tensor, const char* what, Loc loc) {
  detail::checked(tensor, what, loc);
  KILN_CHECK(!tensor.requires_grad(), invalid,
             "{} ({}): {} requires grad, which other libraries do not see (detach() it)", what, loc.str(),
             tensor.type_str());
  detail::materialise(*tensor.impl(), what, loc);
  const Device device = tensor.device();
  if (device.is_cuda()) cuda::synchronize(device.index);
  auto out = std::make_unique<Exported<Managed>>();
  out->tensor = detail::alias_without_history(*tensor.impl());
  DLTensor& t = out->managed.dl_tensor;
  t.data = out->tensor->device_ref().data;
  t.device = {device.is_cuda() ? kDLCUDA : kDLCPU, device.is_cuda() ? device.index : 0};
  t.ndim = static_cast<int32_t>(tensor.dim());
  const TypeCode& type = *std::find_if(std::begin(kTypeCodes), std::end(kTypeCodes),
                                       [&](const TypeCode& row) { return row.dtype == tensor.dtype(); });
  t.dtype = {type.code, type.bits, 1};
  t.shape = out->tensor->shape.data();
  t.strides = out->tensor->strides.data();
  out->managed.manager_ctx = out.get();
  out->managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->manager_ctx); };
  return &out.release()->managed;
}

}  // namespace

Tensor from_dlpack(DLManagedTensor* capsule, bool copy, Loc loc) {
  KILN_CHECK(capsule, invalid, "from_dlpack ({}): the capsule is null", loc.str());
  return take(capsule, copy, loc);
}

Tensor from_dlpack(DLManagedTensorVersioned* capsule, bool copy, Loc loc) {
  KILN_CHECK(capsule, invalid, "from_dlpack ({}): the capsule is null", loc.str());
  KILN_CHECK(capsule->version.major == kMajor, unsupported,
             "from_dlpack ({}): the capsule is of DLPack {}.{}; expected {}.x", loc.str(),
             capsule->version.major, capsule->version.minor, kMajor);
  KILN_CHECK(copy || (capsule->flags & DLPACK_FLAG_BITMASK_READ_ONLY) == 0, unsupported,
             "from_dlpack ({}): the memory is read-only, and tensors can be written (pass copy=true)",
             loc.str());
  return take(capsule, copy, loc);
}

DLManagedTensor* to_dlpack(const Tensor& tensor, Loc loc) {
  return exported<DLManagedTensor>(tensor, "to_dlpack", loc);
}

DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor, Loc loc) {
  auto* out = exported<DLManagedTensorVersioned>(tensor, "to_dlpack_versioned", loc);
  out->version = {kMajor, kMinor};
  return out;
}

}  // namespace kiln
