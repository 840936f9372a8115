// SPDX-License-Identifier: Apache-2.0
// kiln::compile: turns a callable into one that runs as compiled stages. The callable still runs at every
// call, so whatever it branches on is seen; what it does to tensors is followed against recorded traces.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "frontend/frozen.h"
#include "frontend/graphed.h"
#include "frontend/tensor.h"
#include "ir/split_buckets.h"

namespace kiln {

/// Who runs the stages.
enum class Backend : uint8_t {
  native,     ///< compiled for this machine
  reference,  ///< the interpreter: the same traces, no code generation
};

/// Whether kernels are measured before they are chosen. What was found is kept on disk and used at once by
/// later runs that tune.
enum class Tune : uint8_t {
  by_switch,  ///< as KILN_TUNE says
  off,        ///< a cost model chooses
  /// A few candidates of each kernel are measured, all with the bits that the cost model's choice has.
  fast,
  /// Many are, in processes of their own, and also such as sum in another order.
  max,
};

/// How much is done to keep the host out of the way.
enum class Mode : uint8_t {
  standard,
  /// On a GPU the launches of a program are recorded as a CUDA graph at its second call, and replayed from
  /// then on. Memory of the programs is kept between calls. Source: torch.compile's mode of that name.
  reduce_overhead,
};

struct CompileOptions {
  std::string name = "step";
  Backend backend = Backend::native;
  Mode mode = Mode::standard;
  bool full_graph = false;      ///< a host read inside the callable is an error
  bool check_numerics = false;  ///< name the first op that makes a NaN or Inf
  int max_builds = 16;          ///< more distinct traces than this are an error
  bool profile = false;         ///< time every kernel (adds barriers); the table is in CallableStats::profile
  /// After the first call the callable is not run again: its trace is replayed with the tensors of each
  /// call's arguments and the numbers of the first call. For callables without host state: no random numbers,
  /// host reads, hooks or optimizers that count steps; all but the tensors' elements must stay as it was.
  bool frozen = false;
  /// Threads that a step may use, where its work is worth them; 0: KILN_NUM_THREADS, else all the process may
  /// run on.
  int threads = 0;
  /// The forward (ops before the first backward of a call) is cut at gradient buckets by PyTorch's
  /// DDPOptimizer rule. Its partitions are compiled and cached each by itself and run one after the other,
  /// and a backward outside the callable gives the gradients of a bucket before it computes those of the
  /// next, so that their reduction overlaps it. Parameters are leaves that require grad and that a module has
  /// named. If the cuts do not fit those of a DistributedDataParallel, steps are slower, never wrong. A
  /// callable that runs inside another compiled one is part of that.
  std::optional<SplitOptions> split;
  /// Bytes that results of the forward may take at once while they wait for the backward, inside the callable
  /// or outside; 0: no bound. Where they would take more, runs of ops are computed once more by the backward,
  /// as in a checkpoint: those that free the most bytes for their FLOPs. The bound is for each backward that
  /// a call makes ready; what the user has wrapped in a checkpoint stays as it is. Where even the best choice
  /// takes more, that is taken, with a warning. Build::activation_bytes has what was reached.
  int64_t activation_memory = 0;
  Tune tune = Tune::by_switch;
  double tune_budget_s = 0;  ///< seconds that a build may measure for; 0: as KILN_TUNE_BUDGET_S says
  int64_t tune_memory = 0;   ///< bytes that trying a kernel may take; 0: as KILN_TUNE_MEMORY_MB says
  /// A tuning file (`kiln tuning export`): schedules come from it alone, and nothing is measured. On the same
  /// CPU type it gives the same plans, and the same bits. Empty: as KILN_TUNING says.
  std::string tuning;
};

/// One build: a trace that was recorded, and compiled or found in the cache.
struct Build {
  /// "first call", "model.cpp:42: `relu` where `gelu` (model.cpp:40) was traced", or "model.cpp:42: `relu`,
  /// operand 1: f32[5,4] where f32[4,4] (model.cpp:42) was traced". Logged at level info.
  std::string reason;
  double seconds = 0;
  int nodes = 0;            ///< ops after simplification
  int kernels = 0;          ///< distinct kernels
  int compiled = 0;         ///< of those, compiled now; on a GPU the CUDA sources, of several kernels each
  bool from_cache = false;  ///< the whole plan came from the disk cache
  int64_t arena_bytes = 0;
  int64_t saved_bytes = 0;  ///< kept by each call for a backward outside it, beyond what the call returns
  int64_t activation_bytes = 0;  ///< with CompileOptions::activation_memory: of the largest backward
  std::vector<std::pair<double, double>> work;  ///< bytes to move and FLOPs of each launch of a call
  /// With CompileOptions::split: the buckets of each stretch of forward ops between host reads, ...
  std::vector<BucketTable> buckets;
  std::vector<std::string> breaks;  ///< ... and why each partition of those that were cut is one
  int tuned = 0;                    ///< kernels measured by this build
  int tune_found = 0;               ///< kernels whose schedule was known from an earlier run
  int tune_received = 0;            ///< kernels that another rank measured
  double tune_seconds = 0;          ///< spent on choosing
};

/// Seconds that a call of this build cannot go below here: each launch at the slower of what memory and
/// arithmetic allow. 0 threads: all. Blocks: measures the machine on the first call (about 0.4 s).
double limit_seconds(const Build& build, int threads = 0);

struct CallableStats {
  uint64_t calls = 0;
  std::vector<GraphedProgram> graphs;  ///< with Mode::reduce_overhead
  std::vector<Build> builds;
  std::string
      profile;  ///< with CompileOptions::profile: one line per kernel, with user lines and % of the limit
};

namespace detail {
struct Trie;
std::shared_ptr<Trie> make_trie(const CompileOptions& options, Loc loc);
CallableStats trie_stats(Trie& trie);

/// One call: installs a cursor, and drops what is pending if finish() was not reached.
class CompiledCall {
 public:
  explicit CompiledCall(Trie* trie);
  ~CompiledCall();
  CompiledCall(const CompiledCall&) = delete;
  CompiledCall& operator=(const CompiledCall&) = delete;
  void finish();
  /// The callable threw this.
  void threw(const std::exception& e);
  /// After finish(): later calls replay this one.
  void freeze(const FrozenArgs& args, const FrozenResult& result);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Runs the callable that `call` is one of.
template <typename F>
auto run_in(CompiledCall& call, F&& callable) {
  try {
    return callable();
  } catch (const std::exception& e) {
    call.threw(e);
    throw;
  }
}
}  // namespace detail

/// A compiled callable. Threads: may be called from several at once; each call walks the traces on its own.
template <typename F>
class Compiled {
 public:
  Compiled(F fn, const CompileOptions& options, Loc loc)
      : fn_(std::move(fn)), trie_(detail::make_trie(options, loc)) {}

  template <typename... Args>
  auto operator()(Args&&... args) const {
    using Result = std::decay_t<std::invoke_result_t<F&, Args...>>;
    if (detail::wants_frozen(trie_.get())) return call_frozen<Result>(std::forward<Args>(args)...);
    detail::CompiledCall call(trie_.get());
    if constexpr (std::is_void_v<Result>) {
      detail::run_in(call, [&] { fn_(std::forward<Args>(args)...); });
      call.finish();
    } else {
      Result result = detail::run_in(call, [&]() -> Result { return fn_(std::forward<Args>(args)...); });
      call.finish();
      return result;
    }
  }

  /// Calls and builds so far, with the reason of each build.
  CallableStats stats() const { return trie_ ? detail::trie_stats(*trie_) : CallableStats{}; }

 private:
  template <typename Result, typename... Args>
  Result call_frozen(Args&&... args) const {
    detail::FrozenArgs given;
    (detail::visit_fields(given, std::as_const(args)), ...);
    if (detail::is_frozen(*trie_)) {
      if constexpr (std::is_void_v<Result>) return static_cast<void>(detail::run_frozen(*trie_, given));
      else return rebuild<Result>(detail::run_frozen(*trie_, given));
    }
    detail::CompiledCall call(trie_.get());
    if constexpr (std::is_void_v<Result>) {
      detail::run_in(call, [&] { fn_(std::forward<Args>(args)...); });
      call.finish();
      call.freeze(given, {});
    } else {
      Result result = detail::run_in(call, [&]() -> Result { return fn_(std::forward<Args>(args)...); });
      detail::FrozenResult parts;
      detail::visit_fields(parts, std::as_const(result));
      call.finish();
      remember(result);
      call.freeze(given, parts);
      return result;
    }
  }

  template <typename Result>
  void remember(const Result& result) const {
    if constexpr (std::is_copy_constructible_v<Result>) {
      Result shape = result;
      for_each_tensor(shape, [](Tensor& t) { t = Tensor(); });
      detail::set_frozen_shape(*trie_, std::move(shape));
    } else {
      detail::frozen_type_mismatch(*trie_);
    }
  }

  template <typename Result>
  Result rebuild(std::vector<Tensor> tensors) const {
    if constexpr (std::is_copy_constructible_v<Result>) {
      std::any shape = detail::frozen_shape(*trie_);
      Result* result = std::any_cast<Result>(&shape);
      if (!result) detail::frozen_type_mismatch(*trie_);
      size_t next = 0;
      for_each_tensor(*result, [&](Tensor& t) { t = std::move(tensors[next++]); });
      return std::move(*result);
    } else {
      detail::frozen_type_mismatch(*trie_);
    }
  }

  mutable F fn_;  ///< callables may have state of their own
  std::shared_ptr<detail::Trie> trie_;
};

namespace detail {
/// A callable that lives elsewhere. Modules report the line that compiled them: a call through Compiled has
/// no other.
template <typename F>
struct ByReference {
  F* fn;
  Loc loc;
  template <typename... Args>
  auto operator()(Args&&... args) const {
    if constexpr (std::is_invocable_v<F&, Args..., Loc>) return (*fn)(std::forward<Args>(args)..., loc);
    else return (*fn)(std::forward<Args>(args)...);
  }
};
}  // namespace detail

/// Compiles `fn`. Nothing happens before the first call. A callable that cannot be copied, such as a module,
/// is held by reference and must outlive the result: `kiln::compile(net)`.
template <typename F>
auto compile(F&& fn, const CompileOptions& options = {}, Loc loc = Loc::current()) {
  if constexpr (std::is_lvalue_reference_v<F> && !std::is_copy_constructible_v<std::decay_t<F>>)
    return Compiled<detail::ByReference<std::remove_reference_t<F>>>({&fn, loc}, options, loc);
  else return Compiled<std::decay_t<F>>(std::forward<F>(fn), options, loc);
}

}  // namespace kiln
