// SPDX-License-Identifier: Apache-2.0
// Tuning files: out of a cache and back, put together without contradictions, and what is wrong with them
// said with the line.
#include "autotune/tuning_file.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "ir/base/error.h"
#include "ir/base/hash.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TuneRow row(const std::string& schedule, double seconds = 1e-5) { return {schedule, seconds, 2e-5, 7, true}; }
constexpr const char* kTwelve = "rows width=8 accumulators=4; rows=12";
constexpr const char* kSix = "rows width=8 accumulators=4; rows=6";
constexpr const char* kOther = "rows width=4 accumulators=4; rows=12";

struct TuningFileTest : ::testing::Test {
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder + "/" + name) << text;
    return folder + "/" + name;
  }
  static std::string line(const std::string& kernel, int threads, const std::string& schedule) {
    std::string found = row(schedule).str();
    found.front() = ',';
    found.pop_back();
    return fmt::format(R"({{"kernel":"{}","threads":{}{},"key":"key of {}"}})", kernel, threads, found,
                       kernel) +
           "\n";
  }
  std::string error_of(const std::string& text) const {
    try {
      TuningFile::read(write("bad", text));
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::invalid);
      return e.what();
    }
    return "";
  }
  const std::string folder =
      (fs::temp_directory_path() / ("kiln_tuning_file_test." + std::to_string(getpid()))).string();
};

// A file is what the cache holds, and reads back as itself.
TEST_F(TuningFileTest, OutOfACacheAndBack) {
  DiskCache cache(folder + "/cache", 1 << 20);
  TunableKernel a, b;
  a.key = "kernel a\n", b.key = "kernel b\n";
  TuneRecord(&cache, 2).store(a, row(kTwelve).str());
  TuneRecord(&cache, 4).store(a, row(kSix).str());
  TuneRecord(&cache, 2).store(b, row(kOther).str());
  TuneRecord(&cache, 2).store_program("program\n", {{"id", row(kTwelve).str()}});
  const TuningFile f = TuningFile::of(cache);
  EXPECT_EQ(f.rows().size(), 2u);
  const TuningFile again = TuningFile::read(write("f", f.str()));
  EXPECT_EQ(again.str(), f.str());
  EXPECT_EQ(again.digest(), f.digest());
  const std::string id = hash128(a.key).hex();
  ASSERT_TRUE(again.find(id, 4));
  EXPECT_EQ(again.find(id, 4)->found.schedule, kSix);
  EXPECT_EQ(again.find(id, 4)->key, a.key);
}

TEST_F(TuningFileTest, ThreadsWithoutARowGetTheNext) {
  const TuningFile f = TuningFile::read(write("f", line("k", 2, kTwelve) + line("k", 8, kSix)));
  const auto schedule = [&](int threads) { return f.find("k", threads)->found.schedule; };
  EXPECT_EQ(schedule(1), kTwelve);
  EXPECT_EQ(schedule(2), kTwelve);
  EXPECT_EQ(schedule(7), kTwelve);
  EXPECT_EQ(schedule(64), kSix);
  EXPECT_FALSE(f.find("other", 2));
}

TEST_F(TuningFileTest, MergingNeverContradicts) {
  TuningFile all = TuningFile::read(write("a", line("k", 2, kTwelve)));
  const std::string digest = all.digest();
  EXPECT_EQ(all.merge(TuningFile::read(write("b", line("k", 2, kTwelve)))), 0) << "the same";
  EXPECT_EQ(all.merge(TuningFile::read(write("c", line("k", 2, kSix)))), 1) << "another for as many threads";
  EXPECT_EQ(all.merge(TuningFile::read(write("d", line("k", 4, kOther)))), 1) << "another numeric part";
  EXPECT_EQ(all.digest(), digest);
  EXPECT_EQ(all.merge(TuningFile::read(write("e", line("k", 4, kSix) + line("l", 1, kOther)))), 0);
  EXPECT_EQ(all.str(), line("k", 2, kTwelve) + line("k", 4, kSix) + line("l", 1, kOther));
}

TEST_F(TuningFileTest, SaysWhatIsWrongAndWhere) {
  EXPECT_THROW(TuningFile::read(folder + "/none"), Error);
  EXPECT_THROW(TuningFile::read(folder), Error);
  EXPECT_EQ(TuningFile::read(write("empty", "")).rows().size(), 0u);
  const std::string good = line("k", 2, kTwelve);
  for (const std::string& bad :
       {std::string("{\n"), std::string("\n"), std::string("{\"kernel\":\"k\"}\n"), line("k", 0, kTwelve),
        line("", 2, kTwelve), line("k", 3, "nonsense"), std::string("\xff\xfe\n"), good.substr(0, 40)})
    EXPECT_THAT(error_of(good + bad), HasSubstr("bad:2: no row of a tuning file")) << bad;
  EXPECT_THAT(error_of(good + line("k", 3, kOther)), HasSubstr("bad:2: kernel k has a row before"));
  EXPECT_THAT(error_of(good + line("k", 2, kSix)), HasSubstr("one row for a number of threads"));
}

}  // namespace KILN_FILE
}  // namespace kiln
