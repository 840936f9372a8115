// SPDX-License-Identifier: Apache-2.0
// The prelude compiles for every target that kernels are written for, and what it calls outside itself is
// what it says: nothing for f32 (but lgamma), the named functions of the C library for f64.
#include "codegen/cpu_target.h"

#include <gmock/gmock.h>

#include <elf.h>

#include <cstring>
#include <set>

#include "ir/base/intrinsics.h"
#include "tests/codegen/prelude/kernel.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::IsEmpty;
using ::testing::IsSubsetOf;

// Every function of the table on a scalar and on vectors, and the words for tails, halves and integers.
std::string source(const char* type, bool with_library_calls) {
  std::string text = "#include \"kiln_cpu.h\"\n";
  for (const Intrinsic& f : intrinsics()) {
    if (!with_library_calls && f.name == "lgamma") continue;
    for (const int w : {1, 4, 16}) {
      std::string args;
      for (int i = 0; i < f.args; ++i)
        args += fmt::format("{}kn::load<{}>((const kn::{}*)b[{}])", i ? ", " : "", w, type, i);
      text += testing::kernel_text(
          fmt::format("{}_{}", f.name, w),
          fmt::format("kn::store_n<{}>((kn::{}*)b[3], d[0], {}({}));", w, type, f.cpu, args));
    }
  }
  return text + testing::kernel_text("others", R"(
    kn::store<16>((kn::f16*)b[0], kn::load_n<16>((const kn::bf16*)b[1], d[0]));
    kn::store<16>((kn::bf16*)b[0], kn::load_strided<16>((const kn::f16*)b[1], d[0]));
    kn::store<8>((kn::i32*)b[2], kn::floor_divide(kn::load<8>((const kn::i32*)b[2]),
                                                  kn::load<8>((const kn::i32*)b[3])));
    kn::store<8>((kn::i64*)b[2], kn::remainder(kn::load<8>((const kn::i64*)b[2]),
                                               kn::load<8>((const kn::i64*)b[3])));
    kn::store<16>((kn::f32*)b[4], kn::random_uniform(d[0], d[1], kn::iota<16>(d[2])));
    *(kn::f32*)b[5] = kn::reduce_sum(kn::load<16>((const kn::f32*)b[4]));)");
}

std::set<std::string> undefined_symbols(const std::string& object) {
  const auto* elf = reinterpret_cast<const Elf64_Ehdr*>(object.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(object.data() + elf->e_shoff);
  std::set<std::string> names;
  for (int i = 0; i < elf->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(object.data() + sections[i].sh_offset);
    const char* text = object.data() + sections[sections[i].sh_link].sh_offset;
    for (size_t k = 1; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k)
      if (symbols[k].st_shndx == SHN_UNDEF) names.insert(text + symbols[k].st_name);
  }
  return names;
}

class CpuPrelude : public ::testing::TestWithParam<CpuTarget> {};

TEST_P(CpuPrelude, F32CallsNothing) {
  const std::vector<CpuSource> sources = {{"f32.cpp", source("f32", false), {}}};
  EXPECT_THAT(undefined_symbols(compile_objects(sources, GetParam(), 1)[0]), IsEmpty());
}

TEST_P(CpuPrelude, F64CallsTheNamedFunctionsOnly) {
  const std::vector<CpuSource> sources = {{"f64.cpp", source("f64", true), {}}};
  EXPECT_THAT(undefined_symbols(compile_objects(sources, GetParam(), 1)[0]),
              IsSubsetOf({"acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erfc",
                          "fmod", "lgamma_r", "log10", "log2", "pow", "sin", "sinh", "tan"}));
}

// Sums of eight AVX-512 truth values once kept the instruction selection of clang 19 busy forever.
TEST_P(CpuPrelude, ReductionsOfMasksCompile) {
  std::string text = "#include \"kiln_cpu.h\"\n";
  for (const int w : {1, 2, 4, 8, 16})
    for (const char* type : {"u8", "i32", "i64", "f32", "f64"})
      for (const char* reduce : {"sum", "prod", "max", "min"})
        text += testing::kernel_text(
            fmt::format("{}_{}_{}", reduce, type, w),
            fmt::format("*(kn::{0}*)b[1] = kn::reduce_{1}(kn::convert<kn::{0}>("
                        "kn::gt(kn::load<{2}>((const kn::i32*)b[0]), kn::broadcast<{2}>(kn::i32(2)))));",
                        type, reduce, w));
  const std::vector<CpuSource> sources = {{"masks.cpp", text, {}}};
  EXPECT_THAT(undefined_symbols(compile_objects(sources, GetParam(), 1)[0]), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, CpuPrelude,
                         ::testing::Values(parse_target("x86-64-v3"), parse_target("x86-64-v4"),
                                           parse_target("aarch64")),
                         [](const auto& info) {
                           std::string name = info.param.cpu + "_" + info.param.triple.substr(0, 7);
                           for (char& c : name) c = isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace KILN_FILE
}  // namespace kiln
