// SPDX-License-Identifier: Apache-2.0
// Tests of every store, as any number of ranks see it. Instantiated by the tests of each.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/store.h"

namespace kiln {

/// One store as each of some ranks sees it.
struct StoreWorld {
  std::vector<std::shared_ptr<Store>> ranks;
  /// The connection of a rank breaks.
  void (*lose)(StoreWorld& world, int rank) = nullptr;
};

/// Makes a world of `size` ranks.
class StoreSuite : public testing::TestWithParam<StoreWorld (*)(int size)> {};

/// Kind and text of the error that `f` throws; "" if it throws none.
std::string error_of(const std::function<void()>& f);

}  // namespace kiln
