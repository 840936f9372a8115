// SPDX-License-Identifier: Apache-2.0
// In the tests labelled single: a thread that one makes ends it. The thread sanitizer does not run them.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept {
  std::fputs("a test that is labelled single in tests/CMakeLists.txt makes a thread\n", stderr);
  std::abort();
}
