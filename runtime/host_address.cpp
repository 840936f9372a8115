// SPDX-License-Identifier: Apache-2.0
#include "runtime/host_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <memory>
#include <sstream>

namespace kiln {

namespace {

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Interfaces interfaces() {
  ifaddrs* all = nullptr;
  return {getifaddrs(&all) == 0 ? all : nullptr, &freeifaddrs};
}

bool has_address(const ifaddrs& i) {
  return i.ifa_addr && (i.ifa_addr->sa_family == AF_INET || i.ifa_addr->sa_family == AF_INET6);
}

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

/// What `use(fd, address, length)` says of a UDP socket and a numeric address; false for any other text.
template <typename Use>
bool with_socket(const std::string& address, const Use& use) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(address.c_str(), "9", &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_DGRAM, 0);
  const bool done = fd >= 0 && use(fd, found->ai_addr, found->ai_addrlen);
  if (fd >= 0) ::close(fd);
  return done;
}

/// The source address of packets to `target`; a connected UDP socket learns it from the routes and sends
/// nothing.
std::string source_to(const std::string& target) {
  std::string text;
  with_socket(target, [&](int fd, const sockaddr* address, socklen_t length) {
    sockaddr_storage own{};
    socklen_t own_length = sizeof own;
    if (connect(fd, address, length) != 0) return false;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) != 0) return false;
    text = numeric(reinterpret_cast<sockaddr*>(&own), own_length);
    return true;
  });
  return text;
}

}  // namespace

std::string HostPlace::str() const {
  std::string text = id;
  for (const std::string& a : addresses) text += " " + a;
  return text;
}

HostPlace HostPlace::parse(const std::string& text) {
  std::istringstream words(text);
  HostPlace place;
  words >> place.id;
  for (std::string a; words >> a;) place.addresses.push_back(a);
  return place;
}

HostPlace HostPlace::here() {
  HostPlace place;
  char name[HOST_NAME_MAX + 1] = "";
  gethostname(name, sizeof name - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  // Containers and network namespaces of one machine have loopback interfaces of their own.
  struct stat net {};
  stat("/proc/self/ns/net", &net);
  place.id = std::string(name) + "/" + boot + "/" + std::to_string(net.st_ino);
  const Interfaces all = interfaces();
  for (const ifaddrs* i = all.get(); i; i = i->ifa_next) {
    if (!has_address(*i) || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) continue;
    const bool v4 = i->ifa_addr->sa_family == AF_INET;
    const std::string text = numeric(i->ifa_addr, v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    // Addresses with a scope ("fe80::1%eth0") mean something else on every host.
    if (!text.empty() && text.find('%') == std::string::npos) place.addresses.push_back(text);
  }
  return place;
}

std::string route(const HostPlace& here, const HostPlace& there) {
  for (const std::string& target : there.addresses) {
    // Every host may have its own 172.17.0.1.
    if (std::find(here.addresses.begin(), here.addresses.end(), target) != here.addresses.end()) continue;
    const std::string source = source_to(target);
    if (!source.empty()) return source;
  }
  return "";
}

bool is_address(const std::string& text) {
  in6_addr any;
  return inet_pton(AF_INET, text.c_str(), &any) == 1 || inet_pton(AF_INET6, text.c_str(), &any) == 1;
}

bool is_own_address(const std::string& text) {
  return with_socket(text, [](int fd, sockaddr* address, socklen_t length) {
    // Port 9, of getaddrinfo, may be taken or not allowed; any will do.
    if (address->sa_family == AF_INET) reinterpret_cast<sockaddr_in*>(address)->sin_port = 0;
    else reinterpret_cast<sockaddr_in6*>(address)->sin6_port = 0;
    return bind(fd, address, length) == 0;
  });
}

std::vector<std::string> interface_names() {
  std::vector<std::string> names;
  const Interfaces all = interfaces();
  for (const ifaddrs* i = all.get(); i; i = i->ifa_next)
    if (has_address(*i) && (i->ifa_flags & IFF_UP) &&
        std::find(names.begin(), names.end(), i->ifa_name) == names.end())
      names.emplace_back(i->ifa_name);
  return names;
}

}  // namespace kiln
