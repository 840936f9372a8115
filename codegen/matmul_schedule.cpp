// SPDX-License-Identifier: Apache-2.0
// Chooses register block, chunks, tiles and packing of a matmul from its shape and the target, by a small
// model of a core. Must not look at thread counts. What the rules rest on was measured on Zen 4 (AVX-512 and
// AVX2 code).
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "codegen/matmul_parts.h"
#include "ir/base/error.h"
#include "ir/base/rounding.h"

namespace kiln {

namespace {
constexpr int64_t kUnknown = 1024;      // a symbolic size counts as this
constexpr int64_t kSetStride = 4096;    // bytes after which addresses share a set of the first cache
constexpr int64_t kTaskWork = 1 << 18;  // multiply-adds below which a task is not worth its start
constexpr int64_t kTasks = 16;          // tasks to aim at
constexpr int64_t kSplitRange = 512;    // shortest range of a split k
constexpr int64_t kPart = 1024;         // range of a part of k: see by_parts

int64_t known(const Dim& d) { return d.is_const() ? std::max<int64_t>(1, d.value()) : kUnknown; }

/// With pairs k counts words: a step of the micro kernel takes one, as it takes an f32 without.
struct Problem {
  int64_t batch, m, n, k, size;
  bool pairs;
  const MatmulSpec& spec;
  const MatmulTarget& target;
  const MatmulWish& wish;
  int64_t a_size() const { return pairs ? 2 : size; }  ///< of an element that is read in place
  /// Whether k has runs and is so long that every tile would bring both operands from memory again. Then
  /// parts of k are summed apart, and all tiles of one part follow each other.
  bool by_parts() const {
    return !spec.k_outer.empty() && known(spec.k_outer[0]) > 1 && spec.products().is_const() &&
           k > 4 * std::max(m * batch, n);
  }
};

/// True if rows or columns that lie `stride` apart fall into the same few sets of the first cache.
bool collides(const Dim& stride, int64_t size) {
  return stride.is_const() && stride.value() != 0 && stride.value() * size % kSetStride == 0;
}

/// Cycles of one block of r rows and v vectors over k, the last of which may be half a one: multiply-adds,
/// their latency, or loads, and the block's own start and end.
double block_cycles(const Problem& x, double r, double v) {
  const bool wide = x.target.vector_bytes >= 64;
  const double fma = r * v * (wide ? 1.0 : 0.5);
  const double loads = v * (wide ? 1.0 : 0.5) + r * 0.5;
  const double step = std::max({fma, loads, 4.0}) + 0.1 * (r + v);
  return step * static_cast<double>(x.k) + 40.0 + 2.0 * r * v;
}

/// Cycles of joining two columns of A to words for all panels: once per tile of columns. Panels that are no
/// whole vectors are stored across cache lines. Without pairs copying is the same for all heights.
double panel_cycles(const Problem& x, int64_t mr) {
  if (!x.pairs || !x.spec.a.row_stride.is(1) || x.spec.a.col_stride.is(1)) return 0;
  constexpr int64_t kTileColumns = 192;
  const bool whole = std::has_single_bit(static_cast<uint64_t>(mr));
  return static_cast<double>(ceil_div(x.m, mr) * ceil_div(x.n, kTileColumns) * x.k) * (whole ? 4.0 : 6.0);
}

double matmul_cycles(const Problem& x, int64_t width, int64_t mr, int64_t nv) {
  const bool half = detail::has_half_tail(x.spec, static_cast<int>(width), x.pairs);
  const int64_t vectors = ceil_div(x.n, width), blocks = (vectors - half) / nv;
  const int64_t m_tail = x.m % mr, v_tail = vectors - blocks * nv;
  const auto row_of_blocks = [&](int64_t rows) {
    const auto r = static_cast<double>(rows);
    const double full = static_cast<double>(blocks) * block_cycles(x, r, static_cast<double>(nv));
    return full + (v_tail ? block_cycles(x, r, static_cast<double>(v_tail) - (half ? 0.5 : 0.0)) : 0.0);
  };
  const double total =
      static_cast<double>(x.m / mr) * row_of_blocks(mr) + (m_tail ? row_of_blocks(m_tail) : 0.0);
  // Every further kernel costs compile time: it must bring half a percent.
  return panel_cycles(x, mr) +
         total * (1.0 + 0.005 * (m_tail && x.m > mr) + 0.005 * (v_tail && vectors > nv));
}

void choose_block(const Problem& x, MatmulSchedule& s) {
  // Rows read in place share the cache's sets if their stride is a power of two: no more of them than ways.
  const int64_t most_rows = collides(x.spec.a.row_stride, x.a_size()) && x.k * x.size > 512 ? 8 : 14;
  double best = std::numeric_limits<double>::max();
  for (int64_t nv = 1; nv <= 4; ++nv)
    for (int64_t mr = 1; mr <= most_rows; ++mr) {
      if (mr * nv + nv + 1 > x.target.vector_registers || mr > std::max<int64_t>(x.m, 1)) continue;
      if ((x.wish.nv && nv != x.wish.nv) || (x.wish.mr && mr != x.wish.mr)) continue;
      const double cycles = matmul_cycles(x, s.width, mr, nv);
      if (cycles >= best) continue;
      best = cycles, s.mr = static_cast<int>(mr), s.nv = static_cast<int>(nv);
    }
}

void choose_packing(const Problem& x, const MatmulPrologues& prologues, MatmulSchedule& s) {
  const MatmulSpec& spec = x.spec;
  const bool b_in_place = spec.b.col_stride.is(1) && spec.n.is_const() && spec.n.value() % s.width == 0 &&
                          !prologues.b && !spec.b.half;
  const bool a_in_place = !prologues.a && (x.pairs ? spec.a.col_stride.is(1) : !spec.a.half);
  const bool shared = std::all_of(spec.b.batch_stride.begin(), spec.b.batch_stride.end(),
                                  [](const Dim& d) { return d.is(0); });
  const int64_t rows = x.spec.k_outer.empty() || !shared ? x.m : x.m * x.batch;
  // One panel whose rows follow each other is as it would be packed.
  const bool as_packed = spec.b.row_stride == spec.n && x.n <= int64_t{s.nv} * s.width;
  s.pack_b = !b_in_place || (!as_packed && rows > 2 * s.mr && x.k * x.n * x.size > x.target.l1_bytes);
  s.pack_a = PackA::none;
  // In columns A is read in long runs only if blocks lie side by side in cache; colliding ones push each
  // other out.
  const bool by_cols = spec.a.row_stride.is(1) && !spec.a.col_stride.is(1) && spec.k_outer.empty();
  if (by_cols && collides(spec.a.col_stride, x.a_size()) && x.k > 64 && x.n > 64) s.pack_a = PackA::cols;
  if (!a_in_place) s.pack_a = by_cols ? PackA::cols : PackA::rows;
  s.pack_a = x.wish.pack_a.value_or(s.pack_a);
  s.pack_b = x.wish.pack_b.value_or(s.pack_b);
}

/// Runs of k, or parts of one.
int64_t whole_runs(const Problem& x, int64_t steps) {
  if (!x.spec.k.is_const()) return std::min<int64_t>(steps, 1024);
  const int64_t run = std::max<int64_t>(1, x.spec.k.value());
  if (run > steps) return round_up(ceil_div(run, ceil_div(run, steps)), 8);
  return run * std::clamp<int64_t>(steps / run, 1, known(x.spec.k_outer.back()));
}

/// Chunks of k such that one panel of packed B stays in half of the second cache.
void choose_chunk(const Problem& x, MatmulSchedule& s) {
  const int64_t panel = int64_t{s.nv} * s.width * x.size;
  const int64_t wished = x.pairs ? ceil_div(x.wish.kc, 2) : x.wish.kc;
  const int64_t most = wished ? wished : std::max<int64_t>(256, x.target.l2_bytes / 2 / panel);
  if (!x.spec.k_outer.empty()) s.kc = whole_runs(x, most);
  else
    s.kc =
        x.spec.k.is_const() ? round_up(ceil_div(x.k, ceil_div(x.k, most)), 8) : std::min<int64_t>(most, 1024);
}

/// Parts of `size` in whole units, each at most `most`: the count whose last part is least short of the
/// others, since threads get equal numbers of tasks; of equals the fewest.
int64_t even_tile(int64_t size, int64_t most, int64_t unit) {
  const int64_t fewest = ceil_div(size, std::max(most, unit));
  int64_t best_tile = 0;
  double best = std::numeric_limits<double>::max();
  for (int64_t parts = fewest; parts <= 2 * fewest; ++parts) {
    const int64_t tile = round_up(ceil_div(size, parts), unit);
    const double padded = static_cast<double>(ceil_div(size, tile) * tile) / static_cast<double>(size);
    const double cost = padded + 0.01 * static_cast<double>(parts - fewest) / static_cast<double>(fewest);
    if (cost < best) best = cost, best_tile = tile;
  }
  return best_tile;
}

/// How much longer than its fair share the threads with whole tiles work, while the last tile is a part of
/// one.
double unevenness(int64_t size, int64_t tile) {
  return size <= tile ? 1.0 : static_cast<double>(ceil_div(size, tile) * tile) / static_cast<double>(size);
}

/// Whether to have smaller tiles along the columns rather than the rows: along the longer side, counted in
/// what a packed element is used for, unless the other way they are clearly more even.
bool halves_columns(const Problem& x, const MatmulPrologues& prologues, const MatmulSchedule& s) {
  constexpr double kClearly = 0.04;
  const int64_t nr = int64_t{s.nv} * s.width;
  if (s.tile_n <= nr || s.tile_m <= s.mc) return s.tile_n > nr;
  if (prologues.a) return s.tile_m < 4 * s.mc;
  const double by_n = unevenness(x.n, even_tile(x.n, s.tile_n / 2, nr)) * unevenness(x.m, s.tile_m);
  const double by_m = unevenness(x.m, even_tile(x.m, s.tile_m / 2, s.mc)) * unevenness(x.n, s.tile_n);
  return std::abs(by_n - by_m) > kClearly ? by_n < by_m : s.tile_n >= s.tile_m;
}

void choose_tiles(const Problem& x, const MatmulPrologues& prologues, MatmulSchedule& s) {
  const int64_t nr = int64_t{s.nv} * s.width;
  const bool chunked = x.k > s.kc;
  const int64_t b_columns = std::max(nr, x.target.l2_bytes / 2 / (std::min(x.k, s.kc) * x.size));
  int64_t most_n = s.pack_a == PackA::none ? std::min<int64_t>(192, b_columns) : 384;
  int64_t most_m = chunked ? 256 : 128;
  s.mc = s.pack_a == PackA::cols ? round_up(std::min<int64_t>(64, x.m), s.mr) : s.mr;
  // Each further tile of columns computes A again.
  const int64_t enough = x.wish.tasks ? x.wish.tasks : prologues.a ? kTasks / 2 : kTasks;
  while (true) {
    s.tile_m = even_tile(x.m, most_m, s.mc), s.tile_n = even_tile(x.n, most_n, nr);
    const int64_t tasks = ceil_div(x.m, s.tile_m) * ceil_div(x.n, s.tile_n) * x.batch;
    const bool can_halve = s.tile_m > s.mc || s.tile_n > nr;
    if (tasks >= enough || !can_halve || s.tile_m * s.tile_n * x.k < 2 * kTaskWork || x.by_parts()) return;
    if (halves_columns(x, prologues, s)) most_n = s.tile_n / 2;
    else most_m = s.tile_m / 2;
  }
}

/// Many columns share one computing of A: where they do not fit the second cache, shorter chunks of k do.
void fit_wide_tile(const Problem& x, MatmulSchedule& s) {
  const int64_t most = std::max<int64_t>(256, x.target.l2_bytes / (s.tile_n * x.size));
  if (!x.spec.k.is_const() || std::min(x.k, s.kc) <= 2 * most) return;
  s.kc = round_up(ceil_div(x.k, ceil_div(x.k, most)), s.width);  // no vector of A crosses a chunk
}

void choose_split(const Problem& x, MatmulSchedule& s) {
  const int64_t tasks = ceil_div(x.m, s.tile_m) * ceil_div(x.n, s.tile_n) * x.batch;
  s.split_k = std::max(x.wish.split_k, 1);
  if (!x.spec.products().is_const()) return;
  if (!x.wish.split_k && tasks < kTasks / 2)
    s.split_k = static_cast<int>(std::clamp<int64_t>(x.k / kSplitRange, 1, ceil_div(kTasks, tasks)));
  if (!x.spec.k_outer.empty()) {
    if (!x.wish.split_k && x.by_parts()) s.split_k = static_cast<int>(std::max<int64_t>(1, x.k / kPart));
    s.split_k = static_cast<int>(std::min<int64_t>(s.split_k, known(x.spec.k_outer[0])));
    return;
  }
  if (s.split_k > 1) s.kc = std::min(s.kc, round_up(ceil_div(x.k, s.split_k), 8));
}
}  // namespace

MatmulSchedule choose_matmul_schedule(const MatmulSpec& spec, const MatmulTarget& target,
                                      const MatmulPrologues& prologues, const MatmulWish& wish) {
  MatmulSchedule s;
  s.pairs = target.bf16_pairs && spec.a.half == DType::bf16 && spec.b.half == DType::bf16;
  Problem x{1,
            known(spec.m),
            known(spec.n),
            ceil_div(known(spec.k), s.pairs ? 2 : 1),  // times the axes around k, below
            static_cast<int64_t>(dtype_size(spec.dtype)),
            s.pairs,
            spec,
            target,
            wish};
  for (const Dim& d : spec.batch) x.batch *= known(d);
  for (const Dim& d : spec.k_outer) x.k *= known(d);
  s.width = static_cast<int>(target.vector_bytes / x.size);
  choose_block(x, s);
  choose_packing(x, prologues, s);
  choose_chunk(x, s);
  choose_tiles(x, prologues, s);
  if (prologues.a && !wish.kc) fit_wide_tile(x, s);
  choose_split(x, s);
  if (s.pairs) s.kc *= 2;
  s.apart = wish.apart;
  s.by_rows = wish.by_rows && !s.pack_b;
  return s;
}

}  // namespace kiln
