// SPDX-License-Identifier: Apache-2.0
#include "codegen/cpu_target.h"

#include <gmock/gmock.h>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;

TEST(CpuTarget, NamedLevelsAreFixedText) {
  const CpuTarget v3 = parse_target("x86-64-v3");
  EXPECT_EQ(
      v3.str(),
      "x86_64-unknown-linux-gnu x86-64-v3 +avx,+avx2,-avx512bf16,-avx512bitalg,-avx512bw,-avx512cd,-avx512dq,"
      "-avx512f,-avx512fp16,-avx512ifma,-avx512vbmi,-avx512vbmi2,-avx512vl,-avx512vnni,-avx512vpopcntdq,"
      "-avxvnni,+bmi,+bmi2,+f16c,+fma,-gfni,+lzcnt,+movbe,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3");
  EXPECT_EQ(v3.vector_bytes, 32);
  EXPECT_TRUE(v3.has_fma);
  const CpuTarget v4 = parse_target("x86-64-v4");
  EXPECT_EQ(v4.cpu, "x86-64-v4");
  EXPECT_EQ(v4.vector_bytes, 64);
  EXPECT_TRUE(v4.has("avx512vl"));
  EXPECT_FALSE(v4.has("avx512"));
  EXPECT_FALSE(v4.has("avx512bf16"));
  const CpuTarget arm = parse_target("aarch64");
  EXPECT_EQ(arm.str(), "aarch64-unknown-linux-gnu generic +neon");
  EXPECT_EQ(arm.vector_bytes, 16);
  EXPECT_TRUE(arm.has_fma);
}

TEST(CpuTarget, UnknownNameListsTheKnownOnes) {
  try {
    parse_target("z80");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid);
    EXPECT_STREQ(e.what(),
                 "cpu target: unknown target; got 'z80', expected host, x86-64-v3, x86-64-v4 or aarch64");
  }
}

// The compiler's own detection is the oracle.
#if defined(__x86_64__)
TEST(CpuTarget, HostAgreesWithTheCompilersDetection) {
  const CpuTarget& host = host_target();
  EXPECT_EQ(parse_target("host"), host);
  EXPECT_EQ(host.has("avx2"), !!__builtin_cpu_supports("avx2"));
  EXPECT_EQ(host.has("fma"), !!__builtin_cpu_supports("fma"));
  EXPECT_EQ(host.has("avx512f"), !!__builtin_cpu_supports("avx512f"));
  EXPECT_EQ(host.has("avx512bw"), !!__builtin_cpu_supports("avx512bw"));
  EXPECT_EQ(host.has("avx512vnni"), !!__builtin_cpu_supports("avx512vnni"));
  EXPECT_EQ(host.has("bmi2"), !!__builtin_cpu_supports("bmi2"));
  EXPECT_EQ(host.has("popcnt"), !!__builtin_cpu_supports("popcnt"));
  EXPECT_EQ(host.has("sse4.2"), !!__builtin_cpu_supports("sse4.2"));
  EXPECT_EQ(host.vector_bytes, __builtin_cpu_supports("avx512dq") ? 64
                               : __builtin_cpu_supports("avx2")   ? 32
                                                                  : 16);
  EXPECT_NO_THROW(check_runs_here(host));
}

TEST(CpuTarget, MissingFeaturesAreNamed) {
  CpuTarget better = host_target();
  better.cpu = "x86-64-v9";
  better.features += ",-avx1024,+quantum,+teleport";
  try {
    check_runs_here(better);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    EXPECT_STREQ(e.what(),
                 "cpu target: this CPU cannot run code made for x86-64-v9; it lacks quantum teleport (set "
                 "KILN_TARGET=host)");
  }
  better.triple = "aarch64-unknown-linux-gnu";
  EXPECT_THROW(check_runs_here(better), Error);
}
#endif

}  // namespace KILN_FILE
}  // namespace kiln
