// SPDX-License-Identifier: Apache-2.0
// Collectives: a start and a wait around memory that the kernels write directly.
#include <algorithm>

#include "codegen/lower_parts.h"
#include "ir/bucket_layout.h"

namespace kiln::detail {

Collective add_all_reduce(const Graph& g, const Node& n, int index, std::vector<Cell>& cells,
                          std::vector<Work>& works) {
  Collective c;
  c.cell = n.out.id;
  std::vector<Type> types;
  for (Value v : n.in) types.push_back(g.type(v));
  const Dim size(static_cast<int64_t>(dtype_size(g.type(n.out).dtype)));
  for (const Dim& offset : bucket_layout(types).offsets) c.at.push_back(offset * size);
  for (Value v : n.in) c.operands.push_back(v.id);
  // Who reads the result waits for the wait, which has nothing to read but that it was started.
  const int started = static_cast<int>(cells.size());
  cells.push_back({DType::u8, Dim(0), -1, "started"});
  Work w;
  w.kernel = index;
  w.tasks = Dim(1);
  w.scratch = w.bytes = w.flops = Dim(0);
  w.cells = {c.cell};
  w.nodes = {g.producer(n.out)};
  w.kind = LaunchKind::start;
  w.reads = c.operands;
  w.writes = {started};
  c.start = works.size();
  works.push_back(w);
  w.kind = LaunchKind::wait;
  w.reads = {started};
  w.writes = {c.cell};
  c.wait = works.size();
  works.push_back(std::move(w));
  return c;
}

Work copy_work(int copy, int from, int to, const Dim& bytes) {
  constexpr int64_t kChunk = 1 << 16;
  Work w;
  w.kernel = copy;
  w.cells = {from, to};
  w.reads = {from};
  w.writes = {to};
  w.dims = {bytes, Dim(kChunk)};
  w.tasks = ceildiv(bytes, Dim(kChunk));
  w.scratch = Dim(0);
  w.bytes = bytes * Dim(2);
  w.flops = Dim(0);
  return w;
}

void place_operands(Collective& c, const std::function<int()>& copy, std::vector<Cell>& cells,
                    std::vector<Work>& works) {
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const int cell = c.operands[i];
    if (cells[static_cast<size_t>(cell)].bytes.is(0)) continue;
    const auto readers = std::count_if(works.begin(), works.end(), [&](const Work& w) {
      return std::count(w.reads.begin(), w.reads.end(), cell) > 0;
    });
    const bool once = std::count(c.operands.begin(), c.operands.end(), cell) == 1;
    const bool bucket = std::any_of(works.begin(), works.end(), [&](const Work& w) {
      return w.kind == LaunchKind::wait && w.writes.front() == cell;
    });
    if (cells[static_cast<size_t>(cell)].buffer < 0 && readers == 1 && once && !bucket) {
      cells[static_cast<size_t>(cell)].inside = c.cell;
      cells[static_cast<size_t>(cell)].at = c.at[i];
      continue;
    }
    Cell piece = cells[static_cast<size_t>(cell)];
    piece.buffer = -1;
    piece.inside = c.cell;
    piece.at = c.at[i];
    const int to = static_cast<int>(cells.size());
    cells.push_back(piece);
    works.push_back(copy_work(copy(), cell, to, piece.bytes));
    works[c.start].reads[i] = to;
  }
}

}  // namespace kiln::detail
