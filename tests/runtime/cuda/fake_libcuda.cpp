// SPDX-License-Identifier: Apache-2.0
// The functions of libcuda that are called while it is opened. A test says what they answer.
#include "runtime/cuda/driver.h"

extern "C" {
int fake_version = 13000, fake_init = 0, fake_count = 1;

int cuDriverGetVersion(int* version) {
  *version = fake_version;
  return 0;
}
int cuInit(unsigned) { return fake_init; }
int cuDeviceGetCount(int* count) {
  *count = fake_count;
  return 0;
}
int cuGetErrorName(int result, const char** text) {
  *text = "CUDA_ERROR_UNKNOWN";
  return result == kiln::cuda::kUnknown ? 0 : kiln::cuda::kInvalidValue;
}
int cuGetErrorString(int result, const char** text) {
  *text = "unknown error";
  return result == kiln::cuda::kUnknown ? 0 : kiln::cuda::kInvalidValue;
}
}
