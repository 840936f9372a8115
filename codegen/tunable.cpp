// SPDX-License-Identifier: Apache-2.0
#include "codegen/tunable.h"

#include <algorithm>

#include "codegen/lower_parts.h"
#include "ir/base/hash.h"

namespace kiln {

using detail::NodeKernel;
using detail::Work;

namespace {

/// Nothing can be chosen about kernels that are cut anywhere and sum nothing, or that have no vectors.
bool has_choices(const loop::Kernel& k) {
  return !loop::is_flat(k) && !k.axes.empty() && k.axes.back().role == loop::AxisRole::col;
}

bool is_static(const Work& w) {
  const auto fixed = [](const Dim& d) { return d.is_const(); };
  return std::all_of(w.dims.begin(), w.dims.end(), fixed) && w.bytes.is_const() && w.flops.is_const();
}

/// Builds the plan of one kernel over external buffers.
class Alone {
 public:
  explicit Alone(const TunableKernel& k) : k_(k), pool_(out_.plan) {
    for (size_t i = 0; i < k.buffers.size(); ++i) {
      const TunableKernel::Buffer& b = k.buffers[i];
      out_.plan.buffers.push_back({BufferKind::external, b.dtype, static_cast<int32_t>(i),
                                   pool_.add(Dim(b.bytes)), -1, fmt::format("in{}", i)});
    }
    out_.plan.external_count = static_cast<int32_t>(k.buffers.size());
    out_.plan.arena_bytes = pool_.add(Dim(0));
    out_.plan.profile.push_back({"alone",
                                 "",
                                 pool_.add(Dim(static_cast<int64_t>(k.bytes))),
                                 pool_.add(Dim(static_cast<int64_t>(k.flops))),
                                 {}});
    args_.assign(k.args.begin(), k.args.end());
  }
  void add_workspace(const Dim& bytes) {
    args_.push_back(static_cast<int32_t>(out_.plan.buffers.size()));
    out_.plan.arena_bytes = pool_.add(bytes);
    out_.plan.buffers.push_back(
        {BufferKind::arena, DType::f32, -1, out_.plan.arena_bytes, pool_.add(Dim(0)), "split_k"});
  }
  void add_launch(const std::string& symbol, const std::vector<Dim>& dims, const Dim& tasks,
                  const Dim& scratch) {
    Launch l;
    l.kernel = static_cast<int32_t>(out_.plan.kernels.size());
    out_.plan.kernels.push_back({false, symbol});
    l.buffers = args_;
    for (size_t i = 0; i < args_.size(); ++i) {
      const auto b = static_cast<size_t>(args_[i]);  // those behind the kernel's own are workspace
      if (b >= k_.buffers.size() || k_.buffers[b].written) l.writes.push_back(static_cast<int32_t>(i));
    }
    for (const Dim& d : dims) l.dims.push_back(pool_.add(d));
    l.tasks = pool_.add(tasks);
    l.scratch_bytes = pool_.add(scratch);
    l.barrier_before = !out_.plan.launches.empty();
    l.profile = 0;
    out_.plan.launches.push_back(std::move(l));
  }
  LoweredProgram finish(KernelSource source) {
    out_.kernels.push_back(std::move(source));
    return std::move(out_);
  }

 private:
  const TunableKernel& k_;
  LoweredProgram out_;
  detail::DimPool pool_;
  std::vector<int32_t> args_;
};

}  // namespace

namespace detail {

std::string_view Chooser::choice(const KernelCase& what) const {
  if (choices_.empty()) return {};
  const auto at = choices_.find(kernel_id(what, target_));
  return at == choices_.end() ? std::string_view() : at->second;
}

std::string_view Chooser::rows(const loop::Kernel& k) const {
  if (choices_.empty() || !has_choices(k)) return {};
  return choice(k);
}

void Chooser::note(const KernelCase& what, const Work& w, const std::vector<Cell>& cells) {
  const auto* rows = std::get_if<loop::Kernel>(&what);
  if ((rows && !has_choices(*rows)) || !is_static(w)) return;
  TunableKernel k{what, kernel_key(what, target_)};
  k.id = hash128(k.key).hex();
  const auto known = std::find_if(collect_->begin(), collect_->end(),
                                  [&](const TunableKernel& other) { return other.key == k.key; });
  if (known != collect_->end()) {
    ++known->launches;
    return;
  }
  const auto count = [](const std::vector<int>& list, int c) {
    return std::count(list.begin(), list.end(), c);
  };
  std::vector<int> seen;
  for (const int c : w.cells) {
    const auto at = std::find(seen.begin(), seen.end(), c);
    k.args.push_back(static_cast<int>(at - seen.begin()));
    if (at != seen.end()) continue;
    if (!cells[c].bytes.is_const()) return;
    seen.push_back(c);
    k.buffers.push_back(
        {cells[c].dtype, cells[c].bytes.value(), count(w.reads, c) > 0, count(w.writes, c) > 0});
  }
  k.bytes = static_cast<double>(w.bytes.value());
  k.flops = static_cast<double>(w.flops.value());
  k.launches = 1;
  collect_->push_back(std::move(k));
}

}  // namespace detail

std::vector<TunableKernel> tunable_kernels(const Graph& g, const std::vector<ExternalLayout>& layouts,
                                           const CpuTarget& target) {
  std::vector<TunableKernel> out;
  detail::lower_collecting(g, layouts, target, {}, &out);
  return out;
}

std::string default_schedule(const TunableKernel& k) {
  const auto* c = std::get_if<MatmulCase>(&k.what);
  return c ? str(choose_matmul_schedule(c->spec, c->target, c->prologues())) : str(RowSchedule{});
}

LoweredProgram lower_alone(const TunableKernel& k, const std::string& schedule, const CpuTarget& target) {
  Alone alone(k);
  const Target any = target;
  const auto writer = detail::kernel_writer(any, {});
  if (const auto* c = std::get_if<MatmulCase>(&k.what)) {
    const auto s = parse_matmul_schedule(schedule);
    KILN_ASSERT(s, "schedule '{}' of a matmul", schedule);
    NodeKernel m = writer->contract(*c, schedule);
    if (m.has_workspace) alone.add_workspace(m.workspace);
    for (const auto& l : m.launches) alone.add_launch(l.symbol, m.dims, l.tasks, l.scratch);
    return alone.finish(std::move(m.source));
  }
  const auto& rows = std::get<loop::Kernel>(k.what);
  const auto s = parse_row_schedule(schedule);
  KILN_ASSERT(s, "schedule '{}' of a row kernel", schedule);
  detail::LoopKernel r = writer->loop(rows, schedule);
  alone.add_launch(r.source.symbols[0], rows.dims, r.tasks, r.scratch);
  return alone.finish(std::move(r.source));
}

}  // namespace kiln
