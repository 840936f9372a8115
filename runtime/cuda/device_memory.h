// SPDX-License-Identifier: Apache-2.0
// Pieces of memory that a device hands out, and counts of it. Each goes back where it came from when it is
// destroyed. See runtime/cuda/device.h for where they are made.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "runtime/cuda/driver.h"

namespace kiln {

class CudaDevice;

/// Memory of a device, given back when destroyed. It is ordered by the compute stream: what is put there
/// after allocate() may use it, and so may what was put there before it is given back. Starts at a multiple
/// of 256.
class CudaMemory {
 public:
  CudaMemory() = default;
  CudaMemory(CudaMemory&& other) noexcept { *this = std::move(other); }
  CudaMemory& operator=(CudaMemory&& other) noexcept;
  ~CudaMemory() { release(); }

  cuda::Address address() const { return address_; }
  void* data() const { return reinterpret_cast<void*>(address_); }
  size_t bytes() const { return bytes_; }
  explicit operator bool() const { return address_ != 0; }
  void release();

 private:
  friend class CudaDevice;
  CudaDevice* device_ = nullptr;
  cuda::Address address_ = 0;
  size_t bytes_ = 0;
  size_t* holder_ = nullptr;  // bytes of those who hold it
};

/// Memory that nothing may write to as long as this lives. Empty on a device that cannot tell.
class CudaHold {
 public:
  CudaHold() = default;
  CudaHold(CudaHold&& other) noexcept { *this = std::move(other); }
  CudaHold& operator=(CudaHold&& other) noexcept;
  ~CudaHold();

  explicit operator bool() const { return device_ != nullptr; }

 private:
  friend class CudaDevice;
  CudaDevice* device_ = nullptr;
  cuda::Address address_ = 0;
};

/// Host memory that copies to and from devices read and write while the host goes on. Null if it is empty.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  friend class CudaDevice;
  CudaDevice* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Units: bytes.
struct CudaMemoryStats {
  size_t in_use = 0, peak = 0;  ///< of CudaMemory
  size_t reserved = 0;          ///< that the pool has from the device
  size_t free = 0, total = 0;   ///< of the device
};

/// Who holds the memory that graphs have.
inline constexpr std::string_view kCudaGraphHolder = "CUDA graphs";

/// How much the graphs of a device may be (runtime/cuda/graph.h).
struct CudaGraphCaps {
  int per_plan = 0;  ///< graphs
  size_t bytes = 0;  ///< of all together, but for plans with collectives
};

}  // namespace kiln
