// SPDX-License-Identifier: Apache-2.0
// All kernels of cuda_words_test.cpp as modules: those of fixed text, and one pass over each list of words.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/intrinsics.h"
#include "ir/kernel_image.h"
#include "tests/codegen/prelude/cuda_words_kernels.h"
#include "tests/codegen/prelude/cuda_words_values.h"

namespace kiln::testing {

/// An element of b8.
struct Truth {
  uint8_t byte;
  Truth(int x = 0) : byte(x != 0) {}
  operator float() const { return byte; }
};

template <typename T>
inline constexpr const char* kType = "";
template <>
inline constexpr const char* kType<float> = "f32";
template <>
inline constexpr const char* kType<double> = "f64";
template <>
inline constexpr const char* kType<int32_t> = "i32";
template <>
inline constexpr const char* kType<int64_t> = "i64";
template <>
inline constexpr const char* kType<uint8_t> = "u8";
template <>
inline constexpr const char* kType<BFloat16> = "bf16";
template <>
inline constexpr const char* kType<Half> = "f16";
template <>
inline constexpr const char* kType<Truth> = "b8";

/// One pass over n elements, four lanes a thread: word w of x[i...] goes to element w n + i of its buffer.
inline void add_values(CudaModule& m, const std::string& type, const std::vector<std::string>& numbers,
                       const std::vector<std::string>& masks) {
  std::string text, turned;
  for (size_t w = 0; w < numbers.size(); ++w)
    text += fmt::format("  store<W>((T*)buffers[2] + {} * n + i, {});\n", w, numbers[w]);
  for (size_t w = 0; w < masks.size(); ++w)
    text += fmt::format("  store<W>((i32*)buffers[3] + {} * n + i, convert<i32>({}));\n", w, masks[w]);
  int buffer = 0;
  for (const char* to : {"f32", "f64", "i32", "i64", "u8"})
    turned += fmt::format("  store<4>(({0}*)buffers[{1}] + i, convert<{0}>(a));\n", to, ++buffer);
  m.source += fmt::format(
      "KILN_CUDA_KERNEL(values_{0}, 128, 4, 1) {{\n constexpr int W = 4;\n using T = {0};\n"
      " using V = Vec<T, W>;\n const i64 n = dims[0];\n"
      " for (i64 i = (block() * 128 + thread()) * W; i < n; i += blocks() * 128 * W) {{\n"
      "  const V a = load<W>((const T*)buffers[0] + i), c = load<W>((const T*)buffers[1] + i);\n{1} }}\n}}\n"
      "KILN_CUDA_KERNEL(convert_{0}, 128, 6, 1) {{\n"
      " for (i64 i = thread() * 4; i < dims[0]; i += 512) {{\n"
      "  const auto a = load<4>((const {0}*)buffers[0] + i);\n{2} }}\n}}\n"
      "KILN_CUDA_KERNEL(reduce_{0}, 32, 2, 0) {{\n"
      " const auto v = load<8>((const {0}*)buffers[0] + thread() * 8);\n {0}* y = ({0}*)buffers[1] + "
      "thread() * 4;\n"
      " store<1>(y, reduce_sum(v)), store<1>(y + 1, reduce_prod(v));\n"
      " store<1>(y + 2, reduce_max(v)), store<1>(y + 3, reduce_min(v));\n}}\n",
      type, text, turned);
  m.kernels.push_back({"values_" + type, 128, 4, 1});
  m.kernels.push_back({"convert_" + type, 128, 6, 1});
  m.kernels.push_back({"reduce_" + type, 32, 2, 0});
}
template <typename T>
void add_values(CudaModule& m) {
  std::vector<std::string> numbers, masks;
  for (const auto& w : testing::numbers<T>()) numbers.emplace_back(w.text);
  for (const auto& w : testing::masks<T>()) masks.emplace_back(w.text);
  add_values(m, kType<T>, numbers, masks);
}

inline CudaModule math_module(const std::string& type) {
  static const char* const kArguments[] = {"x(0)", "x(0), x(1)", "x(0), x(1), x(2)"};
  CudaModule m;
  m.name = "math_" + type + ".cu";
  m.source = "#include \"kiln_cuda.h\"\n";
  for (const Intrinsic& f : intrinsics()) {
    const std::string name = fmt::format("math_{}_{}", f.name, type);
    m.source += fmt::format(
        "KILN_CUDA_KERNEL({0}, 128, 4, 1) {{\n using namespace kn;\n"
        " for (i64 i = (block() * 128 + thread()) * 4; i < dims[0]; i += blocks() * 512) {{\n"
        "  const auto x = [=](int k) KN_LAMBDA {{ return load<4>((const {1}*)buffers[k] + i); }};\n"
        "  store<4>(({1}*)buffers[3] + i, {2}({3}));\n }}\n}}\n",
        name, type, f.cpu, kArguments[f.args - 1]);
    m.kernels.push_back({name, 128, 4, 1});
  }
  return m;
}

inline std::vector<CudaModule> word_modules() {
  std::vector<CudaModule> all(4);
  all[0] = {"memory.cu", kMemoryKernels, "", {}};
  for (const char* s : {"f32", "f64", "i32", "i64", "u8", "bf16", "f16", "b8"})
    all[0].kernels.push_back({fmt::format("memory_{}", s), 32, 2, 0});
  for (const CudaKernel& k : {CudaKernel{"narrow", 128, 6, 1},
                              {"wide", 128, 3, 1},
                              {"to_tf32", 32, 2, 1},
                              {"random", 128, 3, 3},
                              {"guarded", 32, 1, 0},
                              {"guarded_few", 32, 1, 0},
                              {"parts", 32, 2, 1, most_parts(2, 1)},
                              {"lines", 32, 7, 0}})
    all[0].kernels.push_back(k);
  all[1] = {"block.cu", kBlockKernels, "", {}};
  for (const CudaKernel& k : {CudaKernel{"who", 96, 1, 0},
                              {"meet", 96, 2, 0},
                              {"exchange", 96, 3, 0},
                              {"fold", 96, 4, 0},
                              {"scans", 96, 2, 0},
                              {"copies_4", 32, 3, 1},
                              {"copies_8", 32, 3, 1},
                              {"copies_16", 32, 3, 1},
                              {"tiles_plain", 32, 1, 0},
                              {"tiles_turned", 32, 1, 0},
                              {"k_mma_bf16", 32, 2, 0},
                              {"k_mma_f16", 32, 2, 0},
                              {"k_mma_tf32", 32, 2, 0}})
    all[1].kernels.push_back(k);
  for (size_t i : {2, 3})
    all[i] = {i == 2 ? "reals.cu" : "integers.cu", "#include \"kiln_cuda.h\"\nusing namespace kn;\n", "", {}};
  add_values<float>(all[2]), add_values<double>(all[2]);
  add_values<int32_t>(all[3]), add_values<int64_t>(all[3]), add_values<uint8_t>(all[3]);
  all.push_back(math_module("f32")), all.push_back(math_module("f64"));
  return all;
}

}  // namespace kiln::testing
