// SPDX-License-Identifier: Apache-2.0
#include "frontend/outer.h"

#include <algorithm>

#include "frontend/dispatch.h"
#include "frontend/state.h"

namespace kiln::detail {

namespace {
Sizes sizes_of(const Type& t) {
  Sizes shape;
  for (const Dim& d : t.shape) shape.push_back(d.value());
  return shape;
}
}  // namespace

OuterBackward::OuterBackward(std::shared_ptr<const Recorder> recorder, std::vector<Slot> roots,
                             const StageOptions& options)
    : recorder_(std::move(recorder)), roots_(std::move(roots)), options_(options) {
  for (Slot s : roots_) root_values_.push_back(recorder_->slots[s].value);
  for (size_t i = 0; i < roots_.size(); ++i) explore(static_cast<int>(i));
  for (Reach& a : reach_)
    for (size_t i = 0; i < reach_.size(); ++i)
      if (&a == &reach_[i] || std::any_of(a.history.begin(), a.history.end(),
                                          [&](int id) { return reach_[i].history.count(id) > 0; }))
        a.related.push_back(static_cast<int>(i));
  const OuterGraph outer = outer_backward(*recorder_, root_values_);
  std::vector<Value> wanted;
  for (const OuterStep& s : outer.steps) wanted.push_back(s.gradient);
  Recorder r = *recorder_;
  r.graph = outer.graph;
  for (const StageInput& in : extract(r, wanted, outer.grad_inputs).inputs) {
    if (in.from == StageInput::From::carried) carried_.insert(in.index);
    if (in.from == StageInput::From::external && in.index >= 0) externals_.insert(in.index);
  }
}

/// Finds what a gradient of `root` flows through.
void OuterBackward::explore(int root) {
  const Recorder& r = *recorder_;
  Reach reach;
  r.walk_history(root_value(root), [&](Value v) {
    if (const Slot s = input_slot(r, v); s != kAbsent) {
      const auto known = std::find(inputs_.begin(), inputs_.end(), s);
      const auto number = static_cast<int>(known - inputs_.begin());
      if (known == inputs_.end()) inputs_.push_back(s);
      if (std::find(reach.inputs.begin(), reach.inputs.end(), number) == reach.inputs.end())
        reach.inputs.push_back(number);
      return false;
    }
    if (r.graph.producer(v) < 0) return false;
    reach.history.insert(v.id);
    return true;
  });
  reach_.push_back(std::move(reach));
}

/// Builds the program that makes `wanted` from `known` values and what the call left.
OuterBackward::Part OuterBackward::part(const OuterGraph& outer, const std::vector<Value>& known,
                                        const std::vector<Value>& wanted) const {
  Part p;
  for (Value v : wanted) p.outputs.push_back(outer.graph.type(v));
  if (wanted.empty()) return p;
  Recorder r = *recorder_;
  r.graph = outer.graph;
  r.graph.name = options_.name + "_backward";
  const Extracted x = extract(r, wanted, known);
  p.lost = x.lost;
  if (!p.lost.empty()) return p;
  std::vector<Sizes> strides;
  for (size_t i = 0; i < x.inputs.size(); ++i) {
    const bool external = x.inputs[i].from == StageInput::From::external;
    strides.push_back(external ? options_.external_strides.at(static_cast<size_t>(x.inputs[i].index))
                               : contiguous_strides(sizes_of(x.graph.type(x.graph.inputs[i].value))));
  }
  p.inputs = x.inputs;
  BuildRecord record;
  p.program = build_program(x.graph, strides, options_, record);
  return p;
}

const OuterBackward::Variant& OuterBackward::variant(const std::vector<int>& with_grad,
                                                     const std::set<int>& hooked,
                                                     const std::function<void(bool begins)>& compiles) {
  std::lock_guard lock(mutex_);
  Variant& v = variants_[{with_grad, hooked}];
  if (!v.empty()) return v;
  compiles(true);
  std::vector<Value> roots;
  for (int i : with_grad) roots.push_back(root_value(i));
  OuterGraph outer = outer_backward(*recorder_, roots, hooked);
  end_parts_at_buckets(outer, options_.bucket_of);
  std::vector<Value> known = outer.grad_inputs;  // by number of the result
  const auto number = [&](Value g) {
    return static_cast<int>(std::find(known.begin(), known.end(), g) - known.begin());
  };
  Variant parts;
  auto step = outer.steps.begin();
  for (const std::vector<Value>& wanted : results_of_parts(outer, recorder_->graph.nodes.size())) {
    Part p = part(outer, known, wanted);
    known.insert(known.end(), wanted.begin(), wanted.end());
    for (bool ended = false; step != outer.steps.end() && !ended; ++step) {
      ended = step->ends_part;
      const bool hooks = step->hooked.valid();
      const auto input = std::find(inputs_.begin(), inputs_.end(), step->input);
      p.actions.push_back({number(step->gradient), hooks ? -1 : static_cast<int>(input - inputs_.begin()),
                           hooks ? step->hooked.id : -1});
      if (hooks) known.push_back(step->replaced);
    }
    parts.push_back(std::move(p));
  }
  compiles(false);
  return v = std::move(parts);
}

std::vector<DeviceTensor> OuterBackward::part_inputs(const Part& part, const SavedCall& call,
                                                     std::vector<uint64_t>& scalars,
                                                     const std::vector<Tensor>& results,
                                                     SourceLoc loc) const {
  const std::string what = fmt::format("backward ({})", loc.str());
  std::vector<DeviceTensor> inputs;
  const auto saved = [&](const SavedMemory& m, const char* verb) {
    KILN_CHECK(m.tensor->storage->version == m.version, invalid,
               "backward ({}): {} was changed in place after the compiled forward {} it (clone it first)",
               loc.str(), describe(*m.tensor), verb);
    inputs.push_back(memory_on(options_.device, *m.tensor, what));
  };
  for (const StageInput& in : part.inputs) {
    const auto i = static_cast<size_t>(in.index);
    switch (in.from) {
      case StageInput::From::scalar: inputs.push_back({{DType::f64, &scalars[i], {}, {}}, nullptr}); break;
      case StageInput::From::carried: saved(call.carried[i], "made"); break;
      case StageInput::From::external: saved(call.externals[i], "read"); break;
      case StageInput::From::gradient:
        inputs.push_back(memory_on(options_.device, *results[i].impl(), what));
        break;
    }
  }
  return inputs;
}

bool OuterBackward::inner(int root, const std::vector<int>& roots) const {
  return std::any_of(roots.begin(), roots.end(), [&](int other) {
    return other != root && reach_[static_cast<size_t>(other)].history.count(root_value(root).id) > 0;
  });
}

void OuterBackward::run(const SavedCall& call, const std::vector<int>& roots, const BoundaryGrads& grads,
                        const GradBoundary::Caller& caller, SourceLoc loc) {
  std::vector<int> with_grad;
  std::vector<Tensor> results;
  std::vector<uint64_t> scalars = call.scalars;
  state().call = call.number;
  for (const auto& [root, g] : grads) {
    with_grad.push_back(root);
    results.push_back(g.contiguous());
  }
  std::set<int> hooked;
  for (const auto& [value, hooks] : call.hooks)
    if (!hooks->empty()) hooked.insert(value);
  for (int root : roots)
    if (!inner(root, roots)) hooked.erase(root_value(root).id);
  for (const Part& part : variant(with_grad, hooked, caller.compiles)) {
    std::vector<DeviceTensor> outputs;
    for (const Type& t : part.outputs) {
      results.emplace_back(make_impl(t.dtype, sizes_of(t), options_.device));
      outputs.push_back(memory_of(*results.back().impl()));
    }
    KILN_CHECK(
        part.lost.empty(), invalid,
        "backward ({}): needs the value that {} had before the compiled callable changed it in place (call "
        "backward before that, or clone it first)",
        loc.str(), part.lost);
    if (part.program) part.program->run(part_inputs(part, call, scalars, results, loc), outputs);
    for (const Part::Action& a : part.actions) {
      const Tensor g = results[static_cast<size_t>(a.result)];
      if (a.hooked < 0) caller.give(a.input, g);
      else results.push_back(run_hooks(*call.hooks.at(a.hooked), g).contiguous());
    }
  }
}

CallBoundary::CallBoundary(std::shared_ptr<OuterBackward> outer, SavedCall call)
    : outer_(std::move(outer)),
      call_(std::make_shared<SavedCall>(std::move(call))),
      consumed_(outer_->roots().size(), false) {}

std::shared_ptr<GradNode> CallBoundary::result(const TensorImpl& t, int root,
                                               const std::vector<GradEdge>& inputs, SourceLoc loc) {
  auto node = std::make_shared<GradNode>();
  node->sequence = next_on_tape();
  node->loc = loc;
  node->saved_output = alias_without_history(t);
  node->output_version = t.storage->version;
  node->boundary = shared_from_this();
  node->boundary_output = root;
  node->boundary_inputs = outer_->inputs_of(root);
  for (int i : node->boundary_inputs) node->inputs.push_back(inputs[static_cast<size_t>(i)]);
  node->hooks = t.hooks;
  return node;
}

void CallBoundary::backward(const std::vector<int>& outputs, const BoundaryGrads& grads, const Caller& caller,
                            SourceLoc loc) {
  KILN_ASSERT(call_, "a compiled forward without memory is differentiated");
  const std::shared_ptr<const SavedCall> call = call_;  // a hook may consume it
  outer_->run(*call, outputs, grads, caller, loc);
}

void CallBoundary::consume(const std::vector<int>& outputs) {
  for (int i : outputs)
    for (int other : outer_->related(i)) consumed_[static_cast<size_t>(other)] = true;
  if (std::find(consumed_.begin(), consumed_.end(), false) == consumed_.end()) call_.reset();
}

}  // namespace kiln::detail
