// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as a table of functions: libcuda's, opened at run time, or those of the simulated device.
// Declares what it uses of the driver's binary interface itself, so that Kiln builds where no toolkit is; a
// test compares with cuda.h where there is one. Source: CUDA Driver API reference, CUDA 12 and 13.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ir/kernel_image.h"

namespace kiln::cuda {

// --- types, as in cuda.h ---

using Result = int;  ///< CUresult
inline constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3,
                        kStubLibrary = 34, kNoDevice = 100, kInvalidDevice = 101, kInvalidImage = 200,
                        kInvalidContext = 201, kNoBinaryForGpu = 209, kUncorrectableEcc = 214,
                        kInvalidPtx = 218, kNvlinkUncorrectable = 220, kUnsupportedPtxVersion = 222,
                        kInvalidHandle = 400, kIllegalState = 401, kNotFound = 500, kNotReady = 600,
                        kIllegalAddress = 700, kLaunchOutOfResources = 701, kLaunchTimeout = 702,
                        kAssert = 710, kHardwareStackError = 714, kIllegalInstruction = 715,
                        kMisalignedAddress = 716, kInvalidAddressSpace = 717, kInvalidPc = 718,
                        kLaunchFailed = 719, kNotPermitted = 800, kSystemDriverMismatch = 803,
                        kCaptureUnsupported = 900, kCaptureInvalidated = 901, kCaptureMerge = 902,
                        kCaptureUnmatched = 903, kCaptureUnjoined = 904, kCaptureIsolation = 905,
                        kCaptureImplicit = 906, kCapturedEvent = 907, kCaptureWrongThread = 908,
                        kUnknown = 999;

using DeviceId = int;      ///< CUdevice
using Address = uint64_t;  ///< CUdeviceptr
struct ContextObject;      ///< CUctx_st
struct ModuleObject;       ///< CUmod_st
struct FunctionObject;     ///< CUfunc_st
struct StreamObject;       ///< CUstream_st
struct EventObject;        ///< CUevent_st
struct GraphObject;        ///< CUgraph_st
struct GraphExecObject;    ///< CUgraphExec_st
struct PoolObject;         ///< CUmemPoolHandle_st
using Context = ContextObject*;
using Module = ModuleObject*;
using Function = FunctionObject*;
using Stream = StreamObject*;
using Event = EventObject*;
using Graph = GraphObject*;
using GraphExec = GraphExecObject*;
using Pool = PoolObject*;
using HostFn = void (*)(void*);  ///< CUhostFn

// CUdevice_attribute
inline constexpr int kMaxThreadsPerBlock = 1, kMaxSharedPerBlock = 8, kWarpSize = 10,
                     kMaxRegistersPerBlock = 12, kClockRateKhz = 13, kMultiprocessorCount = 16,
                     kMemoryClockRateKhz = 36, kMemoryBusBits = 37, kL2Bytes = 38,
                     kMaxThreadsPerMultiprocessor = 39, kComputeMajor = 75, kComputeMinor = 76,
                     kMaxSharedPerMultiprocessor = 81, kMaxRegistersPerMultiprocessor = 82,
                     kMaxSharedPerBlockOptin = 97, kMaxBlocksPerMultiprocessor = 106,
                     kMemoryPoolsSupported = 115;
// CUfunction_attribute
inline constexpr int kFunctionSharedBytes = 1, kFunctionLocalBytes = 3, kFunctionRegisters = 4,
                     kFunctionMaxDynamicShared = 8;
// CUmemPool_attribute
inline constexpr int kPoolReleaseThreshold = 4, kPoolReservedCurrent = 5, kPoolReservedHigh = 6,
                     kPoolUsedCurrent = 7, kPoolUsedHigh = 8;
inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2, kHostAllocPortable = 1;
inline constexpr int kCaptureGlobal = 0, kCaptureThreadLocal = 1,
                     kCaptureRelaxed = 2;  ///< CUstreamCaptureMode
inline constexpr int kCaptureStatusNone = 0, kCaptureStatusActive = 1, kCaptureStatusInvalidated = 2;

/// The functions that Kiln calls. X(member, exported name, parameters): the exported names are those that
/// cuda.h's macros choose, with their versions.
#define KILN_CUDA_DRIVER_FUNCTIONS(X)                                                                       \
  X(init, "cuInit", (unsigned flags))                                                                       \
  X(driver_version, "cuDriverGetVersion", (int* version))                                                   \
  X(error_name, "cuGetErrorName", (Result r, const char** text))                                            \
  X(error_string, "cuGetErrorString", (Result r, const char** text))                                        \
  X(device_count, "cuDeviceGetCount", (int* count))                                                         \
  X(device_get, "cuDeviceGet", (DeviceId * device, int ordinal))                                            \
  X(device_name, "cuDeviceGetName", (char* name, int room, DeviceId device))                                \
  X(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, DeviceId device))                 \
  X(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, DeviceId device))                                \
  X(context_retain, "cuDevicePrimaryCtxRetain", (Context * context, DeviceId device))                       \
  X(context_release, "cuDevicePrimaryCtxRelease_v2", (DeviceId device))                                     \
  X(context_set, "cuCtxSetCurrent", (Context context))                                                      \
  X(context_synchronize, "cuCtxSynchronize", (void))                                                        \
  X(memory_info, "cuMemGetInfo_v2", (size_t * free, size_t * total))                                        \
  X(allocate, "cuMemAlloc_v2", (Address * address, size_t bytes))                                           \
  X(release, "cuMemFree_v2", (Address address))                                                             \
  X(allocate_async, "cuMemAllocFromPoolAsync", (Address * address, size_t bytes, Pool pool, Stream stream)) \
  X(release_async, "cuMemFreeAsync", (Address address, Stream stream))                                      \
  X(default_pool, "cuDeviceGetDefaultMemPool", (Pool * pool, DeviceId device))                              \
  X(pool_set, "cuMemPoolSetAttribute", (Pool pool, int attribute, void* value))                             \
  X(pool_get, "cuMemPoolGetAttribute", (Pool pool, int attribute, void* value))                             \
  X(pool_trim, "cuMemPoolTrimTo", (Pool pool, size_t keep))                                                 \
  X(host_allocate, "cuMemHostAlloc", (void** address, size_t bytes, unsigned flags))                        \
  X(host_release, "cuMemFreeHost", (void* address))                                                         \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2", (Address to, const void* from, size_t bytes, Stream stream))    \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void* to, Address from, size_t bytes, Stream stream))            \
  X(copy_on_device, "cuMemcpyDtoDAsync_v2", (Address to, Address from, size_t bytes, Stream stream))        \
  X(set_bytes, "cuMemsetD8Async", (Address to, unsigned char value, size_t bytes, Stream stream))           \
  X(set_words, "cuMemsetD32Async", (Address to, unsigned value, size_t words, Stream stream))               \
  X(stream_create, "cuStreamCreateWithPriority", (Stream * stream, unsigned flags, int priority))           \
  X(stream_destroy, "cuStreamDestroy_v2", (Stream stream))                                                  \
  X(stream_synchronize, "cuStreamSynchronize", (Stream stream))                                             \
  X(stream_query, "cuStreamQuery", (Stream stream))                                                         \
  X(stream_wait, "cuStreamWaitEvent", (Stream stream, Event event, unsigned flags))                         \
  X(event_create, "cuEventCreate", (Event * event, unsigned flags))                                         \
  X(event_destroy, "cuEventDestroy_v2", (Event event))                                                      \
  X(event_record, "cuEventRecord", (Event event, Stream stream))                                            \
  X(event_query, "cuEventQuery", (Event event))                                                             \
  X(event_synchronize, "cuEventSynchronize", (Event event))                                                 \
  X(event_elapsed, "cuEventElapsedTime", (float* ms, Event start, Event end))                               \
  X(module_load, "cuModuleLoadData", (Module * module, const void* image))                                  \
  X(module_unload, "cuModuleUnload", (Module module))                                                       \
  X(module_function, "cuModuleGetFunction", (Function * function, Module module, const char* name))         \
  X(function_get, "cuFuncGetAttribute", (int* value, int attribute, Function function))                     \
  X(function_set, "cuFuncSetAttribute", (Function function, int attribute, int value))                      \
  X(launch, "cuLaunchKernel",                                                                               \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,                \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters,           \
     void** extra))                                                                                         \
  X(host_function, "cuLaunchHostFunc", (Stream stream, HostFn function, void* data))                        \
  X(capture_begin, "cuStreamBeginCapture_v2", (Stream stream, int mode))                                    \
  X(capture_end, "cuStreamEndCapture", (Stream stream, Graph * graph))                                      \
  X(capture_status, "cuStreamIsCapturing", (Stream stream, int* status))                                    \
  X(graph_instantiate, "cuGraphInstantiateWithFlags",                                                       \
    (GraphExec * exec, Graph graph, unsigned long long flags))                                              \
  X(graph_launch, "cuGraphLaunch", (GraphExec exec, Stream stream))                                         \
  X(graph_exec_destroy, "cuGraphExecDestroy", (GraphExec exec))                                             \
  X(graph_destroy, "cuGraphDestroy", (Graph graph))

/// Memory that the next launch of a thread may touch, as its plan declares it.
struct DeclaredAccess {
  Address address = 0;
  uint64_t bytes = 0;
  bool read = false, written = false;
  const char* name = "";  ///< for reports: "fc1.weight", "%12"
  bool gaps = false;      ///< what lies there is also read where nothing was written, and nobody uses that
};

/// The driver that this process uses.
struct Driver {
#define KILN_CUDA_MEMBER(member, name, parameters) Result(*member) parameters = nullptr;
  KILN_CUDA_DRIVER_FUNCTIONS(KILN_CUDA_MEMBER)
#undef KILN_CUDA_MEMBER

  bool simulated = false;
  // The simulated device alone; null otherwise.
  /// In place of module_load: kernels come as source.
  Result (*load_source)(Module* module, const CudaModule& source) = nullptr;
  /// Before each launch, by the thread that launches: what it may touch, with sizes. Kernels that touch
  /// anything else are at fault.
  Result (*declare)(const DeclaredAccess* accesses, size_t count) = nullptr;
  /// What these bytes hold is no longer of use, from that moment of the stream on: to be written before they
  /// are read. For memory that a plan uses again.
  Result (*forget)(Address address, uint64_t bytes, Stream stream) = nullptr;
  /// An output that somebody holds, or no longer: work that is asked for meanwhile and writes there is at
  /// fault.
  Result (*hold)(Address address, uint64_t bytes, bool held) = nullptr;
  /// What the last failure was, in words: "missing barrier: thread 3 of block 0 reads ...". "" if none.
  std::string (*fault)() = nullptr;
};

/// The driver that KILN_CUDA_DRIVER asks for: auto takes libcuda if it is there and has a device, sim the
/// simulated one, off none. Null where there is none; `why` then says so in words for an error.
/// Threads: any. Opened once.
const Driver* find_driver(std::string& why);

/// The simulated device's functions. Defined with the simulator.
const Driver& simulated_driver();

/// Turns a kernel source into an ELF shared object for the simulator (see ir/sim_abi.h). Set once, by whoever
/// knows a compiler, before the first simulated module is loaded.
using SimCompile = std::string (*)(const CudaModule& module);
void set_sim_compile(SimCompile compile);

}  // namespace kiln::cuda
