// SPDX-License-Identifier: Apache-2.0
// What stands behind a Tensor handle: memory, layout, autograd state and the binding to a trace.
// Users never include this; frontend sources do.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/device.h"
#include "ir/interpret.h"

namespace kiln {

class Tensor;

namespace detail {

struct TensorImpl;
using ImplPtr = std::shared_ptr<TensorImpl>;
class Cursor;

/// A block of memory that tensors view. `version` counts in-place writes.
struct Storage {
  std::shared_ptr<void> owner;
  char* data = nullptr;  ///< an address of `device`: the host may read it only if that is the CPU
  size_t bytes = 0;
  Device device = {};
  std::atomic<uint32_t> version{0};
  /// Keeps the simulated GPU looking for writes to a result that somebody has (device.h); before `owner`
  /// goes.
  std::shared_ptr<void> held;
};

using TensorHook = std::function<Tensor(const Tensor&)>;
struct HookEntry {
  uint64_t id;
  TensorHook fn;
};

/// The view ops that lead from a base to a view of it. A view of a view shares the steps of that one.
class ViewChain {
 public:
  using Steps = std::vector<std::pair<Op, Attrs>>;
  void add(Op o, Attrs attrs);
  /// The same, where a step and the one before it may become one (a reshape of a reshape).
  void add_merged(Op o, const Attrs& attrs);
  size_t size() const { return last_ ? last_->size : 0; }
  /// In order, without the first `from`.
  Steps steps(size_t from = 0) const;

 private:
  struct Link {
    Link(std::shared_ptr<Link> b, Op o, Attrs a)
        : before(std::move(b)), op(o), attrs(std::move(a)), size(before ? before->size + 1 : 1) {}
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    ~Link();
    std::shared_ptr<Link> before;
    Op op;
    Attrs attrs;
    size_t size;
  };
  std::shared_ptr<Link> last_;
};

using HookList = std::vector<HookEntry>;

class CheckpointRegion;
struct GradNode;
struct GradBoundary;

/// Where an operand of a taped op came from: its producer on the tape, or a leaf that wants a gradient.
struct GradEdge {
  std::shared_ptr<GradNode> node;  ///< null for leaves and for values without history
  ImplPtr leaf;                    ///< set for leaves that require grad
  ImplPtr saved;                   ///< the operand's data, without history
  uint32_t version = 0;            ///< of `saved`'s storage when it was recorded
};

/// Told of the gradients of the leaves that it watches by every backward from which these need one.
struct GradObserver {
  virtual ~GradObserver() = default;
  /// `leaf`'s gradient is complete. Eagerly the backward still runs, and `gradient` is what its end will add
  /// to `leaf.grad`; inside a compiled callable `leaf.grad` belongs to the trace, and `gradient` does not.
  virtual void ready(const ImplPtr& leaf, const Tensor& gradient, SourceLoc loc) = 0;
  /// What will make the gradients is compiled from now on, or has been.
  virtual void compiles(bool begins, SourceLoc loc) = 0;
  /// The backward is over: every leaf has its gradient.
  virtual void end(SourceLoc loc) = 0;
  /// An exception has ended the backward.
  virtual void failed(const std::string& why, SourceLoc loc) = 0;
};

/// The observers of one backward.
class GradWatch {
 public:
  explicit GradWatch(SourceLoc loc) : loc_(loc) {}
  /// The backward may find a gradient of `leaf`.
  void expect(const TensorImpl& leaf);
  void ready(const ImplPtr& leaf, const Tensor& gradient);
  void compiles(bool begins);
  /// Each observer once, in the order in which their first leaves were ready: the same on all ranks.
  void end();
  void failed(const std::string& why);

 private:
  const SourceLoc loc_;
  std::vector<std::shared_ptr<GradObserver>> told_, expected_;
};

/// One recorded op of the eager tape; `sequence` orders a backward walk.
struct GradNode {
  GradNode() = default;
  GradNode(const GradNode&) = delete;
  GradNode& operator=(const GradNode&) = delete;
  ~GradNode();
  uint64_t sequence = 0;
  Op op;
  Attrs attrs;
  SourceLoc loc;
  std::vector<GradEdge> inputs;
  ImplPtr saved_output;  ///< the result's data, without history
  uint32_t output_version = 0;
  std::shared_ptr<HookList> hooks;  ///< of the tensor this node produced
  bool released = false;            ///< a backward without retain_graph has consumed it
  /// For a result of a compiled forward, which is differentiated with its siblings; `op` is unused then.
  std::shared_ptr<GradBoundary> boundary;
  int boundary_output = 0;
  std::vector<int> boundary_inputs;  ///< numbers of `inputs` among those of the boundary
  /// Recorded inside a checkpoint: what is saved has no memory, but for leaves, and is made again there.
  std::shared_ptr<CheckpointRegion> region;
  size_t number = 0;  ///< among the nodes of the region
};

struct TensorImpl {
  DType dtype = DType::f32;
  Device device = {};  ///< of the storage, or where a pending value will be
  std::vector<int64_t> shape, strides;
  int64_t offset = 0;                ///< in elements
  std::shared_ptr<Storage> storage;  ///< null while the value is pending in a trace
  bool requires_grad = false;
  bool is_leaf = true;
  ImplPtr grad;
  std::shared_ptr<GradNode> grad_fn;
  std::shared_ptr<HookList> hooks;         ///< null: none
  std::shared_ptr<GradObserver> observer;  ///< leaves: null, or who waits for the gradient
  // Eager views: in-place writes reach the history of all views of a base.
  ImplPtr base;               ///< null unless this is a view that follows another's history
  ViewChain chain;            ///< from the base
  uint32_t rewritten = 0;     ///< bases: writes that changed history; views: the base's count at grad_fn
  bool no_grad_view = false;  ///< a view made under no_grad, or a view of one
  std::string name;           ///< "fc1.weight" once a module has named it

  // SlotBinding to a trace. Only the cursor's thread touches these, and only for handles that the cursor
  // made.
  Cursor* cursor = nullptr;  ///< whose pending value this is; null when materialised
  uint64_t cursor_call = 0;  ///< which call of that cursor's trie made it
  int32_t slot = -1;
  std::shared_ptr<Storage> spare;  ///< a reused handle's former memory, free for its next value
  SourceLoc dropped;               ///< known when the event that made it was dropped by an exception

  bool pending() const { return cursor != nullptr; }
  Type type() const;
  /// For the host to read and write: the memory must be the CPU's (device.h has what works for all).
  TensorRef ref() const;
  /// The same with addresses of the tensor's device, for programs that run there.
  TensorRef device_ref() const;
  /// Where its elements begin.
  void* device_data() const;
};

}  // namespace detail
}  // namespace kiln
