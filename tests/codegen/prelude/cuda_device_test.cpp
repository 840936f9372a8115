// SPDX-License-Identifier: Apache-2.0
// Every word of CUDA kernels through NVRTC to machine code of each architecture, a kernel for each, with no
// spills. Skipped, and said so, where there is no NVRTC.
#include <gmock/gmock.h>

#include "codegen/compile_nvrtc.h"
#include "ir/base/error.h"
#include "ir/base/intrinsics.h"
#include "tests/codegen/prelude/cuda_words.h"
#include "tests/codegen/prelude/cuda_words_list.h"

namespace kiln {
namespace KILN_FILE {

using testing::cuda_kernel;
using testing::exact_words;

constexpr const char* kArchs[] = {"sm_80", "sm_90a", "sm_100a"};

struct Named {
  std::string name, body;
  int threads = 32;
};

std::vector<Named> warp_words() {
  const std::string in =
      "const auto p = (const kn::f32*)b[0] + kn::thread();\nauto* const q = (kn::f32*)b[1] + kn::thread();\n";
  const auto product = [](const char* word) {
    return Named{
        word,
        fmt::format("kn::u32 a[4], c[2];\nkn::f32 x[4] = {{}};\n"
                    "for (int i = 0; i < 4; ++i) a[i] = kn::tf32(kn::load<1>((const kn::f32*)b[0] + i));\n"
                    "for (int i = 0; i < 2; ++i) c[i] = kn::pack_bf16(kn::load<1>((const kn::f32*)b[0] "
                    "+ i), 1.0f) ^ kn::pack_f16(1.0f, 2.0f);\nkn::{}(x, a, c);\n"
                    "for (int i = 0; i < 4; ++i) kn::store<1>((kn::f32*)b[1] + i, x[i]);",
                    word)};
  };
  const auto tiles = [](const char* word) {
    return Named{word,
                 fmt::format("kn::u32 r[4];\nkn::{}(r, kn::shared<kn::bf16>(0) + kn::lane() * 8);\n"
                             "for (int i = 0; i < 4; ++i) kn::store<1>((kn::i32*)b[1] + i, kn::i32(r[i]));",
                             word)};
  };
  std::vector<Named> words = {
      {"who",
       "kn::store<1>((kn::i64*)b[1] + kn::block() * kn::threads() + kn::thread(), kn::blocks() + "
       "kn::lane() + kn::warp());"},
      {"meet", in + "kn::barrier();\nkn::warp_barrier();\nkn::store<1>(q, kn::load<1>(p));"},
      {"shuffles",
       in + "kn::store<1>(q, kn::shuffle(kn::load<1>(p), 3) + kn::shuffle_xor(kn::load<1>(p), 1));"},
      {"reduce",
       in + "kn::store<1>(q, kn::warp_reduce(kn::load<1>(p), [](kn::f32 x, kn::f32 y) KN_LAMBDA { return "
            "kn::max(x, y); }));"},
      {"block_reduce",
       in + "kn::store<1>(q, kn::block_reduce<256>(kn::load<1>(p), [](kn::f32 x, kn::f32 y) KN_LAMBDA { "
            "return x + "
            "y; }, kn::shared<kn::f32>(0)));",
       256},
      {"scans",
       in + "using S = kn::RunningSum<kn::f32>;\nconst auto f = [](S x, S y) KN_LAMBDA { return kn::then(x, "
            "y); "
            "};\nS carry;\nS x = kn::start(carry, kn::load<1>(p), 0);\n"
            "x = kn::block_scan<256>(kn::warp_scan(x, f), carry, f, kn::shared<S>(0));\n"
            "kn::store<1>(q, kn::result(kn::step(x, kn::result(carry), 1)));",
       256},
      product("mma_bf16"),
      product("mma_f16"),
      product("mma_tf32"),
      tiles("ldmatrix4"),
      tiles("ldmatrix4_transposed")};
  for (const int bytes : {4, 8, 16})
    words.push_back(
        {fmt::format("copy_{}", bytes),
         fmt::format(
             "kn::copy_async<{0}>(kn::shared<kn::f32>(0) + kn::thread() * {1}, (const kn::f32*)b[0] "
             "+ kn::thread() * {1}, kn::thread() < d[0]);\nkn::async_commit();\nkn::async_wait<0>();\n"
             "kn::barrier();\nkn::store<{1}>((kn::f32*)b[1] + kn::thread() * {1}, "
             "kn::load<{1}>(kn::shared<kn::f32>(0) + kn::thread() * {1}));",
             bytes, bytes / 4)});
  return words;
}

/// Random numbers, rounding, and what lines carry.
std::vector<Named> thread_words() {
  const std::string in =
      "const auto p = (const kn::f32*)b[0] + kn::thread();\nauto* const q = (kn::f32*)b[1] + kn::thread();\n";
  std::vector<Named> words = {
      {"random",
       "const auto j = kn::iota<4>(kn::i64(kn::thread()) * 4);\n"
       "auto* const q = (kn::f32*)b[1] + kn::thread() * 4;\n"
       "kn::store<4>(q, kn::random_uniform(d[0], d[1], j) + kn::philox_uniform(d[0], d[1], j));\n"
       "kn::store<4>((kn::i32*)b[2], kn::convert<kn::i32>(kn::philox_bits(d[0], d[1], j)));"},
      {"rounded", in + "kn::store<1>(q, kn::mul_rounded(kn::round_to<kn::bf16>(kn::load<1>(p)), "
                       "kn::round_to<kn::f16>(kn::load<1>(p + 1))));"}};
  for (const char* running : {"RunningSum", "RunningProduct", "RunningMax", "RunningMin", "RunningLogSumExp"})
    words.push_back(
        {fmt::format("line_{}", running),
         in + fmt::format("kn::{}<kn::f32> all;\n"
                          "for (int i = 0; i < 32; ++i) all = kn::step(all, kn::load<1>(p + i), i);\n"
                          "kn::store<1>(q, kn::before<true>(kn::load<1>(p), kn::load<1>(p + 1)) ? "
                          "kn::f32(kn::result(all)) : 0.0f);",
                          running)});
  return words;
}

std::vector<Named> memory_words() {
  std::vector<Named> words;
  for (const char* t : {"f32", "f64", "i32", "i64", "u8", "b8", "f16", "bf16"})
    for (const int w : {1, 4, 8})
      words.push_back(
          {fmt::format("memory_{}_{}", t, w),
           fmt::format(
               "constexpr int W = {1};\nconst auto* p = (const kn::{0}*)b[0] + kn::thread() * W;\n"
               "auto* q = (kn::{0}*)b[1] + kn::thread() * W;\nconst auto s = kn::shared<kn::{0}>(0) + "
               "kn::thread() * W;\nconst auto index = kn::iota<W>(d[0]);\n"
               "kn::store<W>(s, kn::load<W>(p));\nkn::store<W>(q, kn::load<W>(s));\n"
               "kn::store_n<W>(q + 64, d[1], kn::load_n<W>(p + 64, d[1]));\n"
               "kn::store_strided<W>(q + 128, d[0], kn::load_strided<W>(p + 128, d[0]));\n"
               "kn::store_strided_n<W>(q + 256, d[0], d[1], kn::load_strided_n<W>(p + 256, d[0], d[1]));\n"
               "kn::store<W>(q + 512, kn::gather(p, index));\n"
               "kn::scatter_if(q + 640, index, kn::first<W>(d[1]), kn::gather_if(p, index, "
               "kn::first<W>(d[1])));\n"
               "kn::store<W>(q + 768, kn::gather_n(p, index, d[1]));",
               t, w)});
  return words;
}

/// What lanes of one thread have in common.
std::vector<Named> lane_words() {
  std::vector<Named> words;
  for (const std::string& t : testing::value_types())
    words.push_back(
        {"lanes_" + t,
         fmt::format(
             "const auto x = kn::load<4>((const kn::{0}*)b[0] + kn::thread() * 4);\n"
             "auto* const q = (kn::{0}*)b[1] + kn::thread() * 4;\n"
             "kn::store<1>(q, kn::reduce_sum(x)), kn::store<1>(q + 1, kn::reduce_prod(x));\n"
             "kn::store<1>(q + 2, kn::reduce_max(x)), kn::store<1>(q + 3, kn::reduce_min(x));\n"
             "const auto m = kn::to_mask(x);\n"
             "kn::store<1>((kn::i64*)b[2] + kn::thread(), kn::any(m) && !kn::all(m) ? kn::count(m) : 0);",
             t)});
  words.push_back({"pow_integer",
                   "const auto x = kn::load<4>((const kn::i64*)b[0] + kn::thread() * 4);\n"
                   "kn::store<4>((kn::i64*)b[1] + kn::thread() * 4, kn::pow_integer(x, x));"});
  return words;
}

/// The other macros that make kernels.
CudaModule other_kernels() {
  return {"kernels.cu",
          "#include \"kiln_cuda.h\"\nusing namespace kn;\n"
          "KILN_CUDA_KERNEL_FEW(k_few, 256, 1, 0) { store<1>((i32*)buffers[0] + thread(), 7); }\n"
          "KILN_CUDA_PARTS(k_parts, 256, 1, 1) {\n"
          "  const Shared<i32> s = shared<i32>(0) + thread();\n"
          "  store<1>(s, i32(block_of_part + dims[0]));\n"
          "  store<1>((i32*)buffers[0] + thread(), load<1>(s));\n}\n",
          "",
          {{"k_few", 256, 1, 0}, {"k_parts", 256, 1, 1, most_parts(1, 1)}}};
}

/// One kernel for each function, by the name that the table gives it on CUDA and as op bodies call it.
std::vector<Named> functions() {
  static const char* const kArgs[] = {"x", "x, y", "x, y, x"};
  std::vector<Named> words;
  for (const bool wide : {false, true})
    for (const Intrinsic& f : intrinsics()) {
      const char* type = wide ? "f64" : "f32";
      words.push_back(
          {fmt::format("{}_{}", f.name, type),
           fmt::format(
               "using namespace kn;\nconst {0} x = load<1>((const {0}*)b[0]), y = load<1>((const {0}*)b[0] + "
               "1);\n(void)y;\nstore<1>(({0}*)b[1], {0}({1}({3})));\nstore<1>(({0}*)b[1] + 1, {2}({3}));",
               type, wide ? f.cuda_f64 : f.cuda_f32, f.cpu, kArgs[f.args - 1])});
    }
  return words;
}

CudaModule module(const std::string& name, const std::vector<Named>& words) {
  CudaModule m{name + ".cu", "#include \"kiln_cuda.h\"\n", "", {}};
  for (const Named& w : words) {
    const std::string symbol = "k_" + w.name;
    m.source += cuda_kernel(symbol, w.threads, 3, 2, w.body);
    m.kernels.push_back({symbol, w.threads, 3, 2});
  }
  return m;
}

std::vector<CudaModule> all_words() {
  std::vector<CudaModule> modules = {module("warp", warp_words()),     module("thread", thread_words()),
                                     module("memory", memory_words()), module("functions", functions()),
                                     module("lanes", lane_words()),    other_kernels()};
  for (const std::string& type : testing::value_types()) {
    std::vector<Named> words;
    for (const testing::ValueWord& w : exact_words(type))
      words.push_back({fmt::format("{}_{}", type, words.size()),
                       "const kn::i64 i = kn::thread() * 4;\n" + testing::store_words({w}, 4)});
    modules.push_back(module(type, words));
  }
  return modules;
}

TEST(CudaWordList, HasEveryWord) {
  EXPECT_EQ(testing::words_left_out(all_words()), std::vector<std::string>());
}

class CudaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!nvrtc_available(&why)) GTEST_SKIP() << why;
  }
};

TEST_F(CudaDevice, EveryWordCompilesForEveryArchitectureWithoutSpills) {
  for (const char* arch : kArchs) {
    std::vector<CudaModule> modules = all_words();
    compile_cuda(modules, arch, nullptr, 2);
    for (const CudaModule& m : modules)
      for (const CudaKernel& k : m.kernels) {
        EXPECT_GT(k.registers, 0) << k.symbol;
        EXPECT_EQ(k.spill_bytes, 0) << k.symbol << " for " << arch;
      }
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
