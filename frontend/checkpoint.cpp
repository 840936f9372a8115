// SPDX-License-Identifier: Apache-2.0
#include "frontend/checkpoint.h"

#include "frontend/checkpoint_region.h"
#include "frontend/cursor.h"
#include "frontend/device.h"
#include "ir/graph.h"

namespace kiln::detail {

namespace {

Device device_of_inputs(const std::vector<const Tensor*>& inputs) {
  for (const Tensor* t : inputs)
    if (t->defined()) return t->device();
  return get_default_device();
}

/// The event of a trace where a checkpoint begins or ends.
void mark(bool begins, Operands inputs, Device device, Loc loc) {
  const int64_t ints[] = {begins};
  const CallInfo info{kCheckpointEvent, loc, inputs, ints, {}, device};
  std::vector<Tensor> none;
  if (begin_call(info, none)) return;
  state().cursor->mark_region(begins);
  end_call({}, false);
}

/// The values that hold while a function runs again.
class Restored {
 public:
  Restored(const GeneratorState& generator, std::optional<DType> autocast)
      : generator_(generator_state()), autocast_(state().autocast), grad_enabled_(state().grad_enabled) {
    set_generator_state(generator);
    state().autocast = autocast;
    state().grad_enabled = true;
  }
  ~Restored() {
    set_generator_state(generator_);
    state().autocast = autocast_;
    state().grad_enabled = grad_enabled_;
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  const GeneratorState generator_;
  const std::optional<DType> autocast_;
  const bool grad_enabled_;
};

/// "mul (net.cpp:42)".
std::string node_text(const GradNode& n) { return fmt::format("{} ({})", def(n.op).name, n.loc.str()); }

ImplPtr without_memory(const ImplPtr& t) {
  ImplPtr shell = alias_without_history(*t);
  shell->storage.reset();
  return shell;
}

}  // namespace

RegionSwitch::RegionSwitch(CheckpointRegion* region) : previous_(state().region) { state().region = region; }
RegionSwitch::~RegionSwitch() { state().region = previous_; }

CheckpointRegion::CheckpointRegion(std::function<void()> run, SourceLoc loc)
    : run_(std::move(run)), loc_(loc), generator_(generator_state()), autocast_(state().autocast) {}

void CheckpointRegion::drop_data(GradNode& node) {
  for (GradEdge& e : node.inputs)
    if (!e.leaf) e.saved = without_memory(e.saved);
  node.saved_output = without_memory(node.saved_output);
}

void CheckpointRegion::note(const std::shared_ptr<GradNode>& node) {
  if (repeating_) return again_.push_back(node);
  node->region = shared_from_this();
  node->number = count_++;
  drop_data(*node);
}

void CheckpointRegion::run_again() {
  const Restored restored(generator_, autocast_);
  const RegionSwitch here(this);
  repeating_ = true;
  try {
    run_();
  } catch (...) {
    repeating_ = false;
    forget();
    throw;
  }
  repeating_ = false;
}

const GradNode& CheckpointRegion::again(const GradNode& node) {
  if (again_.empty()) run_again();
  KILN_CHECK(
      again_.size() == count_, invalid,
      "checkpoint ({}): the function did {} differentiable ops when it ran again for the backward, and "
      "{} before (it must do the same whenever it runs)",
      loc_.str(), again_.size(), count_);
  const GradNode& now = *again_[node.number];
  check(node, now);
  return now;
}

void CheckpointRegion::check(const GradNode& was, const GradNode& now) const {
  KILN_CHECK(
      was.op == now.op && was.attrs == now.attrs && was.inputs.size() == now.inputs.size() &&
          was.saved_output->type() == now.saved_output->type(),
      invalid,
      "checkpoint ({}): the function did {} when it ran again for the backward, and {} before (it must "
      "do the same whenever it runs)",
      loc_.str(), node_text(now), node_text(was));
  for (size_t i = 0; i < was.inputs.size(); ++i) {
    const GradEdge &before = was.inputs[i], &after = now.inputs[i];
    KILN_CHECK(
        before.saved->type() == after.saved->type() && before.version == after.version, invalid,
        "checkpoint ({}): a tensor {} needed by the op at {} was changed in place after that op (clone "
        "it first)",
        loc_.str(), before.saved->type().str(), was.loc.str());
  }
}

CheckpointScope::CheckpointScope(const std::vector<const Tensor*>& inputs, Loc loc)
    : loc_(loc), device_(device_of_inputs(inputs)) {
  State& s = state();
  if (!s.grad_enabled) return;
  if (!s.cursor) {
    eager_ = !s.region;
    return;
  }
  if (s.checkpointed == s.cursor) return;
  mark(true, inputs, device_, loc);
  cursor_ = s.checkpointed = s.cursor;
}

void CheckpointScope::keep(std::function<void()> run) {
  region_ = std::make_shared<CheckpointRegion>(std::move(run), loc_);
  state().region = region_.get();
}

void CheckpointScope::end() {
  if (region_) state().region = nullptr;
  region_.reset();
  if (!cursor_) return;
  state().checkpointed = nullptr;
  Cursor* const traced = std::exchange(cursor_, nullptr);
  if (state().cursor == traced) mark(false, {}, device_, loc_);
}

CheckpointScope::~CheckpointScope() {
  if (region_) state().region = nullptr;
  if (cursor_) state().checkpointed = nullptr;
}

}  // namespace kiln::detail
