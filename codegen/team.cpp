// SPDX-License-Identifier: Apache-2.0
#include "codegen/team.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "ir/base/log.h"

namespace kiln {

void in_team(size_t count, int threads, const std::function<void(size_t)>& work) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<size_t> next{0};
  const auto member = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> team;
  const size_t helpers = std::min<size_t>(std::max(threads, 1), std::max<size_t>(count, 1)) - 1;
  try {
    for (size_t i = 0; i < helpers; ++i) team.emplace_back(member);
  } catch (const std::system_error& e) {  // fewer make the same
    log(LogLevel::info, "compiling on {} of {} threads; {}", team.size() + 1, helpers + 1, e.what());
  }
  member();
  team.clear();
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
}

}  // namespace kiln
