// SPDX-License-Identifier: Apache-2.0
// In-place writes of eager tensors: the bytes, and what they do to the history of the target, of its base and
// of other views of that base.
#include "frontend/checkpoint_region.h"
#include "frontend/device.h"
#include "frontend/dispatch.h"
#include "frontend/state.h"
#include "frontend/views.h"
#include "ir/graph.h"

namespace kiln::detail {

namespace {

class GradMode {
 public:
  explicit GradMode(bool on) : previous_(state().grad_enabled) { state().grad_enabled = on; }
  ~GradMode() { state().grad_enabled = previous_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};

/// Evaluates what views.h emits, on the tape.
class TensorBuilder : public Builder {
 public:
  using Builder::emit;
  Value add(Tensor t) {
    values_.push_back(std::move(t));
    return {static_cast<int32_t>(values_.size()) - 1};
  }
  Value emit(Op o, std::span<const Value> in, Attrs attrs) override {
    std::vector<const Tensor*> operands;
    for (Value v : in) operands.push_back(&values_[static_cast<size_t>(v.id)]);
    Tensor out = eager_apply(o, operands, std::move(attrs));
    return add(std::move(out));
  }
  Type type(Value v) const override { return values_[static_cast<size_t>(v.id)].impl()->type(); }
  const Tensor& tensor(Value v) const { return values_[static_cast<size_t>(v.id)]; }

 private:
  std::vector<Tensor> values_;
};

void set_history(TensorImpl& t, const std::shared_ptr<GradNode>& node) {
  t.grad_fn = node;
  t.requires_grad = node != nullptr;
  t.is_leaf = !node;
  t.hooks.reset();  // they stay with what the tensor held
  if (!node) return;
  node->output_version = t.storage->version;
  node->saved_output = alias_without_history(t);
  if (node->region) CheckpointRegion::drop_data(*node);
}

void copy_bytes(const TensorImpl& from, TensorImpl& to) {
  DeviceTensor source = memory_of(from);
  if (to.storage == from.storage) {  // overlapping views: read all before writing
    const DeviceTensor copy = make_device_tensor(to.device, to.dtype, to.shape);
    copy_elements(source, copy);
    source = copy;
  }
  let_write(*to.storage);
  copy_elements(source, memory_of(to));
  ++to.storage->version;
}

/// A node of its own for the new contents, so that nothing said of it is said of the value; null: no history.
std::shared_ptr<GradNode> fresh_history(const Tensor& value) {
  if (!state().grad_enabled || !value.requires_grad()) return nullptr;
  const Shape shape = value.impl()->type().shape;
  return apply(op("reshape"), {&value}, {shape}).impl()->grad_fn;
}

}  // namespace

void refresh_view(TensorImpl& t) {
  if (!t.base || t.rewritten == t.base->rewritten) return;
  t.rewritten = t.base->rewritten;
  GradMode guard(true);
  // Whether a checkpoint brings a view up to date depends on what ran before it: not its to make again.
  const RegionSwitch outside(nullptr);
  const DeviceScope device(t.device);
  TensorBuilder b;
  const Value v = forward_view(b, b.add(Tensor(t.base)), t.chain.steps());
  set_history(t, b.tensor(v).impl()->grad_fn);
}

void eager_assign(const Tensor& target, const Tensor& value) {
  TensorImpl& t = *target.impl();
  const TensorImpl& v = *value.impl();
  const ImplPtr base = t.base ? t.base : target.impl();
  const bool leaf = base->is_leaf && base->requires_grad;
  KILN_ASSERT(t.device == v.device || is_number(v), "{} is written to {}", describe(v), describe(t));
  KILN_CHECK(!leaf || !state().grad_enabled, invalid, "{}", write_to_leaf(t, t.base != nullptr));
  if (t.storage == v.storage && t.offset == v.offset && t.strides == v.strides && t.shape == v.shape) return;
  const std::shared_ptr<GradNode> node = fresh_history(value);
  KILN_CHECK(!node || !t.no_grad_view, invalid, "{}", write_to_no_grad_view(t));
  const bool history = state().grad_enabled && (node || base->grad_fn);
  std::shared_ptr<GradNode> base_node;
  if (history && t.base) {  // from the contents before the write
    GradMode guard(true);
    TensorBuilder b;
    const Value update = b.add(node ? value : value.detach());
    base_node = b.tensor(backward_view(b, b.add(Tensor(base)), t.chain.steps(), update)).impl()->grad_fn;
  }
  copy_bytes(v, t);
  if (!history) return;
  set_history(*base, t.base ? base_node : node);
  ++base->rewritten;
  if (t.base) refresh_view(t);
}

}  // namespace kiln::detail
