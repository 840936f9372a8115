// SPDX-License-Identifier: Apache-2.0
#include "frontend/sharded_safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "frontend/serialize.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;
using testing::error_of;
using testing::Floats;
using testing::values;
using testing::vec;

class Sharded : public ::testing::Test {
 protected:
  Sharded() : dir_((fs::temp_directory_path() / fmt::format("kiln-sharded-{}", getpid())).string()) {
    fs::create_directories(dir_);
    save_file({{"b", vec({1, 2})}, {"d", vec({3})}}, dir_ + "/one.safetensors");
    save_file({{"a", vec({4})}, {"c", Tensor::from_vector(std::vector<int64_t>{5}, {})}},
              dir_ + "/two.safetensors");
    index(R"("a":"two.safetensors","b":"one.safetensors","c":"two.safetensors","d":"one.safetensors")");
  }
  ~Sharded() override { fs::remove_all(dir_); }
  void index(const std::string& map) const {
    std::ofstream(index_path()) << R"({"metadata":{"total_size":24},"weight_map":{)" << map << "}}";
  }
  std::string index_path() const { return dir_ + "/model.safetensors.index.json"; }
  std::string error() const {
    return error_of([&] { ShardedSafetensors s(index_path()); });
  }
  std::string error_of_index(const std::string& map) const {
    index(map);
    const std::string text = error(), prefix = "invalid: index " + index_path() + ": ";
    EXPECT_TRUE(text.starts_with(prefix)) << text;
    return text.substr(std::min(prefix.size(), text.size()));
  }
  std::string dir_;
};

TEST_F(Sharded, ArraysOfAllFiles) {
  const ShardedSafetensors s(index_path());
  EXPECT_EQ(s.files().size(), 2u);
  EXPECT_EQ(s.find("b")->bytes, 8u);
  EXPECT_EQ(s.find("c")->dtype, DType::i64);
  EXPECT_EQ(s.find("e"), nullptr);
  for (const bool mmap : {false, true}) {
    const NamedTensors all = load_file(index_path(), mmap);
    ASSERT_EQ(all.size(), 4u);
    EXPECT_EQ(all[0].first + all[1].first + all[2].first + all[3].first, "abcd");
    EXPECT_EQ(values(all[1].second), (Floats{1, 2}));
    EXPECT_EQ(all[2].second.item<int64_t>(), 5);
  }
}

TEST_F(Sharded, FoldersAndSingleFiles) {
  EXPECT_EQ(load_file(dir_).size(), 4u);
  EXPECT_EQ(load_file(dir_ + "/one.safetensors").size(), 2u);
  save_file({{"x", vec({1})}}, dir_ + "/model.safetensors");
  EXPECT_EQ(load_file(dir_).size(), 1u);  // the whole comes before the index
  fs::remove(dir_ + "/model.safetensors");
  fs::remove(index_path());
  const int line = __LINE__ + 1;
  const std::string got = error_of([&] { load_file(dir_); });
  EXPECT_EQ(got,
            fmt::format("io: load_file (sharded_safetensors_test.cpp:{}): open {}: the folder has neither "
                        "model.safetensors nor model.safetensors.index.json",
                        line, dir_));
  EXPECT_EQ(error(), "io: open " + index_path() + ": cannot read the file; No such file or directory");
}

TEST_F(Sharded, MissingAndDamagedFiles) {
  fs::remove(dir_ + "/two.safetensors");
  EXPECT_EQ(error(),
            "io: open " + dir_ + "/two.safetensors: cannot read the file; No such file or directory");
  std::ofstream(dir_ + "/two.safetensors") << "xx";
  EXPECT_EQ(error(),
            "invalid: safetensors " + dir_ + "/two.safetensors: truncated; got 2 bytes, expected at least 8");
}

TEST_F(Sharded, IndexThatDoesNotFitTheFiles) {
  EXPECT_EQ(error_of_index(R"("a":"two.safetensors","c":"two.safetensors","e":"two.safetensors")"),
            "there is no 'e' in two.safetensors");
  EXPECT_EQ(error_of_index(R"("a":"two.safetensors")"),
            "'c' is in two.safetensors, and by the index in no file");
  EXPECT_EQ(error_of_index(R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors",)"
                           R"("d":"one.safetensors")"),
            "'a' is in two.safetensors, and by the index in one.safetensors");
}

TEST_F(Sharded, BadIndexes) {
  EXPECT_EQ(error_of_index(R"("a":"../two.safetensors")"),
            "'a' is in \"../two.safetensors\"; expected the name of a file beside the index");
  EXPECT_EQ(error_of_index(R"("a":"/etc/passwd")"),
            "'a' is in \"/etc/passwd\"; expected the name of a file beside the index");
  EXPECT_EQ(error_of_index(R"("a":"..")"), "'a' is in \"..\"; expected the name of a file beside the index");
  EXPECT_EQ(error_of_index(R"("a":"")"), "'a' is in \"\"; expected the name of a file beside the index");
  EXPECT_EQ(error_of_index(R"("a":3)"), "'a' is in 3; expected the name of a file beside the index");
  std::ofstream(index_path()) << "{}";
  EXPECT_EQ(error(), "invalid: index " + index_path() +
                         ": no object 'weight_map' (expected one of array names and files)");
  std::ofstream(index_path()) << "{";
  EXPECT_THAT(error(), ::testing::StartsWith("invalid: index " + index_path() + ": not JSON; "));
}

}  // namespace KILN_FILE
}  // namespace kiln
