// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/executor.h"

#include <utility>

#include "runtime/cuda/device_plan.h"
#include "runtime/cuda/graph.h"

namespace kiln {

using cuda::Address;

namespace {

/// Tensors that kernels cannot be given as they lie get copies that they can.
class Aligned {
 public:
  Aligned(CudaDevicePlan& plan, CudaSlots slots)
      : plan_(plan), slots_(std::move(slots)), addresses_(slots_.addresses) {
    for (size_t s = 0; s < addresses_.size(); ++s) {
      if (addresses_[s] % kCudaTensorAlign == 0) continue;
      copies_.emplace_back(s, plan_.device().allocate(slots_.bytes[s], "copies of unaligned tensors"));
      addresses_[s] = copies_.back().second.address();
      if (plan_.is_read(s))
        plan_.device().copy_on_device(addresses_[s], slots_.addresses[s], slots_.bytes[s]);
    }
  }
  std::span<const Address> addresses() const { return addresses_; }
  void copy_back() {
    for (const auto& [s, memory] : copies_)
      if (plan_.is_written(s))
        plan_.device().copy_on_device(slots_.addresses[s], memory.address(), slots_.bytes[s]);
  }

 private:
  CudaDevicePlan& plan_;
  const CudaSlots slots_;
  std::vector<Address> addresses_;
  std::vector<std::pair<size_t, CudaMemory>> copies_;
};

}  // namespace

class CudaExecutable::Impl {
 public:
  Impl(Plan plan, const KernelImage& image, CudaDevice& device, CudaOptions options)
      : plan_(std::move(plan), image, device, std::move(options)) {}

  void run(const Invocation& call) {
    check_call(plan_.plan(), call);
    const std::shared_ptr<const BoundPlan> bound = plan_.bounds().get(call.symbols);
    CudaSlots slots = plan_.slots(*bound, call);
    if (graphs_.takes(call) && graphs_.run(bound, call, slots)) return;
    Aligned tensors(plan_, std::move(slots));
    const CudaMemory own =
        plan_.device().allocate(plan_.call_bytes(*bound), "arena of " + plan_.options().name,
                                [&] { return largest_buffers(plan_.plan(), *bound); });
    plan_.upload_scalars(*bound, call, own.address());
    plan_.enqueue(*bound, call, tensors.addresses(), own.address());
    tensors.copy_back();
  }
  CudaDevicePlan& plan() { return plan_; }
  CudaGraphStats stats() const { return graphs_.stats(); }

 private:
  CudaDevicePlan plan_;
  CudaGraphs graphs_{plan_};
};

CudaExecutable::CudaExecutable(Plan plan, const KernelImage& image, CudaDevice& device, CudaOptions options)
    : impl_(std::make_unique<Impl>(std::move(plan), image, device, std::move(options))) {}

CudaExecutable::~CudaExecutable() = default;

void CudaExecutable::run(const Invocation& call) { impl_->run(call); }

const Plan& CudaExecutable::plan() const { return impl_->plan().plan(); }

CudaDevice& CudaExecutable::device() const { return impl_->plan().device(); }

int64_t CudaExecutable::arena_bytes(std::span<const int64_t> symbols) const {
  return impl_->plan().bounds().get(symbols)->arena_bytes;
}

std::vector<int64_t> CudaExecutable::dims(std::span<const int64_t> symbols) const {
  return impl_->plan().bounds().get(symbols)->dims;
}

CudaGraphStats CudaExecutable::graph_stats() const { return impl_->stats(); }

}  // namespace kiln
