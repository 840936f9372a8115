// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/sim_reach.h"

namespace kiln::cuda::sim {

Reach::Reach(std::vector<Buffer> buffers) : buffers_(std::move(buffers)) {
  std::vector<Address> cuts;
  for (const Buffer& b : buffers_) cuts.push_back(b.address), cuts.push_back(b.address + b.bytes);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<uint32_t> order(buffers_.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return buffers_[a].address < buffers_[b].address; });
  std::vector<uint32_t> open;
  size_t next = 0;
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    std::erase_if(open, [&](uint32_t i) { return buffers_[i].address + buffers_[i].bytes <= cuts[c]; });
    for (; next < order.size() && buffers_[order[next]].address <= cuts[c]; ++next)
      if (buffers_[order[next]].bytes > 0) open.push_back(order[next]);
    if (open.empty()) continue;
    Range r = {cuts[c], cuts[c + 1], false, false, open.front()};
    for (const uint32_t i : open) {
      r.read |= buffers_[i].read;
      r.written |= buffers_[i].written;
      r.gaps |= buffers_[i].gaps;
      if (buffers_[i].written) r.buffer = i;
    }
    ranges_.push_back(r);
  }
}

const Reach::Range* Reach::search(Address address, unsigned bytes) const {
  auto at = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                             [](Address a, const Range& r) { return a < r.begin; });
  if (at == ranges_.begin()) return nullptr;
  --at;
  if (!at->has(address, bytes)) return nullptr;
  return last_ = &*at;
}

bool Reach::allows(Address address, unsigned bytes, bool write) const {
  for (unsigned i = 0; i < bytes; ++i) {
    const Range* r = search(address + i, 1);
    if (!r || !(write ? r->written : r->read || r->written)) return false;
  }
  return true;
}

const Buffer* Reach::nearest(Address address) const {
  const Buffer* best = nullptr;
  uint64_t least = 64 << 10;
  for (const Buffer& b : buffers_) {
    const uint64_t away = address < b.address             ? b.address - address
                          : address - b.address < b.bytes ? 0
                                                          : address - b.address - b.bytes + 1;
    if (away < least || (away == 0 && best == nullptr)) best = &b, least = away;
  }
  return best;
}

}  // namespace kiln::cuda::sim
