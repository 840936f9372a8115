// SPDX-License-Identifier: Apache-2.0
// Says where a test crashed: a fault that happens once, on a machine nobody can log in to, is found from the
// log alone. Linked into every test.
#include <execinfo.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace {

void print_trace(int signal) {
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  raise(signal);  // the handler is gone by now: the process ends as it would have
}

/// Before main, so that also what static objects do is covered.
const bool installed = [] {
  void* first[1];
  backtrace(first, 1);  // loads what unwinding needs while memory can still be allocated
  // A crash may be a stack that is full.
  static char stack[1 << 16];
  const stack_t alternative{stack, 0, sizeof stack};
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_handler = print_trace;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER | SA_ONSTACK);
  for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(s, &action, nullptr);
  return true;
}();

}  // namespace
