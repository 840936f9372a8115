// SPDX-License-Identifier: Apache-2.0
// Small tools for the frontend's tests: make tensors, read them, and compare error texts exactly.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "frontend/cuda.h"
#include "frontend/ops.h"

namespace kiln::testing {

inline Tensor vec(std::vector<float> v, bool grad = false) {
  Tensor t = Tensor::from_vector(v, {static_cast<int64_t>(v.size())});
  if (grad) t.requires_grad_();
  return t;
}

inline Tensor mat(std::vector<float> v, Sizes sizes, bool grad = false) {
  Tensor t = Tensor::from_vector(v, std::move(sizes));
  if (grad) t.requires_grad_();
  return t;
}

inline Tensor ids(std::vector<int64_t> v) { return Tensor::from_vector(v, {static_cast<int64_t>(v.size())}); }

/// All elements in row-major order.
inline std::vector<float> values(const Tensor& t) { return t.detach().to(DType::f32).to_vector<float>(); }
inline std::vector<double> doubles(const Tensor& t) { return t.detach().to(DType::f64).to_vector<double>(); }

using Floats = std::vector<float>;

/// `text` as it is where tensors are made on the CPU: some tests run with another default device.
inline std::string without_device(std::string text) {
  if (!get_default_device().is_cuda()) return text;
  const std::string on = " on " + get_default_device().str();
  for (size_t p = text.find(on); p != std::string::npos; p = text.find(on, p)) text.erase(p, on.size());
  if (const size_t late = text.find(" (reported late, from call "); late != std::string::npos)
    text.erase(late, text.find(')', late) + 1 - late);
  return text;
}

/// "kind: text" of the Error that `f` throws, or "no error". With tensors on a GPU: also of what it has
/// started there, without what the text says of that.
template <typename F>
std::string error_of(F&& f) {
  try {
    f();
    if (get_default_device().is_cuda()) cuda::synchronize();
  } catch (const Error& e) {
    return without_device(std::string(to_string(e.kind())) + ": " + e.what());
  }
  return "no error";
}

/// `text` with every @ replaced by "file:line".
inline std::string at_line(std::string text, SourceLoc loc) {
  for (size_t p = text.find('@'); p != std::string::npos; p = text.find('@', p + 1))
    text.replace(p, 1, loc.str());
  return text;
}

}  // namespace kiln::testing

/// `call` throws an Error of exactly this "kind: text", where @ stands for the call's "file:line".
#define EXPECT_ERROR(call, text)                              \
  EXPECT_EQ(::kiln::testing::error_of([&] { (void)(call); }), \
            ::kiln::testing::at_line(text, ::kiln::SourceLoc(__FILE__, __LINE__)))
