// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/collective_suite.h"

namespace kiln::testing {
namespace KILN_FILE {

INSTANTIATE_TEST_SUITE_P(Local, Collectives, ::testing::Values(Backend{"local", make_local_groups}),
                         backend_name);

TEST(LocalGroups, NeedARank) {
  try {
    make_local_groups(0, kAmple);
    ADD_FAILURE() << "a world of nobody";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "make_local_groups: a world has at least one rank; got 0");
  }
}

}  // namespace KILN_FILE
}  // namespace kiln::testing
