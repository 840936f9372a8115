// SPDX-License-Identifier: Apache-2.0
// NVRTC: where it is looked for, what is said when it is missing or does not know an architecture, machine
// code and what its log says of it, threads, the cache. Skipped, and said so, where there is no NVRTC.
#include "codegen/compile_nvrtc.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/base/error.h"
#include "ir/base/options.h"
#include "tests/codegen/kept_source.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string kernel_source(const std::string& name, const std::string& body) {
  return "#include \"kiln_cuda.h\"\nusing namespace kn;\nKILN_CUDA_KERNEL(" + name + ", 128, 2, 1) {\n" +
         body + "\n}\n";
}
CudaModule add_one(const std::string& name) {
  return {
      name + ".cu",
      kernel_source(name,
                    "const i64 i = (block() * 128 + thread()) * 4;\n"
                    "if (i < dims[0]) store<4>((f32*)buffers[1] + i, load<4>((f32*)buffers[0] + i) + 1.0f);"),
      "",
      {{name, 128, 2, 1}}};
}

std::string error_of(ErrorKind kind, const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

class Nvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!nvrtc_available(&why)) GTEST_SKIP() << why;
  }
};

// Before anything opens it: once a library is open, it stays.
TEST(NvrtcLibrary, AMissingOneSaysWhereItWasLookedForAndIsNotRemembered) {
  set_option("KILN_CUDA_PATH", "/nonexistent/cuda");
  std::string why;
  EXPECT_FALSE(nvrtc_available(&why));
  EXPECT_EQ(why,
            "cuda compiler: no NVRTC: no libnvrtc.so.13 or libnvrtc.so.12 in /nonexistent/cuda, which is no "
            "folder (KILN_CUDA_PATH) (install a CUDA toolkit or the Python package nvidia-cuda-nvrtc, or set "
            "KILN_CUDA_PATH to the folder of one)");
  std::vector<CudaModule> modules = {add_one("k")};
  EXPECT_EQ(error_of(ErrorKind::unsupported, [&] { compile_cuda(modules, "sm_90a", nullptr, 1); }), why);
  set_option("KILN_CUDA_PATH", "");
}

TEST_F(Nvrtc, MakesMachineCodeForEveryArchitecture) {
  for (const std::string arch : {"sm_80", "sm_90a", "sm_100a"}) {
    std::vector<CudaModule> modules = {add_one("a"), add_one("b"), add_one("c")};
    BuildCost cost;
    compile_cuda(modules, arch, nullptr, 2, &cost);
    EXPECT_EQ(cost.compiled, 3);
    for (const CudaModule& m : modules) {
      EXPECT_THAT(m.cubin, StartsWith("\x7f"
                                      "ELF"))
          << arch;
      EXPECT_GT(m.kernels[0].registers, 0);
      EXPECT_LT(m.kernels[0].registers, 40);
      EXPECT_EQ(m.kernels[0].spill_bytes, 0);
      EXPECT_EQ(m.kernels[0].static_shared, 0);
    }
  }
}

TEST_F(Nvrtc, NamesWhatItDoesNotKnow) {
  const std::string v = nvrtc_version();
  EXPECT_THAT(error_of(ErrorKind::unsupported, [] { check_cuda_arch("sm_990a"); }),
              HasSubstr("cuda compiler: sm_990a is newer than NVRTC " + v + " knows; it knows sm_80, "));
  EXPECT_THAT(error_of(ErrorKind::unsupported, [] { check_cuda_arch("sm_70"); }),
              HasSubstr("cuda compiler: sm_70 is older than Kiln's kernels need"));
  for (const char* text : {"", "sm_", "90", "sm_90x", "sm_a", "compute_90"})
    EXPECT_THAT(error_of(ErrorKind::invalid, [&] { check_cuda_arch(text); }),
                HasSubstr("is no architecture; expected one like sm_90a"));
  check_cuda_arch("sm_90a");
}

TEST_F(Nvrtc, AnErrorNamesTheFileTheLineAndWhereTheSourceIs) {
  std::vector<CudaModule> modules = {{"bad.cu", kernel_source("bad", "oops();"), "", {{"bad", 128, 2, 1}}}};
  const std::string what = error_of(ErrorKind::compile, [&] { compile_cuda(modules, "sm_90a", nullptr, 1); });
  EXPECT_THAT(what, HasSubstr("cuda compiler: bad.cu does not compile for sm_90a (NVRTC_ERROR_COMPILATION)"));
  EXPECT_THAT(what, HasSubstr("bad.cu(4): error: identifier \"oops\" is undefined"));
  const std::string path = testing::kept_in(what);
  EXPECT_TRUE(std::filesystem::exists(path)) << path;
  std::filesystem::remove(path);
}

TEST_F(Nvrtc, TheKeptSourceHasTheNumbersOfTheLogAndTheUsersLines) {
  const CudaKernel kernels[] = {{"bad", 128, 2, 1}, {"worse", 128, 2, 1}};
  std::vector<CudaModule> modules = {
      {"bad.cu", kernel_source("bad", "oops();"), "", {std::begin(kernels), std::end(kernels)}}};
  const KernelLines lines = {{"bad", "net.cpp:3 net.cpp:4"}, {"of another source", "net.cpp:9"}};
  const std::string what =
      error_of(ErrorKind::compile, [&] { compile_cuda(modules, "sm_90a", nullptr, 1, nullptr, {}, lines); });
  const std::string path = testing::kept_in(what);
  EXPECT_THAT(what, HasSubstr(path + "\nit computes net.cpp:3 net.cpp:4 (bad)\nbad.cu(4): error: "));
  std::stringstream kept;
  kept << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  EXPECT_THAT(kept.str(), HasSubstr("//   bad: net.cpp:3 net.cpp:4\n//   worse: no line is known\n"));
  EXPECT_THAT(kept.str(), HasSubstr("\n/* 4 */ oops();\n"));
  EXPECT_THAT(kept.str(), ::testing::Not(HasSubstr("another")));
  modules[0].source = kept.str();
  const std::string again =
      error_of(ErrorKind::compile, [&] { compile_cuda(modules, "sm_90a", nullptr, 1); });
  std::filesystem::remove(testing::kept_in(again));
  EXPECT_THAT(again, HasSubstr("bad.cu(4): error: identifier \"oops\" is undefined")) << "as it did";
}

TEST_F(Nvrtc, TheSecondTimeItComesFromTheCacheWithItsNumbers) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kiln-nvrtc-test-{}", getpid());
  DiskCache cache(folder.string(), 1 << 20);
  std::vector<CudaModule> first = {add_one("a")}, second = first;
  BuildCost cost;
  compile_cuda(first, "sm_80", &cache, 1, &cost);
  EXPECT_EQ(cost.compiled, 1);
  compile_cuda(second, "sm_80", &cache, 1, &cost);
  EXPECT_EQ(cost.compiled, 1);
  EXPECT_EQ(cost.cached, 1);
  EXPECT_EQ(second, first);
  std::vector<CudaModule> other = {add_one("a")};
  compile_cuda(other, "sm_90a", &cache, 1, &cost);  // another architecture is another entry
  EXPECT_EQ(cost.compiled, 2);
  std::filesystem::remove_all(folder);
}

TEST(NvrtcLog, RegistersSpillsAndSharedMemoryGoToTheirKernels) {
  std::vector<CudaKernel> kernels = {{"one"}, {"two"}, {"three"}};
  detail::read_ptxas_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'two' for 'sm_90a'\n"
      "ptxas info    : Function properties for two\n"
      "ptxas         .     16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 4096 bytes smem\n"
      "ptxas info    : Compiling entry function 'another' for 'sm_90a'\n"
      "ptxas info    : Used 99 registers\n"
      "ptxas info    : Compiling entry function 'one' for 'sm_90a'\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 21 registers, used 0 barriers\n",
      kernels);
  EXPECT_EQ(kernels[0].registers, 21);
  EXPECT_EQ(kernels[0].spill_bytes, 0);
  EXPECT_EQ(kernels[1].registers, 255);
  EXPECT_EQ(kernels[1].spill_bytes, 32);
  EXPECT_EQ(kernels[1].static_shared, 4096);
  EXPECT_EQ(kernels[2].registers, -1);
}

TEST(NvrtcCacheEntry, APayloadOfOtherKernelsIsAMiss) {
  CudaModule m = {
      "m.cu", "", "machine code", {{"one", 32, 1, 0, 0, 12, 0, 4}, {"two", 32, 1, 0, 0, 255, 8, 0}}};
  const std::string payload = detail::pack_cubin(m);
  CudaModule back = {"m.cu", "", "", {{"one", 32, 1, 0}, {"two", 32, 1, 0}}};
  ASSERT_TRUE(detail::unpack_cubin(payload, back));
  EXPECT_EQ(back, m);
  CudaModule renamed = {"m.cu", "", "", {{"one"}, {"three"}}};
  EXPECT_FALSE(detail::unpack_cubin(payload, renamed));
  CudaModule fewer = {"m.cu", "", "", {{"one"}}};
  EXPECT_FALSE(detail::unpack_cubin(payload, fewer));
  EXPECT_FALSE(detail::unpack_cubin("", back));
  EXPECT_FALSE(detail::unpack_cubin("one 1 2\n", back));
}

}  // namespace KILN_FILE
}  // namespace kiln
