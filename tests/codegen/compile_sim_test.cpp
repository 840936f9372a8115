// SPDX-License-Identifier: Apache-2.0
// CUDA sources compiled for the simulated device: what the object exports and imports, the guard, the cache.
#include "codegen/compile_sim.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "ir/base/error.h"
#include "ir/plan.h"
#include "tests/codegen/sim_block.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;
using testing::SimKernels;

constexpr const char* kTwo = R"(// two kernels
#include "kiln_cuda.h"
using namespace kn;
namespace first_code {
KILN_CUDA_KERNEL(first, 64, 2, 1) {
  const i64 i = block() * 64 + thread();
  if (i < dims[0]) store<1>((f32*)buffers[1] + i, kn::exp(load<1>((const f32*)buffers[0] + i)));
}
}
namespace second_code {
KILN_CUDA_KERNEL(second, 32, 1, 0) {
  store<1>((i64*)buffers[0] + thread(), i64(thread() + threads() * blocks()));
}
}
)";

TEST(CompileSim, KernelsOfOneSourceRunByThreadAndBlock) {
  const SimKernels kernels(kTwo, {"first", "second"});
  std::vector<float> x(100), y(100, -1.0f);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 0.01f;
  kernels.run("first", 64, 2, 0, {x.data(), y.data()}, {99});
  for (size_t i = 0; i < 99; ++i) EXPECT_EQ(y[i], std::exp(x[i])) << i;
  EXPECT_EQ(y[99], -1.0f);
  std::vector<int64_t> z(32);
  kernels.run("second", 32, 1, 0, {z.data()}, {});
  for (size_t i = 0; i < z.size(); ++i) EXPECT_EQ(z[i], static_cast<int64_t>(i) + 32);
}

TEST(CompileSim, AGuardThatDoesNotHoldEndsTheKernel) {
  const SimKernels kernels(kTwo, {"first", "second"});
  std::vector<int64_t> z(32, 7);
  int64_t guard = 0;
  kernels.run("second", 32, 1, 0, {z.data()}, {}, &guard);
  EXPECT_EQ(z[5], 7);
  guard = kNothingWrong;
  kernels.run("second", 32, 1, 0, {z.data()}, {}, &guard);
  EXPECT_EQ(z[5], 37);
}

TEST(CompileSim, AnErrorNamesTheFileAndTheLine) {
  try {
    compile_sim(
        SimKernels::module("#include \"kiln_cuda.h\"\nKILN_CUDA_KERNEL(k, 32, 1, 0) { oops(); }\n", {"k"}),
        nullptr);
    FAIL() << "compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::compile);
    EXPECT_THAT(e.what(), HasSubstr("test.cu"));
    EXPECT_THAT(e.what(), HasSubstr(":2:33: error: use of undeclared identifier 'oops'"));
  }
}

TEST(CompileSim, AMissingKernelIsAnError) {
  EXPECT_THROW(compile_sim(SimKernels::module(kTwo, {"first", "third"}), nullptr), Error);
}

TEST(CompileSim, TheSecondTimeItComesFromTheCache) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kiln-sim-test-{}", getpid());
  DiskCache cache(folder.string(), 1 << 20);
  const CudaModule module = SimKernels::module(kTwo, {"first", "second"});
  int compiled = 0;
  const std::string once = compile_sim(module, &cache, &compiled);
  EXPECT_EQ(cache.stats().hits, 0);
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(compile_sim(module, &cache, &compiled), once);
  EXPECT_EQ(cache.stats().hits, 1);
  EXPECT_EQ(compiled, 1);
  compile_sim(SimKernels::module(kTwo, {"first"}), &cache);  // other kernels are another object
  EXPECT_EQ(cache.stats().hits, 1);
  std::filesystem::remove_all(folder);
}

}  // namespace KILN_FILE
}  // namespace kiln
