// SPDX-License-Identifier: Apache-2.0
#include "autotune/space.h"

#include <algorithm>
#include <span>

#include "codegen/blis.h"

namespace kiln {

namespace {

using Numbers = std::span<const int64_t>;
constexpr int64_t kTasks[] = {8, 32}, kManyTasks[] = {4, 8, 16, 32, 64};  // the rules aim at 16
constexpr int64_t kChunks[] = {256, 1024}, kManyChunks[] = {128, 256, 384, 512, 1024, 2048};
constexpr int64_t kMostRows = 14;                    // of a block
constexpr int64_t kLeastEdge = 64, kLeastTasks = 8;  // of tiles for a library
constexpr int64_t kLongRow = 64;  // elements of a row from which more accumulators can help
constexpr int64_t kAccumulators[] = {2, 8}, kManyAccumulators[] = {1, 2, 4, 8};

MatmulSchedule scheduled(const MatmulCase& c, const MatmulWish& wish) {
  return choose_matmul_schedule(c.spec, c.target, c.prologues(), wish);
}

}  // namespace

ScheduleSpace::ScheduleSpace(const TunableKernel& k, SpaceSize size) : k_(k), size_(size) {
  MatmulWish wish;
  if (const auto* c = std::get_if<MatmulCase>(&k.what)) {
    const MatmulSchedule s = scheduled(*c, {});
    first_ = str(s);
    wish.split_k = s.split_k;  // unless another is wished for, the numeric part stays
  } else {
    first_ = str(RowSchedule{});
  }
  given_.emplace(first_, wish);
}

void ScheduleSpace::add(const MatmulWish& wish, std::vector<std::string>& out) {
  std::string text = str(scheduled(std::get<MatmulCase>(k_.what), wish));
  if (given_.emplace(text, wish).second) out.push_back(std::move(text));
}
void ScheduleSpace::add(const BlisSchedule& s, std::vector<std::string>& out) {
  std::string text = str(s);
  if (given_.emplace(text, MatmulWish{}).second) out.push_back(std::move(text));
}
void ScheduleSpace::add(const RowSchedule& s, std::vector<std::string>& out) {
  std::string text = str(s);
  if (given_.emplace(text, MatmulWish{}).second) out.push_back(std::move(text));
}

std::string ScheduleSpace::with_numbers(std::string_view numeric) {
  if (numeric_part(first_) == numeric) return first_;
  const std::string text = std::string(numeric) + first_.substr(numeric_part(first_).size());
  std::vector<std::string> out;
  if (const auto matmul = parse_matmul_schedule(text)) {
    MatmulWish wish = given_.at(first_);
    wish.split_k = matmul->split_k;
    wish.apart = matmul->apart;
    add(wish, out);
  } else if (const auto blis = parse_blis_schedule(std::string(numeric) + ";")) {
    const auto* c = std::get_if<MatmulCase>(&k_.what);
    if (c && first_blis_schedule(*c)) add(*blis, out);
  } else if (const auto rows = parse_row_schedule(text)) {
    add(*rows, out);
  }
  return out.empty() ? first_ : out[0];
}

std::vector<std::string> ScheduleSpace::around(const std::string& from) {
  std::vector<std::string> out;
  if (const auto blis = parse_blis_schedule(from)) around_blis(*blis, out);
  else if (std::holds_alternative<MatmulCase>(k_.what)) around_matmul(given_.at(from), out);
  else if (const auto rows = parse_row_schedule(from)) around_rows(*rows, out);
  return out;
}

// --- matmul ---

void ScheduleSpace::around_matmul(const MatmulWish& from, std::vector<std::string>& out) {
  const bool wide = size_ == SpaceSize::wide;
  add_blocks(from, out);
  add_packing(from, out);
  for (const int64_t tasks : wide ? Numbers(kManyTasks) : Numbers(kTasks)) {
    MatmulWish wish = from;
    wish.tasks = tasks;
    add(wish, out);
  }
  const Dim k = std::get<MatmulCase>(k_.what).spec.products();
  for (const int64_t kc : wide ? Numbers(kManyChunks) : Numbers(kChunks)) {
    MatmulWish wish = from;
    wish.kc = kc;
    if (k.is_const() && kc < k.value()) add(wish, out);
  }
  add_splits(from, out);
  if (wide) add_others(from, out);
}

/// For each number of vectors the highest block that fits the registers, and in a wide space lower ones.
void ScheduleSpace::add_blocks(MatmulWish wish, std::vector<std::string>& out) {
  const auto& c = std::get<MatmulCase>(k_.what);
  const int64_t m = c.spec.m.is_const() ? std::max<int64_t>(c.spec.m.value(), 1) : kMostRows;
  for (wish.nv = 1; wish.nv <= 4; ++wish.nv) {
    const int64_t most = std::min<int64_t>({(c.target.vector_registers - 1) / wish.nv - 1, m, kMostRows});
    const int64_t least = size_ == SpaceSize::wide ? std::max<int64_t>(1, most / 2) : most;
    for (int64_t mr = most; mr >= std::max<int64_t>(least, 1); --mr) {
      wish.mr = static_cast<int>(mr);
      add(wish, out);
    }
  }
}

void ScheduleSpace::add_packing(const MatmulWish& from, std::vector<std::string>& out) {
  const auto& c = std::get<MatmulCase>(k_.what);
  const MatmulSpec& m = c.spec;
  const MatmulSchedule s = scheduled(c, from);
  const bool b_in_place = m.b.col_stride.is(1) && m.n.is_const() && m.n.value() % s.width == 0;
  MatmulWish wish = from;
  if (b_in_place && !c.fused.prologue[1] && !m.b.half) {
    wish.pack_b = !s.pack_b;
    add(wish, out);
    wish.pack_b = from.pack_b;
  }
  if (!m.k_outer.empty()) return;  // A stays in place
  for (const PackA p : {PackA::none, PackA::rows, PackA::cols}) {
    const bool in_place = s.pairs ? m.a.col_stride.is(1) : !m.a.half;
    const bool fits = p == PackA::none   ? !c.fused.prologue[0] && in_place
                      : p == PackA::rows ? m.a.col_stride.is(1)
                                         : m.a.row_stride.is(1);
    wish.pack_a = p;
    if (fits) add(wish, out);
  }
}

void ScheduleSpace::add_splits(MatmulWish wish, std::vector<std::string>& out) {
  const int first = parse_matmul_schedule(first_)->split_k, now = wish.split_k;
  if (first == 1) return;
  for (const int split : {1, now / 2, 2 * now}) {
    wish.split_k = std::clamp(split, 1, 4 * first);
    add(wish, out);
  }
}

/// What only a wide space has: tasks in another order, the epilogue apart, and a library.
void ScheduleSpace::add_others(const MatmulWish& from, std::vector<std::string>& out) {
  const auto& c = std::get<MatmulCase>(k_.what);
  MatmulWish wish = from;
  wish.by_rows = !from.by_rows;
  if (!scheduled(c, from).pack_b) add(wish, out);
  wish = from;
  wish.apart = !from.apart;
  if (c.fused.epilogue && !c.spec.c.half) add(wish, out);  // a product in halves would be rounded once more
  if (const auto blis = first_blis_schedule(c)) {
    add(*blis, out);
    around_blis(*blis, out);  // at once: larger tiles may win where the first are within the noise
  }
}

/// Tiles of twice and half the rows or columns. Tiles are numeric part, so what one thread finds fastest is
/// what any number of threads gets: enough of them must be left.
void ScheduleSpace::around_blis(const BlisSchedule& from, std::vector<std::string>& out) {
  const MatmulSpec& spec = std::get<MatmulCase>(k_.what).spec;
  const auto tasks = [&](const BlisSchedule& s) { return blis_call(spec, s)->tasks.value(); };
  const int64_t enough = std::min(kLeastTasks, tasks(from));
  for (const BlisSchedule& s : {BlisSchedule{from.tile_m / 2, from.tile_n},
                                {std::min(from.tile_m * 2, spec.m.value()), from.tile_n},
                                {from.tile_m, from.tile_n / 2},
                                {from.tile_m, std::min(from.tile_n * 2, spec.n.value())}})
    if (std::min(s.tile_m, s.tile_n) >= kLeastEdge && tasks(s) >= enough) add(s, out);
}

// --- rows ---

void ScheduleSpace::around_rows(const RowSchedule& from, std::vector<std::string>& out) {
  const auto& k = std::get<loop::Kernel>(k_.what);
  const Dim& cols = k.axes.back().extent;
  const bool partial = k.has(loop::InstrKind::partial), wide = size_ == SpaceSize::wide;
  RowSchedule s = from;
  for (const int width : {4, 8})
    if ((width == 8 || wide) && (!cols.is_const() || cols.value() > width)) {
      s.width = width;
      add(s, out);
    }
  s = from;
  const bool long_rows = !cols.is_const() || cols.value() >= kLongRow;
  if (long_rows && (partial || k.has(loop::InstrKind::reduce)))
    for (const int64_t n : wide ? Numbers(kManyAccumulators) : Numbers(kAccumulators)) {
      s.accumulators = static_cast<int>(n);
      add(s, out);
    }
  s = from;
  const Dim per = loop::rows_per_task(k), rows = k.extent(loop::AxisRole::row);
  if (partial || !per.is_const() || !rows.is_const()) return;
  const int64_t now = from.rows > 0 ? from.rows : per.value();
  for (const int64_t n : {now / 2, now * 2}) {
    s.rows = n;
    if (n >= 1 && n < rows.value()) add(s, out);
  }
}

std::vector<std::string> candidate_schedules(const TunableKernel& k) {
  ScheduleSpace space(k);
  std::vector<std::string> all = {space.first()};
  for (std::string& s : space.around(space.first())) all.push_back(std::move(s));
  return all;
}

}  // namespace kiln
