// SPDX-License-Identifier: Apache-2.0
#include "runtime/host_address.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kiln {
namespace KILN_FILE {

TEST(HostAddress, PlacesTravelAsText) {
  const HostPlace here = HostPlace::here();
  EXPECT_FALSE(here.id.empty());
  EXPECT_EQ(here.id, HostPlace::here().id);
  const HostPlace read = HostPlace::parse(here.str());
  EXPECT_EQ(read.id, here.id);
  EXPECT_EQ(read.addresses, here.addresses);
  for (const std::string& a : here.addresses) EXPECT_TRUE(is_address(a)) << a;
}

TEST(HostAddress, RoutesAskTheSystem) {
  EXPECT_EQ(route({"here", {}}, {"there", {"127.0.0.1"}}), "127.0.0.1");
  // An address that both have leads back here.
  EXPECT_EQ(route({"here", {"127.0.0.1"}}, {"there", {"127.0.0.1"}}), "");
  EXPECT_EQ(route({"here", {"127.0.0.1"}}, {"there", {"127.0.0.1", "127.0.0.2"}}), "127.0.0.1");
  EXPECT_EQ(route({"here", {}}, {"there", {"no address"}}), "");
}

TEST(HostAddress, TellsAddressesFromNames) {
  EXPECT_TRUE(is_address("10.0.0.1"));
  EXPECT_TRUE(is_address("::1"));
  EXPECT_FALSE(is_address("lo"));
  EXPECT_FALSE(is_address(""));
  EXPECT_TRUE(is_own_address("127.0.0.1"));
  EXPECT_FALSE(is_own_address("192.0.2.1"));  // of documents
  EXPECT_FALSE(is_own_address("lo"));
  const auto names = interface_names();
  EXPECT_NE(std::find(names.begin(), names.end(), "lo"), names.end());
}

}  // namespace KILN_FILE
}  // namespace kiln
