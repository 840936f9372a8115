// SPDX-License-Identifier: Apache-2.0
// Does pieces of work: kernels, copies, fills, host functions, graphs.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/cuda/sim_state.h"

namespace kiln::cuda::sim {

namespace {

// What is wrong with the memory of a range; "" if it is allocated as a whole.
std::string missing(const DeviceSpace& space, Address address, uint64_t bytes) {
  if (bytes == 0 || space.live(address, bytes)) return "";
  const Allocation* a = space.find(address);
  if (a && !a->live) return fmt::format("freed memory ({} bytes were allocated)", a->bytes);
  if (a)
    return fmt::format("an allocation of {} bytes only, at its offset {}", a->bytes,
                       address - space.address_of(*a));
  return "memory that is not allocated";
}

// All that is allocated; outputs that are held may be read only.
std::vector<Buffer> everything(const ContextObject& context) {
  std::vector<Buffer> all;
  for (const auto& [offset, a] : context.space.allocations()) {
    if (!a.live) continue;
    Address at = context.space.address_of(a);
    const Address end = at + a.bytes;
    const std::string name = fmt::format("allocation at {:#x}", at);
    for (auto h = context.held.lower_bound(at); h != context.held.end() && h->first < end; ++h) {
      if (h->first > at) all.push_back({at, h->first - at, true, true, name});
      all.push_back({h->first, h->second, true, false, "held output"});
      at = h->first + h->second;
    }
    if (at < end) all.push_back({at, end - at, true, true, name});
  }
  return all;
}

}  // namespace

Fault Machine::perform(const Action& action, ContextObject& context, Lock& lock) {
  if (const auto* l = std::get_if<Launch>(&action)) return perform_launch(*l, context);
  if (const auto* c = std::get_if<Copy>(&action)) return perform_copy(*c);
  if (const auto* r = std::get_if<Replay>(&action)) return perform_replay(*r, context, lock);
  if (const auto* f = std::get_if<Fill>(&action)) {
    const std::string wrong = missing(context.space, f->to, f->bytes);
    if (!wrong.empty()) return {kIllegalAddress, "use after free: a fill writes " + wrong};
    std::byte* to = context.space.data(f->to);
    for (uint64_t i = 0; i < f->bytes; i += f->width) std::memcpy(to + i, &f->value, f->width);
    context.space.set_all_written(f->to, f->bytes, true);
  }
  if (const auto* h = std::get_if<HostCall>(&action)) {
    lock.unlock();
    in_host_function() = true;
    h->function(h->data);
    in_host_function() = false;
    lock.lock();
  }
  if (const auto* f = std::get_if<Forget>(&action)) {
    if (!missing(context.space, f->address, f->bytes).empty()) return {};
    context.space.set_all_written(f->address, f->bytes, false);
  }
  if (const auto* e = std::get_if<End>(&action)) {
    context.pool.used -= e->taken;
    release(context, *context.space.find(e->address));
  }
  return {};
}

// Whoever uses it from now on uses freed memory, in whatever order.
void Machine::release(ContextObject& context, const Allocation& allocation) {
  const Address begin = context.space.address_of(allocation), end = begin + allocation.bytes;
  history.forget(begin, allocation.bytes);
  context.held.erase(context.held.lower_bound(begin), context.held.lower_bound(end));
  context.space.release(allocation);
}

Fault Machine::perform_launch(const Launch& launch, ContextObject& context) {
  const std::string& name = launch.kernel->info.symbol;
  for (const Buffer& b : launch.buffers) {
    const std::string wrong = missing(context.space, b.address, b.bytes);
    if (!wrong.empty())
      return {kIllegalAddress,
              fmt::format("use after free: kernel '{}': buffer '{}' ({} bytes at {:#x}) is {}", name, b.name,
                          b.bytes, b.address, wrong)};
  }
  if (FailurePlan::due(failures.launch))
    return {kLaunchFailed, fmt::format("planned failure of a launch: kernel '{}'", name)};
  if (runner.worn()) {
    for (const auto& c : contexts)
      if (c) c->space.forget_touches();
    runner.restart();
  }
  const Reach reach(launch.declared ? launch.buffers : everything(context));
  const LaunchSpec spec = {
      name,          launch.kernel->entry, launch.parameters.data(), launch.kernel->info.threads,
      launch.blocks, launch.shared_bytes,  &context.space,           &reach};
  Fault f = runner.run(spec, random);
  if (!f) ++launches;
  return f;
}

Fault Machine::perform_copy(const Copy& copy) {
  ContextObject* const to = of_address(copy.to);
  ContextObject* const from = of_address(copy.from);
  for (const auto& [context, address] : {std::pair(to, copy.to), std::pair(from, copy.from)}) {
    if (!context) continue;
    const std::string wrong = missing(context->space, address, copy.bytes);
    if (!wrong.empty())
      return {kIllegalAddress, fmt::format("use after free: {} {} {} bytes at {:#x}, {}", name_of(copy),
                                           context == to && address == copy.to ? "writes" : "reads",
                                           copy.bytes, address, wrong)};
  }
  if (copy.bytes == 0) return {};
  const std::byte* source = from                  ? from->space.data(copy.from)
                            : copy.staged.empty() ? reinterpret_cast<const std::byte*>(copy.from)
                                                  : copy.staged.data();
  std::byte* target = to ? to->space.data(copy.to) : reinterpret_cast<std::byte*>(copy.to);
  std::memmove(target, source, copy.bytes);
  if (to && from) to->space.copy_written(copy.to, from->space, copy.from, copy.bytes);
  if (to && !from) to->space.set_all_written(copy.to, copy.bytes, true);
  if (!to && from) from->space.poison_unwritten(copy.from, copy.bytes, target);
  return {};
}

Fault Machine::perform_replay(const Replay& replay, ContextObject& context, Lock& lock) {
  const GraphPlan& plan = *replay.plan;
  if (!plan.race.empty()) return {kLaunchFailed, plan.race};
  std::vector<int> waits(plan.nodes.size()), ready;
  std::vector<std::vector<int>> followers(plan.nodes.size());
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    waits[i] = static_cast<int>(plan.nodes[i].after.size());
    for (const int before : plan.nodes[i].after) followers[before].push_back(static_cast<int>(i));
    if (waits[i] == 0) ready.push_back(static_cast<int>(i));
  }
  while (!ready.empty()) {
    std::swap(ready[random.below(static_cast<uint32_t>(ready.size()))], ready.back());
    const int node = ready.back();
    ready.pop_back();
    Fault f = perform(plan.nodes[node].action, context, lock);
    if (f) {
      f.text = "in a graph: " + f.text;
      return f;
    }
    for (const int next : followers[node])
      if (--waits[next] == 0) ready.push_back(next);
  }
  return {};
}

}  // namespace kiln::cuda::sim
