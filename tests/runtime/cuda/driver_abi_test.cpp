// SPDX-License-Identifier: Apache-2.0
// What runtime/cuda/driver.h declares for itself, against the toolkit's own header.
#include <cuda.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>

#include "runtime/cuda/driver.h"
#include "tests/runtime/cuda/own_types.h"

namespace kiln::cuda {

KILN_SAME(CUdeviceptr, Address)
KILN_SAME(CUctx_st, ContextObject)
KILN_SAME(CUmod_st, ModuleObject)
KILN_SAME(CUfunc_st, FunctionObject)
KILN_SAME(CUstream_st, StreamObject)
KILN_SAME(CUevent_st, EventObject)
KILN_SAME(CUgraph_st, GraphObject)
KILN_SAME(CUgraphExec_st, GraphExecObject)
KILN_SAME(CUmemPoolHandle_st, PoolObject)

namespace KILN_FILE {

// cuda.h's macros give a name its version; both must be expanded to the same.
#define KILN_TEXT_OF(x) #x
#define KILN_EXPANDED(x) KILN_TEXT_OF(x)
#define KILN_CHECK_FUNCTION(member, theirs)                                                              \
  static_assert(Alike<decltype(Driver::member), typename Own<decltype(&theirs)>::type>::value, #theirs); \
  EXPECT_EQ(exported(#member), KILN_EXPANDED(theirs));                                                   \
  ++checked;

std::string exported(const std::string& member) {
#define KILN_NAME(m, name, parameters) \
  if (member == #m) return name;
  KILN_CUDA_DRIVER_FUNCTIONS(KILN_NAME)
#undef KILN_NAME
  return "";
}

constexpr std::pair<int, int> kNumbers[] = {
    {kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY},
    {kSuccess, CUDA_SUCCESS},
    {kInvalidValue, CUDA_ERROR_INVALID_VALUE},
    {kNotInitialized, CUDA_ERROR_NOT_INITIALIZED},
    {kStubLibrary, CUDA_ERROR_STUB_LIBRARY},
    {kNoDevice, CUDA_ERROR_NO_DEVICE},
    {kInvalidDevice, CUDA_ERROR_INVALID_DEVICE},
    {kInvalidImage, CUDA_ERROR_INVALID_IMAGE},
    {kInvalidContext, CUDA_ERROR_INVALID_CONTEXT},
    {kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU},
    {kInvalidPtx, CUDA_ERROR_INVALID_PTX},
    {kUncorrectableEcc, CUDA_ERROR_ECC_UNCORRECTABLE},
    {kNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE},
    {kAssert, CUDA_ERROR_ASSERT},
    {kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
    {kInvalidHandle, CUDA_ERROR_INVALID_HANDLE},
    {kNotFound, CUDA_ERROR_NOT_FOUND},
    {kNotReady, CUDA_ERROR_NOT_READY},
    {kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS},
    {kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES},
    {kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT},
    {kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR},
    {kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION},
    {kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS},
    {kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE},
    {kInvalidPc, CUDA_ERROR_INVALID_PC},
    {kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED},
    {kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH},
    {kCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
    {kCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED},
    {kCaptureMerge, CUDA_ERROR_STREAM_CAPTURE_MERGE},
    {kCaptureUnmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED},
    {kCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED},
    {kCaptureIsolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION},
    {kCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT},
    {kCapturedEvent, CUDA_ERROR_CAPTURED_EVENT},
    {kCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD},
    {kUnknown, CUDA_ERROR_UNKNOWN},
    {kMaxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {kMaxSharedPerBlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {kWarpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {kMaxRegistersPerBlock, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {kClockRateKhz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {kMemoryClockRateKhz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {kMemoryBusBits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH},
    {kL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {kMaxThreadsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {kComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {kComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {kMaxSharedPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
    {kMaxRegistersPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {kMaxSharedPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {kMaxBlocksPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
    {kMemoryPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
    {kFunctionSharedBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES},
    {kFunctionLocalBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES},
    {kFunctionRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS},
    {kFunctionMaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES},
    {kPoolReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD},
    {kPoolReservedCurrent, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT},
    {kPoolReservedHigh, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH},
    {kPoolUsedCurrent, CU_MEMPOOL_ATTR_USED_MEM_CURRENT},
    {kPoolUsedHigh, CU_MEMPOOL_ATTR_USED_MEM_HIGH},
    {kStreamNonBlocking, CU_STREAM_NON_BLOCKING},
    {kEventDisableTiming, CU_EVENT_DISABLE_TIMING},
    {kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE},
    {kCaptureGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL},
    {kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
    {kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED},
    {kCaptureStatusNone, CU_STREAM_CAPTURE_STATUS_NONE},
    {kCaptureStatusActive, CU_STREAM_CAPTURE_STATUS_ACTIVE},
    {kCaptureStatusInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED},
};

TEST(DriverAbi, NumbersAreTheToolkits) {
  for (const auto& [ours, theirs] : kNumbers) EXPECT_EQ(ours, theirs);
}

void check_graphs(int& checked) {
  // Drivers before 12.8 have this name alone.
  EXPECT_EQ(exported("event_elapsed"), "cuEventElapsedTime");
  static_assert(Alike<decltype(Driver::event_elapsed), Own<decltype(&cuEventElapsedTime)>::type>::value);
  ++checked;
  KILN_CHECK_FUNCTION(module_load, cuModuleLoadData)
  KILN_CHECK_FUNCTION(module_unload, cuModuleUnload)
  KILN_CHECK_FUNCTION(module_function, cuModuleGetFunction)
  KILN_CHECK_FUNCTION(function_get, cuFuncGetAttribute)
  KILN_CHECK_FUNCTION(function_set, cuFuncSetAttribute)
  KILN_CHECK_FUNCTION(launch, cuLaunchKernel)
  KILN_CHECK_FUNCTION(host_function, cuLaunchHostFunc)
  KILN_CHECK_FUNCTION(capture_begin, cuStreamBeginCapture)
  KILN_CHECK_FUNCTION(capture_end, cuStreamEndCapture)
  KILN_CHECK_FUNCTION(capture_status, cuStreamIsCapturing)
  KILN_CHECK_FUNCTION(graph_instantiate, cuGraphInstantiateWithFlags)
  KILN_CHECK_FUNCTION(graph_launch, cuGraphLaunch)
  KILN_CHECK_FUNCTION(graph_exec_destroy, cuGraphExecDestroy)
  KILN_CHECK_FUNCTION(graph_destroy, cuGraphDestroy)
}

TEST(DriverAbi, FunctionsAreTheToolkits) {
  int checked = 0, listed = 0;
  KILN_CHECK_FUNCTION(init, cuInit)
  KILN_CHECK_FUNCTION(driver_version, cuDriverGetVersion)
  KILN_CHECK_FUNCTION(error_name, cuGetErrorName)
  KILN_CHECK_FUNCTION(error_string, cuGetErrorString)
  KILN_CHECK_FUNCTION(device_count, cuDeviceGetCount)
  KILN_CHECK_FUNCTION(device_get, cuDeviceGet)
  KILN_CHECK_FUNCTION(device_name, cuDeviceGetName)
  KILN_CHECK_FUNCTION(device_attribute, cuDeviceGetAttribute)
  KILN_CHECK_FUNCTION(device_memory, cuDeviceTotalMem)
  KILN_CHECK_FUNCTION(context_retain, cuDevicePrimaryCtxRetain)
  KILN_CHECK_FUNCTION(context_release, cuDevicePrimaryCtxRelease)
  KILN_CHECK_FUNCTION(context_set, cuCtxSetCurrent)
  KILN_CHECK_FUNCTION(context_synchronize, cuCtxSynchronize)
  KILN_CHECK_FUNCTION(memory_info, cuMemGetInfo)
  KILN_CHECK_FUNCTION(allocate, cuMemAlloc)
  KILN_CHECK_FUNCTION(release, cuMemFree)
  KILN_CHECK_FUNCTION(allocate_async, cuMemAllocFromPoolAsync)
  KILN_CHECK_FUNCTION(release_async, cuMemFreeAsync)
  KILN_CHECK_FUNCTION(default_pool, cuDeviceGetDefaultMemPool)
  KILN_CHECK_FUNCTION(pool_set, cuMemPoolSetAttribute)
  KILN_CHECK_FUNCTION(pool_get, cuMemPoolGetAttribute)
  KILN_CHECK_FUNCTION(pool_trim, cuMemPoolTrimTo)
  KILN_CHECK_FUNCTION(host_allocate, cuMemHostAlloc)
  KILN_CHECK_FUNCTION(host_release, cuMemFreeHost)
  KILN_CHECK_FUNCTION(copy_to_device, cuMemcpyHtoDAsync)
  KILN_CHECK_FUNCTION(copy_to_host, cuMemcpyDtoHAsync)
  KILN_CHECK_FUNCTION(copy_on_device, cuMemcpyDtoDAsync)
  KILN_CHECK_FUNCTION(set_bytes, cuMemsetD8Async)
  KILN_CHECK_FUNCTION(set_words, cuMemsetD32Async)
  KILN_CHECK_FUNCTION(stream_create, cuStreamCreateWithPriority)
  KILN_CHECK_FUNCTION(stream_destroy, cuStreamDestroy)
  KILN_CHECK_FUNCTION(stream_synchronize, cuStreamSynchronize)
  KILN_CHECK_FUNCTION(stream_query, cuStreamQuery)
  KILN_CHECK_FUNCTION(stream_wait, cuStreamWaitEvent)
  KILN_CHECK_FUNCTION(event_create, cuEventCreate)
  KILN_CHECK_FUNCTION(event_destroy, cuEventDestroy)
  KILN_CHECK_FUNCTION(event_record, cuEventRecord)
  KILN_CHECK_FUNCTION(event_query, cuEventQuery)
  KILN_CHECK_FUNCTION(event_synchronize, cuEventSynchronize)
  check_graphs(checked);
#define KILN_COUNT(member, name, parameters) ++listed;
  KILN_CUDA_DRIVER_FUNCTIONS(KILN_COUNT)
#undef KILN_COUNT
  EXPECT_EQ(checked, listed);
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda
