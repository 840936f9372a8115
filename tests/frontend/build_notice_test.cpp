// SPDX-License-Identifier: Apache-2.0
#include "frontend/build_notice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/base/options.h"
#include "ir/graph.h"

namespace kiln::detail {
namespace KILN_FILE {

using namespace std::chrono_literals;
using ::testing::MatchesRegex;

Graph graph() {
  Graph g;
  g.name = "step";
  return g;
}

TEST(BuildNotice, SaysOnceThatABuildTakesLong) {
  const Graph g = graph();
  ::testing::internal::CaptureStderr();
  {
    const BuildNotice notice(g, 1ms, true);
    std::this_thread::sleep_for(300ms);
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex("kiln warning: step: compiling 0 ops; this takes a while\n"
                           "kiln warning: step: compiled in [0-9.]+ s\n"));
}

TEST(BuildNotice, NothingOfShortOnesAndWhereLinesAreOff) {
  const Graph g = graph();
  ::testing::internal::CaptureStderr();
  { const BuildNotice notice(g, 1h, true); }
  {
    const BuildNotice notice(g, 1ms, false);  // nobody looks on
    std::this_thread::sleep_for(100ms);
  }
  set_option("KILN_LOG", "error");
  {
    const BuildNotice notice(g, 1ms, true);
    std::this_thread::sleep_for(100ms);
  }
  set_option("KILN_LOG", "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace KILN_FILE
}  // namespace kiln::detail
