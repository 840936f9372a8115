// SPDX-License-Identifier: Apache-2.0
// Tensor::to(Device): the copy, and its place on the tape.
#include "frontend/boundary.h"
#include "frontend/cursor.h"
#include "frontend/device.h"
#include "frontend/state.h"

namespace kiln {

namespace detail {
namespace {

/// The gradient of a copy goes back to where the tensor was.
class TransferBoundary : public GradBoundary {
 public:
  explicit TransferBoundary(Device back) : back_(back) {}

  void backward(const std::vector<int>&, const BoundaryGrads& grads, const Caller& caller,
                SourceLoc) override {
    caller.give(0, Tensor(transferred(*grads.at(0).second.impl(), back_)));
  }
  bool inner(int, const std::vector<int>&) const override { return false; }
  void consume(const std::vector<int>&) override { consumed_ = true; }
  bool consumed(int) const override { return consumed_; }

 private:
  const Device back_;
  bool consumed_ = false;
};

void record_transfer(const Tensor& from, TensorImpl& to, Loc loc) {
  auto node = std::make_shared<GradNode>();
  node->sequence = next_on_tape();
  node->loc = loc;
  node->inputs = {edge_to(from)};
  node->saved_output = alias_without_history(to);
  node->output_version = to.storage->version;
  node->boundary = std::make_shared<TransferBoundary>(from.device());
  node->boundary_inputs = {0};
  to.requires_grad = true;
  to.is_leaf = false;
  to.grad_fn = std::move(node);
}

/// Whether the history of `t` is that of an open trace, which only its end puts on the tape.
bool has_pending_history(const TensorImpl& t) {
  for (const Cursor* c = state().open; c; c = c->outer())
    if (c->has_history(t)) return true;
  return false;
}

}  // namespace
}  // namespace detail

Tensor Tensor::to(Device device, Loc loc) const {
  detail::checked(*this, "to", loc);
  if (device == this->device()) return *this;
  detail::require_device(device, "to", loc);
  if (grad_enabled()) detail::refresh_view(*impl_);
  const bool wants_grad = grad_enabled() && impl_->requires_grad;
  KILN_CHECK(!wants_grad || !detail::has_pending_history(*impl_), unsupported,
             "to ({}): {} was made inside the compiled callable, and its gradient would have to come back "
             "from {} (detach() it, or compile what runs on each device by itself)",
             loc.str(), detail::describe(*impl_), device.str());
  detail::materialise(*impl_, "to", loc);
  const detail::ImplPtr out = detail::transferred(*impl_, device);
  if (wants_grad) detail::record_transfer(*this, *out, loc);
  return Tensor(out);
}

Tensor Tensor::to(Device device, DType dtype, Loc loc) const {
  detail::checked(*this, "to", loc);
  // The cast where it is cheaper to do it.
  return device.is_cuda() && !is_cuda() ? to(dtype, loc).to(device, loc) : to(device, loc).to(dtype, loc);
}

}  // namespace kiln
