// SPDX-License-Identifier: Apache-2.0
// What every process group must do, as parametrised tests (collective_suite.cpp) over a function that makes a
// world of threads.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/collective.h"

namespace kiln::testing {

using Group = std::shared_ptr<ProcessGroup>;
using Groups = std::vector<Group>;
struct Backend {
  const char* name;
  Groups (*make)(int size, Seconds timeout);
};

inline constexpr Seconds kAmple{60};
/// A file and a line that errors shall name.
inline CollectiveSite site_at(uint32_t line, const char* phase = "backward") {
  return {phase, SourceLoc("train.cpp", line)};
}

/// Runs f(group) for all ranks side by side; the first failure of a thread is the test's.
inline void on_all(const Groups& groups, const std::function<void(const Group&)>& f) {
  std::vector<std::thread> threads;
  for (const Group& g : groups) {
    threads.emplace_back([&f, &g] {
      try {
        f(g);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << g->rank() << " threw " << e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

class Collectives : public ::testing::TestWithParam<Backend> {
 protected:
  static Groups make(int size, Seconds timeout = kAmple) { return GetParam().make(size, timeout); }

  /// Errors of all ranks that call f, each with its own; "" where none was thrown.
  static std::vector<std::string> errors(const Groups& groups, const std::function<void(const Group&)>& f) {
    std::vector<std::string> texts(groups.size());
    on_all(groups, [&](const Group& g) {
      try {
        f(g);
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::comm);
        texts[static_cast<size_t>(g->rank())] = e.what();
      }
    });
    return texts;
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

inline std::string backend_name(const ::testing::TestParamInfo<Backend>& info) { return info.param.name; }

}  // namespace kiln::testing
