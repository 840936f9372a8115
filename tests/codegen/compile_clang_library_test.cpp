// SPDX-License-Identifier: Apache-2.0
// What happens when the compiler library is missing, foreign or outdated, and that it is opened late.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "codegen/compile_clang.h"
#include "ir/base/error.h"
#include "ir/base/options.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string compile_message(const std::string& library) {
  set_option("KILN_JIT_LIBRARY", library);
  const CpuSource source{"k.cpp", "int x;\n", {}};
  std::string what = "compiled";
  try {
    compile_objects({&source, 1}, host_target(), 1);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    what = e.what();
  }
  set_option("KILN_JIT_LIBRARY", "");
  return what;
}

#ifdef KILN_STALE_JIT

std::string mapped_files() {
  std::stringstream out;
  out << std::ifstream("/proc/self/maps").rdbuf();
  return out.str();
}

// One test: once a library is open, it stays.
TEST(CompilerLibrary, IsLookedForAtTheFirstCompileAndErrorsAreNotRemembered) {
  EXPECT_EQ(compile_message("/nonexistent/libkiln_jit.so"),
            "cpu compiler: libkiln_jit.so cannot be opened; tried\n  /nonexistent/libkiln_jit.so: cannot "
            "open shared "
            "object file: No such file or directory\n(build the target kiln_jit, or set KILN_JIT_LIBRARY to "
            "its path)");
  EXPECT_EQ(compile_message("libm.so.6"),
            "cpu compiler: libm.so.6 belongs to another build of Kiln; got version 0 with no compiler, "
            "expected 3 with "
            "clang 19.1.7 (rebuild it, or unset KILN_JIT_LIBRARY)");
  EXPECT_THAT(compile_message(KILN_STALE_JIT),
              HasSubstr("got version 0 with clang 18.1.0, expected 3 with clang"));

  EXPECT_NE(compiler_key(parse_target("x86-64-v3")), compiler_key(parse_target("aarch64")));
  const std::vector<CpuSource> none;
  EXPECT_TRUE(compile_objects(none, host_target(), 1).empty());
  EXPECT_THAT(mapped_files(), Not(HasSubstr("libLLVM"))) << "nothing to compile, nothing mapped";

  EXPECT_EQ(compile_message(""), "compiled");
  EXPECT_THAT(mapped_files(), HasSubstr("libLLVM"));
}

#else

TEST(CompilerLibrary, ABuildWithoutItSaysSo) {
  EXPECT_EQ(compile_message(""),
            "cpu compiler: this build of Kiln has no CPU compiler (configure with -DKILN_CPU_JIT=ON, or run "
            "where the "
            "kernels are in the cache already)");
  EXPECT_THAT(compiler_key(host_target()), StartsWith("clang none\n"));
}

#endif

}  // namespace KILN_FILE
}  // namespace kiln
