// SPDX-License-Identifier: Apache-2.0
// Tensor's metadata, creation from host data, reading, and autograd entry points. Arithmetic is in ops.cpp.
#include "frontend/tensor.h"

#include <cstring>

#include "frontend/cursor.h"
#include "frontend/device.h"
#include "frontend/dispatch.h"
#include "frontend/state.h"

namespace kiln {

using detail::checked;
using detail::ImplPtr;
using detail::TensorImpl;

void HookHandle::remove() {
  if (!remove_ || !*remove_) return;
  (*remove_)();
  *remove_ = nullptr;
}

int64_t detail::count_of(const Sizes& sizes, const char* what, Loc loc) {
  int64_t n = 1;
  for (int64_t d : sizes) {
    const bool fits = d >= 0 && !__builtin_mul_overflow(n, d, &n);
    KILN_CHECK(fits, invalid, "{} ({}): bad sizes [{}]", what, loc.str(), fmt::join(sizes, ","));
  }
  return n;
}

Tensor Tensor::from_bytes(const void* data, size_t count, DType dtype, Sizes sizes, Loc loc) {
  const int64_t n = detail::count_of(sizes, "from_span", loc);
  KILN_CHECK(static_cast<size_t>(n) == count, invalid,
             "from_span ({}): got {} values for sizes [{}], expected {}", loc.str(), count,
             fmt::join(sizes, ","), n);
  const Device device = get_default_device();
  if (device.is_cuda()) {
    const Sizes strides = contiguous_strides(sizes);
    const detail::Scope scope("from_span", loc);
    return Tensor(
        detail::upload({{dtype, const_cast<void*>(data), std::move(sizes), strides}, nullptr}, device));
  }
  const ImplPtr t = detail::make_impl(dtype, std::move(sizes));
  if (count > 0) std::memcpy(t->storage->data, data, count * dtype_size(dtype));
  return Tensor(t);
}

Tensor Tensor::from_blob(void* data, Sizes sizes, DType dtype, Sizes strides,
                         std::function<void(void*)> deleter, Loc loc) {
  detail::count_of(sizes, "from_blob", loc);
  KILN_CHECK(strides.empty() || strides.size() == sizes.size(), invalid,
             "from_blob ({}): got {} strides for {} sizes", loc.str(), strides.size(), sizes.size());
  auto t = std::make_shared<TensorImpl>();
  t->dtype = dtype;
  t->strides = strides.empty() ? contiguous_strides(sizes) : std::move(strides);
  int64_t last = 0;
  bool empty = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    KILN_CHECK(t->strides[i] >= 0, invalid, "from_blob ({}): negative stride {}", loc.str(), t->strides[i]);
    empty = empty || sizes[i] == 0;
    int64_t way = 0;
    const bool fits = !__builtin_mul_overflow(sizes[i] - 1, t->strides[i], &way) &&
                      !__builtin_add_overflow(last, way, &last) && last < INT64_MAX / 8;
    KILN_CHECK(fits || empty, invalid, "from_blob ({}): strides [{}] of sizes [{}] reach too far", loc.str(),
               fmt::join(t->strides, ","), fmt::join(sizes, ","));
  }
  KILN_CHECK(reinterpret_cast<uintptr_t>(data) % dtype_size(dtype) == 0, invalid,
             "from_blob ({}): the data is not aligned for {}; got {}", loc.str(), dtype_name(dtype), data);
  KILN_CHECK(data || empty, invalid, "from_blob ({}): null data for sizes [{}]", loc.str(),
             fmt::join(sizes, ","));
  t->shape = std::move(sizes);
  t->storage = std::make_shared<detail::Storage>();
  t->storage->data = static_cast<char*>(data);
  t->storage->bytes = empty ? 0 : static_cast<size_t>(last + 1) * dtype_size(dtype);
  if (deleter) t->storage->owner = std::shared_ptr<void>(data, std::move(deleter));
  return Tensor(t);
}

DType Tensor::dtype() const { return checked(*this, "dtype", {}).dtype; }
const Sizes& Tensor::sizes() const { return checked(*this, "sizes", {}).shape; }
const Sizes& Tensor::strides() const { return checked(*this, "strides", {}).strides; }
int64_t Tensor::dim() const { return static_cast<int64_t>(sizes().size()); }

int64_t Tensor::size(int64_t dim, Loc loc) const {
  const Sizes& s = checked(*this, "size", loc).shape;
  const auto rank = static_cast<int64_t>(s.size());
  KILN_CHECK(dim >= -rank && dim < rank, invalid, "size ({}): dim {} is out of range for {}", loc.str(), dim,
             type_str());
  return s[static_cast<size_t>(dim < 0 ? dim + rank : dim)];
}

int64_t Tensor::numel() const {
  int64_t n = 1;
  for (int64_t d : sizes()) n *= d;
  return n;
}

bool Tensor::is_contiguous() const {
  const TensorImpl& t = checked(*this, "is_contiguous", {});
  int64_t expected = 1;
  for (size_t i = t.shape.size(); i-- > 0;) {
    if (t.shape[i] == 0) return true;
    if (t.shape[i] != 1 && t.strides[i] != expected) return false;
    expected *= t.shape[i];
  }
  return true;
}

Device Tensor::device() const { return checked(*this, "device", {}).device; }
std::string Tensor::type_str() const {
  return defined() ? detail::type_text(impl_->type(), impl_->device) : "undefined";
}
const std::string& Tensor::name() const { return checked(*this, "name", {}).name; }
void Tensor::set_name(std::string name) {
  checked(*this, "set_name", {});
  impl_->name = std::move(name);
}

namespace {
/// f(the element): a double, float or int64_t.
template <typename F>
auto one_element(const Tensor& x, Loc loc, F&& f) {
  checked(x, "item", loc);
  KILN_CHECK(x.numel() == 1, invalid, "item ({}): expected one element, got {}", loc.str(), x.type_str());
  detail::materialise(*x.impl(), "item", loc);
  const HostTensor host = detail::fetch(*x.impl());
  const TensorRef& r = host.ref;
  return dispatch(r.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
    return f(static_cast<Wide>(*static_cast<T*>(r.data)));
  });
}
}  // namespace

double Tensor::item_double(Loc loc) const {
  return one_element(*this, loc, [](auto v) { return static_cast<double>(v); });
}
int64_t Tensor::item_int(int64_t lo, int64_t hi, Loc loc) const {
  return one_element(*this, loc, [&](auto v) {
    bool fits = true;
    if constexpr (std::is_floating_point_v<decltype(v)>) fits = v >= -0x1p63 && v < 0x1p63;
    const int64_t i = fits ? static_cast<int64_t>(v) : 0;
    KILN_CHECK(fits && i >= lo && i <= hi, invalid,
               "item ({}): the element of {} does not fit the type asked for; got {}, expected {} to {}",
               loc.str(), type_str(), v, lo, hi);
    return i;
  });
}

size_t Tensor::count_checked(Loc loc) const {
  checked(*this, "to_vector", loc);
  return static_cast<size_t>(numel());
}

void Tensor::copy_to(void* out, DType dtype, Loc loc) const {
  checked(*this, "to_vector", loc);
  KILN_CHECK(dtype == impl_->dtype, invalid,
             "to_vector ({}): asked for {}, the tensor is {} (cast it with to())", loc.str(),
             dtype_name(dtype), type_str());
  detail::materialise(*impl_, "to_vector", loc);
  copy_elements(detail::fetch(*impl_).ref, {dtype, out, impl_->shape, contiguous_strides(impl_->shape)});
}

void* Tensor::data_checked(DType dtype, Loc loc) const {
  checked(*this, "data_ptr", loc);
  KILN_CHECK(dtype == impl_->dtype, invalid,
             "data_ptr ({}): asked for {}, the tensor is {} (cast it with to())", loc.str(),
             dtype_name(dtype), type_str());
  detail::materialise(*impl_, "data_ptr", loc);
  detail::let_write(*impl_->storage);  // who knows what it is for
  return impl_->device_ref().data;
}

Tensor::operator bool() const {
  const Loc loc = detail::caller_loc();  // a conversion takes no arguments
  checked(*this, "bool", loc);
  KILN_CHECK(numel() == 1, invalid, "bool: expected one element, got {} (take any() or all() of it)",
             type_str());
  return item<double>(loc) != 0;
}

namespace {
/// With its history up to date.
const TensorImpl& current(const Tensor& t, const char* what) {
  checked(t, what, {});
  detail::refresh_view(*t.impl());
  return *t.impl();
}
}  // namespace

bool Tensor::requires_grad() const { return current(*this, "requires_grad").requires_grad; }
bool Tensor::is_leaf() const { return current(*this, "is_leaf").is_leaf; }

Tensor Tensor::grad() const { return Tensor(checked(*this, "grad", {}).grad); }

void Tensor::set_grad(const Tensor& g, Loc loc) {
  checked(*this, "set_grad", loc);
  if (g.defined())
    KILN_CHECK(g.sizes() == sizes() && g.dtype() == dtype() && g.device() == device(), invalid,
               "set_grad ({}): got {}, expected {}", loc.str(), detail::type_beside(*g.impl(), *impl_),
               detail::type_beside(*impl_, *g.impl()));
  if (detail::Cursor* c = detail::state().cursor) c->note_grad_set(*impl_);
  impl_->grad = g.impl_;
}

Tensor& Tensor::requires_grad_(bool on, Loc loc) {
  checked(*this, "requires_grad_", loc);
  KILN_CHECK(!on || is_floating(impl_->dtype), invalid,
             "requires_grad_ ({}): only floating tensors have gradients, got {}", loc.str(), type_str());
  KILN_CHECK(impl_->is_leaf, invalid, "requires_grad_ ({}): {} is not a leaf (use detach())", loc.str(),
             type_str());
  if (detail::Cursor* c = detail::state().cursor) c->set_leaf(*this, on, loc);
  else impl_->requires_grad = on;
  return *this;
}

void Tensor::backward(const Tensor& gradient, bool retain_graph, Loc loc) const {
  checked(*this, "backward", loc);
  detail::refresh_view(*impl_);
  KILN_CHECK(impl_->requires_grad, invalid, "backward ({}): {} does not require grad", loc.str(),
             detail::describe(*impl_));
  KILN_CHECK(gradient.defined() || numel() == 1, invalid,
             "backward ({}): the tensor is {}, not a scalar (pass its gradient)", loc.str(), type_str());
  const bool fits = !gradient.defined() || (gradient.sizes() == sizes() && gradient.dtype() == dtype() &&
                                            gradient.device() == device());
  KILN_CHECK(fits, invalid, "backward ({}): gradient has another type; got {}, expected {}", loc.str(),
             detail::type_beside(*gradient.impl(), *impl_), detail::type_beside(*impl_, *gradient.impl()));
  detail::Cursor* c = detail::state().cursor;
  detail::GradWatch watch(loc);
  try {
    if (c && c->knows(*impl_)) c->backward(*this, gradient, retain_graph, loc, watch);
    else detail::eager_backward(*this, gradient, retain_graph, loc, watch);
    watch.end();
  } catch (const std::exception& e) {
    watch.failed(e.what());
    throw;
  } catch (...) {
    watch.failed("an exception left a hook");
    throw;
  }
}

HookHandle Tensor::register_hook(std::function<Tensor(const Tensor&)> hook, Loc loc) {
  checked(*this, "register_hook", loc);
  detail::refresh_view(*impl_);
  KILN_CHECK(impl_->requires_grad, invalid, "register_hook ({}): {} does not require grad", loc.str(),
             type_str());
  KILN_CHECK(hook, invalid, "register_hook ({}): the hook is an empty function", loc.str());
  if (detail::Cursor* c = detail::state().cursor) c->note_hook(*this, loc);
  static std::atomic<uint64_t> next_id{1};
  const uint64_t id = next_id++;
  if (!impl_->hooks) impl_->hooks = std::make_shared<detail::HookList>();
  if (impl_->grad_fn) impl_->grad_fn->hooks = impl_->hooks;
  impl_->hooks->push_back({id, std::move(hook)});
  return HookHandle([list = std::weak_ptr(impl_->hooks), id] {
    if (const auto hooks = list.lock())
      std::erase_if(*hooks, [id](const detail::HookEntry& h) { return h.id == id; });
  });
}

}  // namespace kiln
