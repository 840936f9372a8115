// SPDX-License-Identifier: Apache-2.0
// One entry of the disk cache as bytes: header, full key, payload, under one checksum. Knows nothing of
// folders.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

/// The key that an entry carries: its kind and what the caller gave.
std::string entry_key(std::string_view kind, std::string_view key);

/// The bytes of an entry.
std::string encode_entry(std::string_view full_key, std::string_view payload);

enum class EntryState : uint8_t {
  good,
  absent,
  damaged,  ///< not an entry of this format, cut short, changed, or it cannot be read
};

/// What a file holds.
struct EntryContent {
  EntryState state = EntryState::absent;
  std::string full_key, payload;  ///< of a good entry
  std::string why;                ///< of one that is not good
};

/// Reads and checks an entry, and marks it as used if `touch`. Never waits on what is not a file.
EntryContent read_entry(const std::string& path, bool touch);

}  // namespace kiln
