// SPDX-License-Identifier: Apache-2.0
#include "codegen/cuda_layout.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "codegen/wide_access.h"
#include "ir/base/error.h"

namespace kiln::detail {

using loop::AxisRole;
using loop::Instr;
using loop::InstrKind;

namespace {

constexpr int kMostSteps = 16;             ///< unrolled chunks of a thread
constexpr int kRegisterBudget = 64;        ///< 32-bit registers for what waits there
constexpr int64_t kSharedSums = 48 << 10;  ///< bytes to combine the rows of a block in

int power_of_two(int64_t n, int64_t least, int64_t most) {
  const auto p = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
  return static_cast<int>(std::clamp(p, least, most));
}

int last_axis(const loop::Kernel& k) { return static_cast<int>(k.axes.size()) - 1; }
bool has_columns(const loop::Kernel& k) { return !k.axes.empty() && k.axes.back().role == AxisRole::col; }

int choose_width(const loop::Kernel& k, const RowSchedule& schedule) {
  if (!has_columns(k)) return 1;
  AlignedWidth width(k, last_axis(k));
  for (const Instr& i : k.body) {
    width.access(i);
    if (i.kind == InstrKind::partial && i.by_col) width.columns(i);
  }
  int w = width.get();
  if (k.axes.back().extent.is_const()) w = std::min(w, power_of_two(k.axes.back().extent.value(), 1, 8));
  return schedule.width > 0 ? std::min(w, schedule.width) : w;
}

/// Largest magnitude of an index; nothing if a size is not known.
bool fits_32(const loop::Kernel& k, const loop::Index& x) {
  constexpr int64_t kMost = INT32_MAX;
  if (!x.offset.is_const() || std::abs(x.offset.value()) > kMost) return false;
  int64_t most = std::abs(x.offset.value());
  for (const loop::IndexTerm& t : x.terms) {
    if (!t.stride.is_const() || std::abs(t.stride.value()) > kMost) return false;
    if (t.value >= 0) continue;  // an index of 64 bits makes the sum one
    const Dim& n = k.axes[static_cast<size_t>(t.axis)].extent;
    if (!n.is_const() || n.value() > kMost) return false;
    if (__builtin_mul_overflow(std::abs(t.stride.value()), n.value(), &most) || most > kMost) return false;
  }
  int64_t sum = std::abs(x.offset.value());
  for (const loop::IndexTerm& t : x.terms)
    if (t.axis >= 0) sum += std::abs(t.stride.value()) * k.axes[static_cast<size_t>(t.axis)].extent.value();
  return sum <= kMost;
}

bool needs_wide(const loop::Kernel& k) {
  if (!k.dims.empty()) return true;
  Dim all(1);
  for (const loop::Axis& a : k.axes) all = all * a.extent;
  if (!all.is_const() || all.value() > INT32_MAX / 2) return true;
  for (const Instr& i : k.body) {
    if (!fits_32(k, i.index)) return true;
    for (const loop::Bound& b : i.bounds)
      if (!fits_32(k, b.index) || !b.extent.is_const() || b.extent.value() > INT32_MAX) return true;
  }
  return false;
}

/// Operations of one chunk, roughly.
double work_of(const loop::Kernel& k) {
  double work = 0;
  for (const Instr& i : k.body)
    work += (i.kind == InstrKind::elementwise ? std::max(def(i.op).flops, 1.0) : 1) *
            static_cast<double>(dtype_size(i.dtype) == 8 ? 2 : 1);
  return work;
}

class Choice {
 public:
  Choice(const loop::Kernel& k, const CudaTarget& target, const RowSchedule& schedule)
      : k_(k), target_(target), schedule_(schedule) {
    for (const Instr& i : k.body) {
      meets_ |= i.kind == InstrKind::reduce && has_columns(k);
      by_col_ |= i.kind == InstrKind::partial && i.by_col;
    }
    partial_ = k.has(InstrKind::partial);
    // Nothing is once per row or task: blocks may share rows.
    cuttable_ = has_columns(k) && !meets_ && std::all_of(k.body.begin(), k.body.end(), [](const Instr& i) {
                  return i.kind != InstrKind::partial || i.by_col;
                });
  }

  CudaLayout choose() {
    l_.phases = plan_phases(k_);
    l_.width = choose_width(k_, schedule_);
    l_.wide = needs_wide(k_);
    l_.chunks = Dim(1);
    for (int a = k_.axis_begin(AxisRole::col); a < k_.axis_end(AxisRole::col); ++a)
      l_.chunks =
          l_.chunks * (a == last_axis(k_) ? ceildiv(k_.axes[static_cast<size_t>(a)].extent, Dim(l_.width))
                                          : k_.axes[static_cast<size_t>(a)].extent);
    place_columns();
    cut_columns();
    place_rows();
    place_sums();
    place_saved();
    return std::move(l_);
  }

 private:
  void place_columns() {
    l_.group = !has_columns(k_) ? 1 : !l_.chunks.is_const() ? 256 : meets_ ? meeting_group() : least_waste();
    if (l_.chunks.is_const()) {
      const int64_t n = std::max<int64_t>(l_.chunks.value(), 1);
      const int64_t steps = (n + l_.group - 1) / l_.group;
      l_.steps = steps <= kMostSteps ? static_cast<int>(steps) : 0;
      l_.whole = !l_.chunks.is(0) && n % l_.group == 0;
    }
    l_.unroll = work_of(k_) * l_.width <= 96 ? 4 : 1;
    const int most = l_.steps > 0 ? l_.steps : l_.unroll;
    l_.accumulators = schedule_.accumulators > 0 ? schedule_.accumulators : std::max(1, 4 / l_.width);
    l_.accumulators = power_of_two(std::min(l_.accumulators, most) / 2 + 1, 1, 8);
    if (l_.steps == 0) l_.accumulators = std::min(l_.accumulators, l_.unroll);
  }
  /// Threads that sum one row together: part of a warp, a warp, or the block for rows of over 8 chunks a
  /// lane.
  int meeting_group() const {
    const int64_t n = l_.chunks.value();
    if (n <= CudaTarget::kWarp) return power_of_two(n, 1, CudaTarget::kWarp);
    if (n <= 8 * CudaTarget::kWarp) return CudaTarget::kWarp;
    // Kernels with partial results have few tasks: then more threads each.
    return power_of_two(partial_ ? (n + 1) / 2 : (n + 3) / 4, 64, 512);
  }
  /// As many threads as leave few idle in the last step.
  int least_waste() const {
    const int64_t n = std::max<int64_t>(l_.chunks.value(), 1);
    int best = 1;
    for (int64_t best_idle = INT64_MAX, g = power_of_two(n, 1, 256); g >= std::min<int64_t>(n, 16); g /= 2) {
      const int64_t idle = (n + g - 1) / g * g - n;
      if (best_idle == INT64_MAX || idle + n / 16 < best_idle) best = static_cast<int>(g), best_idle = idle;
    }
    return best;
  }

  /// Long rows are cut into tiles of a few chunks for each thread, and those of kernels with few tasks into
  /// more.
  void cut_columns() {
    if (!cuttable_) return;
    constexpr int kLeast = 8, kMost = 256;  // chunks side by side: 128 bytes are one transaction
    const bool known = l_.chunks.is_const();
    const int64_t n = known ? l_.chunks.value() : kMost * 4;
    int64_t group = std::min<int64_t>(l_.group, kMost);
    int64_t steps = std::clamp<int64_t>((n + group - 1) / group, 1, 4);
    if (partial_) {
      const Dim tasks = k_.extent(AxisRole::batch) * loop::row_chunks(k_);
      const int64_t others = tasks.is_const() ? std::max<int64_t>(tasks.value(), 1) : 16;
      const auto tiles = [&] { return (n + group * steps - 1) / (group * steps); };
      while (steps > 1 && others * tiles() < 2 * target_.sm_count) steps /= 2;
      while (group > kLeast && others * tiles() < 2 * target_.sm_count) group /= 2;
    }
    if (known && group * steps >= n) return;
    l_.group = static_cast<int>(group);
    l_.steps = static_cast<int>(steps);
    l_.tile = l_.group * l_.steps;
    l_.whole = known && n > 0 && n % l_.tile == 0;
  }

  void place_rows() {
    const bool many = k_.axis_begin(AxisRole::row) < k_.axis_end(AxisRole::row);
    const bool whole_block =
        (!l_.chunks.is_const() && l_.tile == 0) || (meets_ && l_.group > CudaTarget::kWarp);
    const Dim all = k_.extent(AxisRole::row), per = loop::rows_per_task(k_);
    int64_t most = partial_ ? 512 : 256;
    most = std::max<int64_t>(most / l_.group, 1);
    if (all.is_const()) most = std::min<int64_t>(most, power_of_two(all.value(), 1, 1024));
    if (partial_) most = std::min<int64_t>(most, power_of_two(per.value(), 1, 1024));
    l_.rows = !many || whole_block ? 1 : static_cast<int>(most);
    // Whole warps.
    l_.rows = std::max(l_.rows, (CudaTarget::kWarp + l_.group - 1) / l_.group);
    if (partial_) l_.rows_per_task = per;
    else if (schedule_.rows > 0) l_.rows_per_task = Dim(schedule_.rows);
    else l_.rows_per_task = Dim(int64_t{l_.rows} * rows_of_group(all));
  }
  /// Rows that a group works on: some chunks for each thread, if there are rows enough for every processor.
  int64_t rows_of_group(const Dim& all) const {
    if (meets_ || l_.steps == 0) return 1;
    int64_t each = std::max(1, 4 / l_.steps);
    while (each > 1 && all.is_const() && all.value() < each * l_.rows * 4 * target_.sm_count) each /= 2;
    return each;
  }

  int64_t registers_of(DType t) const {
    const auto bytes = static_cast<int64_t>(dtype_size(t));
    return int64_t{std::max(l_.steps, 1)} * l_.width * (bytes == 8 ? 2 : 1);
  }

  void place_sums() {
    if (!by_col_) return;
    int64_t registers = 0, widest = 0;
    for (const Instr& i : k_.body)
      if (i.kind == InstrKind::partial && i.by_col) {
        registers += registers_of(i.dtype);
        widest = std::max(widest, static_cast<int64_t>(dtype_size(i.dtype)));
      }
    l_.sums_in_registers = l_.steps > 0 && registers <= kRegisterBudget;
    sums_ = registers;
    if (!l_.sums_in_registers) {  // one thread must own a place
      l_.group = std::max(l_.group * l_.rows, CudaTarget::kWarp);
      if (meets_) l_.group = std::min(l_.group, 512);
      l_.rows = 1;
      l_.tile = 0;
      const bool known = l_.chunks.is_const();
      const int64_t steps = known ? (l_.chunks.value() + l_.group - 1) / l_.group : 0;
      l_.steps = known && steps <= kMostSteps ? static_cast<int>(std::max<int64_t>(steps, 1)) : 0;
      l_.whole = known && !l_.chunks.is(0) && l_.chunks.value() % l_.group == 0;
      sums_ = 0;
      return;
    }
    const int64_t chunks = l_.tile > 0 ? l_.tile : l_.chunks.value();
    while (l_.rows > 1 && l_.threads() > CudaTarget::kWarp &&
           l_.rows * chunks * l_.width * widest > kSharedSums)
      l_.rows /= 2;
  }

  /// Values that wait cost least in registers, where plain loads may wait as well, then in shared memory. The
  /// dearer reading back is held to be, the fewer values wait and the more are computed again.
  void place_saved() {
    l_.saved.assign(k_.body.size(), SavedIn::registers);
    if (l_.phases.count == 1) return;
    constexpr double kLoads = 0.5, kNever = 1e30;
    for (const double cost : {kLoads, kReloadCost, 10.0, 20.0, 40.0, kNever}) {
      l_.phases = plan_phases(k_, cost, true);
      if (place_values(cost == kLoads ? 0 : shared_budget())) return;
    }
    KILN_ASSERT(false, "values wait that need not");
  }
  /// Where each waits; false if there is no room. Those that are read back most often come first.
  bool place_values(int64_t shared) {
    std::vector<std::pair<int, int>> order;  // times read back, value
    for (int v = 0; v < static_cast<int>(k_.body.size()); ++v) {
      if (!l_.phases.saved[v]) continue;
      const auto times =
          std::count_if(l_.phases.reload.begin(), l_.phases.reload.end(),
                        [&](const auto& pass) { return std::binary_search(pass.begin(), pass.end(), v); });
      order.emplace_back(-static_cast<int>(times), v);
    }
    std::sort(order.begin(), order.end());
    int64_t registers = sums_;
    for (const auto& [times, v] : order) {
      const DType t = k_.body[v].dtype;
      const bool fits = l_.steps > 0 && registers + registers_of(t) <= kRegisterBudget;
      l_.saved[v] = fits ? SavedIn::registers : SavedIn::shared;
      if (fits) registers += registers_of(t);
      else if (!l_.chunks.is_const() || (shared -= shared_of(t)) < 0) return false;
    }
    return true;
  }
  int64_t shared_of(DType t) const {
    return (l_.chunks.value() * l_.width * static_cast<int64_t>(dtype_size(t)) + 15) / 16 * 16;
  }
  /// Two blocks at least should find room on a processor, unless their registers do not.
  int64_t shared_budget() const {
    if (l_.rows > 1 || !l_.chunks.is_const()) return 0;
    constexpr int64_t kRoom = 8 << 10;  // to combine warps in
    return l_.threads() >= 512 ? target_.shared_per_block - kRoom : target_.shared_per_block / 2;
  }

  const loop::Kernel& k_;
  const CudaTarget& target_;
  const RowSchedule& schedule_;
  CudaLayout l_;
  bool meets_ = false, by_col_ = false, partial_ = false, cuttable_ = false;
  int64_t sums_ = 0;  ///< registers
};

}  // namespace

CudaLayout choose_cuda_layout(const loop::Kernel& k, const CudaTarget& target, const RowSchedule& schedule) {
  return Choice(k, target, schedule).choose();
}

CudaLayout choose_flat_layout(const loop::Kernel& k, const RowSchedule& schedule) {
  CudaLayout l;
  l.phases = plan_phases(k);
  l.saved.assign(k.body.size(), SavedIn::registers);
  l.width = choose_width(k, schedule);
  if (k.has(InstrKind::fold)) {  // the work of many elements for each: as many threads as there are
    l.width = l.steps = 1;
    l.rows = 2 * CudaTarget::kWarp;
  } else {
    l.steps = work_of(k) * l.width <= 64 ? 2 : 1;
    // Tensors of all sizes but the smallest share the kernel.
    const Dim& n = k.axes[0].extent;
    l.rows = n.is_const() && n.value() < 64 ? CudaTarget::kWarp : 256;
  }
  l.wide = true;
  return l;
}

}  // namespace kiln::detail
