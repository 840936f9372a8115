// SPDX-License-Identifier: Apache-2.0
// Tensor: the value users compute with. A handle with shared ownership; copying it never copies elements.
// Names and semantics are PyTorch's where it has them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/tensor_args.h"
#include "frontend/tensor_methods.h"

namespace kiln {

class Tensor : public detail::TensorMethods {
 public:
  /// Undefined: stands for "no tensor" (no bias, no gradient).
  Tensor() = default;
  explicit Tensor(std::shared_ptr<detail::TensorImpl> impl) : impl_(std::move(impl)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  ~Tensor() = default;
  /// A variable then stands for the other tensor; nothing is copied.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  /// What is no variable is written to: `x[0] = y` and `x.select(1, 2) = 0` are copy_ and fill_ into the
  /// view.
  void operator=(const TensorArg& value) &&;  // NOLINT: there is nothing to return a reference to

  /// Copies `values` into a new tensor of `sizes` on the default device. Throws: invalid, when counts differ.
  template <typename T>
  static Tensor from_span(std::span<const T> values, Sizes sizes, Loc loc = Loc::current()) {
    return from_bytes(values.data(), values.size(), dtype_of<T>(), std::move(sizes), loc);
  }
  template <typename T>
  static Tensor from_vector(const std::vector<T>& values, Sizes sizes, Loc loc = Loc::current()) {
    return from_span(std::span<const T>(values), std::move(sizes), loc);
  }
  /// Views caller's memory, the CPU's, without a copy; `deleter` (may be empty) runs when the last view goes.
  /// Strides in elements; empty means contiguous.
  static Tensor from_blob(void* data, Sizes sizes, DType dtype, Sizes strides = {},
                          std::function<void(void*)> deleter = {}, Loc loc = Loc::current());

  bool defined() const { return impl_ != nullptr; }
  DType dtype() const;
  Device device() const;
  bool is_cuda() const { return device().is_cuda(); }
  const Sizes& sizes() const;
  /// Elements between neighbours per dim.
  const Sizes& strides() const;
  /// Size of `dim`; negative counts from the end. Throws: invalid.
  int64_t size(int64_t dim, Loc loc = Loc::current()) const;
  int64_t dim() const;
  int64_t numel() const;
  bool is_contiguous() const;
  bool is_floating_point() const;
  /// dtype and device, for a tensor like this one.
  TensorOptions options() const { return {.dtype = dtype(), .device = device()}; }
  /// "f32[64,128]", "f32[64,128] on cuda:0", or "undefined".
  std::string type_str() const;
  /// Name given by the module that owns it, e.g. "fc1.weight"; or "".
  const std::string& name() const;
  void set_name(std::string name);

  // Reading elements. Inside a compiled callable these are host reads: the plan so far runs first.
  /// The value of a one-element tensor, converted to T; integers are cut. Throws: invalid, when numel() != 1
  /// or T is an integer that cannot hold it.
  template <typename T = double>
  T item(Loc loc = Loc::current()) const {
    using Limits = std::numeric_limits<T>;
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      return static_cast<T>(item_int(std::is_signed_v<T> ? static_cast<int64_t>(Limits::min()) : 0,
                                     sizeof(T) < 8 ? static_cast<int64_t>(Limits::max()) : INT64_MAX, loc));
    else return static_cast<T>(item_double(loc));
  }
  /// All elements in row-major order; T must be the tensor's C++ type. Throws: invalid.
  template <typename T>
  std::vector<T> to_vector(Loc loc = Loc::current()) const {
    std::vector<T> out(count_checked(loc));
    if constexpr (std::is_same_v<T, bool>) {
      std::vector<uint8_t> bytes(out.size());
      copy_to(bytes.data(), DType::boolean, loc);
      out.assign(bytes.begin(), bytes.end());
    } else {
      copy_to(out.data(), dtype_of<T>(), loc);
    }
    return out;
  }
  /// Pointer to the first element (see strides()), in the memory of device(): the host cannot follow one of a
  /// GPU. Throws: invalid, when T is not the tensor's type.
  template <typename T>
  T* data_ptr(Loc loc = Loc::current()) const {
    return static_cast<T*>(data_checked(dtype_of<T>(), loc));
  }
  /// True if the single element is not zero: a host read.
  explicit operator bool() const;

  // Autograd.
  bool requires_grad() const;
  /// Throws: invalid, on a non-floating or non-leaf tensor.
  Tensor& requires_grad_(bool on = true, Loc loc = Loc::current());
  bool is_leaf() const;
  /// The accumulated gradient, or an undefined tensor.
  Tensor grad() const;
  void set_grad(const Tensor& g, Loc loc = Loc::current());
  /// Accumulates gradients of this scalar (or with `gradient` of the same shape) into the leaves' grad().
  /// Throws: invalid (not a scalar; does not require grad; graph already consumed), unsupported (op without
  /// derivative).
  void backward(const Tensor& gradient = {}, bool retain_graph = false, Loc loc = Loc::current()) const;
  /// Calls `hook` with the gradient of this tensor during backward; a defined result replaces it.
  HookHandle register_hook(std::function<Tensor(const Tensor&)> hook, Loc loc = Loc::current());
  /// One that returns nothing changes nothing.
  template <typename F>
  requires std::is_void_v<std::invoke_result_t<F, const Tensor&>> HookHandle
  register_hook(F hook, Loc loc = Loc::current()) {
    return register_hook(std::function<Tensor(const Tensor&)>([hook = std::move(hook)](const Tensor& g) {
                           hook(g);
                           return Tensor();
                         }),
                         loc);
  }
  /// Same data, no history.
  Tensor detach(Loc loc = Loc::current()) const;

  // In-place. Each writes the result of the function of that name into this tensor's memory, and autograd
  // follows it. Throws: invalid, where the result has another shape or category, where elements share memory,
  // and for leaves that require grad (but under no_grad). Source: torch.Tensor's methods of the same names.
  /// Copies `src` (broadcast, cast, from any device).
  Tensor& copy_(const Tensor& src, Loc loc = Loc::current());
  Tensor& add_(const Tensor& other, double alpha = 1, Loc loc = Loc::current());
  Tensor& add_(Scalar number, Loc loc = Loc::current());
  Tensor& sub_(const Tensor& other, double alpha = 1, Loc loc = Loc::current());
  Tensor& sub_(Scalar number, Loc loc = Loc::current());
  Tensor& mul_(const Tensor& other, Loc loc = Loc::current());
  Tensor& mul_(Scalar factor, Loc loc = Loc::current());
  Tensor& div_(const Tensor& other, Loc loc = Loc::current());
  Tensor& div_(Scalar divisor, Loc loc = Loc::current());
  Tensor& pow_(const Tensor& exponent, Loc loc = Loc::current());
  Tensor& pow_(Scalar exponent, Loc loc = Loc::current());
  Tensor& addcmul_(const Tensor& a, const Tensor& b, double value = 1, Loc loc = Loc::current());
  Tensor& addcdiv_(const Tensor& a, const Tensor& b, double value = 1, Loc loc = Loc::current());
  Tensor& lerp_(const Tensor& end, double weight, Loc loc = Loc::current());
  Tensor& clamp_(std::optional<double> lo, std::optional<double> hi, Loc loc = Loc::current());
  Tensor& masked_fill_(const Tensor& mask, Scalar value, Loc loc = Loc::current());
  Tensor& scatter_(int64_t dim, const Tensor& index, const Tensor& src, Loc loc = Loc::current());
  Tensor& scatter_(int64_t dim, const Tensor& index, double value, Loc loc = Loc::current());
  Tensor& scatter_add_(int64_t dim, const Tensor& index, const Tensor& src, Loc loc = Loc::current());
  Tensor& index_add_(int64_t dim, const Tensor& index, const Tensor& src, Scalar alpha = 1,
                     Loc loc = Loc::current());
  Tensor& index_copy_(int64_t dim, const Tensor& index, const Tensor& src, Loc loc = Loc::current());
  Tensor& index_fill_(int64_t dim, const Tensor& index, double value, Loc loc = Loc::current());
  Tensor& fill_(Scalar value, Loc loc = Loc::current());
  Tensor& zero_(Loc loc = Loc::current());
  Tensor& neg_(Loc loc = Loc::current());
  Tensor& abs_(Loc loc = Loc::current());
  Tensor& exp_(Loc loc = Loc::current());
  Tensor& log_(Loc loc = Loc::current());
  Tensor& sqrt_(Loc loc = Loc::current());
  Tensor& rsqrt_(Loc loc = Loc::current());
  Tensor& reciprocal_(Loc loc = Loc::current());
  Tensor& sigmoid_(Loc loc = Loc::current());
  Tensor& tanh_(Loc loc = Loc::current());
  Tensor& relu_(Loc loc = Loc::current());
  Tensor& floor_(Loc loc = Loc::current());
  Tensor& ceil_(Loc loc = Loc::current());
  Tensor& round_(Loc loc = Loc::current());
  /// Draws from the default generator.
  Tensor& uniform_(double from = 0, double to = 1, Loc loc = Loc::current());
  Tensor& normal_(double mean = 0, double std = 1, Loc loc = Loc::current());
  Tensor& bernoulli_(double p = 0.5, Loc loc = Loc::current());

  // Devices. Inside a compiled callable a transfer is a host read: the plan so far runs first.
  /// This tensor if it is there already, else a copy, through which gradients flow back.
  /// Throws: device, when there is no such GPU; unsupported, where a transfer inside a compiled callable
  /// would have to be differentiated.
  Tensor to(Device device, Loc loc = Loc::current()) const;
  Tensor to(Device device, DType dtype, Loc loc = Loc::current()) const;
  Tensor cuda(int index = 0, Loc loc = Loc::current()) const { return to(Device::cuda(index, loc), loc); }
  Tensor cpu(Loc loc = Loc::current()) const { return to(Device::cpu(), loc); }

  Tensor to(DType dtype, Loc loc = Loc::current()) const;
  /// select(0, index).
  Tensor operator[](const IndexArg& index) const;

  const std::shared_ptr<detail::TensorImpl>& impl() const { return impl_; }

 private:
  static Tensor from_bytes(const void* data, size_t count, DType dtype, Sizes sizes, Loc loc);
  double item_double(Loc loc) const;
  int64_t item_int(int64_t lo, int64_t hi, Loc loc) const;
  size_t count_checked(Loc loc) const;
  void copy_to(void* out, DType dtype, Loc loc) const;
  void* data_checked(DType dtype, Loc loc) const;

  std::shared_ptr<detail::TensorImpl> impl_;
};

/// Tensors by name, as state_dict() gives and load_state_dict() takes them.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

Tensor operator+(const TensorArg& a, const TensorArg& b);
Tensor operator-(const TensorArg& a, const TensorArg& b);
Tensor operator*(const TensorArg& a, const TensorArg& b);
Tensor operator/(const TensorArg& a, const TensorArg& b);
Tensor operator-(const TensorArg& a);
Tensor operator%(const TensorArg& a, const TensorArg& b);  ///< remainder
// Elementwise, with a tensor of bool as result: `if (a == b)` works for one element alone.
Tensor operator==(const TensorArg& a, const TensorArg& b);
Tensor operator!=(const TensorArg& a, const TensorArg& b);
Tensor operator<(const TensorArg& a, const TensorArg& b);
Tensor operator<=(const TensorArg& a, const TensorArg& b);
Tensor operator>(const TensorArg& a, const TensorArg& b);
Tensor operator>=(const TensorArg& a, const TensorArg& b);
// Of the bits of integers; logical for bool.
Tensor operator&(const TensorArg& a, const TensorArg& b);
Tensor operator|(const TensorArg& a, const TensorArg& b);
Tensor operator^(const TensorArg& a, const TensorArg& b);
Tensor operator~(const TensorArg& a);

/// Numpy-like text of the elements. A host read inside a compiled callable.
std::ostream& operator<<(std::ostream& out, const Tensor& t);

/// While alive, no op on this thread is recorded for backward.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};
/// PyTorch's spelling.
using no_grad = NoGrad;
/// Whether ops on this thread are recorded for backward.
bool grad_enabled();

/// Seeds the default generator and resets its offset. Every random op takes the next offset, in program
/// order.
void manual_seed(uint64_t seed);
/// State of the default generator, for checkpoints.
struct GeneratorState {
  uint64_t seed = 0, offset = 0;
};
GeneratorState generator_state();
void set_generator_state(GeneratorState s);

}  // namespace kiln
