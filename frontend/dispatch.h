// SPDX-License-Identifier: Apache-2.0
// How every op enters: call() is one event for the user's op, apply() one primitive inside it. Eagerly a call
// runs its body at once; inside a compiled callable it follows the recorded event without running the body,
// or records the primitives that the body applies. Bodies must be pure functions of their operands' metadata.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "frontend/impl.h"
#include "frontend/state.h"
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
  Device device = {};               ///< of the results where there is no operand
};

/// Where the op runs: its operands are all there, but for numbers (0-d tensors of the CPU).
/// Throws: invalid, when they are on several devices.
Device device_of(const CallInfo& info);

/// While alive, primitives of this thread run on the device of an op; inside another op, on that of the outer
/// one.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  explicit DeviceScope(const CallInfo& info) : DeviceScope(device_of(info)) {}
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const std::optional<Device> previous_;
};

/// Follows or opens the event. True: `out` holds the results and the body must not run.
bool begin_call(const CallInfo& info, std::vector<Tensor>& out);
/// Single-result form of the same.
bool follow_single(const CallInfo& info, Tensor& out);
/// Closes the event opened by begin_call (recording), naming its results; no-op eagerly. Exceptions: pass an
/// empty span with `failed`.
void end_call(std::span<const Tensor> results, bool failed);
/// Inside a handler, when the body of an open event threw: closes the event and throws what was caught, with
/// the op and the user's line where it is an overflow of sizes or the host's memory that ran out.
[[noreturn]] void fail_call(const CallInfo& info);
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
/// or, inside a compiled callable, from its next run point, before that has written to any tensor. `least`
/// stands for the least integer, which kNothingWrong cannot.
void check_value(const Tensor& worst, std::string before, std::string after,
                 std::optional<int64_t> least = {});

/// The host is about to count what is pending inside a compiled callable, such as an optimizer's step: `undo`
/// is called if that is dropped.
void note_count(std::function<void()> undo);

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

/// The operands of a call as its op takes them: as they were given, or, under Autocast, in the dtype that the
/// lists (autocast_ops.h) say for the op's name. `info` refers to them while this lives.
class Taken {
 public:
  /// `from_call`: the op's body takes its operands from the call, not from around it.
  /// Throws: invalid, for an op that Autocast refuses.
  Taken(CallInfo& info, bool from_call) {
    if (state().autocast) cast(info, from_call);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

 private:
  void cast(CallInfo& info, bool from_call);
  std::vector<Tensor> cast_;
  std::vector<const Tensor*> operands_;
};

// Bodies are `body(scalars)`, which captures its operands; or, for each op that is on a list of autocast,
// `body(a, b, ..., scalars)` with a parameter for each operand, or `body(operands, scalars)`. What a body
// checks of dtypes is then what it takes, not what was given.
inline constexpr size_t kAllOperands = 32;
template <typename Body, size_t N, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return std::is_invocable_v<Body, decltype((void(I), std::declval<const Tensor&>()))...,
                             const std::vector<Tensor>&>;
}
template <typename Body, size_t N = 0>
constexpr size_t operands_of_body() {
  static_assert(N < kAllOperands, "a call's body takes neither its scalars nor its operands and scalars");
  if constexpr (std::is_invocable_v<Body, Operands, const std::vector<Tensor>&>) return kAllOperands;
  else if constexpr (takes<Body, N>(std::make_index_sequence<N>{})) return N;
  else return operands_of_body<Body, N + 1>();
}

const Tensor& operand(Operands operands, size_t i);

template <typename Body>
decltype(auto) run_body(Body& body, Operands operands, const std::vector<Tensor>& scalars) {
  constexpr size_t n = operands_of_body<Body&>();
  if constexpr (n == kAllOperands) return body(operands, scalars);
  else return [&]<size_t... I>(std::index_sequence<I...>)->decltype(auto) {
      return body(operand(operands, I)..., scalars);
    }
  (std::make_index_sequence<n>{});
}

template <typename Body>
std::vector<Tensor> call_many(const char* name, Loc loc, Operands operands, std::span<const int64_t> ints,
                              std::span<const Scalar> scalars, Body&& body) {
  CallInfo info{name, loc, operands, ints, scalars};
  const Taken taken(info, operands_of_body<Body&>() > 0);
  std::vector<Tensor> out;
  if (begin_call(info, out)) return out;
  Scope scope(name, loc);
  try {
    const DeviceScope device(info);
    out = run_body(body, info.operands, call_scalars(scalars));
  } catch (...) {
    fail_call(info);
  }
  end_call(out, false);
  return out;
}

/// The form for ops with one result; following allocates nothing. Bodies receive the 0-d tensors of the
/// scalars in order.
template <typename Body>
Tensor call(CallInfo info, Body&& body) {
  const Taken taken(info, operands_of_body<Body&>() > 0);
  Tensor out;
  if (follow_single(info, out)) return out;
  Scope scope(info.name, info.loc);
  try {
    const DeviceScope device(info);
    out = run_body(body, info.operands, call_scalars(info.scalars));
  } catch (...) {
    fail_call(info);
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
