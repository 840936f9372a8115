// SPDX-License-Identifier: Apache-2.0
// Immediate evaluation: each primitive runs its row's reference evaluation and, when a gradient may be asked
// for, leaves an entry on the tape. Knows nothing of traces.
#include <atomic>
#include <cmath>

#include "frontend/checkpoint_region.h"
#include "frontend/device.h"
#include "frontend/dispatch.h"
#include "frontend/state.h"
#include "ir/graph.h"

namespace kiln::detail {

uint64_t next_on_tape() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

/// Histories may be long: nodes that nothing else keeps go one after the other, not one inside the other.
GradNode::~GradNode() {
  std::vector<std::shared_ptr<GradNode>> left;
  const auto take_apart = [&](GradNode& n) {
    for (GradEdge& e : n.inputs)
      if (e.node) left.push_back(std::move(e.node));
  };
  take_apart(*this);
  while (!left.empty()) {
    const std::shared_ptr<GradNode> node = std::move(left.back());
    left.pop_back();
    if (node.use_count() == 1) take_apart(*node);
  }
}

GradEdge edge_to(const Tensor& t) {
  const ImplPtr& impl = t.impl();
  GradEdge e;
  if (impl->grad_fn) e.node = impl->grad_fn;
  else if (impl->requires_grad) e.leaf = impl;
  e.saved = alias_without_history(*impl);
  e.version = impl->storage ? impl->storage->version.load() : 0;
  return e;
}

namespace {
void record(Op o, std::span<const Tensor* const> in, Attrs attrs, const ImplPtr& out) {
  auto node = std::make_shared<GradNode>();
  node->sequence = next_on_tape();
  node->op = o;
  node->attrs = std::move(attrs);
  node->loc = state().user_loc();
  for (const Tensor* t : in) node->inputs.push_back(edge_to(*t));
  node->saved_output = alias_without_history(*out);
  node->output_version = out->storage->version;
  out->requires_grad = true;
  out->is_leaf = false;
  if (state().region) state().region->note(node);
  out->grad_fn = std::move(node);
}

void link_view(TensorImpl& view, const ImplPtr& source, Op o, const Attrs& attrs) {
  view.no_grad_view = source->no_grad_view || !state().grad_enabled;
  if (!state().grad_enabled) return;  // it shows the memory, but has a history of its own
  view.base = source->base ? source->base : source;
  view.chain = source->chain;
  view.chain.add_merged(o, attrs);
  view.rewritten = view.base->rewritten;
}
}  // namespace

Type TensorImpl::type() const { return {dtype, Shape(shape.begin(), shape.end())}; }

void* TensorImpl::device_data() const {
  KILN_ASSERT(storage, "no memory behind {}", describe(*this));
  return storage->data + offset * static_cast<int64_t>(dtype_size(dtype));
}
TensorRef TensorImpl::device_ref() const { return {dtype, device_data(), shape, strides}; }

TensorRef TensorImpl::ref() const {
  KILN_ASSERT(!device.is_cuda(), "the host reads the memory of {}", describe(*this));
  return device_ref();
}

std::string write_to_leaf(const TensorImpl& t, bool view) {
  return fmt::format("{}: {} is a {}leaf that requires grad (write to it under no_grad, or to a copy of it)",
                     state().place(), describe(t), view ? "view of a " : "");
}

std::string write_to_no_grad_view(const TensorImpl& t) {
  return fmt::format(
      "{}: {} is a view made under no_grad, and the write would be differentiated (make the view outside "
      "no_grad, or write under no_grad)",
      state().place(), describe(t));
}

std::string type_text(const Type& type, Device device) {
  return type.str() + (device.is_cuda() ? " on " + device.str() : "");
}
std::string type_beside(const TensorImpl& t, const TensorImpl& other) {
  const bool silent = t.device.is_cuda() || t.device == other.device;
  return type_text(t.type(), t.device) + (silent ? "" : " on cpu");
}

std::string describe(const TensorImpl& t) {
  std::string s = type_text(t.type(), t.device);
  if (!t.name.empty()) s += fmt::format(" '{}'", t.name);
  return s;
}

const TensorImpl& checked(const Tensor& t, const char* what, Loc loc) {
  if (!t.defined())
    throw Error(ErrorKind::invalid,
                loc.known() ? fmt::format("{} ({}): the tensor is undefined", what, loc.str())
                            : fmt::format("{}: the tensor is undefined", what),
                loc);
  return *t.impl();
}

HostTensor host_of(const TensorImpl& t) { return {t.ref(), t.storage}; }

ImplPtr impl_from_host(HostTensor host, std::span<const ImplPtr> inputs) {
  auto impl = std::make_shared<TensorImpl>();
  impl->dtype = host.ref.dtype;
  const auto size = static_cast<int64_t>(dtype_size(impl->dtype));
  for (const ImplPtr& in : inputs) {
    if (in->storage != host.storage) continue;
    impl->storage = in->storage;
    impl->offset = (static_cast<char*>(host.ref.data) - in->storage->data) / size;
  }
  if (!impl->storage) {
    impl->storage = std::make_shared<Storage>();
    impl->storage->data = static_cast<char*>(host.ref.data);
    impl->storage->bytes = static_cast<size_t>(host.ref.numel() * size);
    impl->storage->owner = std::move(host.storage);
  }
  impl->shape = std::move(host.ref.shape);
  impl->strides = std::move(host.ref.strides);
  return impl;
}

ImplPtr make_impl(DType dtype, Sizes shape, Device device) {
  if (!device.is_cuda()) return impl_from_host(make_host_tensor(dtype, std::move(shape)), {});
  auto impl = std::make_shared<TensorImpl>();
  impl->dtype = dtype;
  impl->device = device;
  impl->strides = contiguous_strides(shape);
  impl->shape = std::move(shape);
  impl->storage = make_storage(device, byte_count(dtype, impl->shape), *impl);
  return impl;
}

ImplPtr alias_without_history(const TensorImpl& t) {
  auto a = std::make_shared<TensorImpl>();
  a->dtype = t.dtype;
  a->device = t.device;
  a->shape = t.shape;
  a->strides = t.strides;
  a->offset = t.offset;
  a->storage = t.storage;
  return a;
}

namespace {
/// Where an op of these operands runs.
Device device_of(std::span<const Tensor* const> in) {
  Device device = state().device.value_or(Device::cpu());
  for (const Tensor* t : in)
    if (t->impl()->device.is_cuda()) device = t->impl()->device;
  return device;
}

/// A view of memory that the host need not read for it; null: `o` makes none of `x`.
ImplPtr view_of(Op o, const TensorImpl& x, const Attrs& attrs, const Type& type) {
  if (!def(o).view) return nullptr;
  const auto layout = def(o).view({x.dtype, nullptr, x.shape, x.strides}, attrs);
  if (!layout) return nullptr;
  const ImplPtr v = alias_without_history(x);
  v->shape.clear();
  for (const Dim& d : type.shape) v->shape.push_back(d.value());
  v->strides = layout->strides;
  v->offset += layout->offset;
  return v;
}

/// The reference. Where the host's memory does not suffice, the error says whose op wanted it.
HostTensor evaluate_here(Device device, Op o, std::span<const HostTensor> in, const Attrs& attrs) {
  try {
    return evaluate(o, in, attrs);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::device || !state().user_loc().known()) throw;
    const std::string why = device.is_cuda()
                                ? fmt::format(
                                      " in the host's memory, where eager ops of {0} run (compile what "
                                      "makes it, and only {0} needs memory for it)",
                                      device.str())
                                : "";
    throw Error(e.kind(), fmt::format("{}: {}{}", state().place(), e.what(), why), state().user_loc());
  }
}

/// Zeros that the device makes, without as much memory of the host; null: `o` makes something else.
ImplPtr zeros_on(Device device, Op o, const Attrs& attrs, const Type& type) {
  if (o != op("constant")) return nullptr;
  const double value = std::get<double>(attrs[0]);
  if (value != 0 || std::signbit(value)) return nullptr;
  Sizes sizes;
  for (const Dim& d : type.shape) sizes.push_back(d.value());
  ImplPtr made = make_impl(type.dtype, std::move(sizes), device);
  clear(*made->storage);
  return made;
}

/// The reference on host copies of what lies elsewhere; the result goes to `device`.
ImplPtr evaluate_on(Device device, Op o, std::span<const ImplPtr> in, const Attrs& attrs, const Type& type) {
  if (device.is_cuda() && in.empty())
    if (ImplPtr zeros = zeros_on(device, o, attrs, type)) return zeros;
  if (device.is_cuda() && in.size() == 1 && in[0]->device == device)
    if (ImplPtr view = view_of(o, *in[0], attrs, type)) return view;
  std::vector<HostTensor> host;
  for (const ImplPtr& t : in) host.push_back(fetch(*t));
  HostTensor result = evaluate_here(device, o, host, attrs);
  return device.is_cuda() ? upload(result, device) : impl_from_host(std::move(result), in);
}
}  // namespace

Tensor eager_apply(Op o, std::span<const Tensor* const> in, Attrs attrs) {
  std::vector<Type> types;
  std::vector<ImplPtr> impls;
  bool wants_grad = false;
  for (const Tensor* t : in) {
    if (state().grad_enabled) refresh_view(*t->impl());
    materialise(*t->impl(), def(o).name.data(), state().user_loc());
    impls.push_back(t->impl());
    types.push_back(t->impl()->type());
    wants_grad = wants_grad || t->impl()->requires_grad;
  }
  const Type type = infer_type(o, types, attrs, state().user_loc());
  const ImplPtr out = evaluate_on(device_of(in), o, impls, attrs, type);
  if (wants_grad && state().grad_enabled && is_floating(out->dtype) && !def(o).constant_gradient)
    record(o, in, attrs, out);
  const bool view = def(o).view && in.size() == 1 && out->storage == impls[0]->storage;
  if (view) link_view(*out, impls[0], o, attrs);
  return Tensor(out);
}

}  // namespace kiln::detail
