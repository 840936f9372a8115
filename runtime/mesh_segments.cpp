// SPDX-License-Identifier: Apache-2.0
// Block r of a reduction is reduced by rank r, in the order of the ranks, and each segment is sent to all as
// soon as it is done. All receives are posted before the sends that they wait for.
#include "runtime/mesh_segments.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/reduce.h"

namespace kiln {

namespace {

constexpr int64_t kSegment = 256 * 1024;  // bytes: of the sizes from 128 KB to 1 MB the best on loopback
constexpr int64_t kDepth = 2;             // segments of operands on their way from one rank to another
enum Channel : uint64_t { kOperands = 2, kResults };

size_t index(int rank) { return static_cast<size_t>(rank); }
int64_t element(const Collective& c) { return static_cast<int64_t>(dtype_size(c.dtype)); }

}  // namespace

/// Bytes of one rank's block.
struct MeshSegments::Block {
  int64_t begin = 0, bytes = 0;

  int64_t segments() const { return (bytes + kSegment - 1) / kSegment; }
  size_t offset(int64_t k) const { return static_cast<size_t>(begin + k * kSegment); }
  size_t size(int64_t k) const { return static_cast<size_t>(std::min(kSegment, bytes - k * kSegment)); }
};

/// Blocks of the output on their way from the ranks they belong to.
struct MeshSegments::Results {
  std::vector<Block> blocks;
  std::vector<int> from, to;
  std::vector<std::unique_ptr<MeshBuffer>> in;  ///< one for each of `from`
  std::unique_ptr<MeshBuffer> out;
};

void MeshSegments::run(const Collective& c) {
  switch (c.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_reduce_mean: all_reduce(c); break;
    case CollectiveKind::all_gather: all_gather(c); break;
    case CollectiveKind::reduce_scatter:
      reduce(c, equal_blocks(c), static_cast<std::byte*>(c.out), [](int64_t) {});
      break;
    case CollectiveKind::broadcast:
      if (c.root == mesh_.rank()) broadcast_from_here(c);
      else broadcast_from_root(c);
      break;
    case CollectiveKind::barrier:
    case CollectiveKind::job: break;
  }
}

/// All other ranks, each rank beginning with another.
std::vector<int> MeshSegments::peers() const {
  std::vector<int> all;
  for (int i = 1; i < mesh_.size(); ++i) all.push_back((mesh_.rank() + i) % mesh_.size());
  return all;
}

/// The elements, in blocks as equal as they can be.
std::vector<MeshSegments::Block> MeshSegments::split(const Collective& c) const {
  std::vector<Block> blocks;
  int64_t begin = 0;
  for (int r = 0; r < mesh_.size(); ++r) {
    const int64_t n = c.count / mesh_.size() + (r < c.count % mesh_.size() ? 1 : 0);
    blocks.push_back({begin * element(c), n * element(c)});
    begin += n;
  }
  return blocks;
}

/// As many blocks as ranks, of c.count elements each.
std::vector<MeshSegments::Block> MeshSegments::equal_blocks(const Collective& c) const {
  std::vector<Block> blocks;
  const int64_t bytes = c.count * element(c);
  for (int r = 0; r < mesh_.size(); ++r) blocks.push_back({r * bytes, bytes});
  return blocks;
}

const MeshSegments::Block& MeshSegments::own(const std::vector<Block>& blocks) const {
  return blocks[index(mesh_.rank())];
}

void MeshSegments::send_all(MeshBuffer& buffer, int peer, const Block& block) {
  for (int64_t k = 0; k < block.segments(); ++k) buffer.send(peer, block.offset(k), block.size(k));
}
void MeshSegments::receive_all(MeshBuffer& buffer, int peer, const Block& block) {
  for (int64_t k = 0; k < block.segments(); ++k) buffer.receive(peer, block.offset(k), block.size(k));
}
void MeshSegments::await_received(MeshBuffer& buffer, int peer, const Block& block) {
  for (int64_t k = 0; k < block.segments(); ++k) wait_.received(buffer, peer);
}
void MeshSegments::await_sent(MeshBuffer& buffer, int peer, const Block& block) {
  for (int64_t k = 0; k < block.segments(); ++k) wait_.sent(buffer, peer);
}

MeshSegments::Results MeshSegments::expect(const Collective& c, std::vector<Block> blocks,
                                           std::vector<int> from, std::vector<int> to) {
  Results r{std::move(blocks), std::move(from), std::move(to), {}, nullptr};
  const size_t bytes = static_cast<size_t>(r.blocks.back().begin + r.blocks.back().bytes);
  r.out = mesh_.buffer(c.out, bytes, kResults);
  for (const int p : r.from) {
    r.in.push_back(mesh_.buffer(c.out, bytes, kResults));
    receive_all(*r.in.back(), p, r.blocks[index(p)]);
  }
  return r;
}

void MeshSegments::send_result(Results& r, int64_t segment) {
  for (const int p : r.to) r.out->send(p, own(r.blocks).offset(segment), own(r.blocks).size(segment));
}

void MeshSegments::finish(Results& r) {
  for (size_t i = 0; i < r.from.size(); ++i) await_received(*r.in[i], r.from[i], r.blocks[index(r.from[i])]);
  for (const int p : r.to) await_sent(*r.out, p, own(r.blocks));
}

void MeshSegments::all_reduce(const Collective& c) {
  Results results = expect(c, split(c), peers(), peers());
  reduce(c, results.blocks, static_cast<std::byte*>(c.out) + own(results.blocks).begin,
         [&](int64_t k) { send_result(results, k); });
  finish(results);
}

void MeshSegments::all_gather(const Collective& c) {
  Results results = expect(c, equal_blocks(c), peers(), peers());
  const Block& mine = own(results.blocks);
  std::byte* place = static_cast<std::byte*>(c.out) + mine.begin;
  if (place != c.in) std::memcpy(place, c.in, static_cast<size_t>(mine.bytes));
  for (int64_t k = 0; k < mine.segments(); ++k) send_result(results, k);
  finish(results);
}

/// Sends each rank its block of the input, receives this rank's from all, and calls done(k) once segment k of
/// the reduction is in `out`.
void MeshSegments::reduce(const Collective& c, const std::vector<Block>& blocks, std::byte* out,
                          const std::function<void(int64_t)>& done) {
  const Block& mine = own(blocks);
  scratch_.resize(static_cast<size_t>(mesh_.size() * kDepth * kSegment));
  std::vector<std::unique_ptr<MeshBuffer>> in(index(mesh_.size()));
  const auto place = [&](int p, int64_t k) {
    return static_cast<size_t>((p * kDepth + k % kDepth) * kSegment);
  };
  for (const int p : peers()) {
    in[index(p)] = mesh_.buffer(scratch_.data(), scratch_.size(), kOperands);
    for (int64_t k = 0; k < std::min(kDepth, mine.segments()); ++k)
      in[index(p)]->receive(p, place(p, k), mine.size(k));
  }
  const auto to = mesh_.buffer(const_cast<void*>(c.in),
                               static_cast<size_t>(blocks.back().begin + blocks.back().bytes), kOperands);
  for (const int p : peers()) send_all(*to, p, blocks[index(p)]);

  std::vector<const void*> parts(index(mesh_.size()));
  for (int64_t k = 0; k < mine.segments(); ++k) {
    for (const int p : peers()) {
      wait_.received(*in[index(p)], p);
      parts[index(p)] = scratch_.data() + place(p, k);
    }
    parts[index(mesh_.rank())] = static_cast<const std::byte*>(c.in) + mine.offset(k);
    reduce_parts(parts, out + k * kSegment, static_cast<int64_t>(mine.size(k)) / element(c), c.dtype, c.op);
    if (k + kDepth < mine.segments())
      for (const int p : peers()) in[index(p)]->receive(p, place(p, k), mine.size(k + kDepth));
    done(k);
  }
  for (const int p : peers()) await_sent(*to, p, blocks[index(p)]);
}

/// Each rank gets its own block, to pass on, and the root's.
void MeshSegments::broadcast_from_here(const Collective& c) {
  Results results = expect(c, split(c), {}, peers());
  const auto parts = mesh_.buffer(c.out, static_cast<size_t>(c.count * element(c)), kOperands);
  for (const int p : peers()) send_all(*parts, p, results.blocks[index(p)]);
  for (int64_t k = 0; k < own(results.blocks).segments(); ++k) send_result(results, k);
  for (const int p : peers()) await_sent(*parts, p, results.blocks[index(p)]);
  finish(results);
}

void MeshSegments::broadcast_from_root(const Collective& c) {
  std::vector<int> to = peers();
  to.erase(std::find(to.begin(), to.end(), c.root));
  Results results = expect(c, split(c), peers(), to);
  const auto part = mesh_.buffer(c.out, static_cast<size_t>(c.count * element(c)), kOperands);
  receive_all(*part, c.root, own(results.blocks));
  for (int64_t k = 0; k < own(results.blocks).segments(); ++k) {
    wait_.received(*part, c.root);
    send_result(results, k);
  }
  finish(results);
}

}  // namespace kiln
