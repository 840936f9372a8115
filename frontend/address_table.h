// SPDX-License-Identifier: Apache-2.0
// Which slot an external tensor has in one call: a flat hash table, since following looks operands up at
// every op.
#pragma once

#include <cstdint>
#include <vector>

#include "frontend/trace.h"

namespace kiln::detail {

class SlotTable {
 public:
  /// The slot of `t`, or `missing`.
  Slot find(const TensorImpl* t, Slot missing) const {
    for (size_t i = place(t);; i = (i + 1) & mask_) {
      if (entries_[i].key == t) return entries_[i].slot;
      if (!entries_[i].key) return missing;
    }
  }
  void insert(const TensorImpl* t, Slot slot) {
    if (2 * (count_ + 1) > entries_.size()) grow();
    put(t, slot);
  }
  /// Rebuilds without `t`; only a failed op does this.
  void erase(const TensorImpl* t) {
    const std::vector<Entry> old = std::move(entries_);
    entries_.assign(old.size(), {});
    count_ = 0;
    for (const Entry& e : old)
      if (e.key && e.key != t) put(e.key, e.slot);
  }

 private:
  struct Entry {
    const TensorImpl* key = nullptr;
    Slot slot = kAbsent;
  };
  size_t place(const TensorImpl* t) const {
    return (reinterpret_cast<uintptr_t>(t) * 0x9E3779B97F4A7C15u >> 32) & mask_;
  }
  void put(const TensorImpl* t, Slot slot) {
    size_t i = place(t);
    while (entries_[i].key && entries_[i].key != t) i = (i + 1) & mask_;
    count_ += entries_[i].key == nullptr;
    entries_[i] = {t, slot};
  }
  void grow() {
    const std::vector<Entry> old = std::move(entries_);
    entries_.assign(2 * old.size(), {});
    mask_ = entries_.size() - 1;
    count_ = 0;
    for (const Entry& e : old)
      if (e.key) put(e.key, e.slot);
  }

  std::vector<Entry> entries_{16};
  size_t mask_ = 15, count_ = 0;
};

}  // namespace kiln::detail
