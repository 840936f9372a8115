// SPDX-License-Identifier: Apache-2.0
#include "autotune/space.h"

#include <algorithm>

namespace kiln {

namespace {

constexpr int64_t kTasks[] = {8, 32};  // the rules aim at 16
constexpr int64_t kChunks[] = {256, 1024};
constexpr int64_t kLongRow = 64;  // elements of a row from which more accumulators can help

class MatmulSpace {
 public:
  explicit MatmulSpace(const MatmulCase& c) : c_(c) {
    first_ = choose_matmul_schedule(c.spec, c.target, c.prologues());
    out_.push_back(str(first_));
  }
  std::vector<std::string> all() {
    blocks();
    packing();
    for (const int64_t tasks : kTasks) add({.tasks = tasks});
    const Dim k = c_.spec.products();
    for (const int64_t kc : kChunks)
      if (k.is_const() && kc < k.value()) add({.kc = kc});
    splits();
    return std::move(out_);
  }

 private:
  /// Unless it is wished for, the numeric part stays what the rules choose.
  void add(MatmulWish wish) {
    if (!wish.split_k) wish.split_k = first_.split_k;
    const std::string text = str(choose_matmul_schedule(c_.spec, c_.target, c_.prologues(), wish));
    if (std::find(out_.begin(), out_.end(), text) == out_.end()) out_.push_back(text);
  }
  /// For each number of vectors the highest block that fits the registers.
  void blocks() {
    const int64_t m = c_.spec.m.is_const() ? std::max<int64_t>(c_.spec.m.value(), 1) : 14;
    for (int nv = 1; nv <= 4; ++nv) {
      const auto mr = std::min<int64_t>({(c_.target.vector_registers - 1) / nv - 1, m, 14});
      if (mr >= 1) add({.mr = static_cast<int>(mr), .nv = nv});
    }
  }
  void packing() {
    const MatmulSpec& m = c_.spec;
    const bool b_in_place = m.b.col_stride.is(1) && m.n.is_const() && m.n.value() % first_.width == 0;
    if (b_in_place && !c_.fused.prologue[1] && !m.b.half) add({.pack_b = !first_.pack_b});
    if (!m.k_outer.empty()) return;  // A stays in place
    for (const PackA p : {PackA::none, PackA::rows, PackA::cols}) {
      const bool in_place = first_.pairs ? m.a.col_stride.is(1) : !m.a.half;
      const bool fits = p == PackA::none   ? !c_.fused.prologue[0] && in_place
                        : p == PackA::rows ? m.a.col_stride.is(1)
                                           : m.a.row_stride.is(1);
      if (fits) add({.pack_a = p});
    }
  }
  void splits() {
    if (first_.split_k == 1) return;
    add({.split_k = 1});
    if (first_.split_k > 2) add({.split_k = first_.split_k / 2});
    add({.split_k = 2 * first_.split_k});
  }

  const MatmulCase& c_;
  MatmulSchedule first_;
  std::vector<std::string> out_;
};

std::vector<std::string> row_space(const loop::Kernel& k) {
  std::vector<std::string> out = {str(RowSchedule{})};
  const Dim& cols = k.axes.back().extent;
  const bool sums = k.has(loop::InstrKind::reduce);
  const bool partial = k.has(loop::InstrKind::partial);
  if (!cols.is_const() || cols.value() > 8) out.push_back(str(RowSchedule{.width = 8}));
  const bool long_rows = !cols.is_const() || cols.value() >= kLongRow;
  for (const int accumulators : {2, 8})
    if ((sums || partial) && long_rows) out.push_back(str(RowSchedule{.accumulators = accumulators}));
  const Dim per = loop::rows_per_task(k), rows = k.extent(loop::AxisRole::row);
  if (partial || !per.is_const() || !rows.is_const()) return out;
  for (const int64_t n : {per.value() / 2, per.value() * 2})
    if (n >= 1 && n < rows.value()) out.push_back(str(RowSchedule{.rows = n}));
  return out;
}

}  // namespace

std::vector<std::string> candidate_schedules(const TunableKernel& k) {
  if (const auto* c = std::get_if<MatmulCase>(&k.what)) return MatmulSpace(*c).all();
  return row_space(std::get<loop::Kernel>(k.what));
}

}  // namespace kiln
