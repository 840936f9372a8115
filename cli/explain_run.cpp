// SPDX-License-Identifier: Apache-2.0
#include "cli/explain_run.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "autotune/operands.h"
#include "ir/base/error.h"
#include "runtime/executor.h"
#include "runtime/image.h"

namespace kiln::cli {

namespace {

double median(std::vector<double> v) {
  const auto middle = v.begin() + static_cast<ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

/// The program with operands of its own.
class MadeUpCall {
 public:
  MadeUpCall(const ExplainedPlan& plan, const KernelImage& image)
      : image_(image.bytes.empty() ? nullptr : std::make_shared<LoadedImage>(image.bytes)),
        executable_(
            plan.plan(), [this](const PlanKernel& k) { return image_->kernel(k.symbol); }, image_) {
    const Plan& p = plan.plan();
    for (size_t i = 0; i < p.buffers.size(); ++i) {
      const int64_t bytes = plan.bound().sizes[i];
      if (p.buffers[i].kind == BufferKind::external) add(externals_, p.buffers[i], bytes);
      if (p.buffers[i].kind == BufferKind::output) add(outputs_, p.buffers[i], bytes);
      if (p.buffers[i].kind == BufferKind::scalar) add_scalar(p.buffers[i]);
    }
    keep_operands();
  }

  /// Seconds of a call on the operands as they were made up: a program that trains by made-up numbers ends in
  /// infinities or subnormal numbers, which take longer. `launch_ns`: of each launch, or null.
  double run(int threads, std::vector<int64_t>* launch_ns) {
    for (size_t i = 0; i < externals_.size(); ++i)
      if (externals_[i]) std::copy(made_up_[i].begin(), made_up_[i].end(), externals_[i]->data());
    const std::vector<void*> externals = pointers(externals_), outputs = pointers(outputs_);
    const auto begin = std::chrono::steady_clock::now();
    executable_.run({.externals = externals,
                     .outputs = outputs,
                     .scalars = scalars_,
                     .threads = threads,
                     .launch_ns = launch_ns});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  /// For programs that check their indices, and found these out of range.
  void clear_integers() {
    for (const auto& operand : externals_)
      if (operand) operand->clear_integers();
    for (const size_t slot : integers_) scalars_[slot] = 0;
    keep_operands();
  }

 private:
  using Slots = std::vector<std::unique_ptr<MadeUpOperand>>;  // by slot; several buffers may be parts of one

  static void add(Slots& slots, const PlanBuffer& b, int64_t bytes) {
    const auto slot = static_cast<size_t>(b.index);
    slots.resize(std::max(slots.size(), slot + 1));
    if (!slots[slot] || slots[slot]->bytes() < bytes)
      slots[slot] = std::make_unique<MadeUpOperand>(b.dtype, bytes);
  }
  void add_scalar(const PlanBuffer& b) {
    const auto slot = static_cast<size_t>(b.index);
    scalars_.resize(std::max(scalars_.size(), slot + 1));
    const MadeUpOperand one(b.dtype, static_cast<int64_t>(dtype_size(b.dtype)));
    std::copy_n(one.data(), one.bytes(), reinterpret_cast<std::byte*>(&scalars_[slot]));
    if (!is_floating(b.dtype)) integers_.push_back(slot);
  }
  void keep_operands() {
    made_up_.clear();
    for (const auto& operand : externals_)
      made_up_.emplace_back(operand ? operand->data() : nullptr,
                            operand ? operand->data() + operand->bytes() : nullptr);
  }
  static std::vector<void*> pointers(const Slots& slots) {
    std::vector<void*> out;
    for (const auto& operand : slots) out.push_back(operand ? operand->data() : nullptr);
    return out;
  }

  std::shared_ptr<LoadedImage> image_;
  Executable executable_;
  Slots externals_, outputs_;
  std::vector<std::vector<std::byte>> made_up_;  // what is in externals_ when a call begins
  std::vector<uint64_t> scalars_;
  std::vector<size_t> integers_;  // among them
};

}  // namespace

MeasuredRun measure_run(const ExplainedPlan& plan, const KernelImage& image, int threads, double seconds) {
  KILN_CHECK(plan.plan().collectives.empty(), unsupported,
             "explain: --run takes programs of one rank; this one communicates");
  MadeUpCall call(plan, image);
  std::vector<int64_t> ns;
  call.run(threads, &ns);  // also touches the memory
  if (std::count(ns.begin(), ns.end(), -1) > 0) call.clear_integers();
  MeasuredRun out;
  std::vector<double> calls;
  std::vector<std::vector<double>> launches(ns.size());
  for (double spent = 0; spent < seconds || calls.size() < 3;) {
    calls.push_back(call.run(threads, nullptr));
    spent += calls.back() + call.run(threads, &ns);
    for (size_t i = 0; i < ns.size(); ++i) launches[i].push_back(static_cast<double>(ns[i]) * 1e-9);
  }
  out.calls = static_cast<int>(calls.size());
  out.call_s = median(calls);
  for (const std::vector<double>& l : launches) out.launch_s.push_back(median(l));
  return out;
}

}  // namespace kiln::cli
