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
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/error.h"

namespace kiln {

namespace detail {
struct TensorImpl;
}

using Sizes = std::vector<int64_t>;

/// The user's line, taken as a default argument by every op.
using Loc = SourceLoc;

/// How a tensor is created.
struct TensorOptions {
  DType dtype = DType::f32;
  bool requires_grad = false;
};

/// Removes a hook. Dropping the handle does not: call remove().
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::function<void()> remove)
      : remove_(std::make_shared<std::function<void()>>(std::move(remove))) {}
  /// Idempotent.
  void remove();

 private:
  std::shared_ptr<std::function<void()>> remove_;
};

class Tensor {
 public:
  /// Undefined: stands for "no tensor" (no bias, no gradient).
  Tensor() = default;
  explicit Tensor(std::shared_ptr<detail::TensorImpl> impl) : impl_(std::move(impl)) {}

  /// Copies `values` into a new tensor of `sizes`. Throws: invalid, when counts differ.
  template <typename T>
  static Tensor from_span(std::span<const T> values, Sizes sizes, Loc loc = Loc::current()) {
    return from_bytes(values.data(), values.size(), dtype_of<T>(), std::move(sizes), loc);
  }
  template <typename T>
  static Tensor from_vector(const std::vector<T>& values, Sizes sizes, Loc loc = Loc::current()) {
    return from_span(std::span<const T>(values), std::move(sizes), loc);
  }
  /// Views caller's memory without a copy; `deleter` (may be empty) runs when the last view goes.
  /// Strides in elements; empty means contiguous.
  static Tensor from_blob(void* data, Sizes sizes, DType dtype, Sizes strides = {},
                          std::function<void(void*)> deleter = {}, Loc loc = Loc::current());

  bool defined() const { return impl_ != nullptr; }
  DType dtype() const;
  const Sizes& sizes() const;
  /// Elements between neighbours per dim.
  const Sizes& strides() const;
  /// Size of `dim`; negative counts from the end. Throws: invalid.
  int64_t size(int64_t dim, Loc loc = Loc::current()) const;
  int64_t dim() const;
  int64_t numel() const;
  bool is_contiguous() const;
  /// "f32[64,128]", or "undefined".
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
  /// Pointer to the first element (see strides()). Throws: invalid, when T is not the tensor's type.
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
  /// Same data, no history.
  Tensor detach(Loc loc = Loc::current()) const;

  // In-place.
  /// Copies `src` (broadcast, cast) into this tensor's memory.
  Tensor& copy_(const Tensor& src, Loc loc = Loc::current());
  Tensor& add_(const Tensor& other, double alpha = 1, Loc loc = Loc::current());
  Tensor& mul_(const Tensor& other, Loc loc = Loc::current());
  Tensor& mul_(double factor, Loc loc = Loc::current());
  Tensor& fill_(double value, Loc loc = Loc::current());
  Tensor& zero_(Loc loc = Loc::current());

  // Method forms of the commonest functions (ops.h has all).
  Tensor to(DType dtype, Loc loc = Loc::current()) const;
  Tensor view(Sizes sizes, Loc loc = Loc::current()) const;
  Tensor reshape(Sizes sizes, Loc loc = Loc::current()) const;
  Tensor transpose(int64_t a, int64_t b, Loc loc = Loc::current()) const;
  Tensor permute(Sizes dims, Loc loc = Loc::current()) const;
  Tensor contiguous(Loc loc = Loc::current()) const;
  Tensor clone(Loc loc = Loc::current()) const;
  Tensor sum(Loc loc = Loc::current()) const;
  Tensor mean(Loc loc = Loc::current()) const;

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

/// A host number given to an op: a run-time value inside a compiled callable, never a constant of its code.
struct Scalar {
  bool is_int = false;
  double d = 0;
  int64_t i = 0;
  Scalar(double v) : d(v) {}                                            // NOLINT
  Scalar(float v) : d(v) {}                                             // NOLINT
  Scalar(int v) : is_int(true), d(v), i(v) {}                           // NOLINT
  Scalar(int64_t v) : is_int(true), d(static_cast<double>(v)), i(v) {}  // NOLINT
  Scalar(bool v) : is_int(true), d(v), i(v) {}                          // NOLINT
  double as_double() const { return is_int ? static_cast<double>(i) : d; }
};

/// An operand of an operator: a tensor or a number, with the line it stands on.
struct TensorArg {
  TensorArg(const Tensor& t, Loc l = Loc::current()) : tensor(&t), loc(l) {}  // NOLINT
  template <typename T>
  requires std::is_arithmetic_v<T> TensorArg(T v, Loc l = Loc::current()) : scalar(v), loc(l) {}  // NOLINT
  const Tensor* tensor = nullptr;
  Scalar scalar{0.0};
  Loc loc;
};

Tensor operator+(const TensorArg& a, const TensorArg& b);
Tensor operator-(const TensorArg& a, const TensorArg& b);
Tensor operator*(const TensorArg& a, const TensorArg& b);
Tensor operator/(const TensorArg& a, const TensorArg& b);
Tensor operator-(const TensorArg& a);

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
