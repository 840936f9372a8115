// SPDX-License-Identifier: Apache-2.0
// Random graphs compiled for CUDA and run on the simulated device: what the interpreter gives, within
// rounding. KILN_FUZZ_GRAPHS graphs from seed KILN_FUZZ_SEED, one as drawn, the next one optimised; arenas,
// shared memory and outputs are poisoned.
#include <gtest/gtest.h>

#include "ir/base/options.h"
#include "tests/codegen/cuda_plan.h"
#include "tests/codegen/fuzz_case.h"
#include "tests/runtime/doubling_group.h"

namespace kiln {
namespace KILN_FILE {

using testing::fault;
using testing::GraphCase;
using testing::Layouts;
using testing::layouts_for;
using testing::Variant;

const Target& target() {
  static const Target t = parse_cuda_target("sm_90");
  return t;
}

/// Runs with a second rank that sends the same.
std::vector<HostTensor> execute(const Graph& g, const Plan& plan, const KernelImage& image,
                                const std::vector<HostTensor>& inputs, const Layouts& layouts) {
  testing::DoublingGroup group;
  ProcessGroup* const groups[] = {&group};
  return testing::execute_cuda(g, plan, image, inputs, layouts, {}, groups);
}

bool wrong_alone(const GraphCase& c, const Variant& v, bool fuse) {
  try {
    const Graph g = v.optimised ? optimize(c.graph) : c.graph;
    const Layouts layouts = v.layouts.empty() ? Layouts{} : layouts_for(g, v.seed, target());
    const CompiledProgram p = compile_program(g, layouts, target(), {.fuse = fuse}, nullptr, 2);
    return !fault(c, execute(g, p.plan, p.image, c.inputs, layouts)).empty();
  } catch (const std::exception&) {
    return true;
  }
}

void check(const Variant& v, const Graph& drawn, const Plan& plan, const KernelImage& image, bool fuse) {
  const GraphCase c{drawn, testing::random_inputs(drawn, v.seed)};
  const std::string name =
      fmt::format("seed {}{}{}{}", v.seed, v.optimised ? ", optimised" : "",
                  v.layouts.empty() ? "" : ", strided inputs", fuse ? "" : ", one kernel per node");
  std::string d;
  try {
    d = fault(c, execute(v.graph, plan, image, c.inputs, v.layouts));
  } catch (const std::exception& e) {
    d = e.what();
  }
  if (d.empty()) return;
  ADD_FAILURE() << name << ", " << d << "\n" << print(v.graph);
  const GraphCase small =
      testing::reduce_case(c, [&](const GraphCase& s) { return wrong_alone(s, v, fuse); });
  ADD_FAILURE() << name << ", reduced:\n" << print(small.graph);
}

void run_batch(uint64_t first, size_t count, bool fuse) {
  std::vector<Graph> drawn, graphs;
  std::vector<Variant> variants;
  std::vector<Layouts> layouts;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    drawn.push_back(testing::random_graph(seed, testing::fuzz_options(seed)));
    const bool optimised = seed % 2 != 0;  // the CPU's fuzzer runs each graph both ways
    const Graph g = optimised ? optimize(drawn.back()) : drawn.back();
    variants.push_back({seed, optimised, g, layouts_for(g, seed, target())});
    graphs.push_back(g), layouts.push_back(variants.back().layouts);
  }
  const CompiledBatch batch = compile_batch(graphs, target(), {.fuse = fuse}, 2, layouts);
  for (size_t i = 0; i < variants.size() && !::testing::Test::HasFailure(); ++i)
    check(variants[i], drawn[i], batch.plans[i], batch.image, fuse);
}

TEST(CudaFuzz, CompiledEqualsInterpreted) {
  host_functions().all_reduce = testing::double_in_place;
  const auto first = static_cast<uint64_t>(option_int("KILN_FUZZ_SEED"));
  const int64_t graphs = option_int("KILN_FUZZ_GRAPHS");
  constexpr int64_t kBatch = 50;
  for (int64_t at = 0; at < graphs && !HasFailure(); at += kBatch)
    run_batch(first + static_cast<uint64_t>(at), static_cast<size_t>(std::min(kBatch, graphs - at)),
              at % 200 != 50);
}

}  // namespace KILN_FILE
}  // namespace kiln
