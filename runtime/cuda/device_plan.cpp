// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/device_plan.h"

#include <algorithm>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/options.h"
#include "ir/base/rounding.h"

namespace kiln {

using cuda::Address;

namespace {

constexpr size_t kScalarBytes = 16;  // buffers of kernels begin at multiples of it

/// The plan's slot that a buffer is, externals first; -1 for its own memory.
int64_t slot_of(const Plan& plan, const PlanBuffer& b) {
  if (b.kind == BufferKind::external) return b.index;
  return b.kind == BufferKind::output ? plan.external_count + b.index : -1;
}

std::vector<bool> written_slots(const Plan& plan) {
  std::vector<bool> out(static_cast<size_t>(plan.external_count) + static_cast<size_t>(plan.output_count));
  const auto write = [&](int32_t buffer) {
    const int64_t slot = slot_of(plan, plan.buffers[static_cast<size_t>(buffer)]);
    if (slot >= 0) out[static_cast<size_t>(slot)] = true;
  };
  for (const Launch& l : plan.launches)
    for (const int32_t w : l.writes) write(l.buffers[static_cast<size_t>(w)]);
  for (const PlanCollective& c : plan.collectives) write(c.buffer);
  return out;
}

unsigned char poison_of(DType dtype) {
  return is_floating(dtype) ? 0xFF : dtype == DType::boolean ? 1 : 0xA5;
}

}  // namespace

CudaDevicePlan::CudaDevicePlan(Plan plan, const KernelImage& image, CudaDevice& device, CudaOptions options)
    : plan_(std::move(plan)),
      bounds_(plan_),
      device_(device),
      options_(std::move(options)),
      launches_(plan_, image, device_, options_),
      written_(written_slots(plan_)),
      poison_(option_flag("KILN_POISON")) {
  if (plan_.constants.empty()) return;
  constants_ = device_.allocate(plan_.constants.size(), "constants of " + options_.name);
  device_.copy_to_device(constants_.address(), plan_.constants.data(), plan_.constants.size());
}

size_t CudaDevicePlan::scalars_at(const BoundPlan& bound) const {
  return round_up(static_cast<size_t>(bound.arena_bytes), kCudaPartAlign);
}
size_t CudaDevicePlan::guard_at(const BoundPlan& bound) const {
  return scalars_at(bound) + round_up(kScalarBytes * static_cast<size_t>(plan_.scalar_count), kCudaPartAlign);
}
size_t CudaDevicePlan::call_bytes(const BoundPlan& bound) const {
  return guard_at(bound) + (plan_.guards.size() > 1 && !options_.word ? kCudaPartAlign : 0);
}

std::string CudaDevicePlan::name_of(size_t slot) const {
  const bool external = is_read(slot);
  for (const PlanBuffer& b : plan_.buffers)
    if (slot_of(plan_, b) == static_cast<int64_t>(slot) && !b.name.empty()) return b.name;
  return fmt::format("{} {}", external ? "external" : "output",
                     external ? slot : slot - static_cast<size_t>(plan_.external_count));
}

CudaSlots CudaDevicePlan::slots(const BoundPlan& bound, const Invocation& call) const {
  CudaSlots out;
  for (const auto& memory : {call.externals, call.outputs})
    for (void* p : memory) out.addresses.push_back(reinterpret_cast<Address>(p));
  out.bytes.resize(out.addresses.size());
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const int64_t slot = slot_of(plan_, plan_.buffers[i]);
    if (slot < 0) continue;
    size_t& bytes = out.bytes[static_cast<size_t>(slot)];
    bytes = std::max(bytes, static_cast<size_t>(bound.sizes[i]));
  }
  for (size_t s = 0; s < out.bytes.size(); ++s)
    KILN_CHECK(out.addresses[s] || out.bytes[s] == 0, invalid,
               "executor: no memory given for {}; expected {} bytes", name_of(s), out.bytes[s]);
  return out;
}

void CudaDevicePlan::upload_scalars(const BoundPlan& bound, const Invocation& call, Address own) {
  if (call.scalars.empty()) return;
  std::vector<uint64_t> spread(call.scalars.size() * kScalarBytes / sizeof(uint64_t));
  for (size_t i = 0; i < call.scalars.size(); ++i)
    spread[i * kScalarBytes / sizeof(uint64_t)] = call.scalars[i];
  device_.copy_to_device(own + scalars_at(bound), spread.data(), spread.size() * sizeof(uint64_t));
}

std::vector<Address> CudaDevicePlan::table(const BoundPlan& bound, std::span<const Address> addresses,
                                           Address own) const {
  std::vector<Address> out;
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const PlanBuffer& b = plan_.buffers[i];
    const auto offset = static_cast<Address>(bound.offsets[i]);
    switch (b.kind) {
      case BufferKind::external:
      case BufferKind::output: out.push_back(addresses[static_cast<size_t>(slot_of(plan_, b))]); break;
      case BufferKind::scalar:
        out.push_back(own + scalars_at(bound) + kScalarBytes * static_cast<size_t>(b.index));
        break;
      case BufferKind::arena: out.push_back(own + offset); break;
      case BufferKind::constant: out.push_back(constants_.address() + offset); break;
    }
  }
  return out;
}

void CudaDevicePlan::poison(const BoundPlan& bound, std::span<const Address> buffers, Address own) {
  device_.spoil(own, poison_of(DType::f32), static_cast<size_t>(bound.arena_bytes));
  for (size_t i = 0; i < plan_.buffers.size(); ++i)
    if (plan_.buffers[i].kind == BufferKind::output)
      device_.spoil(buffers[i], poison_of(plan_.buffers[i].dtype), static_cast<size_t>(bound.sizes[i]));
}

void CudaDevicePlan::enqueue(const BoundPlan& bound, const Invocation& call,
                             std::span<const Address> addresses, Address own) {
  const std::vector<Address> buffers = table(bound, addresses, own);
  if (poison_) poison(bound, buffers, own);
  const CudaLaunches::Call launches{bound, buffers, own + guard_at(bound), call};
  if (call.profiler || call.timeline) launches_.run_timed(launches);
  else launches_.run(launches);
}

}  // namespace kiln
