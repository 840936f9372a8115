// SPDX-License-Identifier: Apache-2.0
#include "cli/explain_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/text.h"
#include "codegen/compile_nvrtc.h"
#include "codegen/gpu_model.h"

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

/// The units that a launch computes with: tensor cores, where it multiplies matrices of halves, or of f32
/// that may be rounded to tf32.
MathUnit unit_of(const Graph& g, const Plan& plan, const Launch& l, bool tf32) {
  for (const int32_t b : l.buffers)
    if (plan.buffers[static_cast<size_t>(b)].dtype == DType::f64 &&
        plan.buffers[static_cast<size_t>(b)].kind != BufferKind::scalar)
      return MathUnit::f64;
  MathUnit unit = MathUnit::f32;
  if (l.profile < 0) return unit;
  for (const int32_t n : plan.profile[static_cast<size_t>(l.profile)].sources) {
    const Node& node = g.nodes[static_cast<size_t>(n)];
    if (node.op != op("dot_general")) continue;
    const DType t = g.type(node.in[0]).dtype;
    if (t == DType::bf16 || t == DType::f16) return MathUnit::half;
    if (tf32 && t == DType::f32) unit = MathUnit::tf32;
  }
  return unit;
}

}  // namespace

CudaExplained::CudaExplained(const JobProgram& p, const LowerOptions& lower, const CudaTarget& target,
                             DiskCache& cache)
    : CudaExplained(p, lower, target,
                    compile_program(p.graph, p.layouts, target, lower, &cache, 1, {}, nvrtc_available())) {
  if (nvrtc_available(&no_compiler_)) compiler_ = "NVRTC " + nvrtc_version();
}

CudaExplained::CudaExplained(const JobProgram& p, const LowerOptions& lower, const CudaTarget& target,
                             CompiledProgram compiled)
    : program_(p),
      options_(lower),
      target_(target),
      image_(std::move(compiled.image)),
      kernels_(compiled.stats.kernels),
      plan_(p, std::move(compiled.plan)) {
  for (const Launch& l : plan_.plan().launches) rows_.push_back(row_of(l));
}

CudaRow CudaExplained::row_of(const Launch& l) const {
  CudaRow r{plan_.facts(l)};
  r.us.assign(gpu_specs().size(), 0);
  if (!r.computes) {
    r.bound = "-";
    return r;
  }
  r.symbol = plan_.plan().kernels[static_cast<size_t>(l.kernel)].symbol;
  if (const CudaKernel* k = kernel_named(image_, r.symbol)) {
    r.threads = k->threads;
    r.registers = k->registers;
    r.spill_bytes = k->spill_bytes;
    r.shared_bytes = plan_.value(l.scratch_bytes) + std::max(k->static_shared, 0);
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
  const MathUnit unit = unit_of(program_.graph, plan_.plan(), l, options_.tf32);
  r.unit = name_of(unit);
  for (size_t i = 0; i < gpu_specs().size(); ++i) {
    const GpuSpec& gpu = gpu_specs()[i];
    const Occupancy there = occupancy(block, parse_cuda_target(gpu.arch));
    const Prediction p = predict({r.bytes, r.flops, r.tasks, block, unit}, there, gpu);
    r.us[i] = p.us;
    if (r.bound.empty() || gpu.arch == target_.arch) r.bound = p.bound;
  }
}

std::vector<double> CudaExplained::sums() const {
  std::vector<double> out(gpu_specs().size(), 0);
  for (const CudaRow& r : rows_)
    for (size_t g = 0; g < out.size(); ++g) out[g] += r.us[g];
  return out;
}

std::string CudaExplained::text(size_t index) const {
  return fmt::format("stage {}: {} for {}\n", index, program_.name, target_.arch) + plan_.graph_text() +
         launches_text() + plan_.collectives_text() + plan_.memory_text() + predicted_text();
}

std::string CudaExplained::launches_text() const {
  std::string out = fmt::format(
      "  plan: {} of {} in {}{}\n", count_text(static_cast<int64_t>(rows_.size()), "launch"),
      count_text(kernels_, "kernel"), count_text(static_cast<int64_t>(image_.modules.size()), "source"),
      compiler_.empty() ? "" : ", by " + compiler_);
  size_t width = std::string_view("launch").size();
  for (const CudaRow& r : rows_) width = std::max(width, std::min(r.name.size(), kMostKernelName));
  out += fmt::format("    {:>3}  {:<{}} {:>7} {:>7} {:>4} {:>6} {:>9} {:>9} {:<13} {:>11} {:>12}", "",
                     "launch", width, "blocks", "threads", "regs", "spills", "shared", "occupancy",
                     "limited by", "bytes", "FLOP");
  for (const GpuSpec& g : gpu_specs()) out += fmt::format(" {:>9}", fmt::format("{} us", g.name));
  out += fmt::format("  {:<8} {}\n", "bound by", "lines");
  for (size_t i = 0; i < rows_.size(); ++i) {
    out += fmt::format("    {:>3}  {:<{}} {}", i, shortened(rows_[i].name, kMostKernelName), width,
                       row_text(rows_[i]));
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  return out;
}

/// What follows the name; "-" for what is not known, or what a launch that is no kernel has none of.
std::string CudaExplained::row_text(const CudaRow& r) const {
  const auto number = [](int64_t n, bool there) { return there ? std::to_string(n) : std::string("-"); };
  const std::string share = r.computes ? fmt::format("{:.0f}%", 100 * r.occupancy) : "-";
  std::string out =
      fmt::format("{:>7} {:>7} {:>4} {:>6} {:>9} {:>9} {:<13} {:>11} {:>12}", number(r.tasks, r.computes),
                  number(r.threads, r.computes), number(r.registers, r.registers >= 0),
                  number(r.spill_bytes, r.spill_bytes >= 0), bytes_text(static_cast<double>(r.shared_bytes)),
                  share, r.computes ? r.limit : "-", bytes_text(r.bytes), flops_text(r.flops));
  for (const double us : r.us)
    out += fmt::format(" {:>9}", std::isinf(us) ? "no room" : fmt::format("{:.2f}", us));
  return out + fmt::format("  {:<8} {}", r.bound, r.lines);
}

std::string CudaExplained::predicted_text() const {
  std::string out = "  predicted:";
  const std::vector<double> us = sums();
  for (size_t g = 0; g < us.size(); ++g)
    out += fmt::format("{} {} on {}", g ? "," : "", std::isinf(us[g]) ? "no room" : time_text(us[g] * 1e-6),
                       gpu_specs()[g].name);
  return out + fmt::format(", one launch after the other{}\n", plan_.not_counted());
}

Json CudaExplained::json() const {
  const auto by_gpu = [](const std::vector<double>& us) {
    Json out = Json::object();
    for (size_t g = 0; g < us.size(); ++g)
      out[std::string(gpu_specs()[g].name)] = std::isinf(us[g]) ? Json() : Json(us[g]);
    return out;
  };
  Json out = {{"name", program_.name}, {"ends", program_.ends}, {"target", target_.arch}};
  out["compiler"] = compiler_.empty() ? Json() : Json(compiler_);
  if (compiler_.empty()) out["no_compiler"] = no_compiler_;
  out["graph"] = plan_.graph_json();
  out["kernels"] = kernels_;
  out["sources"] = image_.modules.size();
  out["launches"] = Json::array();
  for (const CudaRow& r : rows_)
    out["launches"].push_back({{"name", r.name},
                               {"ops", r.ops},
                               {"lines", r.lines},
                               {"kernel", r.symbol},
                               {"blocks", r.tasks},
                               {"threads", r.threads},
                               {"registers", r.registers},
                               {"spill_bytes", r.spill_bytes},
                               {"shared", r.shared_bytes},
                               {"occupancy", r.occupancy},
                               {"limit", r.limit},
                               {"bytes", r.bytes},
                               {"flops", r.flops},
                               {"unit", r.unit},
                               {"bound", r.bound},
                               {"us", by_gpu(r.us)}});
  out["collectives"] = plan_.collectives_json();
  out["memory"] = plan_.memory_json();
  out["predicted"] = {{"us", by_gpu(sums())}};
  return out;
}

}  // namespace kiln::cli
