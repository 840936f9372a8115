// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/collectives.h"

#include <algorithm>
#include <utility>

#include "ir/base/error.h"
#include "runtime/collective_nccl.h"

namespace kiln {

bool works_on_device(const ProcessGroup& group) { return group.device().is_cuda(); }

CudaCollectives::CudaCollectives(const Plan& plan, CudaDevice& device, const CudaLaunches::Call& call)
    : plan_(plan), device_(device), call_(call), started_(plan.collectives.size()) {}

CudaCollectives::~CudaCollectives() {
  for (const Started& s : started_) {
    if (!s.work || s.waited) continue;
    try {
      s.work->wait();
    } catch (const Error&) {  // of a call that has failed already
    }
  }
}

std::vector<Work::Times> CudaCollectives::times() const {
  std::vector<Work::Times> out;
  for (const Started& s : started_) out.push_back(s.work ? s.work->times() : Work::Times{});
  return out;
}

void CudaCollectives::announce() {
  const auto* announce = call_.invocation.announce;
  if (announce && *announce && !plan_.collectives.empty()) (*announce)(false);
}

size_t CudaCollectives::bytes(int32_t collective) const {
  const PlanCollective& c = plan_.collectives[static_cast<size_t>(collective)];
  const DType dtype = plan_.buffers[static_cast<size_t>(c.buffer)].dtype;
  return static_cast<size_t>(call_.bound.dims[static_cast<size_t>(c.count)]) * dtype_size(dtype);
}

void CudaCollectives::start(int32_t collective) {
  const auto at = static_cast<size_t>(collective);
  const PlanCollective& c = plan_.collectives[at];
  ProcessGroup& group = *call_.invocation.groups[static_cast<size_t>(c.group)];
  const cuda::Address address = call_.buffers[static_cast<size_t>(c.buffer)];
  Started& s = started_[at];
  void* data = reinterpret_cast<void*>(address);
  const bool on_device = works_on_device(group);
  KILN_CHECK(!on_device || group.device().index == device_.index(), invalid,
             "cuda:{}: the {} of the plan is on a group of {}", device_.index(), c.kind,
             group.device().str());
  if (!on_device) {
    s.host.resize(bytes(collective));
    device_.copy_to_host(s.host.data(), address, s.host.size());
    data = s.host.data();
  }
  const auto& sites = call_.invocation.sites;
  CollectiveSite site = at < sites.size() ? sites[at] : CollectiveSite{};
  site.agreed = true;  // announce() has seen to it
  s.work = all_reduce_as(group, data, call_.bound.dims[static_cast<size_t>(c.count)],
                         plan_.buffers[static_cast<size_t>(c.buffer)].dtype, c.wire, site);
}

void CudaCollectives::wait(int32_t collective) {
  const auto at = static_cast<size_t>(collective);
  Started& s = started_[at];
  s.waited = true;
  s.work->wait();
  if (s.host.empty()) return;
  const auto buffer = static_cast<size_t>(plan_.collectives[at].buffer);
  device_.copy_to_device(call_.buffers[buffer], s.host.data(), s.host.size());
}

void replay_in_turn(const Plan& plan, const Invocation& call, const std::string& name,
                    const std::function<void()>& launch) {
  std::vector<DeviceGroup*> groups;  // in the plan's order, which all ranks have
  for (const PlanCollective& c : plan.collectives) {
    auto* const g = dynamic_cast<DeviceGroup*>(call.groups[static_cast<size_t>(c.group)]);
    if (g && std::find(groups.begin(), groups.end(), g) == groups.end()) groups.push_back(g);
  }
  const CollectiveSite site = call.sites.empty() ? CollectiveSite{} : call.sites[0];
  std::function<void()> nested = launch;
  for (DeviceGroup* const g : groups)
    nested = [g, inner = std::move(nested), title = "the graph of " + name, site] {
      g->replay(title, inner, site);
    };
  nested();
}

}  // namespace kiln
