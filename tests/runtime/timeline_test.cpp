// SPDX-License-Identifier: Apache-2.0
#include "runtime/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace kiln {
namespace KILN_FILE {

using Json = nlohmann::json;

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

/// What a trace is told to be named after, and the file that it becomes.
struct Place {
  std::string prefix, path;
  explicit Place(const char* name) {
    const auto folder = std::filesystem::temp_directory_path() / fmt::format("kiln-timeline-{}", getpid());
    std::filesystem::create_directories(folder);
    prefix = (folder / name).string();
    path = fmt::format("{}.{}.json", prefix, getpid());
  }
};

TimelineSpan span(const char* name, int64_t begin = 0) {
  return {TimelineRow::compute, name, "kernel", begin, begin + 1, 0};
}

/// The events of one kind, by name: "process_name" and the like.
std::vector<Json> named(const Json& events, const char* name) {
  std::vector<Json> out;
  for (const Json& e : events)
    if (e["name"] == name) out.push_back(e);
  return out;
}

TEST(Timeline, ReadsBackAsATrace) {
  const Place place("trace");
  {
    Timeline t(place.prefix);
    t.add({{TimelineRow::compute, "a\\b\n", "kernel", 1'500, 4'000, 64},
           {TimelineRow::communication, "all_reduce 0", "collective", 2'000, 9'000, 128},
           {TimelineRow::compute, "step (a.cpp:1)", "call", 1'500, 9'000, 0, 7}});
    t.add({});
  }
  const Json events = Json::parse(text_of(place.path));
  ASSERT_EQ(events.size(), 7u);
  EXPECT_EQ(events[0]["args"]["name"], fmt::format("{} (pid {})", program_invocation_short_name, getpid()));
  EXPECT_EQ(events[0]["pid"], getpid());
  EXPECT_EQ(events[2]["args"]["name"], "compute");
  EXPECT_EQ(events[3]["args"]["name"], "communication");
  EXPECT_EQ(events[4]["name"], "a\\b\n");
  EXPECT_EQ(events[4]["ts"], 1.5);
  EXPECT_EQ(events[4]["dur"], 2.5);
  EXPECT_EQ(events[4]["tid"], 0);
  EXPECT_EQ(events[5]["tid"], 1);
  EXPECT_EQ(events[5]["args"], Json({{"bytes", 128}}));
  EXPECT_EQ(events[6]["args"], Json({{"call", 7}}));
}

TEST(Timeline, IsWholeAfterEveryCall) {
  const Place place("killed");
  Timeline t(place.prefix);
  EXPECT_EQ(Json::parse(text_of(place.path)).size(), 2u);
  for (size_t n = 1; n <= 3; ++n) {
    t.add({span("a"), span("b")});
    EXPECT_EQ(Json::parse(text_of(place.path)).size(), 4 + 2 * n);
  }
}

/// A process learns its rank when it has long begun.
TEST(Timeline, NamesTheProcessWhenItIsKnown) {
  const Place place("named");
  Timeline t(place.prefix);
  t.add({span("a")});
  const std::vector<std::string> names = {"rank \"1\" of 2", "r", std::string(63, 'x') + "\u00e9" + "end"};
  for (const std::string& name : names) {
    t.name_process(name, 1);
    const Json events = Json::parse(text_of(place.path));
    EXPECT_EQ(events.size(), 5u);
    const std::string expected = name.size() < 64 ? name : std::string(63, 'x');
    EXPECT_EQ(events[0]["args"]["name"], fmt::format("{} (pid {})", expected, getpid()));
    EXPECT_EQ(events[1]["args"]["sort_index"], 1);
  }
}

TEST(Timeline, ThreadsHaveRowsOfTheirOwn) {
  const Place place("threads");
  {
    Timeline t(place.prefix);
    std::vector<std::thread> threads;
    std::atomic<int> here{0};
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (++here; here < 4;) std::this_thread::yield();
        for (int k = 0; k < 50; ++k) t.add({span("a", k)});
      });
    for (std::thread& x : threads) x.join();
  }
  const Json events = Json::parse(text_of(place.path));
  EXPECT_EQ(events.size(), 2u + 4 * 2 + 200);
  std::map<int, int> by_row;
  for (const Json& e : named(events, "a")) ++by_row[e["tid"].get<int>()];
  EXPECT_THAT(by_row, ::testing::ElementsAre(::testing::Pair(0, 50), ::testing::Pair(2, 50),
                                             ::testing::Pair(4, 50), ::testing::Pair(6, 50)));
  std::vector<std::string> rows;
  for (const Json& e : named(events, "thread_name")) rows.push_back(e["args"]["name"]);
  EXPECT_THAT(rows, ::testing::ElementsAre("compute", "communication", "compute 2", "communication 2",
                                           "compute 3", "communication 3", "compute 4", "communication 4"));
}

TEST(Timeline, AForkedChildBeginsItsOwn) {
  const Place place("forked");
  Timeline t(place.prefix);
  t.add({span("parent")});
  const pid_t child = fork();
  if (child == 0) {
    t.add({span("child")});
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  t.add({span("parent")});
  const Json own = Json::parse(text_of(place.path));
  EXPECT_EQ(named(own, "parent").size(), 2u);
  EXPECT_EQ(named(own, "child").size(), 0u);
  const Json others = Json::parse(text_of(fmt::format("{}.{}.json", place.prefix, child)));
  EXPECT_EQ(others.size(), 5u);
  EXPECT_EQ(named(others, "child").at(0)["pid"], child);
}

/// A warning, once; nothing is thrown.
TEST(Timeline, GoesOnWithoutAFileThatCannotBeWritten) {
  ::testing::internal::CaptureStderr();
  Timeline t("/nowhere/trace");
  t.name_process("rank 0 of 2", 0);
  for (int i = 0; i < 3; ++i) t.add({span("a")});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            fmt::format("kiln warning: KILN_TRACE: cannot write /nowhere/trace.{}.json: No such file or "
                        "directory; going on without\n",
                        getpid()));
}

/// What fits stays a whole trace.
TEST(Timeline, AFullDiskEndsIt) {
  const Place place("full");
  Timeline t(place.prefix);
  t.add({span("first")});
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{1200, limit.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 20; ++i) t.add({span("next")});
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(said, fmt::format("kiln warning: KILN_TRACE: cannot write {}: File too large; going on without\n",
                              place.path));
  const Json events = Json::parse(text_of(place.path));
  EXPECT_EQ(named(events, "first").size(), 1u);
  EXPECT_GT(named(events, "next").size(), 0u);
  EXPECT_LT(named(events, "next").size(), 20u);
}

}  // namespace KILN_FILE
}  // namespace kiln
