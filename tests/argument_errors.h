// SPDX-License-Identifier: Apache-2.0
// A row of the tables in argument_errors_*.h: a function, tensors that it takes, and what it refuses.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/kiln.h"

namespace kiln::testing {

using Tensors = std::vector<Tensor>;

struct Function {
  const char* name;
  std::vector<std::string> args;  ///< of its tensors; "?name" may be undefined
  Tensors good;
  std::function<void(const Tensors&)> call;
  std::vector<std::pair<size_t, Tensor>> wrong = {};  ///< what stands for which argument

  bool optional(size_t i) const { return args[i][0] == '?'; }
  std::string argument(size_t i) const { return args[i].substr(optional(i)); }
};
using Functions = std::vector<Function>;

inline Tensor f32(Sizes s) { return ones(std::move(s)); }
inline Tensor f64(Sizes s) { return ones(std::move(s), DType::f64); }
inline Tensor i64(Sizes s) { return zeros(std::move(s), DType::i64); }
inline Tensor mask(Sizes s) { return ones(std::move(s), DType::boolean); }

using T = const Tensors&;

}  // namespace kiln::testing
