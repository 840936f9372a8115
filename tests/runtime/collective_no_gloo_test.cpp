// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "runtime/collective.h"

namespace kiln {
namespace KILN_FILE {

TEST(NoGloo, SaysHowToGetIt) {
  try {
    make_gloo_group(make_local_store(), "g", 0, 1, "", Seconds(1));
    ADD_FAILURE() << "a group of a library that is not there";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    EXPECT_STREQ(e.what(),
                 "make_gloo_group: this Kiln is built without Gloo (install libgloo-dev, configure with "
                 "-DKILN_GLOO=ON and build again; ranks that are threads need none)");
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
