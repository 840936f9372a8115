// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: memory for time. Names and semantics are those of torch.utils.checkpoint with
// use_reentrant=False and preserve_rng_state=True.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "frontend/tensor.h"

namespace kiln {

namespace nn {
class Module;
}

namespace detail {

class CheckpointRegion;
class Cursor;

/// One run of a checkpointed function, from its construction to end().
class CheckpointScope {
 public:
  CheckpointScope(const std::vector<const Tensor*>& inputs, Loc loc);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;
  /// Whether what runs is to be kept for a backward.
  bool eager() const { return eager_; }
  void keep(std::function<void()> run);
  void end();

 private:
  const Loc loc_;
  const Device device_;
  Cursor* cursor_ = nullptr;  ///< whose trace gets the marks
  bool eager_ = false;
  std::shared_ptr<CheckpointRegion> region_;
};

/// `fn(in...)`, with the user's line where it takes one.
template <typename F, typename... In>
decltype(auto) call_at(F& fn, Loc loc, const In&... in) {
  if constexpr (std::is_base_of_v<nn::Module, F> || !std::is_invocable_v<F&, const In&...>)
    return fn(in..., loc);
  else return fn(in...);
}

template <typename F, typename... In>
auto checkpointed(F&& fn, Loc loc, const std::vector<const Tensor*>& inputs, const In&... in) {
  using Fn = std::decay_t<F>;
  constexpr bool kCopied = std::is_copy_constructible_v<Fn>;
  static_assert(kCopied || std::is_lvalue_reference_v<F>,
                "checkpoint: a callable that cannot be copied must outlive the backward; give it a name");
  CheckpointScope scope(inputs, loc);
  if (scope.eager()) {
    if constexpr (kCopied) scope.keep([fn = Fn(fn), loc, in...]() mutable { (void)call_at(fn, loc, in...); });
    else scope.keep([&fn, loc, in...] { (void)call_at(fn, loc, in...); });
  }
  try {
    auto result = call_at(fn, loc, in...);
    scope.end();
    return result;
  } catch (...) {
    scope.end();
    throw;
  }
}

}  // namespace detail

/// fn(x), of which nothing is kept for the backward but the inputs, what `fn` gives, and the parameters that
/// it uses. In the backward `fn` runs again, with the generator as it was: the same values, draws of dropout
/// included, the same gradients. Inside a compiled callable its ops are repeated in the backward's part of
/// the program, without running `fn` again; a result may then differ from that without checkpoint by how the
/// repeated ops are fused, and a compiled backward outside the callable keeps the inputs alone.
///
/// `fn` is a function of its inputs and of tensors that it captures: when it runs again it must apply the
/// same ops to the same values, and nothing that it reads may have been changed in place. Modules are taken
/// by reference and must outlive the backward; running statistics are updated twice, as in PyTorch. Inside
/// another checkpoint it is a part of that, and under no_grad a call of `fn`. What a compiled callable that
/// `fn` calls keeps is its own affair. Hooks that `fn` adds to its values are called once.
/// Throws: invalid, from the backward, when `fn` did not do the same again.
/// Source: torch.utils.checkpoint.checkpoint; Chen et al. 2016.
template <typename F>
auto checkpoint(F&& fn, const Tensor& x, Loc loc = Loc::current()) {
  return detail::checkpointed(std::forward<F>(fn), loc, {&x}, x);
}
template <typename F>
auto checkpoint(F&& fn, const Tensor& a, const Tensor& b, Loc loc = Loc::current()) {
  return detail::checkpointed(std::forward<F>(fn), loc, {&a, &b}, a, b);
}
template <typename F>
auto checkpoint(F&& fn, const Tensor& a, const Tensor& b, const Tensor& c, Loc loc = Loc::current()) {
  return detail::checkpointed(std::forward<F>(fn), loc, {&a, &b, &c}, a, b, c);
}
/// fn(inputs), of any number.
template <typename F>
auto checkpoint(F&& fn, const std::vector<Tensor>& inputs, Loc loc = Loc::current()) {
  std::vector<const Tensor*> each;
  for (const Tensor& t : inputs) each.push_back(&t);
  return detail::checkpointed(std::forward<F>(fn), loc, each, inputs);
}

}  // namespace kiln
