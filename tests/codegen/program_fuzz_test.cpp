// SPDX-License-Identifier: Apache-2.0
// Random graphs compiled and interpreted: same results within rounding, and the same bits for any thread
// count. KILN_FUZZ_GRAPHS graphs from seed KILN_FUZZ_SEED; arenas, scratch and outputs are poisoned.
#include <gtest/gtest.h>

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
      const std::string d = testing::difference(one[k], want[k], 64);
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
