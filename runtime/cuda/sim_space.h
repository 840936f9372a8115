// SPDX-License-Identifier: Apache-2.0
// The memory of one simulated device: its addresses, what is allocated there, and the shadow of every byte:
// was it ever written, and who touched it last within a launch.
//
// Addresses are none of this process's: a host that follows one crashes at once. They are the same in every
// run, and one is not given out twice until the whole range of addresses has been used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/sim_shadow.h"

namespace kiln::cuda::sim {

/// A piece of device memory that was asked for.
struct Allocation {
  uint64_t offset = 0, bytes = 0;
  bool live = true;
  bool pooled = false;  ///< stream-ordered
  bool ending = false;  ///< a stream is to free it
};

class DeviceSpace {
 public:
  /// Throws: device, when the process has no room for the addresses.
  explicit DeviceSpace(int device);
  ~DeviceSpace();
  DeviceSpace(const DeviceSpace&) = delete;
  DeviceSpace& operator=(const DeviceSpace&) = delete;

  /// Address of fresh memory, at a multiple of 256; 0 when no addresses are left.
  Address allocate(uint64_t bytes, bool pooled);
  /// Marks it freed: its contents are gone, and its addresses stay unused as long as possible.
  void release(const Allocation& allocation);
  void mark_ending(const Allocation& allocation) { allocations_.at(allocation.offset).ending = true; }
  /// The allocation that holds this address, freed ones too as far as they are remembered; null if none.
  const Allocation* find(Address address) const;
  /// Live and wholly inside one allocation.
  bool live(Address address, uint64_t bytes) const;
  const std::map<uint64_t, Allocation>& allocations() const { return allocations_; }

  Address base() const { return base_; }
  bool contains(Address address) const { return address - base_ < kBytes; }
  Address address_of(const Allocation& a) const { return base_ + a.offset; }
  uint64_t offset_of(Address address) const { return address - base_; }
  std::byte* data(Address address) { return data_ + (address - base_); }
  /// Of the whole space, to be used with offset_of.
  Cell* cells() { return cells_; }

  // Which bytes were ever written.
  bool written(Address address, unsigned bytes) const;  ///< up to 16, not across a multiple of 16
  void set_written(Address address, unsigned bytes);
  bool all_written(Address address, uint64_t bytes) const;
  void set_all_written(Address address, uint64_t bytes, bool on);
  void copy_written(Address to, const DeviceSpace& source, Address from, uint64_t bytes);
  /// Fills what was never written with the bytes that read as NaN.
  void poison_unwritten(Address address, uint64_t bytes, std::byte* copy) const;
  /// Forgets who touched what, for when the count of ticks begins again.
  void forget_touches();

#ifdef __SANITIZE_THREAD__  // leaves few addresses
  static constexpr uint64_t kBytes = uint64_t{16} << 30;
#else
  static constexpr uint64_t kBytes = uint64_t{96} << 30;
#endif
  static constexpr std::byte kPoison{0xFF};

 private:
  uint64_t place(uint64_t room);
  void reuse(uint64_t offset, uint64_t bytes);

  Address base_;
  std::byte* data_ = nullptr;
  uint16_t* written_ = nullptr;  ///< a bit for each byte
  Cell* cells_ = nullptr;
  std::map<uint64_t, Allocation> allocations_;  ///< by offset
  std::deque<uint64_t> freed_;                  ///< offsets, oldest first
  std::map<uint64_t, uint64_t> reusable_;       ///< offset -> bytes
  uint64_t fresh_ = 0;                          ///< addresses from here on were never used
};

/// The device that an address is of, or -1.
int device_of(Address address);

}  // namespace kiln::cuda::sim
