// SPDX-License-Identifier: Apache-2.0
// Random graphs compiled and interpreted: same results within rounding, and the same bits for any thread
// count. KILN_FUZZ_GRAPHS graphs from seed KILN_FUZZ_SEED, each as drawn and optimised; some with one kernel
// for each node, some with loops over tiles wherever there can be one; arenas, scratch and outputs are
// poisoned.
#include <gtest/gtest.h>

#include "ir/base/options.h"
#include "ir/passes.h"
#include "tests/codegen/fuzz_case.h"
#include "tests/ir/reduce_graph.h"
#include "tests/ir/testing.h"
#include "tests/runtime/doubling_group.h"

namespace kiln {
namespace KILN_FILE {

using testing::GraphCase;

/// Runs with a second rank that sends the same.
std::vector<HostTensor> execute(const Graph& g, const Executable& exe, const std::vector<HostTensor>& inputs,
                                int threads, const std::vector<ExternalLayout>& layouts) {
  testing::DoublingGroup group;
  ProcessGroup* const groups[] = {&group};
  return testing::execute(g, exe, inputs, threads, layouts, groups);
}

using testing::equal_bits;
using testing::fault;
using testing::Layouts;
using testing::layouts_for;
using testing::Variant;

/// Whether a smaller graph compiled alone is as wrong; faults of the compiler itself count, too.
bool wrong_alone(const GraphCase& c, const Variant& v, const LowerOptions& options) {
  try {
    const Graph g = v.optimised ? optimize(c.graph) : c.graph;
    const Layouts layouts = v.layouts.empty() ? Layouts{} : layouts_for(g, v.seed);
    const CompiledProgram p = compile_program(g, layouts, host_target(), options, nullptr, 2);
    return !fault(c, execute(g, *testing::load(p).exe, c.inputs, 1, layouts)).empty();
  } catch (const Error&) {
    return true;
  }
}

void check(const Variant& v, const Graph& drawn, const Executable& exe, const LowerOptions& options) {
  const GraphCase c{drawn, testing::random_inputs(drawn, v.seed)};
  const std::string name = fmt::format("seed {}{}{}, {}", v.seed, v.optimised ? ", optimised" : "",
                                       v.layouts.empty() ? "" : ", strided inputs", options.str());
  SCOPED_TRACE(name);
  const std::vector<HostTensor> one = execute(v.graph, exe, c.inputs, 1, v.layouts);
  for (int threads : {2, 3}) {
    const std::vector<HostTensor> more = execute(v.graph, exe, c.inputs, threads, v.layouts);
    for (size_t k = 0; k < one.size(); ++k)
      EXPECT_TRUE(equal_bits(one[k], more[k])) << name << ", " << threads << " threads, output " << k << "\n"
                                               << print(v.graph);
  }
  const std::string d = fault(c, one);
  if (d.empty()) return;
  ADD_FAILURE() << name << ", " << d << "\n" << print(v.graph);
  const GraphCase small =
      testing::reduce_case(c, [&](const GraphCase& s) { return wrong_alone(s, v, options); });
  ADD_FAILURE() << name << ", reduced:\n" << print(small.graph);
}

void run_batch(uint64_t first, size_t count, const LowerOptions& options) {
  std::vector<Graph> drawn;
  std::vector<Variant> variants;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    drawn.push_back(testing::random_graph(seed, testing::fuzz_options(seed)));
    for (const bool optimised : {false, true}) {
      const Graph g = optimised ? optimize(drawn.back()) : drawn.back();
      variants.push_back({seed, optimised, g, layouts_for(g, seed)});
    }
  }
  std::vector<Graph> graphs;
  std::vector<Layouts> layouts;
  for (const Variant& v : variants) graphs.push_back(v.graph), layouts.push_back(v.layouts);
  const CompiledBatch batch = compile_batch(graphs, host_target(), options, 2, layouts);
  std::shared_ptr<LoadedImage> image;
  if (!batch.image.bytes.empty()) image = std::make_shared<LoadedImage>(batch.image.bytes);
  for (size_t i = 0; i < variants.size() && !::testing::Test::HasFailure(); ++i)
    check(variants[i], drawn[i / 2], *testing::load(batch.plans[i], image).exe, options);
}

TEST(Fuzz, CompiledEqualsInterpreted) {
  set_option("KILN_POISON", "1");
  host_functions().all_reduce = testing::double_in_place;
  const auto first = static_cast<uint64_t>(option_int("KILN_FUZZ_SEED"));
  const int64_t graphs = option_int("KILN_FUZZ_GRAPHS");
  constexpr int64_t kBatch = 100;
  for (int64_t at = 0; at < graphs && !HasFailure(); at += kBatch)
    run_batch(first + static_cast<uint64_t>(at), static_cast<size_t>(std::min(kBatch, graphs - at)),
              {.fuse = at % 500 != 100, .loop_bytes = at % 200 == 0 ? 1 : kNoLoops});
  set_option("KILN_POISON", "");
}

}  // namespace KILN_FILE
}  // namespace kiln
