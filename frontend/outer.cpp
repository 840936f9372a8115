// SPDX-License-Identifier: Apache-2.0
#include "frontend/outer.h"

#include <algorithm>

#include "frontend/state.h"

namespace kiln::detail {

OuterBackward::OuterBackward(std::shared_ptr<const Recorder> recorder, std::vector<Slot> roots,
                             const StageOptions& options)
    : recorder_(std::move(recorder)), roots_(std::move(roots)), options_(options) {
  for (Slot s : roots_) root_values_.push_back(recorder_->slots[s].value);
  OuterGraph outer = outer_backward(*recorder_, root_values_);
  for (const StageInput& in : cut(outer).inputs)
    if (in.from == StageInput::From::carried) carried_.insert(in.index);
}

/// The program's graph: leaf gradients from root gradients and what was kept.
Extracted OuterBackward::cut(OuterGraph& outer) const {
  Recorder r = *recorder_;
  r.graph = std::move(outer.graph);
  r.graph.name = options_.name + "_backward";
  std::vector<Value> wanted;
  for (const auto& [slot, g] : outer.leaf_grads) wanted.push_back(g);
  return extract(r, wanted, outer.grad_inputs);
}

OuterBackward::Variant& OuterBackward::variant(const std::vector<int>& with_grad) {
  std::lock_guard lock(mutex_);
  Variant& v = variants_[with_grad];
  if (v.program) return v;
  std::vector<Value> roots;
  for (int i : with_grad) roots.push_back(root_values_[static_cast<size_t>(i)]);
  OuterGraph outer = outer_backward(*recorder_, roots);
  for (const auto& [slot, g] : outer.leaf_grads) {
    v.leaves.push_back(slot);
    v.leaf_types.push_back(outer.graph.type(g));
  }
  const Extracted x = cut(outer);
  std::vector<Sizes> strides;
  for (size_t i = 0; i < x.inputs.size(); ++i) {
    Sizes shape;
    for (const Dim& d : x.graph.type(x.graph.inputs[i].value).shape) shape.push_back(d.value());
    const bool external = x.inputs[i].from == StageInput::From::external;
    strides.push_back(external ? options_.external_strides.at(static_cast<size_t>(x.inputs[i].index))
                               : contiguous_strides(shape));
  }
  v.inputs = x.inputs;
  BuildRecord record;
  v.program = build_program(x.graph, strides, options_, record);
  return v;
}

std::vector<std::pair<ImplPtr, Tensor>> OuterBackward::run(const SavedCall& call, const BoundaryGrads& grads,
                                                           SourceLoc loc) {
  std::map<int, Tensor> by_root;
  for (const auto& [root, g] : grads) {
    Tensor& slot = by_root[root];
    slot = slot.defined() ? slot + g : g;
  }
  std::vector<int> with_grad;
  std::vector<Tensor> gradients;
  for (const auto& [root, g] : by_root) {
    with_grad.push_back(root);
    gradients.push_back(g.contiguous());
  }
  Variant& v = variant(with_grad);
  std::vector<uint64_t> scalars = call.scalars;
  std::vector<HostTensor> inputs, outputs;
  for (const StageInput& in : v.inputs) {
    const auto i = static_cast<size_t>(in.index);
    switch (in.from) {
      case StageInput::From::scalar: inputs.push_back({{DType::f64, &scalars[i], {}, {}}, nullptr}); break;
      case StageInput::From::carried: inputs.push_back(host_of(*call.carried[i])); break;
      case StageInput::From::gradient: inputs.push_back(host_of(*gradients[i].impl())); break;
      case StageInput::From::external: {
        const TensorImpl& x = *call.externals[i];
        KILN_CHECK(
            x.storage->version == call.versions[i], invalid,
            "backward ({}): {} was changed in place after the compiled forward read it (clone it first)",
            loc.str(), describe(x));
        inputs.push_back(host_of(x));
        break;
      }
    }
  }
  std::vector<std::pair<ImplPtr, Tensor>> result;
  for (size_t i = 0; i < v.leaves.size(); ++i) {
    const auto at = std::find(recorder_->externals.begin(), recorder_->externals.end(), v.leaves[i]);
    KILN_ASSERT(at != recorder_->externals.end(), "leaf slot {} is no external", v.leaves[i]);
    Sizes shape;
    for (const Dim& d : v.leaf_types[i].shape) shape.push_back(d.value());
    const ImplPtr out = make_impl(v.leaf_types[i].dtype, shape);
    outputs.push_back(host_of(*out));
    result.emplace_back(call.externals[static_cast<size_t>(at - recorder_->externals.begin())], Tensor(out));
  }
  v.program->run(inputs, outputs);
  return result;
}

void CallBoundary::attach(TensorImpl& t, int root, SourceLoc loc) {
  auto node = std::make_shared<GradNode>();
  node->op = op("reshape");
  node->loc = loc;
  node->saved_output = alias_without_history(t);
  node->output_version = t.storage->version;
  node->boundary = shared_from_this();
  node->boundary_output = root;
  node->hooks = t.hooks;
  t.grad_fn = std::move(node);
  t.requires_grad = true;
  t.is_leaf = false;
}

void CallBoundary::backward(const BoundaryGrads& grads, bool retain_graph, SourceLoc loc) {
  KILN_CHECK(call_, invalid,
             "backward ({}): the compiled forward was already consumed by a backward (pass retain_graph=true "
             "to the first)",
             loc.str());
  KILN_CHECK(call_->hooked.empty(), unsupported,
             "backward ({}): {}, made inside a compiled callable, has a hook (call backward inside it, or "
             "return that tensor)",
             loc.str(), call_->hooked);
  const std::shared_ptr<SavedCall> call = call_;
  if (!retain_graph) call_.reset();
  std::vector<std::pair<ImplPtr, Tensor>> leaves;
  for (auto& [leaf, g] : outer_->run(*call, grads, loc)) {
    if (leaf->grad_fn) {
      eager_backward(Tensor(leaf), g, retain_graph, loc);  // runs its hooks
      continue;
    }
    if (leaf->hooks) g = run_hooks(*leaf->hooks, g);
    leaves.emplace_back(leaf, std::move(g));
  }
  accumulate_grads(std::move(leaves));
}

}  // namespace kiln::detail
