// SPDX-License-Identifier: Apache-2.0
// The thread-local state of the frontend, and the default generator.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "frontend/impl.h"
#include "frontend/tensor.h"

namespace kiln {
class ProcessGroup;
}

namespace kiln::detail {

struct ScopeEntry {
  const char* name;
  SourceLoc loc;
  bool module;
};

struct State {
  Cursor* cursor = nullptr;  ///< following or recording; null: eager
  Cursor* aside = nullptr;   ///< the same while a backward that is no part of its trace runs
  Cursor* open = nullptr;    ///< of the compiled call that runs, even where ops are eager for a while
  bool grad_enabled = true;
  std::optional<DType> autocast;  ///< dtype of the innermost Autocast; none: off
  std::vector<ScopeEntry> scopes;
  std::optional<Device> device;        ///< of the op that runs; none between ops
  CheckpointRegion* region = nullptr;  ///< that eager ops are recorded in; null: none
  Cursor* checkpointed = nullptr;      ///< whose trace is inside a checkpoint; null: none
  uint64_t call = 0;     ///< whose program ran last on this thread: its number among its callable's
  int sim_compiled = 0;  ///< sources that this thread has compiled for the simulated GPU
  std::vector<ProcessGroup*> groups;        ///< that collectives evaluated on this thread name by place
  std::function<void(bool)> announce;       ///< called before the first of them; may be empty
  std::vector<std::function<void()>> undo;  ///< of calls that failed late, until the open one has ended

  /// "blocks.0.ln1/layer_norm": module path and composites.
  std::string scope_path() const;
  /// "blocks.0.ln1": the innermost module that has a name; "": none.
  std::string module_path() const;
  /// "mul_ (net.cpp:42)": the innermost op and its line.
  std::string place() const;
  /// The innermost user line on the stack.
  SourceLoc user_loc() const;
};

/// This thread's state, made on first use.
State& state();

/// Whether GPUs may round the factors of f32 matrix products to tf32.
bool allows_tf32();

/// Takes the next offset of the default generator; returns (seed, offset). Threads: any.
GeneratorState next_random();
/// Undoes `count` draws of which the first gave `first`, unless somebody has drawn or seeded since.
void take_back_random(const GeneratorState& first, uint64_t count);

/// "f32[2,3]", or "f32[2,3] on cuda:0".
std::string type_text(const Type& type, Device device);
/// The same of a tensor; the CPU is named where `other` is elsewhere.
std::string type_beside(const TensorImpl& t, const TensorImpl& other);
/// Human text of an impl for errors: "f32[2,3] 'fc1.weight'", "f32[2,3] on cuda:0".
std::string describe(const TensorImpl& t);
/// Throws: invalid, when `t` is undefined; `what` names the op and operand.
const TensorImpl& checked(const Tensor& t, const char* what, Loc loc);

/// Elements of a tensor of `sizes`. Throws: invalid, on a negative size or a count beyond 63 bits.
int64_t count_of(const Sizes& sizes, const char* what, Loc loc);
/// Fresh contiguous tensor memory. Throws: device, when memory runs out.
ImplPtr make_impl(DType dtype, Sizes shape, Device device = {});
ImplPtr impl_from_host(HostTensor host, std::span<const ImplPtr> inputs);
/// The elements for the host, without a copy: of tensors of the CPU alone (device.h has fetch() for all).
HostTensor host_of(const TensorImpl& t);
/// Same data, layout and dtype without history.
ImplPtr alias_without_history(const TensorImpl& t);

/// Text of the error about an in-place write to a leaf that requires grad, or to a view of one.
std::string write_to_leaf(const TensorImpl& t, bool view);
/// Text of the error for a differentiated in-place write to a view made under no_grad.
std::string write_to_no_grad_view(const TensorImpl& t);

/// Brings the history of an eager view up to date with the writes to its base.
void refresh_view(TensorImpl& t);

/// The eager side of apply(): evaluates and records on the tape.
Tensor eager_apply(Op o, std::span<const Tensor* const> in, Attrs attrs);
void eager_assign(const Tensor& target, const Tensor& value);
void eager_backward(const Tensor& root, const Tensor& gradient, bool retain_graph, SourceLoc loc,
                    GradWatch& watch);
/// The same from a node of the tape, whose result is as `like`. Inside a compiled callable hooks and the
/// leaves' gradients belong to its trace, all else does not.
void backward_from(const std::shared_ptr<GradNode>& node, const Tensor& like, const Tensor& gradient,
                   bool retain_graph, SourceLoc loc, GradWatch& watch);
/// Where `t` stands on the tape, as an operand.
GradEdge edge_to(const Tensor& t);
/// The next place on the tape of any thread.
uint64_t next_on_tape();

/// Calls hooks in order. Throws: invalid, when one returns a gradient of another type.
Tensor run_hooks(const HookList& hooks, Tensor gradient);

/// Makes pending data real: runs the open trace up to here. No-op for materialised tensors.
/// Throws: invalid, under full_graph, or when the value belongs to another thread or was dropped.
void materialise(TensorImpl& t, const char* what, SourceLoc loc);

}  // namespace kiln::detail
