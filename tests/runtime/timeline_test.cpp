// SPDX-License-Identifier: Apache-2.0
#include "runtime/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "ir/base/error.h"

namespace kiln {
namespace {

using Json = nlohmann::json;

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

std::string path_for(const char* name) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kiln-timeline-{}", getpid());
  std::filesystem::create_directories(folder);
  return (folder / name).string();
}

TEST(Timeline, ReadsBackAsATrace) {
  const std::string path = path_for("trace.json");
  {
    Timeline t(path, "rank \"1\"");
    t.add({{TimelineRow::compute, "a\\b\n", "kernel", 1'500, 4'000, 64},
           {TimelineRow::communication, "all_reduce 0", "collective", 2'000, 9'000, 128}});
    t.add({});
    EXPECT_EQ(t.path(), path);
  }
  const Json events = Json::parse(text_of(path));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0]["args"]["name"], "rank \"1\"");
  EXPECT_EQ(events[2]["args"]["name"], "communication");
  EXPECT_EQ(events[3]["name"], "a\\b\n");
  EXPECT_EQ(events[3]["ts"], 1.5);
  EXPECT_EQ(events[3]["dur"], 2.5);
  EXPECT_EQ(events[3]["tid"], 0);
  EXPECT_EQ(events[4]["tid"], 1);
  EXPECT_EQ(events[4]["args"]["bytes"], 128);
}

/// What a process that is killed leaves lacks nothing but the end.
TEST(Timeline, IsOnDiskAfterEveryCall) {
  const std::string path = path_for("killed.json");
  Timeline t(path, "rank 0");
  t.add({{TimelineRow::compute, "a", "kernel", 0, 1, 0}});
  EXPECT_EQ(Json::parse(text_of(path) + "]").size(), 4u);
}

TEST(Timeline, ThreadsDoNotTearEvents) {
  const std::string path = path_for("threads.json");
  {
    Timeline t(path, "rank 0");
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int k = 0; k < 50; ++k) t.add({{TimelineRow::compute, "a", "kernel", k, k + 1, 0}});
      });
    for (std::thread& x : threads) x.join();
  }
  EXPECT_EQ(Json::parse(text_of(path)).size(), 203u);
}

TEST(Timeline, SaysWhatItCannotWrite) {
  try {
    Timeline t("/nowhere/trace.json", "rank 0");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::io);
    EXPECT_STREQ(e.what(), "trace: cannot write /nowhere/trace.json: No such file or directory");
  }
}

TEST(Timeline, AFullDiskEndsIt) {
  if (!std::filesystem::exists("/dev/full")) FAIL() << "no /dev/full here";
  Timeline t("/dev/full", "rank 0");
  for (int i = 0; i < 3; ++i) t.add({{TimelineRow::compute, "a", "kernel", 0, 1, 0}});
}

}  // namespace
}  // namespace kiln
