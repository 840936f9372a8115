// SPDX-License-Identifier: Apache-2.0
// The digits example: its file of images, and a small training on images that are easy to tell apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "examples/digits/train.h"

namespace digits {
namespace KILN_FILE {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DigitsFile : public ::testing::Test {
 protected:
  DigitsFile() : path_((fs::temp_directory_path() / fmt::format("kiln-digits-{}.csv", getpid())).string()) {}
  ~DigitsFile() override { fs::remove(path_); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string error() const {
    try {
      load_images(path_);
    } catch (const kiln::Error& e) {
      return e.what();
    }
    return "no error";
  }
  /// An image with a bar: digits 0 to 4 in rows, 5 to 9 in columns; `noise` is a pixel that is lit, too.
  static std::string bar(int digit, int noise) {
    std::string s;
    for (int i = 0; i < 64; ++i) {
      const int line = digit < 5 ? i / 8 : i % 8;
      s += (line == digit % 5 + 1 ? "16," : i == noise ? "9," : "0,");
    }
    return s + std::to_string(digit) + "\n";
  }
  const std::string path_;
};

TEST_F(DigitsFile, Refusals) {
  EXPECT_THAT(error(), HasSubstr("cannot read"));
  write("");
  EXPECT_THAT(error(), HasSubstr("is empty"));
  write(bar(3, 0) + "1,2,3\n");
  EXPECT_THAT(error(), HasSubstr("line 2"));
  std::string wrong = bar(3, 0);
  wrong.replace(0, 1, "-");
  write(wrong);
  EXPECT_THAT(error(), HasSubstr("line 1"));
}

TEST_F(DigitsFile, TrainsCompiledAsEagerly) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += bar(i % 10, i * 7 % 64);
  write(text);
  const Images images = load_images(path_);
  EXPECT_EQ(images.pixels.sizes(), (kiln::Sizes{300, 1, 8, 8}));
  Options o;
  o.epochs = 4;
  o.batch = 20;
  o.width = 8;
  o.dropout = 0;
  const Figures compiled = train(o, images);
  EXPECT_GE(compiled.accuracy, 0.95);
  o.eager = true;
  const Figures eager = train(o, images);
  EXPECT_NEAR(compiled.loss, eager.loss, 1e-3);
  EXPECT_NEAR(compiled.accuracy, eager.accuracy, 0.04);
}

TEST_F(DigitsFile, TooFewImages) {
  write(bar(1, 0) + bar(2, 0));
  Options o;
  try {
    train(o, load_images(path_));
    FAIL();
  } catch (const kiln::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("too few"));
  }
}

}  // namespace KILN_FILE
}  // namespace digits
