// SPDX-License-Identifier: Apache-2.0
// Random graphs compiled and interpreted: same results within rounding, and the same bits for any thread
// count. KILN_FUZZ_GRAPHS graphs from seed KILN_FUZZ_SEED; arenas, scratch and outputs are poisoned.
#include <gtest/gtest.h>

#include <random>

#include "ir/base/options.h"
#include "tests/codegen/compiled.h"
#include "tests/ir/random_graph.h"

namespace kiln {
namespace {

/// Same bits in every element.
bool equal_bits(const HostTensor& a, const HostTensor& b) {
  return std::memcmp(a.ref.data, b.ref.data, static_cast<size_t>(a.ref.numel()) * dtype_size(a.ref.dtype)) ==
         0;
}

/// The interpreter with every float result moved by a few units in the last place of f32: what rounding alone
/// may do, also where a comparison or a cast to an integer turns a small difference into a large one.
std::vector<HostTensor> interpret_moved(const Graph& g, const std::vector<HostTensor>& inputs,
                                        uint32_t seed) {
  std::mt19937 rng(seed);
  return interpret(g, inputs, [&](int node, const HostTensor& t) {
    const OpKind kind = def(g.nodes[node].op).kind;
    if (kind == OpKind::view || kind == OpKind::gather || g.nodes[node].in.empty()) return;
    dispatch(t.ref.dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_floating_point_v<T>) {
        T* p = static_cast<T*>(t.ref.data);
        for (int64_t i = 0; i < t.ref.numel(); ++i)
          p[i] *= T(1 + 0x1p-22 * (static_cast<double>(rng() % 5) - 2));
      }
    });
  });
}

/// "" if output k is as close as rounding allows.
std::string fault(const Graph& g, const std::vector<HostTensor>& inputs, const HostTensor& got,
                  const HostTensor& want, size_t k) {
  std::string d = testing::difference(got, want, 64);
  std::vector<HostTensor> moved;
  for (uint32_t seed = 1; seed <= 12 && !d.empty(); ++seed) {
    moved.push_back(interpret_moved(g, inputs, seed)[k]);
    d = testing::difference(got, want, 64, moved);
  }
  return d;
}

void run_batch(uint64_t first, size_t count, bool fuse) {
  std::vector<Graph> graphs;
  for (size_t i = 0; i < count; ++i) {
    testing::RandomGraphOptions o;
    o.nodes = 4 + static_cast<int>((first + i) % 20);
    o.chain = (first + i) % 3 == 0;
    if ((first + i) % 5 == 0) o.sizes = {1, 2, 7, 16, 33, 70};
    graphs.push_back(testing::random_graph(first + i, o));
  }
  const CompiledBatch batch = compile_batch(graphs, host_target(), {.fuse = fuse}, 2);
  std::shared_ptr<LoadedImage> image;
  if (!batch.image.bytes.empty()) image = std::make_shared<LoadedImage>(batch.image.bytes);
  for (size_t i = 0; i < count; ++i) {
    const Graph& g = graphs[i];
    const std::vector<HostTensor> inputs = testing::random_inputs(g, first + i);
    const std::vector<HostTensor> want = interpret(g, inputs);
    const auto loaded = testing::load(batch.plans[i], image);
    const std::vector<HostTensor> one = testing::execute(g, *loaded.exe, inputs, 1);
    for (int threads : {2, 3}) {
      const std::vector<HostTensor> more = testing::execute(g, *loaded.exe, inputs, threads);
      for (size_t k = 0; k < want.size(); ++k)
        EXPECT_TRUE(equal_bits(one[k], more[k]))
            << "seed " << first + i << ", " << threads << " threads, output " << k;
    }
    for (size_t k = 0; k < want.size(); ++k) {
      const std::string d = fault(g, inputs, one[k], want[k], k);
      EXPECT_EQ(d, "") << "seed " << first + i << " output " << k << "\n" << print(g);
      if (!d.empty()) return;
    }
  }
}

TEST(Fuzz, CompiledEqualsInterpreted) {
  set_option("KILN_POISON", "1");
  const auto first = static_cast<uint64_t>(option_int("KILN_FUZZ_SEED"));
  const int64_t graphs = option_int("KILN_FUZZ_GRAPHS");
  constexpr int64_t kBatch = 100;
  for (int64_t at = 0; at < graphs && !HasFailure(); at += kBatch)
    run_batch(first + static_cast<uint64_t>(at), static_cast<size_t>(std::min(kBatch, graphs - at)),
              at % 500 != 0);
  set_option("KILN_POISON", "");
}

}  // namespace
}  // namespace kiln
