// SPDX-License-Identifier: Apache-2.0
// nvrtc_kernels each|shared ARCHITECTURES JOB...: compiles by NVRTC every CUDA kernel of the jobs' programs.
// shared: of each program for one of the architectures. each: for all of them, also with tf32, and those of
// KILN_FUZZ_GRAPHS random graphs from seed KILN_FUZZ_SEED, each for one of them. A text is compiled once.
// Prints for each architecture how many there are and which spill registers. Status 1: NVRTC refused some,
// which are named with its log; 77: there is no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>

#include "codegen/compile_nvrtc.h"
#include "codegen/job.h"
#include "codegen/team.h"
#include "ir/base/options.h"
#include "ir/base/text.h"
#include "runtime/cuda/builtins.h"
#include "runtime/thread_pool.h"
#include "tests/codegen/fuzz_case.h"

namespace kiln {
namespace {

constexpr int kSkipped = 77;  // what ctest takes for skipped

/// As many lines as say what is wrong; the source is kept, and named in the first.
std::string first_lines(const std::string& error) {
  size_t end = 0;
  for (int lines = 0; lines < 4 && end != std::string::npos; ++lines) end = error.find('\n', end + 1);
  return error.substr(0, end);
}

/// The kernels for one architecture.
class Kernels {
 public:
  explicit Kernels(const std::string& arch) : arch_(arch), target_(parse_cuda_target(arch)) {
    const CudaModule m = cuda_builtins();
    add({m.name, m.source, {}, m.kernels});
  }

  /// `tf32`: also as set_float32_matmul_precision("high") has them.
  void add_program(const JobProgram& p, bool tf32) {
    LowerOptions options = p.options;
    add(p.graph, p.layouts, options);
    options.tf32 = true;
    if (tf32) add(p.graph, p.layouts, options);
    ++programs_;
  }

  /// As the fuzzer of whole programs has them: as drawn and optimised, some with one kernel for each node.
  void add_random(uint64_t seed, bool fuse) {
    const Graph drawn = testing::random_graph(seed, testing::fuzz_options(seed));
    for (const Graph& g : {drawn, optimize(drawn)})
      add(g, testing::layouts_for(g, seed, target_), {.fuse = fuse});
    programs_ += 2;
  }

  /// Compiles all, and prints what became of them. Whether NVRTC took them.
  bool compile() {
    const auto start = std::chrono::steady_clock::now();
    in_team((sources_.size() + kTogether - 1) / kTogether, default_threads(), [&](size_t i) {
      const auto from = sources_.begin() + static_cast<std::ptrdiff_t>(i * kTogether);
      compile({from, std::min(from + kTogether, sources_.end())});
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print("{}: {} kernels of {} programs in {:.1f} s: {} refused, {} with spills\n", arch_, compiled_,
               programs_, seconds.count(), refused_.size(), spilled_.size());
    for (const std::string& line : spilled_) fmt::print("  {}\n", line);
    for (const std::string& line : refused_) fmt::print("{}\n", line);
    return refused_.empty();
  }

 private:
  static constexpr std::ptrdiff_t kTogether = 16;  // most of a small compile is reading the prelude

  void add(KernelSource k) {
    if (texts_.insert(k.text).second) sources_.push_back(std::move(k));
  }
  void add(const Graph& g, const std::vector<ExternalLayout>& layouts, const LowerOptions& options) {
    for (KernelSource& k : lower(g, layouts, target_, options).kernels) add(std::move(k));
  }

  void compile(std::span<const KernelSource> sources) {
    CudaModule m{.name = sources[0].name};
    for (const KernelSource& k : sources) {
      m.source += k.text;
      m.kernels.insert(m.kernels.end(), k.cuda.begin(), k.cuda.end());
    }
    std::string error;
    try {
      compile_cuda({&m, 1}, arch_, nullptr, 1);
    } catch (const Error& e) {
      error = e.what();
    }
    if (!error.empty() && sources.size() > 1) {  // which of them?
      for (size_t i = 0; i < sources.size(); ++i) compile(sources.subspan(i, 1));
      return;
    }
    const std::lock_guard lock(mutex_);
    if (!error.empty()) refused_.insert(first_lines(error));
    compiled_ += error.empty() ? m.kernels.size() : 0;
    for (const CudaKernel& k : m.kernels)
      if (k.spill_bytes > 0) spilled_.insert(fmt::format("{} spills {} bytes", k.symbol, k.spill_bytes));
  }

  const std::string arch_;
  const Target target_;
  std::set<std::string> texts_;
  std::vector<KernelSource> sources_;
  size_t programs_ = 0;
  std::mutex mutex_;  // of what follows
  size_t compiled_ = 0;
  std::set<std::string> spilled_, refused_;
};

constexpr uint64_t kBatch = 25;  // of the fuzzer of whole programs, which does not fuse every fourth

/// What the fuzzer draws, every `step`-th graph from the one numbered `first` on.
void add_random(Kernels& kernels, uint64_t first, uint64_t step) {
  const auto seed = static_cast<uint64_t>(option_int("KILN_FUZZ_SEED"));
  const auto graphs = static_cast<uint64_t>(option_int("KILN_FUZZ_GRAPHS"));
  for (uint64_t i = first; i < graphs; i += step) kernels.add_random(seed + i, i / kBatch % 4 != 0);
}

int run(const std::vector<std::string>& args) {
  KILN_CHECK(args.size() >= 3 && (args[0] == "each" || args[0] == "shared"), invalid,
             "nvrtc_kernels: expected each|shared ARCHITECTURES JOB...");
  std::string why;
  if (!nvrtc_available(&why)) {
    fmt::print("skipped: {}\n", why);
    return kSkipped;
  }
  std::vector<JobProgram> programs;
  for (size_t i = 2; i < args.size(); ++i)
    for (JobProgram& p : read_job(args[i]).programs) programs.push_back(std::move(p));
  // Ranks record theirs in any order; which architecture a program is for must not change with it.
  std::stable_sort(programs.begin(), programs.end(), [](const JobProgram& a, const JobProgram& b) {
    return print(a.graph, {.origins = false}) < print(b.graph, {.origins = false});
  });
  const bool each = args[0] == "each";
  const std::vector<std::string> archs = split(args[1], ',');
  bool good = true;
  for (size_t i = 0; i < archs.size(); ++i) {
    Kernels kernels(archs[i]);
    for (size_t p = each ? 0 : i; p < programs.size(); p += each ? 1 : archs.size())
      kernels.add_program(programs[p], each);
    if (each) add_random(kernels, i, archs.size());
    good = kernels.compile() && good;
    std::fflush(stdout);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  try {
    return kiln::run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    fmt::print("error: {}\n", e.what());
    return 2;
  }
}
