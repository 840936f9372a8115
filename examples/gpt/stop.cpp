// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/stop.h"

#include <csignal>

namespace gpt {

namespace {

// A handler can reach nothing but static state; constant initialisation needs no guard in it.
volatile std::sig_atomic_t& seen() {
  static volatile std::sig_atomic_t signal = 0;
  return signal;
}

void remember(int signal) { seen() = signal; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal has its usual effect
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int stop_signal() { return seen(); }

}  // namespace gpt
