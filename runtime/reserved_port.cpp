// SPDX-License-Identifier: Apache-2.0
#include "runtime/reserved_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ir/base/error.h"

namespace kiln {

ReservedPort::ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  KILN_CHECK(socket_ >= 0, io, "reserve a port: no socket; {}", std::strerror(errno));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  // A bound socket that does not listen lets others bind and listen, where both set this.
  if (setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(socket_, generic, size) != 0 || getsockname(socket_, generic, &size) != 0) {
    const int error = errno;
    close(socket_);
    throw Error(ErrorKind::io, fmt::format("reserve a port: none on 127.0.0.1; {}", std::strerror(error)));
  }
  number_ = ntohs(address.sin_port);
}

ReservedPort::~ReservedPort() { close(socket_); }

}  // namespace kiln
