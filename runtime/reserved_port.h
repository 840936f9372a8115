// SPDX-License-Identifier: Apache-2.0
// A TCP port that nobody else is given while one process keeps it for another that will listen there.
#pragma once

namespace kiln {

/// Holds a free port of the loopback interface without listening on it. Another process may listen there, if
/// it sets SO_REUSEADDR as servers do; the system gives the port to nobody who asks for any free one.
class ReservedPort {
 public:
  /// Throws: io, when there is no free port or no IPv4.
  ReservedPort();
  ~ReservedPort();
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  int number() const { return number_; }

 private:
  int socket_ = -1;
  int number_ = 0;
};

}  // namespace kiln
