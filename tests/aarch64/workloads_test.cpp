// SPDX-License-Identifier: Apache-2.0
// The kernels of the benchmark workloads compile and link for AArch64. Nothing runs: steps_test.cpp does
// that.
#include <elf.h>
#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <set>

#include "benchmarks/workloads.h"
#include "codegen/kernel_imports.h"
#include "codegen/program.h"
#include "frontend/context.h"
#include "frontend/program_parts.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::Contains;
using ::testing::IsSubsetOf;

#define KILN_NAME(name) #name,
const std::set<std::string> kImports = {KILN_KERNEL_IMPORTS(KILN_NAME)};
#undef KILN_NAME

/// What a shared object asks of whoever maps it, and what it offers.
struct Elf {
  int machine = 0, type = 0;
  std::set<std::string> undefined, defined;
  std::set<uint64_t> relocations;  ///< types
  bool runs_code = false;          ///< when it is mapped
  bool needs_others = false;

  explicit Elf(const std::string& bytes) : bytes_(bytes) {
    const auto& header = at<Elf64_Ehdr>(0);
    machine = header.e_machine;
    type = header.e_type;
    for (int i = 0; i < header.e_shnum; ++i) read(section(i));
  }

 private:
  template <typename T>
  const T& at(uint64_t offset) const {
    EXPECT_LE(offset + sizeof(T), bytes_.size());
    return *reinterpret_cast<const T*>(bytes_.data() + offset);
  }
  const Elf64_Shdr& section(int i) const {
    const auto& header = at<Elf64_Ehdr>(0);
    return at<Elf64_Shdr>(header.e_shoff + static_cast<uint64_t>(i) * sizeof(Elf64_Shdr));
  }
  void read(const Elf64_Shdr& s) {
    runs_code |= s.sh_type == SHT_INIT_ARRAY || s.sh_type == SHT_FINI_ARRAY;
    for (uint64_t o = s.sh_offset; s.sh_type == SHT_RELA && o < s.sh_offset + s.sh_size;
         o += sizeof(Elf64_Rela))
      relocations.insert(ELF64_R_TYPE(at<Elf64_Rela>(o).r_info));
    for (uint64_t o = s.sh_offset; s.sh_type == SHT_DYNAMIC && o < s.sh_offset + s.sh_size;
         o += sizeof(Elf64_Dyn))
      needs_others |= at<Elf64_Dyn>(o).d_tag == DT_NEEDED;
    for (uint64_t o = s.sh_offset + sizeof(Elf64_Sym); s.sh_type == SHT_DYNSYM && o < s.sh_offset + s.sh_size;
         o += sizeof(Elf64_Sym)) {
      const auto& symbol = at<Elf64_Sym>(o);
      const char* name = &at<char>(section(static_cast<int>(s.sh_link)).sh_offset + symbol.st_name);
      (symbol.st_shndx == SHN_UNDEF ? undefined : defined).insert(name);
    }
  }

  const std::string& bytes_;
};

/// Leaves memory as it is.
class NothingRuns : public detail::Program {
 public:
  void run(std::span<const detail::DeviceTensor>, std::span<const detail::DeviceTensor>) override {}
};

class Aarch64Workload : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    detail::Context& c = detail::context();
    c.target = parse_target("aarch64");
    c.foreign = [this](const Graph&, CompiledProgram&& p, const detail::StageOptions&) {
      check(p.image);
      kernels_ += p.image.symbols.size();
      return std::make_unique<NothingRuns>();
    };
  }
  void TearDown() override {
    detail::context().foreign = {};
    detail::context().target = host_target();
  }

  static void check(const KernelImage& image) {
    EXPECT_EQ(image.target, parse_target("aarch64").str());
    const Elf elf(image.bytes);
    EXPECT_EQ(elf.machine, EM_AARCH64);
    EXPECT_EQ(elf.type, ET_DYN);
    EXPECT_FALSE(elf.runs_code);
    EXPECT_FALSE(elf.needs_others);
    EXPECT_THAT(elf.undefined, IsSubsetOf(kImports));
    EXPECT_EQ(elf.defined, std::set<std::string>(image.symbols.begin(), image.symbols.end()));
    EXPECT_THAT(elf.relocations,
                IsSubsetOf({R_AARCH64_RELATIVE, R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64}));
  }

  size_t kernels_ = 0;
};

TEST_P(Aarch64Workload, CompilesAndLinks) {
  const auto workload = bench::make_workload(GetParam(), {.threads = 2});
  workload->step();
  EXPECT_GE(kernels_, 3u);
  EXPECT_EQ(workload->stats().builds.size(), 1u);
}

/// What is not compiled here, and why.
const std::map<std::string, std::string> kLeftOut = {
    {"gpt2", "has the kernels of gpt-small in other sizes, and gigabytes of parameters"}};

std::vector<std::string> workloads() {
  std::vector<std::string> names;
  for (const std::string& name : bench::workload_names())
    if (!kLeftOut.contains(name)) names.push_back(name);
  return names;
}

TEST(Aarch64Workloads, ThoseLeftOutAreThere) {
  for (const auto& [name, why] : kLeftOut) EXPECT_THAT(bench::workload_names(), Contains(name)) << why;
}

INSTANTIATE_TEST_SUITE_P(All, Aarch64Workload, ::testing::ValuesIn(workloads()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace KILN_FILE
}  // namespace kiln
