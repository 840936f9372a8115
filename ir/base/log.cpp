// SPDX-License-Identifier: Apache-2.0
#include "ir/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace kiln {

void log_line(LogLevel level, const std::string& text) {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto l = std::make_shared<spdlog::logger>("kiln", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    l->set_pattern("kiln %l: %v");
    l->set_level(spdlog::level::trace);
    return l;
  }();
  namespace level_of = spdlog::level;
  constexpr spdlog::level::level_enum kLevels[] = {level_of::err, level_of::warn, level_of::info,
                                                   level_of::debug, level_of::trace};
  logger->log(kLevels[static_cast<int>(level)], text);
}

}  // namespace kiln
