// SPDX-License-Identifier: Apache-2.0
// Who touched memory last, and whether a barrier lies between that and a touch now. One launch runs at a
// time and its blocks one after the other, so a tick counted at every barrier is all the time there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kiln::cuda::sim {

/// A touch: bits 32 and up the tick, 0 to 10 the thread, and flags. 0 is none.
using Touch = uint64_t;
inline constexpr Touch kThreadMask = 0x7FF;
inline constexpr Touch kManyLanes = 1 << 11;   ///< other lanes of that warp, too, since its last meeting
inline constexpr Touch kManyWarps = 1 << 12;   ///< threads of other warps, too, since the last barrier
inline constexpr Touch kOtherBlock = 1 << 13;  ///< and a block before
inline constexpr Touch kSplit = 1 << 14;       ///< of a word whose bytes are told apart

/// Shadow of 16 bytes, a word of 4 bytes each. Of a split word `reader` is an index of Splits.
struct alignas(64) Cell {
  static constexpr unsigned kBytes = 16;
  Touch writer[4], reader[4];
};

/// The same 16 bytes of shared memory as one, for the many reads of all of them.
struct Row {
  Touch reader = 0;    ///< of all at once, besides those in the cell
  uint32_t clean = 0;  ///< the barrier since which nobody has written there; 0: not known
};

/// A word whose bytes different threads touch.
struct Split {
  Touch writer[4], reader[4];
};
using Splits = std::vector<Split>;

/// The time of the running thread.
struct Now {
  uint32_t floor = 1;  ///< the launch began; earlier touches mean nothing
  uint32_t block = 1;  ///< this block began
  uint32_t phase = 1;  ///< its last barrier
  uint32_t tick = 1;
  uint32_t thread = 0;
  uint32_t warp = 1;  ///< the last meeting of this thread's warp
  Touch mine() const { return Touch{tick} << 32 | thread; }
};

inline uint32_t tick_of(Touch t) { return static_cast<uint32_t>(t >> 32); }

/// True if nothing orders `t` before now.
inline bool races(Touch t, const Now& now) {
  const uint32_t tick = tick_of(t);
  if (tick < now.floor) return false;
  if (tick < now.block || (t & kOtherBlock)) return true;
  if (tick < now.phase) return false;
  if (t & kManyWarps) return true;
  const auto thread = static_cast<uint32_t>(t & kThreadMask);
  if (thread == now.thread && !(t & kManyLanes)) return false;
  return thread >> 5 != now.thread >> 5 || tick >= now.warp;
}

/// `reader` after a read now.
inline Touch after_read(Touch reader, const Now& now) {
  const uint32_t tick = tick_of(reader);
  const Touch mine = now.mine();
  if (reader == mine || tick < now.floor) return mine;
  if (tick < now.block) return mine | kOtherBlock;
  const Touch other = reader & kOtherBlock;
  if (tick < now.phase) return mine | other;
  const auto thread = static_cast<uint32_t>(reader & kThreadMask);
  if (thread >> 5 != now.thread >> 5) return mine | other | kManyWarps;
  const Touch many = reader & (kManyLanes | kManyWarps);
  if (tick < now.warp) return mine | other | (many & kManyWarps);
  return mine | other | many | (thread == now.thread ? 0 : kManyLanes);
}

/// A touch that another one is not ordered with, in `other`; 0 if there is none.
inline Touch touch(Touch& writer, Touch& reader, bool write, const Now& now) {
  if (races(writer, now)) return writer;
  if (!write) {
    reader = after_read(reader, now);
    return 0;
  }
  if (races(reader, now)) return reader;
  writer = now.mine();
  reader = 0;
  return 0;
}

/// Whether it is known that nobody has written there since the last barrier.
inline bool clean(const Cell& cell, const Now& now) {
  for (const Touch t : cell.writer)
    if ((t & kSplit) || tick_of(t) >= now.phase) return false;
  return true;
}

/// What a touch ran into.
struct Conflict {
  Touch other = 0;  ///< 0: nothing
  bool wrote = false;
};

/// touch_bytes() of several words, of less than one, or of one whose bytes are told apart.
Conflict touch_parts(Cell* cells, uint64_t offset, unsigned bytes, bool write, const Now& now,
                     Splits& splits);

/// A touch of `bytes` bytes at `offset` of the memory whose shadow begins at `cells`.
inline Conflict touch_bytes(Cell* cells, uint64_t offset, unsigned bytes, bool write, const Now& now,
                            Splits& splits) {
  Cell& cell = cells[offset / Cell::kBytes];
  const unsigned word = offset % Cell::kBytes / 4;
  const Touch before = cell.writer[word];
  if (bytes != 4 || (before & kSplit)) return touch_parts(cells, offset, bytes, write, now, splits);
  const Touch other = touch(cell.writer[word], cell.reader[word], write, now);
  return {other, other != 0 && other == before};
}

/// The same in a block's shared memory, with its rows.
inline Conflict touch_shared(Cell* cells, Row* rows, uint64_t offset, unsigned bytes, bool write,
                             const Now& now, Splits& splits) {
  Row& row = rows[offset / Cell::kBytes];
  const bool whole = !write && bytes == Cell::kBytes;
  if (whole && row.clean == now.phase) {
    row.reader = after_read(row.reader, now);
    return {};
  }
  if (write && races(row.reader, now)) return {row.reader, false};
  const Conflict c = touch_bytes(cells, offset, bytes, write, now, splits);
  if (c.other) return c;
  if (write) row.clean = 0;
  if (whole && clean(cells[offset / Cell::kBytes], now)) row.clean = now.phase;
  return c;
}

}  // namespace kiln::cuda::sim
