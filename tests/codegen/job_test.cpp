// SPDX-License-Identifier: Apache-2.0
// Job files: exact round trips, every kind of damage, and several processes that record at once.
#include "codegen/job.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/program_key.h"
#include "ir/base/error.h"
#include "ir/base/hash.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

JobProgram program(int size, const std::string& name = "step") {
  JobProgram p;
  p.name = name;
  p.threads = {2, 16};
  p.ends = size == 4 ? "host read net.cpp:44" : "";
  p.graph = parse_graph(fmt::format(R"(graph "my step" {{
  %0 = input f32[{0},5] arg "x"
  %1 = input f32[] scalar
  %2 = f32[{0},5] exp %0
  %3 = f32[{0}] sum %2 {{dims=(1)}}
  output %3 "y"
}})",
                                    size));
  p.graph.nodes[0].origin.scope = p.graph.intern_scope("blocks.0/soft max");
  p.lines = {"net.cpp:42", ""};
  p.layouts = {{{Dim(1), Dim(size)}, Dim(7)}};
  p.options.fuse = size % 2 == 0;
  p.options.tf32 = !p.options.fuse;
  return p;
}

std::string slurp(const std::string& path) {
  std::stringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}
void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string error_of(const std::string& text) {
  try {
    parse_job(text, "x.kiln");
  } catch (const Error& e) {
    return fmt::format("{}: {}", to_string(e.kind()), e.what());
  }
  return "";
}

class JobTest : public ::testing::Test {
 protected:
  JobTest() {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~JobTest() override { fs::remove_all(root_); }
  /// Records with a fresh recorder and returns what it said.
  std::string record(const std::string& path, const std::vector<JobProgram>& programs) {
    ::testing::internal::CaptureStderr();
    JobRecorder recorder(path);
    for (const JobProgram& p : programs) recorder.record(p);
    return ::testing::internal::GetCapturedStderr();
  }
  std::string root_ = ::testing::TempDir() + "kiln-job-test-" + std::to_string(getpid());
  std::string path_ = root_ + "/job.kiln";
};

TEST_F(JobTest, RoundTrip) {
  const Job job{{program(4), program(5, "other\nname")}};
  const std::string text = print_job(job);
  const Job read = parse_job(text, "x");
  ASSERT_EQ(read.programs.size(), 2);
  EXPECT_EQ(print_job(read), print_job(Job{{program(4), program(5, "other name")}}));
  const JobProgram& p = read.programs[0];
  EXPECT_EQ(p.name, "step");
  EXPECT_EQ(p.threads, (std::set{2, 16}));
  EXPECT_EQ(p.ends, "host read net.cpp:44");
  EXPECT_TRUE(p.options.fuse);
  EXPECT_FALSE(read.programs[1].options.fuse);
  EXPECT_FALSE(p.options.tf32);
  EXPECT_TRUE(read.programs[1].options.tf32);
  EXPECT_EQ(p.layouts, program(4).layouts);
  EXPECT_EQ(print(p.graph), print(program(4).graph));
  EXPECT_EQ(p.lines, program(4).lines);
  EXPECT_EQ(p.graph.scopes, program(4).graph.scopes);
  EXPECT_EQ(p.graph.nodes[0].origin.scope, 0);
  EXPECT_EQ(p.graph.nodes[1].origin.scope, -1);
  EXPECT_EQ(program_key(p.graph, p.layouts, host_target(), p.options),
            program_key(program(4).graph, program(4).layouts, host_target(), program(4).options));
}

TEST_F(JobTest, EveryCutAndEveryFlippedByteIsAnErrorThatNamesTheFile) {
  const std::string good = print_job(Job{{program(4)}});
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 0x10;
    EXPECT_THAT(error_of(bad), HasSubstr("x.kiln: ")) << "flipped byte " << i;
    EXPECT_THAT(error_of(good.substr(0, i)), HasSubstr("x.kiln: ")) << "cut at " << i;
  }
  EXPECT_EQ(error_of(good), "");
}

TEST_F(JobTest, Errors) {
  const std::string good = print_job(Job{{program(4)}});
  const size_t head = good.find('\n') + 1;
  EXPECT_EQ(error_of("MThd"), "io: x.kiln: not a job file; expected one recorded with KILN_RECORD");
  EXPECT_EQ(error_of(good.substr(0, head + 10)),
            fmt::format("io: x.kiln: the job is cut short; got 10 of {} bytes (record it again)",
                        good.size() - head));
  EXPECT_EQ(error_of(good + " "), "io: x.kiln: the job is damaged: its checksum differs (record it again)");
  EXPECT_EQ(
      error_of("kiln job 1 x 5\nabcde"),
      fmt::format("invalid: x.kiln: a job of format 1; this is Kiln {}, which reads format 2 (record it "
                  "again with this Kiln)",
                  kiln_identity()));
  const std::string old = "recorder 0.0.9 (sources 0123456789ab)\n";
  EXPECT_EQ(
      error_of(fmt::format("kiln job 2 {} {}\n{}", hash128(old).hex(), old.size(), old)),
      fmt::format("invalid: x.kiln: recorded by Kiln 0.0.9 (sources 0123456789ab); this is Kiln {}, whose "
                  "keys differ (record it again with a program built with this Kiln, or use the kiln "
                  "program of that one)",
                  kiln_identity()));
  EXPECT_THROW(read_job(root_ + "/missing"), Error);
  EXPECT_THROW(read_job(root_), Error);
  ASSERT_EQ(mkfifo((root_ + "/pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_job(root_ + "/pipe"), Error) << "and does not hang";
  spill(path_, "");
  try {
    read_job(path_);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), path_ + ": the file is empty; expected a job recorded with KILN_RECORD");
  }
}

TEST_F(JobTest, RecordsEachOnceAcrossRecorders) {
  EXPECT_EQ(record(path_, {program(4), program(4), program(6)}), "");
  EXPECT_EQ(record(path_, {program(6, "same program of another rank"), program(8)}), "");
  const Job job = read_job(path_);
  EXPECT_EQ(slurp(path_), print_job(Job{{program(4), program(6), program(8)}}));
  EXPECT_EQ(job.programs.size(), 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1) << "no lock stays";
}

TEST_F(JobTest, EachNumberOfThreadsIsKeptOnce) {
  const auto on = [](int size, std::set<int> threads) {
    JobProgram p = program(size);
    p.threads = std::move(threads);
    return p;
  };
  EXPECT_EQ(record(path_, {on(4, {2}), on(6, {2}), on(4, {1}), on(4, {2})}), "");
  EXPECT_EQ(record(path_, {on(6, {3}), on(6, {2}), on(8, {1})}), "");
  EXPECT_EQ(slurp(path_), print_job(Job{{on(4, {1, 2}), on(6, {2, 3}), on(8, {1})}}));
  for (const std::string bad : {"0 2", "x", "-1", ""}) {
    std::string body = print_job(Job{{on(4, {2})}});
    body = body.substr(body.find('\n') + 1);
    body.replace(body.find("threads 2") + 8, 1, bad);
    EXPECT_THAT(error_of(fmt::format("kiln job 2 {} {}\n{}", hash128(body).hex(), body.size(), body)),
                StartsWith("io: x.kiln: not a job that Kiln wrote; expected "))
        << bad;
  }
}

TEST_F(JobTest, TheFileStaysWhereTheRunBegan) {
  const fs::path here = fs::current_path();
  fs::current_path(root_);
  JobRecorder recorder("job.kiln");
  fs::current_path(here);
  recorder.record(program(4));
  EXPECT_EQ(read_job(path_).programs.size(), 1);
}

TEST_F(JobTest, EightProcessesRecordAtOnce) {
  std::vector<pid_t> children;
  for (int p = 0; p < 8; ++p) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    JobRecorder recorder(path_);
    for (int i = 0; i < 6; ++i) recorder.record(program(10 + i));  // all of them
    recorder.record(program(100 + p));                             // and its own
    _exit(0);
  }
  for (pid_t child : children) waitpid(child, nullptr, 0);
  std::vector<std::string> sizes;
  for (const JobProgram& p : read_job(path_).programs)
    sizes.push_back(p.graph.type(p.graph.inputs[0].value).str());
  EXPECT_EQ(sizes.size(), 14);
  EXPECT_EQ(std::set<std::string>(sizes.begin(), sizes.end()).size(), 14);
}

TEST_F(JobTest, WhatCannotBeRecordedIsSaidOnceAndNothingIsLost) {
  EXPECT_EQ(
      record(root_ + "/missing/job.kiln", {program(4), program(6)}),
      fmt::format("kiln warning: KILN_RECORD: {}/missing/job.kiln.lock: No such file or directory; going on "
                  "without\n",
                  root_));
  spill(path_, "my notes");
  EXPECT_EQ(
      record(path_, {program(4), program(6)}),
      fmt::format("kiln warning: KILN_RECORD: {}: not a job file; expected one recorded with KILN_RECORD; "
                  "going on without\n",
                  path_));
  EXPECT_EQ(slurp(path_), "my notes");
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_THAT(record(path_, {program(4)}), HasSubstr("not a file; going on without\n"));
  EXPECT_EQ(record("", {program(4)}), "") << "not recording";
}

}  // namespace KILN_FILE
}  // namespace kiln
