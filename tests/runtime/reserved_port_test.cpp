// SPDX-License-Identifier: Apache-2.0
// A reserved port: nobody is given it, nothing answers there, and a server can still listen.
#include "runtime/reserved_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

namespace kiln {
namespace KILN_FILE {

/// A socket bound to `port` of the loopback interface or of all; -1, when that is refused.
int bound(int port, uint32_t interface, bool reuse) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0), on = reuse;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(interface);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

TEST(ReservedPort, AServerListensThereAndOthersDoNot) {
  const ReservedPort port;
  EXPECT_GT(port.number(), 1023);
  EXPECT_EQ(bound(port.number(), INADDR_LOOPBACK, false), -1);
  for (uint32_t interface : {INADDR_LOOPBACK, INADDR_ANY}) {
    const int server = bound(port.number(), interface, true);
    ASSERT_GE(server, 0);
    EXPECT_EQ(listen(server, 1), 0);
    close(server);
  }
}

TEST(ReservedPort, EveryoneGetsAnother) {
  const ReservedPort a, b, c;
  EXPECT_EQ((std::set<int>{a.number(), b.number(), c.number()}).size(), 3u);
}

}  // namespace KILN_FILE
}  // namespace kiln
