// SPDX-License-Identifier: Apache-2.0
// Signals are the program's own threads' business: threads that Kiln starts are started while this lives.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace kiln {

/// Blocks all signals on the calling thread, and so on the threads it starts; restores the mask at the end.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace kiln
