// SPDX-License-Identifier: Apache-2.0
// Kernels for the CPU: loops of vectors, the packed matmul, whole nodes; and which target has which writer.
#include "codegen/kernel_writer.h"

#include "codegen/blis.h"
#include "codegen/lower_parts.h"
#include "codegen/source_cpu.h"

namespace kiln::detail {

namespace {

class CpuWriter : public KernelWriter {
 public:
  CpuWriter(const CpuTarget& target, bool one_thread) : target_(target), in_tile_(one_thread) {
    if (one_thread) wish_.tasks = wish_.split_k = 1;
  }

  LoopKernel loop(const loop::Kernel& k, std::string_view schedule) const override {
    CpuKernel s = write_cpu_kernel(k, target_, parse_row_schedule(schedule).value_or(RowSchedule{}));
    return {{s.symbol + ".cpp", std::move(s.text), {s.symbol}},
            s.tasks,
            s.scratch_bytes,
            s.in_place,
            s.per_task};
  }
  /// A thread calls it for one part after the other.
  std::optional<LoopKernel> parts(const loop::Kernel& k) const override { return loop(k, {}); }
  NodeKernel contract(const MatmulCase& c, std::string_view schedule) const override {
    const auto s = parse_matmul_schedule(schedule);
    return print_contract(c, s ? *s : choose_matmul_schedule(c.spec, c.target, c.prologues(), wish_));
  }
  /// The tile of a loop calls no builtin.
  std::optional<LibraryKernel> library(const MatmulSpec& spec, std::string_view schedule) const override {
    const auto s = parse_blis_schedule(schedule);
    auto call = s && !in_tile_ ? blis_call(spec, *s) : std::nullopt;
    if (!call) return {};
    return LibraryKernel{std::move(call->builtin), std::move(call->dims), call->tasks};
  }
  NodeKernel whole(const Graph& g, const Node& n, const std::vector<Operand>& operands) const override {
    return lower_whole(g, n, operands);
  }

 private:
  const CpuTarget& target_;
  const bool in_tile_;
  MatmulWish wish_;
};

}  // namespace

std::unique_ptr<KernelWriter> kernel_writer(const Target& target, const LowerOptions& options) {
  if (const CudaTarget* cuda = cuda_target(target)) return cuda_writer(*cuda, options);
  return std::make_unique<CpuWriter>(std::get<CpuTarget>(target), options.one_thread);
}

}  // namespace kiln::detail
