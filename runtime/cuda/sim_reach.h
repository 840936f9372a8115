// SPDX-License-Identifier: Apache-2.0
// What a launch may touch: the buffers that its plan declared or, where nothing was declared, whatever is
// allocated. Ranges that overlap are cut up, so that every byte has one answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"

namespace kiln::cuda::sim {

/// A DeclaredAccess whose name is kept.
struct Buffer {
  Address address = 0;
  uint64_t bytes = 0;
  bool read = false, written = false;
  std::string name;
  bool gaps = false;
};

class Reach {
 public:
  struct Range {
    Address begin = 0, end = 0;
    bool read = false, written = false;
    uint32_t buffer = 0;  ///< one that has these bytes
    bool gaps = false;
    /// All of [address, address + bytes) is in it; an address may be anything.
    bool has(Address address, unsigned bytes) const {
      return address >= begin && address < end && bytes <= end - address;
    }
  };

  Reach() = default;
  Reach(Reach&&) = default;  // and no copies: last_ points into this one
  explicit Reach(std::vector<Buffer> buffers);

  /// The range that has all these bytes, or null.
  const Range* find(Address address, unsigned bytes) const {
    if (last_ && last_->has(address, bytes)) return last_;
    return search(address, bytes);
  }
  /// Each of these bytes may be used so: where an access crosses from one range to the next.
  bool allows(Address address, unsigned bytes, bool write) const;
  const Buffer& buffer(const Range& r) const { return buffers_[r.buffer]; }
  /// The buffer that an address is in, or else is nearest to, and not over 64 KiB away; null if none.
  const Buffer* nearest(Address address) const;
  const std::vector<Buffer>& buffers() const { return buffers_; }

 private:
  const Range* search(Address address, unsigned bytes) const;

  std::vector<Buffer> buffers_;
  std::vector<Range> ranges_;  ///< by address, apart from each other
  mutable const Range* last_ = nullptr;
};

}  // namespace kiln::cuda::sim
