// SPDX-License-Identifier: Apache-2.0
// Whether a short plan runs faster on a team or on the caller's thread, learned from its own calls. For plans
// of microseconds the answer lies with the machine's barriers and with who else runs on it, which no model of
// work knows. Results do not depend on it: plans give the same bits on any number of threads.
#pragma once

#include <atomic>
#include <cstdint>

namespace kiln {

class ThreadTrial {
 public:
  /// 1 or `many`: the quicker of late. The slower is tried again so seldom that its calls cost about 2 %.
  int choose(int many);
  /// What a call on `threads` threads took.
  void note(int threads, double ns);

 private:
  static constexpr uint64_t kFirst = 6;                    ///< calls that alternate before there is a choice
  static constexpr uint64_t kLeast = 64, kMost = 1 << 20;  ///< calls between two tries of the slower

  std::atomic<uint64_t> calls_{0}, retry_at_{kFirst + kLeast};
  std::atomic<double> alone_ns_{0}, team_ns_{0};
};

}  // namespace kiln
