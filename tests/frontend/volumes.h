// SPDX-License-Identifier: Apache-2.0
// Maps of tensors of three dims of space against their definition, which plain loops of a test write down as
// terms: one of an element of the input in one of the output.
#pragma once

#include <vector>

#include "tests/frontend/everywhere.h"

namespace kiln::testing {

/// y[to] += by * x[from].
struct Term {
  int64_t to, from;
  double by;
};

/// The row-major place of `at` in a tensor of `sizes`.
inline int64_t place(const Sizes& sizes, const Sizes& at) {
  int64_t i = 0;
  for (size_t d = 0; d < sizes.size(); ++d) i = i * sizes[d] + at[d];
  return i;
}

/// Calls f(at) for each place of a tensor of `sizes`, in row-major order.
template <typename F>
void each_place(const Sizes& sizes, F&& f) {
  Sizes at(sizes.size(), 0);
  for (size_t d = sizes.size(); d != 0;) {
    f(at);
    for (d = sizes.size(); d != 0 && ++at[d - 1] == sizes[d - 1]; --d) at[d - 1] = 0;
  }
}

/// A number for each element, f64, all different.
inline Tensor volume(Sizes sizes, double scale = 0.7) {
  std::vector<double> v;
  each_place(sizes, [&](const Sizes& at) {
    v.push_back(std::sin(scale * static_cast<double>(place(sizes, at)) + 1));
  });
  return Tensor::from_vector(v, std::move(sizes));
}

/// Values of f(x) and the gradient of a weighted sum of them are those of the terms: eagerly and compiled.
inline void expect_terms(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, const Sizes& y_sizes,
                         const std::vector<Term>& terms, const std::string& name) {
  const std::vector<double> in = doubles(x);
  std::vector<double> y, gradient(in.size(), 0);
  each_place(y_sizes, [&](const Sizes&) { y.push_back(0); });
  for (const Term& t : terms) {
    const auto to = static_cast<size_t>(t.to), from = static_cast<size_t>(t.from);
    y[to] += t.by * in[from];
    gradient[from] += t.by * weight(to);
  }
  EXPECT_EQ(f(x).sizes(), y_sizes) << name;
  EXPECT_EQ(difference(everywhere([&](const Inputs& v) { return f(v[0]); }, {x}, name), y, 1e-12), "")
      << name;

  Tensor leaf = x.detach().clone();
  leaf.requires_grad_();
  std::vector<double> upstream;
  for (size_t i = 0; i < y.size(); ++i) upstream.push_back(weight(i));
  const Tensor by = Tensor::from_vector(upstream, y_sizes);
  const auto run = [&] { f(leaf).backward(by); };
  CompileOptions native, reference;
  reference.backend = Backend::reference;
  for (const std::function<void()>& way :
       {std::function<void()>(run), std::function<void()>(compile(run, native)),
        std::function<void()>(compile(run, reference))}) {
    leaf.set_grad({});
    way();
    EXPECT_EQ(difference(doubles(leaf.grad()), gradient, 1e-12), "") << name << ", gradient";
  }
}

}  // namespace kiln::testing
