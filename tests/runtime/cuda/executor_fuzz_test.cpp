// SPDX-License-Identifier: Apache-2.0
// Random graphs compiled for CUDA, called plainly, recorded and replayed on the simulated device, which sees
// what no result shows: races of streams and threads, accesses that a plan does not declare, memory that was
// given back. KILN_FUZZ_GRAPHS graphs from seed KILN_FUZZ_SEED, each as drawn and optimised.
#include <gtest/gtest.h>

#include "ir/base/options.h"
#include "tests/codegen/fuzz_case.h"
#include "tests/runtime/cuda/fake_cublaslt.h"
#include "tests/runtime/cuda/sim_kernels.h"
#include "tests/runtime/doubling_group.h"

namespace kiln {
namespace KILN_FILE {

using testing::DoublingGroup;
using testing::fault;
using testing::GraphCase;
using testing::Layouts;
using testing::PlacedInput;

/// A graph's tensors on the device, where calls may find them again.
class DeviceTensors {
 public:
  DeviceTensors(CudaDevice& device, const Graph& g) : device_(device), g_(g) {}

  std::vector<HostTensor> call(CudaExecutable& exe, const std::vector<HostTensor>& inputs,
                               const Layouts& layouts, bool elsewhere) {
    if (elsewhere) std::swap(former_, memory_);
    std::deque<PlacedInput> own;
    std::vector<void*> externals, outputs;
    std::vector<uint64_t> scalars;
    std::vector<HostTensor> out(g_.outputs.size());
    std::vector<cuda::Address> at;
    size_t used = 0;
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      const bool scalar = g_.inputs[i].kind == InputKind::scalar;
      own.emplace_back(inputs[i], scalar || layouts.empty() ? nullptr : &layouts[externals.size()]);
      uint64_t bits = 0;
      if (scalar) {
        std::memcpy(&bits, own.back().data(), dtype_size(inputs[i].ref.dtype));
        scalars.push_back(bits);
        at.push_back(0);
        continue;
      }
      at.push_back(room(used++, own.back().bytes()));
      device_.copy_to_device(at.back(), own.back().data(), own.back().bytes());
      externals.push_back(reinterpret_cast<void*>(at.back()));
    }
    for (size_t k = 0; k < out.size(); ++k) {
      const GraphOutput& o = g_.outputs[k];
      if (o.alias_input >= 0) continue;
      out[k] = make_host_tensor(g_.type(o.value).dtype, testing::values(g_.type(o.value).shape));
      outputs.push_back(reinterpret_cast<void*>(room(used++, bytes(out[k]))));
    }
    DoublingGroup group;
    ProcessGroup* const groups[] = {&group};
    exe.run(
        {.externals = externals, .outputs = outputs, .scalars = scalars, .symbols = {}, .groups = groups});
    size_t slot = 0;
    for (HostTensor& t : out)
      if (t.ref.data && slot < outputs.size())
        device_.copy_to_host(t.ref.data, reinterpret_cast<cuda::Address>(outputs[slot++]), bytes(t));
    for (size_t i = 0; i < own.size(); ++i)
      if (at[i]) device_.copy_to_host(own[i].data(), at[i], own[i].bytes());
    for (size_t k = 0; k < out.size(); ++k)
      if (g_.outputs[k].alias_input >= 0) out[k] = own[static_cast<size_t>(g_.outputs[k].alias_input)].now();
    for (PlacedInput& p : own) EXPECT_TRUE(p.marks_hold());
    return out;
  }

 private:
  static size_t bytes(const HostTensor& t) {
    return static_cast<size_t>(t.ref.numel()) * dtype_size(t.ref.dtype);
  }
  cuda::Address room(size_t i, size_t size) {
    while (memory_.size() <= i) memory_.emplace_back();
    if (memory_[i].bytes() != size) memory_[i] = device_.allocate(size, "test");
    return memory_[i].address();
  }

  CudaDevice& device_;
  const Graph& g_;
  std::vector<CudaMemory> memory_, former_;
};

class CudaExecutorFuzz : public testing::OnSimulatedDevice {
 protected:
  void check(uint64_t seed, bool optimised, const LowerOptions& options = {}, bool graphs = true) {
    const Graph drawn = testing::random_graph(seed, testing::fuzz_options(seed));
    const Graph g = optimised ? optimize(drawn) : drawn;
    const GraphCase c{drawn, testing::random_inputs(drawn, seed)};
    const Target target = parse_cuda_target("sm_90");
    const Layouts layouts = testing::layouts_for(g, seed, target);
    const CompiledProgram p = compile_program(g, layouts, target, options, &cache_, 2);
    for (const PlanKernel& k : p.plan.kernels) products_ += k.builtin && names_product(k.symbol);
    CudaExecutable exe(p.plan, p.image, device(), {.graphs = graphs});
    DeviceTensors tensors(device(), g);
    for (const bool elsewhere : {false, false, false, true, true}) {
      const std::string d = fault(c, tensors.call(exe, c.inputs, layouts, elsewhere));
      ASSERT_EQ(d, "") << "seed " << seed << (optimised ? ", optimised" : "") << "\n"
                       << print(g) << print(p.plan);
    }
    recorded_ += exe.graph_stats().recordings > 0;
  }
  int recorded_ = 0, products_ = 0;

  /// What is asked of every seed.
  void check_all(uint64_t graphs, const LowerOptions& options, bool record) {
    host_functions().all_reduce = testing::double_in_place;
    const auto first = static_cast<uint64_t>(option_int("KILN_FUZZ_SEED"));
    for (uint64_t seed = first; seed < first + graphs && !HasFailure(); ++seed)
      for (const bool optimised : {false, true}) {
        try {
          check(seed, optimised, options, record);
        } catch (const std::exception& e) {
          FAIL() << "seed " << seed << (optimised ? ", optimised: " : ": ") << e.what();
        }
      }
  }

 private:
  DiskCache cache_;
};

TEST_F(CudaExecutorFuzz, PlainRecordedAndReplayedEqualInterpreted) {
  const auto graphs = static_cast<uint64_t>(option_int("KILN_FUZZ_GRAPHS"));
  check_all(graphs, {}, true);
  EXPECT_GT(recorded_, static_cast<int>(graphs / 4));  // of twice as many, some of which are not recorded
}

// Nothing is recorded: the library's stand-in computes on the host.
TEST_F(CudaExecutorFuzz, ProductsByCublasltEqualInterpreted) {
  const cuda::CublasLt table = testing_cublaslt::fake_table();
  testing_cublaslt::state = {};
  testing_cublaslt::state.device = &device();
  cuda::set_cublaslt(&table);
  check_all(static_cast<uint64_t>(option_int("KILN_FUZZ_GRAPHS")), {.library = true}, false);
  cuda::set_cublaslt(nullptr);
  EXPECT_GT(products_, static_cast<int>(option_int("KILN_FUZZ_GRAPHS") / 12));
}

}  // namespace KILN_FILE
}  // namespace kiln
