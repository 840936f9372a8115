// SPDX-License-Identifier: Apache-2.0
// Tests of programs that must do the same eagerly and compiled: gradients, hook calls and their order,
// errors.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "frontend/compile.h"
#include "frontend/functional.h"
#include "tests/frontend/testing.h"

namespace kiln::testing {

using Tensors = std::vector<Tensor>;
using Fn = std::function<Tensors(const Tensors&)>;

/// What a program has to work with: leaves, a place to tell what happened, and a way to compile.
struct Lab {
  Tensor w = vec({1, 2}, true), v = vec({3, 5}, true);
  std::string told;
  bool compiled = false;
  Backend backend = Backend::native;
  int builds = 1;  ///< that a callable may take: later calls follow

  /// The callable itself, or compiled.
  Fn wrap(Fn f) const {
    if (!compiled) return f;
    CompileOptions o;
    o.backend = backend;
    o.max_builds = builds;
    return
        [c = std::make_shared<Compiled<Fn>>(compile(std::move(f), o))](const Tensors& t) { return (*c)(t); };
  }
  void tell(const std::string& name, const Tensor& t) {
    told += " " + name + "=";
    told += t.defined() ? fmt::format("{:.4g}", fmt::join(values(t), ",")) : "none";
  }
  /// A hook that tells its gradient, and multiplies it unless `factor` is 0.
  std::function<Tensor(const Tensor&)> hook(std::string name, double factor = 0) {
    return [this, name = std::move(name), factor](const Tensor& g) {
      tell(name, g);
      return factor == 0 ? Tensor() : g * factor;
    };
  }
  void tell_grads() {
    tell("w", w.grad());
    tell("v", v.grad());
    w.set_grad({});
    v.set_grad({});
  }
  /// Tells the kind of error, or that there is none.
  void attempt(const std::function<void()>& f) {
    const std::string e = error_of(f);
    told += " " + e.substr(0, e.find(':'));
  }
};

struct Case {
  const char* name;
  /// Makes the callable, and a program that uses it once.
  std::function<std::function<void()>(Lab&)> make;
};

inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

inline std::string run(const Case& c, bool compiled, Backend backend) {
  Lab lab;
  lab.compiled = compiled;
  lab.backend = backend;
  const std::function<void()> program = c.make(lab);
  for (int i = 0; i < 4; ++i) {
    program();
    lab.tell_grads();
    lab.told += "\n";
  }
  return lab.told;
}

using Param = std::tuple<Case, Backend>;

inline std::string name_of(const ::testing::TestParamInfo<Param>& info) {
  return std::string(std::get<0>(info.param).name) +
         (std::get<1>(info.param) == Backend::native ? "_native" : "_reference");
}

inline void expect_same(const Param& p) {
  const auto& [c, backend] = p;
  const std::string eager = run(c, false, backend);
  EXPECT_EQ(run(c, true, backend), eager);
}

}  // namespace kiln::testing

/// Registers the cases of an array as tests of `suite`, for both backends.
#define KILN_SAME_AS_EAGER(suite, cases)                                                               \
  class suite : public ::testing::TestWithParam<::kiln::testing::Param> {};                            \
  TEST_P(suite, CompiledIsAsEager) { ::kiln::testing::expect_same(GetParam()); }                       \
  INSTANTIATE_TEST_SUITE_P(Cases, suite,                                                               \
                           ::testing::Combine(::testing::ValuesIn(cases),                              \
                                              ::testing::Values(Backend::reference, Backend::native)), \
                           ::kiln::testing::name_of)
