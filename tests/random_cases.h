// SPDX-License-Identifier: Apache-2.0
// How many random cases a test draws.
#pragma once

namespace kiln::testing {

/// `n`, and a fifth of it under sanitizers, which look at memory and threads, not at values.
constexpr int random_cases(int n) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return n / 5;
#else
  return n;
#endif
}

}  // namespace kiln::testing
