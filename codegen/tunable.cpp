// SPDX-License-Identifier: Apache-2.0
#include "codegen/tunable.h"

#include <algorithm>
#include <utility>

#include "codegen/blis.h"
#include "codegen/lower_parts.h"
#include "ir/base/hash.h"
#include "ir/base/rounding.h"

namespace kiln {

using detail::KernelWriter;
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
  }
  /// Buffers that launches pass on to each other; returns which one it is.
  int add_workspace(DType dtype, int64_t bytes, const char* name) {
    constexpr int64_t kAlign = 64;
    out_.plan.buffers.push_back(
        {BufferKind::arena, dtype, -1, pool_.add(Dim(bytes)), pool_.add(Dim(arena_bytes_)), name});
    arena_bytes_ = round_up(arena_bytes_ + bytes, kAlign);
    out_.plan.arena_bytes = pool_.add(Dim(arena_bytes_));
    return static_cast<int>(out_.plan.buffers.size()) - 1;
  }
  /// `args`: buffers, by parameter.
  void add_launch(const PlanKernel& kernel, const std::vector<int>& args, const std::vector<Dim>& dims,
                  const Dim& tasks, const Dim& scratch) {
    Launch l;
    l.kernel = static_cast<int32_t>(out_.plan.kernels.size());
    out_.plan.kernels.push_back(kernel);
    l.buffers.assign(args.begin(), args.end());
    for (size_t i = 0; i < args.size(); ++i) {
      const auto b = static_cast<size_t>(args[i]);  // those behind the kernel's own are workspace
      if (b >= k_.buffers.size() || k_.buffers[b].written) l.writes.push_back(static_cast<int32_t>(i));
    }
    for (const Dim& d : dims) l.dims.push_back(pool_.add(d));
    l.tasks = pool_.add(tasks);
    l.scratch_bytes = pool_.add(scratch);
    l.barrier_before = !out_.plan.launches.empty();
    l.profile = 0;
    out_.plan.launches.push_back(std::move(l));
  }
  void add_rows(const KernelWriter& writer, const loop::Kernel& k, std::string_view schedule,
                const std::vector<int>& args) {
    detail::LoopKernel r = writer.loop(k, schedule);
    add_launch({false, r.source.symbols[0]}, args, k.dims, r.tasks, r.scratch);
    out_.kernels.push_back(std::move(r.source));
  }
  void add_matmul(NodeKernel m, DType sums, std::vector<int> args) {
    if (m.has_workspace) args.push_back(add_workspace(sums, m.workspace.value(), "split_k"));
    for (const auto& l : m.launches) add_launch({false, l.symbol}, args, m.dims, l.tasks, l.scratch);
    out_.kernels.push_back(std::move(m.source));
  }
  LoweredProgram finish() { return std::move(out_); }

 private:
  const TunableKernel& k_;
  LoweredProgram out_;
  detail::DimPool pool_;
  int64_t arena_bytes_ = 0;
};

/// As Lowering::add_contract has it: an epilogue that is not printed into the matmul is a row kernel behind
/// it.
LoweredProgram matmul_alone(const TunableKernel& k, MatmulCase c, const std::string& schedule,
                            const KernelWriter& writer) {
  const auto library = first_blis_schedule(c) ? writer.library(c.spec, schedule) : std::nullopt;
  KILN_ASSERT(library || parse_matmul_schedule(schedule), "schedule '{}' of a matmul", schedule);
  Alone alone(k);
  std::vector<int> args = k.args, epilogue_args;
  std::optional<Epilogue> apart;
  if (c.fused.epilogue && (library || has_epilogue_apart(schedule))) {
    apart = std::exchange(c.fused.epilogue, std::nullopt);
    const auto own = args.end() - static_cast<std::ptrdiff_t>(apart->kernel.params.size());
    epilogue_args.assign(own, args.end());
    args.erase(own, args.end());
    int& product = epilogue_args[static_cast<size_t>(apart->accumulator)];
    const DType t = c.spec.c.half.value_or(c.spec.dtype);
    const Dim elements = numel(c.spec.batch) * c.spec.m * c.spec.n;
    if (!apart->keep)
      product = alone.add_workspace(t, elements.value() * static_cast<int64_t>(dtype_size(t)), "product");
    args.push_back(product);
  }
  if (library) alone.add_launch({true, library->builtin}, args, library->dims, library->tasks, Dim(0));
  else alone.add_matmul(writer.contract(c, schedule), c.spec.dtype, args);
  if (apart) {
    loop::canonicalize(apart->kernel);
    alone.add_rows(writer, apart->kernel, {}, epilogue_args);
  }
  return alone.finish();
}

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
  const Target any = target;
  const auto writer = detail::kernel_writer(any, {});
  if (const auto* c = std::get_if<MatmulCase>(&k.what)) return matmul_alone(k, *c, schedule, *writer);
  KILN_ASSERT(parse_row_schedule(schedule), "schedule '{}' of a row kernel", schedule);
  Alone alone(k);
  alone.add_rows(*writer, std::get<loop::Kernel>(k.what), schedule, k.args);
  return alone.finish();
}

}  // namespace kiln
