// SPDX-License-Identifier: Apache-2.0
#include "ir/base/dynlib.h"

#include <gmock/gmock.h>

namespace kiln {
namespace KILN_FILE {

TEST(DynLib, OpensLooksUpAndMoves) {
  std::string why = "untouched";
  std::optional<DynLib> library = DynLib::open("libm.so.6", why);
  ASSERT_TRUE(library) << why;
  EXPECT_EQ(why, "untouched");
  DynLib moved = std::move(*library);
  const auto cosine = reinterpret_cast<double (*)(double)>(moved.symbol("cos"));
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0.0), 1.0);
  EXPECT_EQ(moved.symbol("no_such_function"), nullptr);
  EXPECT_EQ(library->symbol("cos"), nullptr) << "a moved-from library has no symbols";
}

TEST(DynLib, SaysWhyALibraryCannotBeOpened) {
  std::string why;
  EXPECT_FALSE(DynLib::open("/nonexistent/libnothing.so", why));
  EXPECT_THAT(why, ::testing::HasSubstr("/nonexistent/libnothing.so: cannot open shared object file"));
  EXPECT_FALSE(DynLib::open("/proc/self/cmdline", why));
  EXPECT_THAT(why, ::testing::HasSubstr("/proc/self/cmdline"));
}

TEST(DynLib, FoldersEndWithASlash) {
  const std::string program = folder_of_program();
  EXPECT_THAT(program, ::testing::StartsWith("/"));
  EXPECT_THAT(program, ::testing::EndsWith("/"));
  static const char here = 0;
  EXPECT_THAT(folder_of_code(&here), ::testing::EndsWith("/"));
  EXPECT_EQ(folder_of_code(nullptr), "");
}

TEST(DynLib, LibrariesAreSearchedBesideTheCode) {
  static const char here = 0;
  const std::string folder = folder_of_program();
  EXPECT_EQ(paths_of_library("x.so", &here),
            (std::vector<std::string>{folder + "x.so", folder + "../lib/x.so", "x.so"}));
}

}  // namespace KILN_FILE
}  // namespace kiln
