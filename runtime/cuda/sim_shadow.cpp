// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/sim_shadow.h"

namespace kiln::cuda::sim {

namespace {

Conflict conflict(Touch other, Touch writer) { return {other, other != 0 && other == writer}; }

// The bytes of the word, told apart: each begins with what was known of the whole.
Split& split(Touch& writer, Touch& reader, const Now& now, Splits& splits) {
  if ((writer & kSplit) && tick_of(writer) >= now.floor) return splits[reader];
  Split s;
  for (int i = 0; i < 4; ++i)
    s.writer[i] = writer & kSplit ? 0 : writer, s.reader[i] = writer & kSplit ? 0 : reader;
  reader = splits.size();
  writer = Touch{now.tick} << 32 | kSplit;
  splits.push_back(s);
  return splits.back();
}

Conflict touch_split(Split& s, unsigned first, unsigned count, bool write, const Now& now) {
  for (unsigned i = first; i < first + count; ++i) {
    const Touch before = s.writer[i];
    if (const Touch other = touch(s.writer[i], s.reader[i], write, now)) return conflict(other, before);
  }
  return {};
}

}  // namespace

Conflict touch_parts(Cell* cells, uint64_t offset, unsigned bytes, bool write, const Now& now,
                     Splits& splits) {
  Cell& cell = cells[offset / Cell::kBytes];
  const unsigned first = offset % Cell::kBytes / 4;
  if (bytes < 4)
    return touch_split(split(cell.writer[first], cell.reader[first], now, splits), offset % 4, bytes, write,
                       now);
  for (unsigned i = first; i < first + bytes / 4; ++i) {
    const Touch before = cell.writer[i];
    if (before & kSplit) {
      if (tick_of(before) >= now.floor) {
        const Conflict c = touch_split(splits[cell.reader[i]], 0, 4, write, now);
        if (c.other) return c;
        continue;
      }
      cell.writer[i] = cell.reader[i] = 0;
    }
    if (const Touch other = touch(cell.writer[i], cell.reader[i], write, now)) return conflict(other, before);
  }
  return {};
}

}  // namespace kiln::cuda::sim
