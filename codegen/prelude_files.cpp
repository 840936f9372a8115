// SPDX-License-Identifier: Apache-2.0
#include "codegen/prelude_files.h"

#include "codegen/prelude/cpu_arith_text.h"
#include "codegen/prelude/cpu_libm_text.h"
#include "codegen/prelude/cpu_math_f32_text.h"
#include "codegen/prelude/cpu_math_f64_text.h"
#include "codegen/prelude/cpu_math_text.h"
#include "codegen/prelude/cpu_math_trig_text.h"
#include "codegen/prelude/cpu_math_wide_text.h"
#include "codegen/prelude/cpu_memory_text.h"
#include "codegen/prelude/cpu_random_text.h"
#include "codegen/prelude/cpu_reduce_text.h"
#include "codegen/prelude/cpu_sort_text.h"
#include "codegen/prelude/cpu_target_text.h"
#include "codegen/prelude/cpu_text.h"
#include "codegen/prelude/cpu_vec_text.h"
#include "codegen/prelude/cuda_arith_text.h"
#include "codegen/prelude/cuda_block_text.h"
#include "codegen/prelude/cuda_device_text.h"
#include "codegen/prelude/cuda_kernel_text.h"
#include "codegen/prelude/cuda_math_text.h"
#include "codegen/prelude/cuda_matmul_parts_text.h"
#include "codegen/prelude/cuda_matmul_text.h"
#include "codegen/prelude/cuda_memory_text.h"
#include "codegen/prelude/cuda_random_text.h"
#include "codegen/prelude/cuda_sim_text.h"
#include "codegen/prelude/cuda_text.h"
#include "codegen/prelude/cuda_tiles_text.h"
#include "codegen/prelude/cuda_vec_text.h"
#include "codegen/prelude/polynomial_text.h"
#include "codegen/prelude/scan_text.h"
#include "codegen/prelude/sim_abi_text.h"
#include "codegen/prelude/special_text.h"
#include "codegen/prelude/types_text.h"
#include "ir/base/hash.h"

namespace kiln {

namespace {

constexpr PreludeFile kCpu[] = {
    {"kiln_cpu.h", detail::prelude_cpu},
    {"cpu_arith.h", detail::prelude_cpu_arith},
    {"cpu_libm.h", detail::prelude_cpu_libm},
    {"cpu_math.h", detail::prelude_cpu_math},
    {"cpu_math_f32.h", detail::prelude_cpu_math_f32},
    {"cpu_math_f64.h", detail::prelude_cpu_math_f64},
    {"cpu_math_trig.h", detail::prelude_cpu_math_trig},
    {"cpu_math_wide.h", detail::prelude_cpu_math_wide},
    {"cpu_memory.h", detail::prelude_cpu_memory},
    {"cpu_random.h", detail::prelude_cpu_random},
    {"cpu_reduce.h", detail::prelude_cpu_reduce},
    {"cpu_sort.h", detail::prelude_cpu_sort},
    {"cpu_target.h", detail::prelude_cpu_target},
    {"cpu_vec.h", detail::prelude_cpu_vec},
    {"polynomial.h", detail::prelude_polynomial},
    {"scan.h", detail::prelude_scan},
    {"special.h", detail::prelude_special},
    {"types.h", detail::prelude_types},
};

// clang-format off
#define KILN_SHARED_CUDA_FILES                                                                      \
  {"kiln_cuda.h", detail::prelude_cuda}, {"cuda_arith.h", detail::prelude_cuda_arith},              \
  {"cuda_block.h", detail::prelude_cuda_block}, {"cuda_math.h", detail::prelude_cuda_math},         \
  {"cuda_kernel.h", detail::prelude_cuda_kernel}, {"types.h", detail::prelude_types},               \
  {"polynomial.h", detail::prelude_polynomial}, {"scan.h", detail::prelude_scan},                   \
  {"special.h", detail::prelude_special},                                                           \
  {"cuda_matmul.h", detail::prelude_cuda_matmul},                                                   \
  {"cuda_matmul_parts.h", detail::prelude_cuda_matmul_parts},                                       \
  {"cuda_memory.h", detail::prelude_cuda_memory},                                                   \
  {"cuda_random.h", detail::prelude_cuda_random}, {"cuda_tiles.h", detail::prelude_cuda_tiles},     \
  {"cuda_vec.h", detail::prelude_cuda_vec}
// clang-format on
constexpr PreludeFile kCuda[] = {KILN_SHARED_CUDA_FILES, {"cuda_words.h", detail::prelude_cuda_device}};
constexpr PreludeFile kCudaSim[] = {KILN_SHARED_CUDA_FILES,
                                    {"cuda_words.h", detail::prelude_cuda_sim},
                                    {"sim_abi.h", detail::prelude_sim_abi}};
#undef KILN_SHARED_CUDA_FILES

}  // namespace

std::span<const PreludeFile> prelude_files(Prelude p) {
  switch (p) {
    case Prelude::cuda: return kCuda;
    case Prelude::cuda_sim: return kCudaSim;
    default: return kCpu;
  }
}

std::string prelude_digest(Prelude p) {
  std::string texts;
  for (const PreludeFile& f : prelude_files(p)) texts.append(f.text);
  return hash128(texts).hex();
}

bool includes_prelude_first(std::string_view source, Prelude p) {
  while (source.starts_with("//") || source.starts_with("\n")) {
    const size_t end = source.find('\n');
    source.remove_prefix(end == std::string_view::npos ? source.size() : end + 1);
  }
  return source.starts_with("#include \"" + std::string(prelude_files(p)[0].name) + "\"\n");
}

}  // namespace kiln
