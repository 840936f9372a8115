// SPDX-License-Identifier: Apache-2.0
// Run points: where a cursor stops following or recording, runs the stage up to here, and gives memory to the
// handles that somebody still holds. Ends a call, publishing what it recorded, or drops it after an
// exception.
#include <algorithm>
#include <chrono>

#include "frontend/activation_memory.h"
#include "frontend/cursor.h"
#include "frontend/outer.h"
#include "frontend/program_parts.h"
#include "frontend/split.h"
#include "ir/base/log.h"
#include "ir/host_memory.h"

namespace kiln::detail {

const ImplPtr& Cursor::handle_of(const Followed& f) const {
  return f.fresh ? f.fresh : f.event->results[f.result].handle;
}

/// Handles of this call that the callable, a module, a .grad or the user still holds.
std::vector<Slot> Cursor::live_slots() const {
  std::vector<Slot> live;
  for (const Followed& f : handles_)
    if (const ImplPtr& h = handle_of(f); h.use_count() > 1 && h->cursor_call == call_)
      live.push_back(h->slot);
  return live;
}

Event* Cursor::match_run(EventKind kind, const std::vector<Slot>& live, Slot read) const {
  for (Event* e = at_->first_child.load(std::memory_order_acquire); e; e = e->next_sibling)
    if (e->kind == kind && e->live == live && (kind == EventKind::end || e->operands[0] == read)) return e;
  return nullptr;
}

namespace {
/// Slots that carry a history out of the call: live results, and externals that were given one in place.
std::vector<Slot> with_history(const Recorder& r, const std::vector<Slot>& live) {
  std::vector<Slot> slots;
  auto add = [&](Slot s) {
    if (!r.slots[s].leaf && r.wants_grad(r.slots[s].value)) slots.push_back(s);
  };
  for (Slot s : live)
    if (r.slots[s].external < 0) add(s);
  for (size_t i = 0; i < r.externals.size(); ++i)
    if (!(r.slots[r.externals[i]].value == r.external_inputs[i])) add(r.externals[i]);
  return slots;
}

std::vector<Slot> roots_of(const Recorder& r, const std::vector<Slot>& live) {
  std::vector<Slot> roots = with_history(r, live);
  std::erase_if(roots, [&](Slot s) { return r.reaches_consumed(r.slots[s].value); });
  return roots;
}

/// Live views of externals and of other live slots.
std::vector<LiveView> live_views(const Recorder& r, const std::vector<Slot>& live) {
  std::vector<LiveView> views;
  for (Slot s : live) {
    const Slot base = r.history_of(s);
    const bool stays = r.slots[base].external >= 0 || std::find(live.begin(), live.end(), base) != live.end();
    if (base != s && stays) views.push_back({s, base, r.chain_to(s)});
  }
  return views;
}

bool owns_export(const Recorder& r, Slot root, int carried) {
  const auto it = r.export_owner.find(carried);
  return it != r.export_owner.end() && it->second == root;
}
}  // namespace

/// Decides what the stage writes: live memory, changed externals, and what a later backward reads.
std::vector<Value> Cursor::choose_outputs(const Event& e, Stage& stage) {
  Recorder& r = *recorder_;
  std::vector<Value> wanted;
  auto carry = [&](Value v, Slot slot) {
    if (const auto known = r.exported.find(v.id); known != r.exported.end()) return known->second;
    wanted.push_back(v);
    StageOutput o{-1, r.carried_count, slot, r.graph.type(v).dtype, {}};
    for (const Dim& d : r.graph.type(v).shape) o.shape.push_back(d.value());
    stage.outputs.push_back(std::move(o));
    return r.exported[v.id] = r.carried_count++;
  };
  const Origin here = origin();
  std::map<Slot, int> memory;  // root slot -> carried buffer
  for (Slot s : e.live) {
    r.read(s, here);
    const Slot root = r.memory_of(s);
    if (r.slots[root].external >= 0) {
      stage.live.push_back({s, r.slots[root].external, -1});
      continue;
    }
    if (!memory.count(root)) {
      // Handles never share memory unless one is a view of the other: an exported value already given out is
      // copied.
      Value v = r.read(root, here);
      if (r.exported.count(v.id) && !owns_export(r, root, r.exported[v.id]))
        v = r.graph.add_node(op("reshape"), {&v, 1}, {r.graph.type(v).shape}, here);
      memory[root] = carry(v, root);
      r.export_owner[memory[root]] = root;
    }
    stage.live.push_back({s, -1, memory[root]});
  }
  if (e.kind == EventKind::end) stage.views = live_views(r, e.live);
  for (Slot s : with_history(r, e.live))
    if (r.reaches_consumed(r.slots[s].value)) stage.consumed.push_back(s);
  if (const std::vector<Slot> roots = roots_of(r, e.live); !roots.empty()) {
    std::vector<Value> values;
    for (Slot s : roots) values.push_back(r.slots[s].value);
    std::set<int> held;
    for (const auto& [id, carried] : r.exported)
      if (std::any_of(memory.begin(), memory.end(), [&](auto& m) { return m.second == carried; }))
        held.insert(id);
    if (const int64_t budget = trie_.options.activation_memory; budget > 0)
      build_.activation_bytes =
          std::max(build_.activation_bytes, fit_activations(r, {values, budget, stage_device(), true, held}));
    for (Value v : keep_for_backward(r, values, held)) carry(v, kAbsent);
  }
  for (size_t i = 0; i < r.externals.size(); ++i) {
    const SlotInfo& info = r.slots[r.externals[i]];
    if (!info.written || r.in_memory.count(info.value.id)) continue;
    wanted.push_back(info.value);
    stage.outputs.push_back({static_cast<int>(i), -1, kAbsent, info.type.dtype, {}, info.overlaps});
  }
  for (; r.checks_run < r.checks.size(); ++r.checks_run) {
    wanted.push_back(r.checks[r.checks_run].worst);
    stage.outputs.push_back({-1, -1, kAbsent, DType::i64, {}, false, static_cast<int>(stage.checks.size())});
    stage.checks.push_back(r.checks[r.checks_run]);
  }
  return wanted;
}

void Cursor::build(Stage& stage, const std::vector<Value>& wanted) {
  Recorder& r = *recorder_;
  // Held values must be computed, not read, where this stage makes them.
  Recorder before = r;
  for (const StageOutput& o : stage.outputs)
    if (o.carried >= 0) std::erase_if(before.exported, [&](const auto& p) { return p.second == o.carried; });
  Extracted x = extract(before, wanted);
  KILN_CHECK(x.lost.empty(), unsupported,
             "{}: needs the value that {} had before it was changed in place and then read (clone it before)",
             trie_.options.name, x.lost);
  std::vector<Sizes> strides;
  for (size_t i = 0; i < x.inputs.size(); ++i) {
    if (x.inputs[i].from == StageInput::From::external) {
      strides.push_back(externals_[static_cast<size_t>(x.inputs[i].index)]->strides);
      continue;
    }
    Sizes shape;
    for (const Dim& d : x.graph.type(x.graph.inputs[i].value).shape) shape.push_back(d.value());
    strides.push_back(contiguous_strides(shape));
  }
  for (size_t i = 0; i < stage.outputs.size(); ++i) {
    const int external = stage.outputs[i].external;
    if (external < 0 || stage.outputs[i].staged) continue;
    const auto same = [&](const StageInput& in) {
      return in.from == StageInput::From::external && in.index == external;
    };
    auto at = std::find_if(x.inputs.begin(), x.inputs.end(), same);
    if (at == x.inputs.end()) {
      const Slot s = r.externals[static_cast<size_t>(external)];
      x.graph.add_input(r.slots[s].type, InputKind::param, externals_[static_cast<size_t>(external)]->name);
      x.inputs.push_back({StageInput::From::external, external});
      strides.push_back(externals_[static_cast<size_t>(external)]->strides);
      at = x.inputs.end() - 1;
    }
    x.graph.outputs[i].alias_input = static_cast<int>(at - x.inputs.begin());
  }
  for (size_t i = 0; i < stage.outputs.size(); ++i) x.graph.outputs[i].guard = stage.outputs[i].check >= 0;
  stage.inputs = std::move(x.inputs);
  x.graph.name = trie_.options.name;
  const StageOptions shared = options_among_ranks(stage);
  if (stage.split && stage.split->table.buckets.size() > 1)
    stage.program = build_split_program(x, *stage.split, strides, shared, build_);
  else stage.program = build_program(x.graph, strides, shared, build_);
  // From here on views read what the stage leaves in memory: what it was computed from may be overwritten.
  auto left_in_memory = [&](Slot s) {
    SlotInfo info = r.slots[s];
    ++info.version;
    r.change(s, info);
  };
  for (const StageOutput& o : stage.outputs) {
    if (o.external >= 0) {
      const Slot s = r.externals[static_cast<size_t>(o.external)];
      r.store(r.slots[s].value, o.external);
      left_in_memory(s);
    } else if (o.carried >= 0 && o.slot != kAbsent) {
      left_in_memory(o.slot);
    }
  }
}

namespace {
/// Bytes that a later backward keeps beyond what the call returns.
int64_t saved_bytes(const Stage& stage) {
  int64_t bytes = 0;
  for (const StageOutput& o : stage.outputs) {
    if (o.carried < 0 || !stage.backward->carried().count(o.carried)) continue;
    if (std::any_of(stage.live.begin(), stage.live.end(), [&](auto& m) { return m.carried == o.carried; }))
      continue;
    int64_t n = static_cast<int64_t>(dtype_size(o.dtype));
    for (int64_t d : o.shape) n *= d;
    bytes += n;
  }
  return bytes;
}
}  // namespace

Event& Cursor::record_run(EventKind kind, const std::vector<Slot>& live, Slot read, SourceLoc loc) {
  const auto start = std::chrono::steady_clock::now();
  const char* name = kind == EventKind::end ? "end" : kind == EventKind::host_read ? "host read" : "backward";
  Event& e = open_event(kind, name, loc);
  e.live = live;
  e.operands = {read};
  auto stage = std::make_shared<Stage>();
  stage->device = stage_device();
  stage->tf32 = stage_tf32();
  const std::vector<Value> wanted = choose_outputs(e, *stage);
  if (trie_.options.split) {
    stage->split = std::make_shared<StageSplit>(split_stage(e, *recorder_, externals_, *trie_.options.split));
    const BucketTable& table = stage->split->table;
    if (table.buckets.back().end > 0) build_.buckets.push_back(table);
    table.log();
  }
  build_.ends = kind == EventKind::end ? "" : fmt::format("{} {}", name, loc.str());
  // What initialisation has left would stay beside the stage's arena, of which the callable then lives.
  release_host_blocks();
  build(*stage, wanted);
  close_event();
  e.recorder = std::make_shared<Recorder>(*recorder_);
  std::vector<Slot> roots;
  if (kind == EventKind::end) roots = roots_of(*recorder_, live);
  if (kind == EventKind::outer_backward) roots = {read};
  e.stage = stage;
  if (!roots.empty()) {
    StageOptions options = trie_.options;
    options.device = stage->device;
    options.tf32 = stage->tf32;
    for (const ImplPtr& x : externals_) options.external_strides.push_back(x->strides);
    options.bucket_of = buckets_of_path(e);
    stage->backward = std::make_shared<OuterBackward>(e.recorder, roots, options);
    if (kind == EventKind::end) build_.saved_bytes = saved_bytes(*stage);
  }
  build_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return e;
}

namespace {
/// Throws: invalid, what the first check says that does not hold.
void test(const Stage& stage, const std::vector<int64_t>& worst, const std::string& late) {
  for (size_t i = 0; i < worst.size(); ++i) stage.checks[i].require(worst[i], late);
}
}  // namespace

std::function<void(bool late)> Cursor::check_of(const std::shared_ptr<Stage>& stage,
                                                const Answers& worst) const {
  if (!worst) return nullptr;
  return [stage, worst, name = trie_.options.name, number = number_](bool late) {
    test(*stage, *worst, late ? fmt::format(" (reported late, from call {} of {})", number, name) : "");
  };
}

/// What a GPU is told of a stage that it has been given. Afterwards what the host has done since the last run
/// point is taken back there, if it is.
GuardedCall Cursor::guarded_call(const std::shared_ptr<Stage>& stage, const Answers& worst) {
  GuardedCall call;
  call.check = check_of(stage, worst);
  std::vector<std::pair<ImplPtr, const TensorImpl*>> grads;  // that this call has given to leaves
  for (const Event* e = at_; e; e = e->parent) {
    if (e->kind != EventKind::backward_end) continue;
    for (size_t i = 0; i < e->operands.size(); i += 2) {
      const ImplPtr leaf = impl_of(e->operands[i]);
      if (leaf && leaf->grad && owns(*leaf->grad)) grads.emplace_back(leaf, leaf->grad.get());
    }
  }
  if (draws_ > 0 || !counts_.empty() || !flags_.empty() || !grads.empty())
    call.undo = [counts = std::exchange(counts_, {}), first = first_draw_, draws = std::exchange(draws_, 0),
                 flags = std::exchange(flags_, {}), grads = std::move(grads)] {
      for (const auto& [leaf, grad] : grads)
        if (leaf->grad.get() == grad) leaf->grad.reset();
      for (size_t i = flags.size(); i-- > 0;) {
        flags[i].tensor->requires_grad = flags[i].requires_grad;
        flags[i].tensor->is_leaf = flags[i].is_leaf;
      }
      for (size_t i = counts.size(); i-- > 0;) counts[i]();
      if (draws > 0) take_back_random(first, draws);
    };
  return call;
}

/// Where it throws, no tensor has been written, and the numbers that the stage drew are given back.
void Cursor::run_program(const std::shared_ptr<Stage>& to_run, std::span<const DeviceTensor> inputs,
                         std::span<const DeviceTensor> outputs, const Answers& worst) {
  const Stage& stage = *to_run;
  const bool gpu = stage.device.is_cuda();
  bool ran = false;
  try {
    std::vector<std::shared_ptr<Communicator>> groups;
    if (!stage.program->communication.plans.empty()) groups = communicators();
    const GroupScope scope(groups, stage.program->communication);
    state().call = number_;
    stage.program->run(inputs, outputs);
    ran = true;
    if (gpu) complete(stage.device, guarded_call(to_run, worst));
    else if (worst) test(stage, *worst, "");
    for (const auto& c : groups) c->end_call();
  } catch (...) {
    // Draws and steps are taken back here, or are by now the GPU's to take back.
    if (gpu && worst && !ran) cuda_device(stage.device.index).guards().then({check_of(to_run, worst), {}});
    if (draws_ > 0) take_back_random(first_draw_, draws_);
    throw;
  }
  flags_.clear();
  counts_.clear();
  draws_ = 0;
}

void Cursor::put_inputs(const Stage& stage, std::vector<DeviceTensor>& inputs) {
  inputs.resize(stage.inputs.size());
  for (size_t n = 0; n < inputs.size(); ++n) {
    const StageInput& in = stage.inputs[n];
    const auto i = static_cast<size_t>(in.index);
    switch (in.from) {
      case StageInput::From::external:
        memory_on(stage.device, *externals_[i], trie_.options.name, inputs[n]);
        break;
      case StageInput::From::carried:
        memory_on(stage.device, *carried_[i], trie_.options.name, inputs[n]);
        break;
      case StageInput::From::scalar: inputs[n] = {{DType::f64, &scalars_[i], {}, {}}, nullptr}; break;
      case StageInput::From::gradient: KILN_ASSERT(false, "a stage of a call has no gradient inputs");
    }
  }
}

/// Memory of a carried buffer: that of its handle's former value, if that is free.
ImplPtr Cursor::carried_memory(const Stage& stage, const StageOutput& o) const {
  const ImplPtr handle = o.slot == kAbsent ? nullptr : impl_of(o.slot);
  const bool free =
      handle && handle->spare && handle->spare.use_count() == 1 && handle->spare->device == stage.device;
  if (!free) return make_impl(o.dtype, o.shape, stage.device);
  const auto c = std::make_shared<TensorImpl>();
  c->dtype = o.dtype;
  c->device = stage.device;
  c->shape = o.shape;
  c->strides = contiguous_strides(o.shape);
  c->storage = std::move(handle->spare);
  let_write(*c->storage);
  return c;
}

/// Returns where the checks of the stage answer.
Cursor::Answers Cursor::put_outputs(const Stage& stage, std::vector<DeviceTensor>& outputs) {
  Answers worst;
  if (!stage.checks.empty())
    worst = std::make_shared<std::vector<int64_t>>(stage.checks.size(), kNothingWrong);
  outputs.resize(stage.outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const StageOutput& o = stage.outputs[i];
    if (o.check >= 0) {
      outputs[i] = {{DType::i64, &(*worst)[static_cast<size_t>(o.check)], {}, {}}, nullptr};
    } else if (o.external >= 0) {
      const TensorImpl& x = *externals_[static_cast<size_t>(o.external)];
      let_write(*x.storage);
      if (o.staged) outputs[i] = make_device_tensor(x.device, x.dtype, x.shape);
      else memory_of(x, outputs[i]);
    } else {
      carried_.resize(std::max(carried_.size(), static_cast<size_t>(o.carried) + 1));
      ImplPtr& c = carried_[static_cast<size_t>(o.carried)];
      c = carried_memory(stage, o);
      memory_of(*c, outputs[i]);
    }
  }
  return worst;
}

void Cursor::run_stage(Event& e) try {
  Stage& stage = *e.stage;
  std::unique_ptr<StageMemory> memory = stage.memory.take();
  if (!memory) memory = std::make_unique<StageMemory>();
  std::vector<DeviceTensor>& outputs = memory->outputs;
  put_inputs(stage, memory->inputs);
  const Answers worst = put_outputs(stage, outputs);
  run_program(e.stage, memory->inputs, outputs, worst);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const StageOutput& o = stage.outputs[i];
    if (o.external < 0) continue;
    const TensorImpl& x = *externals_[static_cast<size_t>(o.external)];
    if (o.staged) copy_elements(outputs[i], memory_of(x));
    ++x.storage->version;
  }
  for (auto* tensors : {&memory->inputs, &outputs})
    for (DeviceTensor& t : *tensors) t.storage.reset();  // nothing is kept alive by it
  stage.memory.give(std::move(memory));
  for (const LiveMemory& m : stage.live) {
    const ImplPtr h = impl_of(m.slot);
    h->storage = m.external >= 0 ? externals_[static_cast<size_t>(m.external)]->storage
                                 : carried_[static_cast<size_t>(m.carried)]->storage;
    if (m.carried >= 0) hold(*h->storage);
    h->spare.reset();
  }
} catch (const Error& error) {
  if (error.kind() != ErrorKind::device || error.where().known() || !e.recorder) throw;
  throw Error(error.kind(), error.what() + largest_results(e.recorder->graph), e.loc);
}

/// Brings memory up to date after a write to a tensor that overlaps another: the others then show it. Not
/// right after the write, but before what comes next: what is alive between is the same in every call.
void Cursor::flush_writes() {
  Event& e = record_run(EventKind::host_read, live_slots(), kAbsent, state().user_loc());
  recorder_->refresh_overlaps();
  mark(e);
  e.recorder = std::make_shared<Recorder>(*recorder_);
  at_ = &e;
  run_stage(e);
}

/// Runs a recorded flush after the last event, if there is one.
bool Cursor::follow_flush() {
  Event* e = recording() ? nullptr : match_run(EventKind::host_read, live_slots(), kAbsent);
  if (!e) return false;
  at_ = e;
  run_stage(*e);
  return true;
}

/// Whether an op since the last run point writes to this memory of an external tensor.
bool Cursor::write_pending(const Storage* storage) const {
  if (!storages_.find(storage)) return false;
  for (const Event* e = at_; e && !e->stage; e = e->parent)
    for (Slot s : e->writes)
      if (impl_of(s)->storage.get() == storage) return true;
  return false;
}

void Cursor::host_read(TensorImpl& t, const char* what, SourceLoc loc) {
  const bool external = t.storage != nullptr;
  if (external && !write_pending(t.storage.get())) return;
  KILN_CHECK(external || (t.cursor_call == call_ && thread_ == std::this_thread::get_id()), invalid,
             "{} ({}): the value is pending in a compiled callable on another thread", what, loc.str());
  KILN_CHECK(!trie_.options.full_graph, invalid,
             "{} ({}): reads a tensor's value inside a compiled callable, which full_graph forbids (return "
             "the tensor and read it outside, or select with where)",
             what, loc.str());
  KILN_ASSERT(depth_ == 0, "{} inside the body of an op", what);
  if (external) {
    if (follow_flush()) return;
    if (!recording()) start_recording(what, loc);
    return flush_writes();
  }
  const std::vector<Slot> live = live_slots();
  Event* e = recording() ? nullptr : match_run(EventKind::host_read, live, t.slot);
  if (!e && follow_flush()) return host_read(t, what, loc);
  if (!e) {
    if (!recording()) start_recording(what, loc);
    if (recorder_->overlap_written()) {
      flush_writes();
      return host_read(t, what, loc);
    }
    e = &record_run(EventKind::host_read, live, t.slot, loc);
  }
  at_ = e;
  run_stage(*e);
  KILN_ASSERT(t.storage, "{}: the stage gave no memory to slot {}", what, t.slot);
}

/// What this call leaves for a backward of the stage's roots.
SavedCall Cursor::save_for(const OuterBackward& backward) const {
  SavedCall saved;
  saved.number = number_;
  const auto remember = [](const std::vector<ImplPtr>& from, const std::set<int>& which,
                           std::vector<SavedMemory>& to) {
    to.resize(from.size());
    for (int i : which) {
      const TensorImpl& t = *from[static_cast<size_t>(i)];
      const ImplPtr memory = alias_without_history(t);
      memory->name = t.name;
      to[static_cast<size_t>(i)] = {memory, t.storage->version};
    }
  };
  remember(carried_, backward.carried(), saved.carried);
  remember(externals_, backward.externals(), saved.externals);
  saved.scalars = scalars_;
  for (const auto& [value, slot] : backward.hooked())
    if (const ImplPtr t = impl_of(slot); t && t->hooks) saved.hooks[value] = t->hooks;
  return saved;
}

/// Where gradients of `slots`, as the call found them, go on.
std::vector<GradEdge> Cursor::edges_to(const std::vector<Slot>& slots) const {
  std::vector<GradEdge> edges;
  for (Slot s : slots) {
    const ImplPtr t = impl_of(s);
    edges.push_back(edge_to(Tensor(t)));
    if (!edges.back().node) edges.back().leaf = t;
  }
  return edges;
}

/// Gives live results their place on the eager tape: views their base, and those that can be differentiated
/// their way back into the compiled graph.
void Cursor::attach_boundaries(const Stage& stage) {
  for (Slot s : stage.consumed) {
    const ImplPtr h = impl_of(s);
    h->grad_fn = std::make_shared<GradNode>();
    h->grad_fn->loc = trie_.options.loc;
    h->grad_fn->released = true;
  }
  for (const LiveView& v : stage.views) {
    const ImplPtr view = impl_of(v.view);
    view->base = impl_of(v.base);
    view->chain = {};
    for (const auto& [o, attrs] : v.steps) view->chain.add(o, attrs);
    view->rewritten = view->base->rewritten;
  }
  if (!stage.backward) return;
  const std::vector<Slot>& roots = stage.backward->roots();
  const std::vector<GradEdge> inputs = edges_to(stage.backward->inputs());
  SavedCall saved = save_for(*stage.backward);
  for (size_t i = 0; i < roots.size(); ++i) {  // hooks may be added later, and outlive the handle
    std::shared_ptr<HookList>& hooks = saved.hooks[stage.backward->root_value(static_cast<int>(i)).id];
    if (!hooks) hooks = std::make_shared<HookList>();
    impl_of(roots[i])->hooks = hooks;  // those of what it held before stay with that
  }
  const auto boundary = std::make_shared<CallBoundary>(stage.backward, std::move(saved));
  for (size_t i = 0; i < roots.size(); ++i) {
    const ImplPtr t = impl_of(roots[i]);
    t->grad_fn = boundary->result(*t, static_cast<int>(i), inputs, trie_.options.loc);
    t->requires_grad = true;
    t->is_leaf = false;
  }
}

void Cursor::finish() {
  leave();
  const std::vector<Slot> live = live_slots();
  Event* e = recording() ? nullptr : match_run(EventKind::end, live, kAbsent);
  if (!e && follow_flush()) return finish();
  if (!e) {
    if (!recording()) start_recording("end of the call", {});
    e = &record_run(EventKind::end, live, kAbsent, {});
  }
  at_ = e;
  run_stage(*e);
  attach_boundaries(*e->stage);
  trie_.handles_hint.store(handles_.size(), std::memory_order_relaxed);
  trie_.externals_hint.store(externals_.size(), std::memory_order_relaxed);
  trie_.slots_hint.store(slot_impls_.size(), std::memory_order_relaxed);
  for (const Followed& f : handles_) {
    const ImplPtr& h = handle_of(f);
    h->cursor = nullptr;
    h->spare.reset();
  }
  if (recorded_.empty()) return;
  attach();
  tell_built();
}

void Cursor::attach() {
  std::lock_guard lock(trie_.mutex);
  build_.reason = reason_;
  trie_.builds.push_back(build_);
  log(LogLevel::info, "{}: build {}, for {}: {} ops in {} kernels ({}), {:.2f} s", trie_.options.name,
      trie_.builds.size(), reason_, build_.nodes, build_.kernels,
      build_.from_cache ? "from the cache" : fmt::format("{} compiled", build_.compiled), build_.seconds);
  for (size_t i = 0; i + 1 < recorded_.size(); ++i) recorded_[i]->first_child = recorded_[i + 1].get();
  Event* head = recorded_.front().get();
  head->next_sibling = head->parent->first_child.load();
  Event* parent = head->parent;
  for (auto& e : recorded_) trie_.owned.push_back(std::move(e));
  recorded_.clear();
  parent->first_child.store(head, std::memory_order_release);
}

void Cursor::abandon() {
  leave();
  tell_failed();
  for (size_t i = flags_.size(); i-- > 0;) {
    flags_[i].tensor->requires_grad = flags_[i].requires_grad;
    flags_[i].tensor->is_leaf = flags_[i].is_leaf;
  }
  for (size_t i = counts_.size(); i-- > 0;) counts_[i]();
  for (const Event* e = open_ ? open_ : at_; e; e = e->parent) {
    if (e->kind != EventKind::backward_end) continue;
    for (int64_t i : e->ints) {
      ImplPtr& grad = impl_of(e->operands[2 * static_cast<size_t>(i)])->grad;
      if (grad && owns(*grad) && !grad->storage) grad.reset();
    }
  }
  for (const Followed& f : handles_) {
    const ImplPtr& h = handle_of(f);
    h->cursor = nullptr;
    if (h->storage || h.use_count() == 1) continue;
    h->dropped = f.event->loc.known() ? f.event->loc : trie_.options.loc;
  }
}

}  // namespace kiln::detail
