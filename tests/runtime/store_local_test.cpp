// SPDX-License-Identifier: Apache-2.0
#include "runtime/store_local.h"

#include "tests/runtime/store_suite.h"

namespace kiln {
namespace KILN_FILE {

StoreWorld local_world(int size) {
  const auto store = std::make_shared<LocalStore>();
  return {std::vector<std::shared_ptr<Store>>(size, store), [](StoreWorld& world, int rank) {
            for (int i = 0; i < 2; ++i) static_cast<LocalStore&>(*world.ranks[0]).lose(rank);
          }};
}

INSTANTIATE_TEST_SUITE_P(Local, StoreSuite, ::testing::Values(local_world));

TEST(LocalStore, NobodyWhoLeavesIsLost) {
  const auto store = make_local_store();
  store->leave();
  EXPECT_TRUE(store->lost().empty());
}

}  // namespace KILN_FILE
}  // namespace kiln
