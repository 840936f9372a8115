// SPDX-License-Identifier: Apache-2.0
// The machine, its devices and their contexts; the table of all functions.
#include "runtime/cuda/sim_driver.h"

#include <algorithm>
#include <cstring>

#include "runtime/cuda/sim_capture.h"

namespace kiln::cuda {

namespace sim {

namespace {

struct ErrorRow {
  Result code;
  const char* name;
  const char* text;
};
constexpr ErrorRow kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kStubLibrary, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a library without a driver"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {kInvalidPtx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {kUnsupportedPtxVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kIllegalState, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {kLaunchTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {kHardwareStackError, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {kIllegalInstruction, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {kMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {kInvalidAddressSpace, "CUDA_ERROR_INVALID_ADDRESS_SPACE",
     "operation not supported on global/shared address space"},
    {kInvalidPc, "CUDA_ERROR_INVALID_PC", "invalid program counter"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {kSystemDriverMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kCaptureMerge, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {kCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {kCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {kCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {kCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {kCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorRow* find_error(Result r) {
  const auto* row =
      std::find_if(std::begin(kErrors), std::end(kErrors), [r](auto& e) { return e.code == r; });
  return row == std::end(kErrors) ? nullptr : row;
}

struct AttributeRow {
  int attribute, value;
};
// Of an H100 SXM.
constexpr AttributeRow kAttributes[] = {
    {kMaxThreadsPerBlock, BlockRunner::kMaxThreads},
    {kMaxSharedPerBlock, 48 << 10},
    {kWarpSize, 32},
    {kMaxRegistersPerBlock, 65536},
    {kClockRateKhz, 1980000},
    {kMultiprocessorCount, 132},
    {kMemoryClockRateKhz, 2619000},
    {kMemoryBusBits, 5120},
    {kL2Bytes, 50 << 20},
    {kMaxThreadsPerMultiprocessor, 2048},
    {kComputeMajor, 9},
    {kComputeMinor, 0},
    {kMaxSharedPerMultiprocessor, 228 << 10},
    {kMaxRegistersPerMultiprocessor, 65536},
    {kMaxSharedPerBlockOptin, BlockRunner::kSharedBytes},
    {kMaxBlocksPerMultiprocessor, 32},
    {kMemoryPoolsSupported, 1},
};

// body(machine) if there is such a device.
template <class Body>
Result call_for_device(DeviceId device, Body&& body) {
  return call([&](Machine& m, Lock& lock) {
    if (device < 0 || device >= m.config.devices)
      return m.refuse(kInvalidDevice, fmt::format("device {} of {}", device, m.config.devices));
    return body(m, lock);
  });
}

}  // namespace

namespace api {

Result init(unsigned flags) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  if (flags != 0) return kInvalidValue;
  if (m.config.devices == 0) return kNoDevice;
  m.initialized = true;
  return kSuccess;
}

Result driver_version(int* version) {
  *version = 13000;
  return kSuccess;
}

Result error_name(Result r, const char** text) {
  const ErrorRow* row = find_error(r);
  *text = row ? row->name : nullptr;
  return row ? kSuccess : kInvalidValue;
}

Result error_string(Result r, const char** text) {
  const ErrorRow* row = find_error(r);
  *text = row ? row->text : nullptr;
  return row ? kSuccess : kInvalidValue;
}

Result device_count(int* count) {
  return call([&](Machine& m, Lock&) {
    *count = m.config.devices;
    return kSuccess;
  });
}

Result device_get(DeviceId* device, int ordinal) {
  return call_for_device(ordinal, [&](Machine&, Lock&) {
    *device = ordinal;
    return kSuccess;
  });
}

Result device_name(char* name, int room, DeviceId device) {
  return call_for_device(device, [&](Machine&, Lock&) {
    if (room <= 0) return kInvalidValue;
    std::strncpy(name, "Kiln simulated GPU", static_cast<size_t>(room));
    name[room - 1] = '\0';
    return kSuccess;
  });
}

Result device_attribute(int* value, int attribute, DeviceId device) {
  return call_for_device(device, [&](Machine& m, Lock&) {
    for (const AttributeRow& row : kAttributes)
      if (row.attribute == attribute) {
        *value = row.value;
        return kSuccess;
      }
    return m.refuse(kInvalidValue, fmt::format("device attribute {} is not simulated", attribute));
  });
}

Result device_memory(size_t* bytes, DeviceId device) {
  return call_for_device(device, [&](Machine& m, Lock&) {
    *bytes = m.config.memory;
    return kSuccess;
  });
}

Result context_retain(Context* context, DeviceId device) {
  return call_for_device(device, [&](Machine& m, Lock&) {
    auto& c = m.contexts[device];
    if (!c) c = std::make_unique<ContextObject>(device, m.streams++);
    ++c->retained;
    *context = c.get();
    return kSuccess;
  });
}

Result context_release(DeviceId device) {
  return call_for_device(device, [&](Machine& m, Lock& lock) {
    auto& c = m.contexts[device];
    if (!c) return m.refuse(kInvalidContext, fmt::format("device {} has no context to release", device));
    if (--c->retained > 0) return kSuccess;
    m.finish_all(*c, lock);
    m.history.forget(c->space.base(), DeviceSpace::kBytes);
    c = nullptr;
    return kSuccess;
  });
}

Result context_set(Context context) {
  return call([&](Machine& m, Lock&) {
    if (context && !m.context(context)) return m.refuse(kInvalidContext, "no such context");
    current_context() = context;
    return kSuccess;
  });
}

Result context_synchronize() {
  return call_in_context([&](Machine& m, ContextObject& c, Lock& lock) {
    if (const Result r = check_whole(c, "cuCtxSynchronize")) return r;
    ++m.host_waits;
    m.finish_all(c, lock);
    return c.error.code;
  });
}

std::string fault() {
  Machine& m = machine();
  const Lock lock(m.mutex);
  return m.fault;
}

}  // namespace api

}  // namespace sim

const Driver& simulated_driver() {
  static constexpr Driver driver = [] {
    Driver d;
#define KILN_SIM_ENTRY(member, name, parameters) d.member = sim::api::member;
    KILN_CUDA_DRIVER_FUNCTIONS(KILN_SIM_ENTRY)
#undef KILN_SIM_ENTRY
    d.simulated = true;
    d.load_source = sim::api::load_source;
    d.declare = sim::api::declare;
    d.forget = sim::api::forget;
    d.hold = sim::api::hold;
    d.fault = sim::api::fault;
    return d;
  }();
  return driver;
}

}  // namespace kiln::cuda
