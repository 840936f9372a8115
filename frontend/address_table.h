// SPDX-License-Identifier: Apache-2.0
// What one call knows of objects by their addresses: a flat hash table, since following looks operands up at
// every op.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace kiln::detail {

template <typename Value>
class AddressTable {
 public:
  /// Null where nothing is known of `key`, as of a null one.
  const Value* find(const void* key) const {
    if (!key) return nullptr;
    for (size_t i = place(key);; i = (i + 1) & mask_) {
      if (entries_[i].key == key) return &entries_[i].value;
      if (!entries_[i].key) return nullptr;
    }
  }
  /// Keeps the value of a key that is there.
  void insert(const void* key, Value value) {
    if (!key) return;
    if (2 * (count_ + 1) > entries_.size()) resize(2 * entries_.size());
    put(key, std::move(value));
  }
  /// Rebuilds without `key`; only a failed op does this.
  void erase(const void* key) {
    const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(entries_.size()));
    count_ = 0;
    for (const Entry& e : old)
      if (e.key && e.key != key) put(e.key, e.value);
  }
  /// Room for so many without growing.
  void reserve(size_t count) {
    size_t size = entries_.size();
    while (2 * count > size) size *= 2;
    if (size > entries_.size()) resize(size);
  }

 private:
  struct Entry {
    const void* key = nullptr;
    Value value = {};
  };
  size_t place(const void* key) const {
    return (reinterpret_cast<uintptr_t>(key) * 0x9E3779B97F4A7C15u >> 32) & mask_;
  }
  void put(const void* key, Value value) {
    size_t i = place(key);
    while (entries_[i].key && entries_[i].key != key) i = (i + 1) & mask_;
    if (entries_[i].key) return;
    ++count_;
    entries_[i] = {key, std::move(value)};
  }
  void resize(size_t size) {
    const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(size));
    mask_ = size - 1;
    count_ = 0;
    for (const Entry& e : old)
      if (e.key) put(e.key, e.value);
  }

  std::vector<Entry> entries_{16};
  size_t mask_ = 15, count_ = 0;
};

}  // namespace kiln::detail
