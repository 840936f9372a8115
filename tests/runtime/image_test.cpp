// SPDX-License-Identifier: Apache-2.0
// Loading of images that are not what they should be; good ones are run in codegen/compile_clang_test.
#include "runtime/image.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;

// A real shared object to damage: the math library this test runs with.
std::string some_library() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/libm.so") == std::string::npos && line.find("/libm-") == std::string::npos) continue;
    std::stringstream bytes;
    bytes << std::ifstream(line.substr(line.find('/'))).rdbuf();
    return bytes.str();
  }
  return "";
}

std::string message(std::string_view bytes) {
  try {
    LoadedImage image(bytes);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::device);
    return e.what();
  }
  return "loaded";
}

TEST(LoadedImage, CutAndForeignBytesAreErrors) {
  const std::string whole = some_library();
  ASSERT_GT(whole.size(), 4096u);
  EXPECT_EQ(message(whole), "loaded");
  for (const size_t size : {size_t{0}, size_t{3}, size_t{64}, size_t{200}, whole.size() / 2})
    EXPECT_EQ(message(whole.substr(0, size)),
              "kernel image: " + std::to_string(size) + " bytes are no complete shared object");
  EXPECT_EQ(message(std::string(5000, 'x')), "kernel image: 5000 bytes are no complete shared object");
  std::string other_machine = whole;
  other_machine[18] = 0x28;  // e_machine: 32-bit Arm
  EXPECT_THAT(
      message(other_machine),
      HasSubstr(fmt::format("kernel image: {} bytes cannot be mapped: /proc/self/fd/", whole.size())));
}

TEST(LoadedImage, MissingKernelIsNamedAndMovesKeepTheImage) {
  LoadedImage first(some_library());
  LoadedImage second = std::move(first);
  EXPECT_NE(second.kernel("tanh"), nullptr);
  try {
    second.kernel("tanhq");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::internal);
    EXPECT_THAT(e.what(), HasSubstr("kernel image: no kernel named 'tanhq'"));
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
