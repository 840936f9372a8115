// SPDX-License-Identifier: Apache-2.0
// What tensors are made of and called with: sizes, dims, options, numbers, the caller's line.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/base/device.h"
#include "ir/base/dtype.h"
#include "ir/base/error.h"

namespace kiln {

namespace detail {
struct TensorImpl;
}
class Tensor;

using Sizes = std::vector<int64_t>;

/// Dims of a reduction: one, or a list; none means all.
struct Dims : Sizes {
  Dims() = default;
  Dims(std::initializer_list<int64_t> dims) : Sizes(dims) {}  // NOLINT: as in PyTorch
  Dims(Sizes dims) : Sizes(std::move(dims)) {}                // NOLINT
  template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Dims(T dim)  // NOLINT
      : Sizes{static_cast<int64_t>(dim)} {}
};

/// The user's line, taken as a default argument by every op.
using Loc = SourceLoc;

/// How a tensor is created.
struct TensorOptions {
  std::optional<DType> dtype = {};  ///< none: f32; i64 of randint; of full and arange what the numbers are
  bool requires_grad = false;
  std::optional<Device> device = {};  ///< none: get_default_device()
};

/// Where new tensors are made: by creation functions, modules, from_span and from_vector, unless they are
/// given a device. The process's; the CPU at first. Source: torch.set_default_device.
void set_default_device(Device device);
Device get_default_device();

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

/// A host number given to an op: a run-time value inside a compiled callable, never a constant of its code.
struct Scalar {
  bool is_int = false, is_bool = false;  ///< a bool is an int, too
  double d = 0;
  int64_t i = 0;
  template <typename T>
  requires std::is_arithmetic_v<T> Scalar(T v)  // NOLINT
      : is_int(std::is_integral_v<T>),
        is_bool(std::is_same_v<T, bool>),
        d(static_cast<double>(v)),
        i(is_int ? static_cast<int64_t>(v) : 0) {}
  double as_double() const { return is_int ? static_cast<double>(i) : d; }
};

/// An operand of an operator: a tensor or a number, with the line it stands on.
struct TensorArg {
  TensorArg(const Tensor& t, Loc l = Loc::current()) : tensor(&t), loc(l) {}  // NOLINT
  template <typename T>
  requires std::is_arithmetic_v<T> TensorArg(T v, Loc l = Loc::current()) : scalar(v), loc(l) {}  // NOLINT
  TensorArg(const Scalar& v, Loc l = Loc::current()) : scalar(v), loc(l) {}                       // NOLINT
  const Tensor* tensor = nullptr;
  Scalar scalar{0.0};
  Loc loc;
};

/// An index in brackets, with the line it stands on.
struct IndexArg {
  template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) IndexArg(T i, Loc l = Loc::current())  // NOLINT
      : index(static_cast<int64_t>(i)), loc(l) {}
  int64_t index;
  Loc loc;
};

}  // namespace kiln
