// SPDX-License-Identifier: Apache-2.0
#include "cli/explain_cuda.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/text.h"
#include "codegen/compile_nvrtc.h"
#include "codegen/gpu_model.h"
#include "ir/base/error.h"

namespace kiln::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostKernelName = 44;

const CudaKernel* kernel_named(const KernelImage& image, const std::string& symbol) {
  for (const CudaModule& m : image.modules)
    for (const CudaKernel& k : m.kernels)
      if (k.symbol == symbol) return &k;
  return nullptr;
}

/// The units that a launch computes with.
MathUnit unit_of(const Plan& plan, const Launch& l, const ProfileRow& row, bool tf32) {
  for (const int32_t b : l.buffers)
    if (plan.buffers[static_cast<size_t>(b)].dtype == DType::f64 &&
        plan.buffers[static_cast<size_t>(b)].kind != BufferKind::scalar)
      return MathUnit::f64;
  return tf32 && row.ops.find("dot_general") != std::string::npos ? MathUnit::tf32 : MathUnit::f32;
}

}  // namespace

CudaExplained::CudaExplained(const JobProgram& p, const LowerOptions& lower, const CudaTarget& target,
                             DiskCache& cache)
    : program_(p), options_(lower), target_(target) {
  const bool there = nvrtc_available(&compiler_);
  if (there) compiler_ = "NVRTC " + nvrtc_version();
  compiled_ = compile_program(p.graph, p.layouts, target, lower, &cache, 1, {}, there);
  KILN_CHECK(compiled_.plan.symbols.empty(), unsupported,
             "explain: the sizes of {} are known only at a call ({})", p.name,
             fmt::join(compiled_.plan.symbols, ", "));
  for (const Dim& d : compiled_.plan.dims) dims_.push_back(d.value());
  for (const Launch& l : compiled_.plan.launches) rows_.push_back(row_of(l));
}

CudaRow CudaExplained::row_of(const Launch& l) const {
  CudaRow r;
  const Plan& plan = compiled_.plan;
  const ProfileRow& p = plan.profile[static_cast<size_t>(l.profile)];
  r.name = p.name;
  r.ops = p.ops;
  r.tasks = value(l.tasks);
  r.bytes = static_cast<double>(value(p.bytes));
  r.flops = static_cast<double>(value(p.flops));
  std::set<std::string> lines;
  for (const int32_t n : p.sources) lines.insert(program_.lines[static_cast<size_t>(n)]);
  lines.erase("");
  r.lines = fmt::format("{}", fmt::join(lines, " "));
  r.us.assign(gpu_specs().size(), 0);
  if (l.kind != LaunchKind::kernel) return r;
  r.symbol = plan.kernels[static_cast<size_t>(l.kernel)].symbol;
  if (const CudaKernel* k = kernel_named(compiled_.image, r.symbol)) {
    r.threads = k->threads;
    r.registers = k->registers;
    r.spill_bytes = k->spill_bytes;
    r.shared_bytes = value(l.scratch_bytes) + std::max(k->static_shared, 0);
  } else {  // a copy of the runtime's
    r.threads = 256;
    r.tasks = static_cast<int64_t>(r.bytes / 2 / 16 / r.threads) + 1;
  }
  judge(r, l);
  return r;
}

void CudaExplained::judge(CudaRow& r, const Launch& l) const {
  const BlockNeeds block{r.threads, std::max(r.registers, 0), r.shared_bytes};
  const Occupancy here = occupancy(block, target_);
  r.occupancy = here.share;
  r.limit = here.limit;
  const MathUnit unit =
      unit_of(compiled_.plan, l, compiled_.plan.profile[static_cast<size_t>(l.profile)], options_.tf32);
  for (size_t i = 0; i < gpu_specs().size(); ++i) {
    const GpuSpec& gpu = gpu_specs()[i];
    const Occupancy there = occupancy(block, parse_cuda_target(gpu.arch));
    const Prediction p = predict({r.bytes, r.flops, r.tasks, block, unit}, there, gpu);
    r.us[i] = p.us;
    if (r.bound.empty() || gpu.arch == target_.arch) r.bound = p.bound;
  }
}

std::string CudaExplained::text(size_t index) const {
  std::string out = fmt::format("stage {}: {} for {}\n", index, program_.name, target_.arch);
  out +=
      fmt::format("  plan: {} of {} in {}, by {}\n", count_text(static_cast<int64_t>(rows_.size()), "launch"),
                  count_text(compiled_.stats.kernels, "kernel"),
                  count_text(static_cast<int64_t>(compiled_.image.modules.size()), "source"), compiler_);
  size_t width = std::string_view("launch").size();
  for (const CudaRow& r : rows_) width = std::max(width, std::min(r.name.size(), kMostKernelName));
  out += fmt::format("    {:>3}  {:<{}} {:>7} {:>7} {:>4} {:>6} {:>9} {:>9} {:<13}", "", "launch", width,
                     "blocks", "threads", "regs", "spills", "shared", "occupancy", "limited by");
  for (const GpuSpec& g : gpu_specs()) out += fmt::format(" {:>9}", fmt::format("{} us", g.name));
  out += fmt::format("  {:<8} {}\n", "bound by", "lines");
  std::vector<double> sums(gpu_specs().size(), 0);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const CudaRow& r = rows_[i];
    const auto number = [](int n) { return n < 0 ? std::string("-") : std::to_string(n); };
    const std::string name =
        r.name.size() > kMostKernelName ? r.name.substr(0, kMostKernelName - 3) + "..." : r.name;
    out += fmt::format("    {:>3}  {:<{}} {:>7} {:>7} {:>4} {:>6} {:>9} {:>8.0f}% {:<13}", i, name, width,
                       r.tasks, r.threads, number(r.registers), number(r.spill_bytes),
                       bytes_text(static_cast<double>(r.shared_bytes)), 100 * r.occupancy, r.limit);
    for (size_t g = 0; g < r.us.size(); ++g) {
      out += fmt::format(" {:>9.2f}", r.us[g]);
      sums[g] += r.us[g];
    }
    out += fmt::format("  {:<8} {}", r.bound, r.lines);
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  out += "  predicted:";
  for (size_t g = 0; g < sums.size(); ++g)
    out += fmt::format("{} {} on {}", g ? "," : "", time_text(sums[g] * 1e-6), gpu_specs()[g].name);
  return out + ", one launch after the other\n";
}

Json CudaExplained::json() const {
  Json out = {{"name", program_.name},
              {"ends", program_.ends},
              {"target", target_.arch},
              {"compiler", compiler_},
              {"kernels", compiled_.stats.kernels},
              {"sources", compiled_.image.modules.size()}};
  out["launches"] = Json::array();
  for (const CudaRow& r : rows_) {
    Json row = {{"name", r.name},           {"ops", r.ops},
                {"lines", r.lines},         {"kernel", r.symbol},
                {"blocks", r.tasks},        {"threads", r.threads},
                {"registers", r.registers}, {"spill_bytes", r.spill_bytes},
                {"shared", r.shared_bytes}, {"occupancy", r.occupancy},
                {"limit", r.limit},         {"bytes", r.bytes},
                {"flops", r.flops},         {"bound", r.bound}};
    for (size_t g = 0; g < r.us.size(); ++g) row["us"][std::string(gpu_specs()[g].name)] = r.us[g];
    out["launches"].push_back(std::move(row));
  }
  return out;
}

}  // namespace kiln::cli
