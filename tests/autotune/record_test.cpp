// SPDX-License-Identifier: Apache-2.0
// Rows on disk: read back by every later run, by thread count where they must, and nothing on any doubt.
#include "autotune/record.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;

struct TuneRecordTest : ::testing::Test {
  void SetUp() override { fs::remove_all(folder); }
  void TearDown() override { fs::remove_all(folder); }
  static TunableKernel kernel(const char* key) {
    TunableKernel k;
    k.key = key;
    return k;
  }
  const std::string folder =
      (fs::temp_directory_path() / ("kiln_record_test." + std::to_string(getpid()))).string();
  DiskCache cache{folder, 1 << 20};
  const std::string row = TuneRow{"rows width=8 accumulators=4; rows=12", 1e-5, 2e-5, 7, true}.str();
};

TEST_F(TuneRecordTest, RowText) {
  EXPECT_EQ(row, R"({"schedule":"rows width=8 accumulators=4; rows=12",)"
                 R"("seconds":1e-05,"default_seconds":2e-05,"compared":7,"wide":true})");
  const auto back = TuneRow::parse(row);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->str(), row);
  for (const char* wrong : {"", "{", "[]", "{\"schedule\":3}", "{\"schedule\":\"nonsense\"}", "null"})
    EXPECT_FALSE(TuneRow::parse(wrong)) << wrong;
}

// A-17; the free part by thread count, the numeric part without.
TEST_F(TuneRecordTest, FreePartByThreadsNumericPartWithout) {
  const TunableKernel k = kernel("kernel a\n");
  TuneRecord two(&cache, 2), four(&cache, 4);
  EXPECT_FALSE(two.row(k));
  EXPECT_FALSE(two.numeric(k));
  two.store(k, row);
  EXPECT_EQ(two.row(k), row);
  EXPECT_FALSE(four.row(k));
  EXPECT_EQ(four.numeric(k), "rows width=8 accumulators=4");
  EXPECT_FALSE(two.row(kernel("kernel b\n")));
  two.store(k, "nonsense");
  EXPECT_EQ(two.row(k), row);
  // A narrow search settles nothing: it has the rules' numeric part.
  const TunableKernel other = kernel("kernel c\n");
  two.store(other, TuneRow{"rows width=0 accumulators=0; rows=12", 1e-5, 2e-5, 7, false}.str());
  EXPECT_TRUE(two.row(other));
  EXPECT_FALSE(two.numeric(other));
}

TEST_F(TuneRecordTest, Programs) {
  const TuneRecord r(&cache, 2);
  EXPECT_FALSE(r.program("p\n"));
  r.store_program("p\n", {{"k1", row}, {"k2", row}});
  const auto rows = r.program("p\n");
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[1].kernel, "k2");
  EXPECT_EQ((*rows)[1].row, row);
  r.store_program("none\n", {});
  ASSERT_TRUE(r.program("none\n"));
  EXPECT_TRUE(r.program("none\n")->empty());
  EXPECT_FALSE(TuneRecord(&cache, 3).program("p\n"));
}

TEST_F(TuneRecordTest, TheNumbersOfThreadsThatRowsAreFor) {
  EXPECT_THROW(tuned_thread_counts(cache), Error) << "there is no folder";
  TuneRecord(&cache, 2).store(kernel("kernel a\n"), row);
  TuneRecord(&cache, 16).store(kernel("kernel b\n"), row);
  TuneRecord(&cache, 3).store_program("p\n", {});
  cache.store("plan", "threads 7\n", "of another kind");
  EXPECT_EQ(tuned_thread_counts(cache), (std::set{2, 3, 16}));
  std::ofstream(cache.path_of("tune", "kernel b\nthreads 16\n")) << "damaged";
  EXPECT_EQ(tuned_thread_counts(cache), (std::set{2, 3}));
}

TEST_F(TuneRecordTest, ProcessesWriteAtOnce) {
  constexpr int kWriters = 4, kRounds = 50;
  const auto text = [&](int writer) {
    return TuneRow{"rows width=8 accumulators=4; rows=12", 1e-5, 2e-5, writer, true}.str();
  };
  std::vector<pid_t> writers;
  for (int w = 0; w < kWriters; ++w) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      DiskCache own{folder, 1 << 20};
      bool good = true;
      for (int i = 0; i < kRounds; ++i) {
        TuneRecord r(&own, 2);
        r.store(kernel("kernel shared\n"), text(w));
        r.store(kernel(("kernel " + std::to_string(w * kRounds + i) + "\n").c_str()), text(w));
        const auto back = r.row(kernel("kernel shared\n"));  // somebody's, never a mixture or nothing
        good = good && back && TuneRow::parse(*back) && TuneRow::parse(*back)->compared < kWriters;
      }
      _exit(good ? 0 : 1);
    }
    writers.push_back(child);
  }
  for (const pid_t child : writers) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  TuneRecord r(&cache, 2);
  for (int k = 0; k < kWriters * kRounds; ++k)
    EXPECT_EQ(r.row(kernel(("kernel " + std::to_string(k) + "\n").c_str())), text(k / kRounds)) << k;
}

TEST_F(TuneRecordTest, WithoutACacheNothingIsKept) {
  const TuneRecord r(nullptr, 2);
  r.store(kernel("a"), row);
  r.store_program("p", {{"k", row}});
  EXPECT_FALSE(r.row(kernel("a")));
  EXPECT_FALSE(r.numeric(kernel("a")));
  EXPECT_FALSE(r.program("p"));
}

// Rows are for people, too; equal findings of two processes are equal bytes.
TEST_F(TuneRecordTest, EntriesAreReadableAndEqual) {
  const TunableKernel k = kernel("kernel a\n");
  const TuneRecord r(&cache, 2);
  r.store(k, row);
  const auto bytes = [&] {
    std::ifstream in(cache.path_of("tune", "kernel a\nthreads 2\n"), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string first = bytes();
  EXPECT_NE(first.find("\"schedule\":\"rows width=8"), first.npos);
  r.store(k, row);
  EXPECT_EQ(bytes(), first);
}

}  // namespace KILN_FILE
}  // namespace kiln
