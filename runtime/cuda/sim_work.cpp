// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/sim_work.h"

#include <fmt/format.h>

namespace kiln::cuda::sim {

namespace {

struct Name {
  std::string operator()(const Mark&) const { return "an event"; }
  std::string operator()(const Launch& l) const { return fmt::format("kernel '{}'", l.kernel->info.symbol); }
  std::string operator()(const Copy& c) const {
    if (device_of(c.to) < 0) return "a copy to the host";
    return device_of(c.from) < 0 ? "a copy to the device" : "a copy on the device";
  }
  std::string operator()(const Fill&) const { return "a fill"; }
  std::string operator()(const HostCall&) const { return "a host function"; }
  std::string operator()(const Begin&) const { return "an allocation"; }
  std::string operator()(const End&) const { return "a free"; }
  std::string operator()(const Forget&) const { return "a forgetting"; }
  std::string operator()(const Replay&) const { return "a graph"; }
};

std::string memory(Address address) {
  return fmt::format("{} memory at {:#x}", device_of(address) < 0 ? "host" : "device", address);
}

struct Uses {
  std::vector<Use> operator()(const Mark&) const { return {}; }
  std::vector<Use> operator()(const Launch& l) const {
    std::vector<Use> uses;
    for (const Buffer& b : l.buffers) uses.push_back({b.address, b.bytes, b.written, "'" + b.name + "'"});
    return uses;
  }
  std::vector<Use> operator()(const Copy& c) const {
    std::vector<Use> uses = {{c.to, c.bytes, true, memory(c.to)}};
    if (c.staged.empty()) uses.push_back({c.from, c.bytes, false, memory(c.from)});
    return uses;
  }
  std::vector<Use> operator()(const Fill& f) const { return {{f.to, f.bytes, true, memory(f.to)}}; }
  std::vector<Use> operator()(const HostCall&) const { return {}; }
  std::vector<Use> operator()(const Begin& b) const {
    return {{b.address, b.bytes, true, memory(b.address)}};
  }
  std::vector<Use> operator()(const End& e) const { return {{e.address, e.bytes, true, memory(e.address)}}; }
  std::vector<Use> operator()(const Forget& f) const {
    return {{f.address, f.bytes, true, memory(f.address)}};
  }
  std::vector<Use> operator()(const Replay& r) const { return r.plan->uses; }
};

}  // namespace

std::string name_of(const Action& action) { return std::visit(Name{}, action); }
std::vector<Use> uses_of(const Action& action) { return std::visit(Uses{}, action); }

}  // namespace kiln::cuda::sim
