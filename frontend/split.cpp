// SPDX-License-Identifier: Apache-2.0
#include "frontend/split.h"

#include <algorithm>

#include "frontend/late.h"
#include "ir/plan.h"
#include "ir/split_graph.h"

namespace kiln::detail {

namespace {

bool is_backward(const Event& e) {
  return e.kind == EventKind::backward || e.kind == EventKind::outer_backward;
}

/// Whether a checkpoint begins or ends there: frontend/checkpoint.cpp.
bool is_checkpoint_mark(const Event& e) {
  return e.kind == EventKind::call && std::string_view(e.name) == kCheckpointEvent;
}

/// The events of the stage that `run` ends, in order.
std::vector<const Event*> events_of(const Event& run) {
  std::vector<const Event*> events;
  for (const Event* e = run.parent; e && !e->stage && e->kind != EventKind::root; e = e->parent)
    events.insert(events.begin(), e);
  return events;
}

/// Collects the ops of a forward: who reads whose results, and which parameters they take.
class Forward {
 public:
  Forward(const Recorder& r, std::span<const ImplPtr> externals) : r_(r), externals_(externals) {}

  void add(const Event& e) {
    const bool mark = is_checkpoint_mark(e);
    if (mark && !e.ints[0]) {
      if (inside_) ends.back() = e.value_count;
      inside_ = false;
      return;
    }
    if (!inside_) {
      ops.push_back({{}, {}, false, e.loc});
      ends.push_back(0);
    }
    join(e);
    inside_ = inside_ || mark;
  }
  /// Somebody behind the forward reads slot `s`.
  void read(Slot s) { use(s, -1); }

  std::vector<SplitOp> ops;
  std::vector<int> ends;  ///< per op, the value behind its last one
  std::vector<SplitParam> params;
  std::vector<Slot> param_slots;

 private:
  /// `e` is, or is a part of, the last op. A checkpoint is one op, which takes each parameter once, as
  /// PyTorch's higher-order op does.
  void join(const Event& e) {
    const auto at = static_cast<int>(ops.size()) - 1;
    SplitOp& op = ops.back();
    for (Slot s : e.operands) {
      if (s == kAbsent) continue;
      use(s, at);
      const int p = param(s);
      const bool again = inside_ && std::find(op.params.begin(), op.params.end(), p) != op.params.end();
      if (p >= 0 && !again) op.params.push_back(p);
    }
    for (const EventResult& result : e.results)
      if (result.operand < 0) made_by_[result.prototype->slot] = at;
    ends.back() = e.value_count;
  }

  void use(Slot s, int user) {
    const auto maker = made_by_.find(s);
    if (maker == made_by_.end() || maker->second == user) return;
    SplitOp& op = ops[static_cast<size_t>(maker->second)];
    if (user < 0) op.output = true;
    else op.users.push_back(user);
  }

  int param(Slot s) {
    const SlotInfo& info = r_.slots[static_cast<size_t>(s)];
    if (info.external < 0 || !info.leaf || !info.requires_grad) return -1;
    const TensorImpl& t = *externals_[static_cast<size_t>(info.external)];
    if (t.name.empty()) return -1;
    const auto known = std::find(param_slots.begin(), param_slots.end(), s);
    if (known == param_slots.end()) {
      param_slots.push_back(s);
      params.push_back({t.name, static_cast<int64_t>(t.storage->bytes)});
      return static_cast<int>(params.size()) - 1;
    }
    return static_cast<int>(known - param_slots.begin());
  }

  const Recorder& r_;
  std::span<const ImplPtr> externals_;
  std::map<Slot, int> made_by_;
  bool inside_ = false;  ///< a checkpoint
};

/// The part of each node of a stage.
std::vector<int> parts_of_nodes(const Extracted& x, const StageSplit& split) {
  const auto buckets = static_cast<int>(split.ends.size());
  std::vector<int> parts, made_in(static_cast<size_t>(x.graph.value_count()), 0);
  for (size_t i = 0; i < x.graph.nodes.size(); ++i) {
    const int id = x.node_values[i].id;
    const auto end = std::upper_bound(split.ends.begin(), split.ends.end(), id);
    int part = static_cast<int>(end - split.ends.begin());
    // What was not made by an op of the forward, a value made again or kept for later, stays with its
    // operands.
    if (id < split.begin || (part == buckets && !split.more)) {
      part = 0;
      for (Value v : x.graph.nodes[i].in) part = std::max(part, made_in[static_cast<size_t>(v.id)]);
    }
    parts.push_back(made_in[static_cast<size_t>(x.graph.nodes[i].out.id)] = part);
  }
  return parts;
}

/// Runs parts one after the other. Memory of a run is numbered: inputs, outputs, then what only parts see.
class SplitProgram : public Program {
 public:
  struct Piece {
    std::unique_ptr<Program> program;
    std::vector<int> inputs, outputs;
    std::vector<int> guards;  ///< outputs that are kNothingWrong, or nothing goes on
    std::vector<int> dead;    ///< memory that no later part reads
  };
  struct Temporary {
    DType dtype;
    Sizes shape;
  };

  void run(std::span<const DeviceTensor> inputs, std::span<const DeviceTensor> outputs) override {
    std::vector<DeviceTensor> memory(inputs.begin(), inputs.end());
    memory.insert(memory.end(), outputs.begin(), outputs.end());
    const size_t first = memory.size();
    memory.resize(first + temporaries.size());
    for (const Piece& piece : pieces) {
      std::vector<DeviceTensor> in, out;
      for (int i : piece.inputs) in.push_back(memory[static_cast<size_t>(i)]);
      for (int i : piece.outputs) {
        DeviceTensor& t = memory[static_cast<size_t>(i)];
        if (static_cast<size_t>(i) >= first) {
          const Temporary& what = temporaries[static_cast<size_t>(i) - first];
          t = make_device_tensor(device, what.dtype, what.shape);
        }
        out.push_back(t);
      }
      piece.program->run(in, out);
      if (fails(piece, memory)) return;
      for (int i : piece.dead) memory[static_cast<size_t>(i)] = {};
    }
    if (copies.empty()) return;
    settle(device);  // what checks say of the parts may not be known yet
    for (const Piece& piece : pieces)
      if (fails(piece, memory)) return;
    for (const auto& [from, to] : copies)
      copy_elements(memory[static_cast<size_t>(from)], memory[static_cast<size_t>(to)]);
  }

  static bool fails(const Piece& piece, const std::vector<DeviceTensor>& memory) {
    return std::any_of(piece.guards.begin(), piece.guards.end(), [&](int i) {
      return *static_cast<const int64_t*>(memory[static_cast<size_t>(i)].ref.data) != kNothingWrong;
    });
  }

  Device device;
  std::vector<Piece> pieces;
  std::vector<Temporary> temporaries;
  std::vector<std::pair<int, int>> copies;  ///< written in place when all parts have run
};

Sizes static_sizes(const Type& t) {
  Sizes sizes;
  for (const Dim& d : t.shape) sizes.push_back(d.value());
  return sizes;
}

/// Gives memory to the values that cross, and builds the parts.
class SplitBuilder {
 public:
  SplitBuilder(const Graph& g, std::span<const Sizes> strides) : g_(g), strides_(strides) {
    for (size_t i = 0; i < g.inputs.size(); ++i) at_[g.inputs[i].value.id] = static_cast<int>(i);
  }

  std::unique_ptr<SplitProgram> build(const std::vector<GraphPart>& parts, const StageOptions& options,
                                      BuildRecord& record) {
    program_->device = options.device;
    bool from_cache = true;
    for (const GraphPart& part : parts) {
      SplitProgram::Piece piece;
      std::vector<Sizes> strides;
      for (Value v : part.inputs) {
        const auto place = static_cast<size_t>(at_.at(v.id));
        piece.inputs.push_back(static_cast<int>(place));
        strides.push_back(place < strides_.size() ? strides_[place]
                                                  : contiguous_strides(static_sizes(g_.type(v))));
      }
      for (size_t i = 0; i < part.outputs.size(); ++i) add_output(part, i, piece);
      piece.program = build_program(part.graph, strides, options, record);
      from_cache = from_cache && record.from_cache;
      program_->pieces.push_back(std::move(piece));
    }
    record.from_cache = from_cache;
    std::vector<const Communication*> communications;
    for (const auto& piece : program_->pieces) communications.push_back(&piece.program->communication);
    program_->communication = joined(communications);
    find_dead();
    return std::move(program_);
  }

 private:
  void add_output(const GraphPart& part, size_t i, SplitProgram::Piece& piece) {
    const Value v = part.outputs[i];
    const int output = part.output_of[i], whole = static_cast<int>(g_.inputs.size()) + output;
    int place = whole;
    const bool in_place = output >= 0 && g_.outputs[static_cast<size_t>(output)].alias_input >= 0;
    if (output < 0 || (in_place && part.graph.outputs[i].alias_input < 0)) {
      place = static_cast<int>(g_.inputs.size() + g_.outputs.size() + program_->temporaries.size());
      program_->temporaries.push_back({g_.type(v).dtype, static_sizes(g_.type(v))});
      if (output >= 0) program_->copies.emplace_back(place, whole);
    }
    if (part.graph.outputs[i].guard) piece.guards.push_back(place);
    piece.outputs.push_back(place);
    at_.try_emplace(v.id, place);
  }

  void find_dead() {
    const auto first = static_cast<int>(g_.inputs.size() + g_.outputs.size());
    std::vector<bool> read(static_cast<size_t>(first) + program_->temporaries.size(), false);
    for (const auto& [from, to] : program_->copies) read[static_cast<size_t>(from)] = true;
    for (size_t i = program_->pieces.size(); i-- > 0;)
      for (int place : program_->pieces[i].inputs) {
        if (place >= first && !read[static_cast<size_t>(place)]) program_->pieces[i].dead.push_back(place);
        read[static_cast<size_t>(place)] = true;
      }
  }

  const Graph& g_;
  std::span<const Sizes> strides_;
  std::unique_ptr<SplitProgram> program_ = std::make_unique<SplitProgram>();
  std::map<int, int> at_;  ///< value of the stage -> memory that later parts read
};

}  // namespace

StageSplit split_stage(const Event& run, const Recorder& r, std::span<const ImplPtr> externals,
                       const SplitOptions& options) {
  StageSplit split;
  const std::vector<const Event*> events = events_of(run);
  bool forward = true;
  for (const Event* e = events.empty() ? run.parent : events[0]->parent; e; e = e->parent)
    forward = forward && !is_backward(*e);
  Forward ops(r, externals);
  for (const Event* e : events) {
    split.more = split.more || is_backward(*e);
    if (forward && !split.more && e->kind == EventKind::call) ops.add(*e);
    else
      for (Slot s : e->operands) ops.read(s);
  }
  for (Slot s : run.live) ops.read(s);
  for (Slot s : run.operands) ops.read(s);
  split.begin = events.empty() ? 0 : events[0]->parent->value_count;
  split.table = split_at_buckets(ops.ops, ops.params, options);
  for (size_t b = 0; b < split.table.buckets.size(); ++b) {
    const BucketTable::Bucket& bucket = split.table.buckets[b];
    split.ends.push_back(bucket.end == 0 ? split.begin : ops.ends[static_cast<size_t>(bucket.end) - 1]);
    for (int i = bucket.begin; i < bucket.end; ++i)
      for (int p : ops.ops[static_cast<size_t>(i)].params)
        split.bucket_of.try_emplace(ops.param_slots[static_cast<size_t>(p)], static_cast<int>(b));
  }
  return split;
}

std::map<Slot, int> buckets_of_path(const Event& run) {
  std::map<Slot, int> buckets;
  std::vector<const StageSplit*> stages;
  for (const Event* e = &run; e; e = e->parent)
    if (e->stage && e->stage->split) stages.insert(stages.begin(), e->stage->split.get());
  int before = 0;
  for (const StageSplit* s : stages) {
    for (const auto& [slot, bucket] : s->bucket_of) buckets.try_emplace(slot, before + bucket);
    before += static_cast<int>(s->table.buckets.size());
  }
  return buckets;
}

std::unique_ptr<Program> build_split_program(const Extracted& x, const StageSplit& split,
                                             std::span<const Sizes> strides, const StageOptions& options,
                                             BuildRecord& record) {
  const std::vector<GraphPart> parts = split_graph(x.graph, parts_of_nodes(x, split));
  return SplitBuilder(x.graph, strides).build(parts, options, record);
}

}  // namespace kiln::detail
