// SPDX-License-Identifier: Apache-2.0
// Which host this is, and which of its addresses another host reaches.
#pragma once

#include <string>
#include <vector>

namespace kiln {

/// Where the sockets of a process live.
struct HostPlace {
  std::string id;                      ///< equal for processes that share a loopback interface
  std::vector<std::string> addresses;  ///< numeric, those of the loopback interface left out

  std::string str() const;
  static HostPlace parse(const std::string& text);
  static HostPlace here();
};

/// The address that `here` sends from to reach a host that has the addresses of `there`; "" if none does.
std::string route(const HostPlace& here, const HostPlace& there);

/// True for an address in numbers, IPv4 or IPv6.
bool is_address(const std::string& text);
/// True for an address that sockets of this process can be bound to.
bool is_own_address(const std::string& text);
/// Names of the network interfaces that are up.
std::vector<std::string> interface_names();

}  // namespace kiln
