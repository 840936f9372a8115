// SPDX-License-Identifier: Apache-2.0
// Job files: the programs that a training run compiles, as text, so that they can be compiled for other
// machines, before the run, or looked at. Compiles nothing.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/lower.h"

namespace kiln {

/// All that compile_program needs besides the target.
struct JobProgram {
  std::string name;       ///< CompileOptions::name
  std::set<int> threads;  ///< how many the runs that recorded it gave it: schedules are tuned for a number
  std::string ends;       ///< what its stage ends at: "host read net.cpp:42", or "" for the end of the call
  LowerOptions options;
  std::vector<ExternalLayout> layouts;
  Graph graph;                     ///< as given to compile_program; origins hold module paths alone
  std::vector<std::string> lines;  ///< by node: the user's line, "model.cpp:42", or ""
};

/// JobProgram::lines of a graph that was recorded here.
std::vector<std::string> node_lines(const Graph& g);

/// A job file.
struct Job {
  std::vector<JobProgram> programs;
};

/// The text of a job file. Equal jobs, equal text.
std::string print_job(const Job& job);

/// Inverse of print_job. Throws: io, when the text is no job, cut short or damaged; invalid, when another
/// version of Kiln recorded it. Messages begin with `name`.
Job parse_job(std::string_view text, const std::string& name);

/// parse_job of a file. Throws: io as well when it cannot be read or is empty.
Job read_job(const std::string& path);

/// "0.1.0 (sources 0123456789ab)": what a job must have been recorded by to be of use here.
std::string kiln_identity();

/// Adds programs, and numbers of threads that they run on, to one job file. Several processes may record to
/// one file at once: each adds what is not there yet, under a lock, and replaces the file as a whole, so that
/// a reader or a crash never sees half of it. What cannot be recorded is said once, as a warning: the run
/// that is recorded goes on. Threads: any.
class JobRecorder {
 public:
  /// Records nothing if `path` is empty. A later change of the working folder does not move the file.
  explicit JobRecorder(const std::string& path);
  bool active() const { return !path_.empty(); }
  void record(const JobProgram& program);

 private:
  void add(const JobProgram& program, const std::string& id);
  bool knows(const std::string& id, const std::set<int>& threads) const;

  std::string path_;
  std::mutex mutex_;
  std::map<std::string, std::set<int>> known_;  ///< threads of what is in the file, by what it compiles to
  std::string last_;                            ///< what the file held when this process left it
  bool failed_ = false;
};

}  // namespace kiln
