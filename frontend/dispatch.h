// SPDX-License-Identifier: Apache-2.0
// How every op enters: call() is one event for the user's op, apply() one primitive inside it. Eagerly a call
// runs its body at once; inside a compiled callable it follows the recorded event without running the body,
// or records the primitives that the body applies. Bodies must be pure functions of their operands' metadata.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "frontend/impl.h"
#include "frontend/tensor.h"
#include "ir/plan.h"

namespace kiln::detail {

/// Operands by address; null or undefined ones stand for absent optional operands.
using Operands = std::span<const Tensor* const>;

/// Everything that one event compares.
struct CallInfo {
  const char* name;  ///< static storage: compared by address
  SourceLoc loc;
  Operands operands;
  std::span<const int64_t> ints;    ///< structural attributes: axes, modes, sizes, dtypes
  std::span<const Scalar> scalars;  ///< run-time values: never compared
};

/// Follows or opens the event. True: `out` holds the results and the body must not run.
bool begin_call(const CallInfo& info, std::vector<Tensor>& out);
/// Single-result form of the same.
bool follow_single(const CallInfo& info, Tensor& out);
/// Closes the event opened by begin_call (recording), naming its results; no-op eagerly. Exceptions: pass an
/// empty span with `failed`.
void end_call(std::span<const Tensor> results, bool failed);
/// 0-d tensors of the event's scalars (f64 or i64): graph inputs while recording, constants eagerly.
std::vector<Tensor> call_scalars(std::span<const Scalar> scalars);

/// True while a cursor is installed on this thread (following or recording).
bool tracing();

/// One primitive: evaluated now (with a tape entry if needed), or appended to the graph being recorded.
Tensor apply(Op o, std::initializer_list<const Tensor*> in, Attrs attrs = {});
Tensor apply(Op o, std::span<const Tensor* const> in, Attrs attrs = {});
/// In-place result: `target` now holds `value` (same type). Marks memory and views accordingly.
void assign(const Tensor& target, const Tensor& value);

/// `worst` is a 0-d i64 tensor. Throws: invalid, "<before><worst><after>" unless it is kNothingWrong: now,
/// or, inside a compiled callable, from its next run point, before that has written to any tensor.
void check_value(const Tensor& worst, std::string before, std::string after);

/// An optimizer is about to count a step: inside a compiled callable the counts are restored when the step is
/// dropped.
void note_step(const std::shared_ptr<std::vector<int64_t>>& counts);

/// The line to pass to ops that Kiln's own modules call: the innermost line pushed (by the module's call).
Loc caller_loc();

/// Pushes an op on the location stack. Inside another op the outer one's line stays: it is the user's.
class Scope {
 public:
  Scope(const char* name, SourceLoc loc, bool module = false);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

template <typename Body>
std::vector<Tensor> call_many(const char* name, Loc loc, Operands operands, std::span<const int64_t> ints,
                              std::span<const Scalar> scalars, Body&& body) {
  const CallInfo info{name, loc, operands, ints, scalars};
  std::vector<Tensor> out;
  if (begin_call(info, out)) return out;
  Scope scope(name, loc);
  try {
    out = body(call_scalars(scalars));
  } catch (...) {
    end_call({}, true);
    throw;
  }
  end_call(out, false);
  return out;
}

/// The form for ops with one result; following allocates nothing. `body(scalars)` receives the 0-d scalar
/// tensors in order.
template <typename Body>
Tensor call(const CallInfo& info, Body&& body) {
  Tensor out;
  if (follow_single(info, out)) return out;
  Scope scope(info.name, info.loc);
  try {
    out = body(call_scalars(info.scalars));
  } catch (...) {
    end_call({}, true);
    throw;
  }
  end_call({&out, 1}, false);
  return out;
}
template <typename Body>
Tensor call(const char* name, Loc loc, std::initializer_list<const Tensor*> operands,
            std::initializer_list<int64_t> ints, std::initializer_list<Scalar> scalars, Body&& body) {
  return call({name,
               loc,
               {operands.begin(), operands.size()},
               {ints.begin(), ints.size()},
               {scalars.begin(), scalars.size()}},
              std::forward<Body>(body));
}

}  // namespace kiln::detail
