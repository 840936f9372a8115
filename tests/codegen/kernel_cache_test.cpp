// SPDX-License-Identifier: Apache-2.0
// Images built through the disk cache: what is compiled, what is taken, and what must never be mixed up.
#include "codegen/kernel_cache.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ir/base/error.h"
#include "ir/base/options.h"
#include "runtime/image.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class KernelCache : public ::testing::Test {
 protected:
  KernelCache() {
    set_option("KILN_DUMP", "source");
    set_option("KILN_DUMP_DIR", root_ + "/failed");
  }
  ~KernelCache() override { fs::remove_all(root_); }

  std::string root_ = ::testing::TempDir() + "kiln-kernel-cache-test-" + std::to_string(getpid());
  DiskCache cache_{root_ + "/cache", 100 << 20};
};

// A kernel `k<n>` that writes `value`.
CpuSource constant_source(int n, const std::string& value) {
  const std::string name = "k" + std::to_string(n);
  return {name + ".cpp",
          "#include \"kiln_cpu.h\"\nKILN_KERNEL void " + name +
              "(void* const* b, const int64_t*, int64_t, int64_t, void*) { *(int*)b[0] = " + value + "; }\n",
          {}};
}

int run(const KernelImage& image, const std::string& name) {
  int out = -1;
  void* buffers[] = {&out};
  LoadedImage(image.bytes).kernel(name)(buffers, nullptr, 0, 1, nullptr);
  return out;
}

TEST_F(KernelCache, CompilesOnlyWhatIsNew) {
  std::vector<CpuSource> sources = {constant_source(0, "10"), constant_source(1, "11"),
                                    constant_source(2, "12")};
  const std::vector<std::string> names = {"k0", "k1", "k2"};
  BuildCost cost;
  const KernelImage first = build_image(sources, names, host_target(), &cache_, 2, &cost);
  EXPECT_EQ(cost.compiled, 3);
  EXPECT_EQ(cost.cached, 0);
  EXPECT_EQ(first.target, host_target().str());
  EXPECT_EQ(first.symbols, names);

  DiskCache other_process(cache_.folder(), 100 << 20);
  const KernelImage second = build_image(sources, names, host_target(), &other_process, 2, &cost);
  EXPECT_EQ(cost.compiled, 0);
  EXPECT_EQ(cost.cached, 3);
  EXPECT_EQ(second.bytes, first.bytes);

  sources[1] = constant_source(1, "99");
  const KernelImage third = build_image(sources, names, host_target(), &cache_, 2, &cost);
  EXPECT_EQ(cost.compiled, 1);
  EXPECT_EQ(run(third, "k0"), 10);
  EXPECT_EQ(run(third, "k1"), 99);
  EXPECT_EQ(run(third, "k2"), 12);
}

TEST_F(KernelCache, WithoutACacheEverythingIsCompiled) {
  const std::vector<CpuSource> sources = {constant_source(0, "5")};
  BuildCost cost;
  const KernelImage image =
      build_image(sources, std::vector<std::string>{"k0"}, host_target(), nullptr, 1, &cost);
  EXPECT_EQ(cost.compiled, 1);
  EXPECT_EQ(run(image, "k0"), 5);
}

TEST_F(KernelCache, KeyCoversTextFlagsNameAndTarget) {
  const CpuSource base = constant_source(0, "5");
  CpuSource flags = base, name = base;
  flags.flags = {"-ffp-contract=fast"};
  name.name = "other.cpp";
  const std::string key = object_key(base, host_target());
  EXPECT_THAT(key, HasSubstr(base.text));
  EXPECT_EQ(key, object_key(constant_source(0, "5"), host_target()));
  EXPECT_NE(key, object_key(constant_source(0, "6"), host_target()));
  EXPECT_NE(key, object_key(flags, host_target()));
  EXPECT_NE(key, object_key(name, host_target()));
  EXPECT_NE(object_key(base, parse_target("x86-64-v3")), object_key(base, parse_target("x86-64-v4")));
}

TEST_F(KernelCache, DamagedObjectIsCompiledAgain) {
  const std::vector<CpuSource> sources = {constant_source(0, "7")};
  const std::vector<std::string> names = {"k0"};
  build_image(sources, names, host_target(), &cache_, 1);
  const std::string path = cache_.path_of("object", object_key(sources[0], host_target()));
  fs::resize_file(path, fs::file_size(path) - 100);
  BuildCost cost;
  EXPECT_EQ(run(build_image(sources, names, host_target(), &cache_, 1, &cost), "k0"), 7);
  EXPECT_EQ(cost.compiled, 1);
  EXPECT_EQ(cache_.stats().damaged, 1);
  build_image(sources, names, host_target(), &cache_, 1, &cost);
  EXPECT_EQ(cost.compiled, 0);
}

TEST_F(KernelCache, GoodSourcesOfAFailedBuildAreKept) {
  const std::vector<CpuSource> sources = {constant_source(0, "nonsense"), constant_source(1, "1")};
  const std::vector<std::string> names = {"k0", "k1"};
  EXPECT_THROW(build_image(sources, names, host_target(), &cache_, 1), Error);
  EXPECT_EQ(cache_.stats().stores, 1);
  EXPECT_TRUE(cache_.load("object", object_key(sources[1], host_target())));
}

TEST_F(KernelCache, ABuildThatIsNotWantedAnyMoreEnds) {
  std::vector<CpuSource> sources;
  for (int i = 0; i < 4; ++i) sources.push_back(constant_source(i, "1"));
  BuildCost cost;
  int asked = 0;
  try {
    make_objects(sources, host_target(), nullptr, 1, cost,
                 [&] { KILN_CHECK(++asked < 3, comm, "asked {} times", asked); });
    ADD_FAILURE() << "all was made";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "asked 3 times");
  }
  make_objects(std::span(sources).first(2), host_target(), &cache_, 1, cost, [] {});
  EXPECT_EQ(cost.compiled, 2);
  // What needs no compiler is nobody's to end.
  make_objects(std::span(sources).first(2), host_target(), &cache_, 1, cost,
               [] { throw Error(ErrorKind::comm, "asked"); });
  EXPECT_EQ(cost.cached, 2);
}

}  // namespace KILN_FILE
}  // namespace kiln
