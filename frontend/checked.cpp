// SPDX-License-Identifier: Apache-2.0
#include "frontend/checked.h"

#include <cmath>

namespace kiln::detail {

namespace {

HostTensor copy_of(const HostTensor& t) {
  HostTensor c = make_host_tensor(t.ref.dtype, t.ref.shape);
  copy_elements(t.ref, c.ref);
  return c;
}

std::vector<HostTensor> typed_copies(const Graph& g, std::span<const HostTensor> inputs) {
  std::vector<HostTensor> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    HostTensor in = inputs[i];
    in.ref.dtype = g.type(g.inputs[i].value).dtype;
    out.push_back(copy_of(in));
  }
  return out;
}

/// Elements of a contiguous tensor as doubles.
std::vector<double> elements(const HostTensor& t) {
  const HostTensor c = contiguous(t);
  std::vector<double> v(static_cast<size_t>(c.ref.numel()));
  dispatch(c.ref.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<double>(static_cast<Wide>(static_cast<const T*>(c.ref.data)[i]));
  });
  return v;
}

std::string place(const Graph& g, const Node& n) {
  std::string s = fmt::format("`{}`", def(n.op).name);
  if (n.origin.loc.known()) s += fmt::format(" ({})", n.origin.loc.str());
  if (n.origin.scope >= 0) s += fmt::format(" in {}", g.scopes[static_cast<size_t>(n.origin.scope)]);
  return s;
}

/// Largest difference relative to the largest magnitude; infinite when NaN or Inf stand in other places.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0, scale = 1e-6;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
      if (a[i] == b[i]) continue;
      return INFINITY;
    }
    worst = std::max(worst, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return worst / scale;
}

double limit(DType t) { return t == DType::f64 ? 1e-10 : t == DType::f32 ? 2e-4 : is_floating(t) ? 5e-2 : 0; }

class ReferenceCheck : public Program {
 public:
  ReferenceCheck(std::unique_ptr<Program> program, const Graph& g, const StageOptions& options)
      : program_(std::move(program)), graph_(g), options_(options) {}

  void run(std::span<const HostTensor> inputs, std::span<const HostTensor> outputs) override {
    const std::vector<HostTensor> before = typed_copies(graph_, inputs);
    program_->run(inputs, outputs);
    if (!guards_hold(graph_, outputs)) return;
    const std::vector<HostTensor> expected = interpret(graph_, before);
    for (size_t i = 0; i < outputs.size(); ++i)
      if (distance(elements(outputs[i]), elements(expected[i])) > limit(outputs[i].ref.dtype))
        return blame(before, outputs, expected);
  }

 private:
  /// Compiles the same graph with every node as an output, and names the first that differs from eager on the
  /// same operands. Where none does, rounding has spread, unless the fused program is far off.
  void blame(const std::vector<HostTensor>& inputs, std::span<const HostTensor> outputs,
             const std::vector<HostTensor>& expected) {
    const std::vector<HostTensor> got = every_node(inputs);
    std::vector<HostTensor> values(static_cast<size_t>(graph_.value_count()));
    for (size_t i = 0; i < inputs.size(); ++i)
      values[static_cast<size_t>(graph_.inputs[i].value.id)] = inputs[i];
    for (size_t i = 0; i < got.size(); ++i) {
      const Node& n = graph_.nodes[i];
      std::vector<HostTensor> operands;
      for (Value v : n.in) operands.push_back(values[static_cast<size_t>(v.id)]);
      const double d = distance(elements(got[i]), elements(evaluate(n.op, operands, n.attrs)));
      if (d > limit(got[i].ref.dtype))
        throw Error(ErrorKind::internal,
                    fmt::format("check: {} differs from eager by {:.3g} of its largest value ({}) "
                                "(please report this)",
                                place(graph_, n), d, graph_.type(n.out).str()),
                    n.origin.loc);
      values[static_cast<size_t>(n.out.id)] = got[i];
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      if (distance(elements(outputs[i]), elements(expected[i])) > kSpread * limit(outputs[i].ref.dtype))
        throw Error(
            ErrorKind::internal,
            fmt::format("check: output {} of {} differs from eager, but no single op does when each is "
                        "computed apart: fusion or memory planning is wrong (please report this)",
                        i, graph_.name));
  }

  std::vector<HostTensor> every_node(const std::vector<HostTensor>& inputs) {
    Graph all = graph_;
    all.outputs.clear();
    for (const Node& n : graph_.nodes) all.add_output(n.out);
    std::vector<Sizes> strides;
    for (const HostTensor& in : inputs) strides.push_back(in.ref.strides);
    BuildRecord record;
    StageOptions plain = options_;
    plain.check = plain.check_numerics = false;
    std::vector<HostTensor> out;
    for (const Node& n : graph_.nodes) {
      Sizes shape;
      for (const Dim& d : graph_.type(n.out).shape) shape.push_back(d.value());
      out.push_back(make_host_tensor(graph_.type(n.out).dtype, shape));
    }
    build_program(all, strides, plain, record)->run(inputs, out);
    return out;
  }

  static constexpr double kSpread = 50;  ///< how far rounding may grow through a program, beyond one op's

  std::unique_ptr<Program> program_;
  Graph graph_;
  StageOptions options_;
};

class NonfiniteCheck : public Program {
 public:
  NonfiniteCheck(std::unique_ptr<Program> program, const Graph& g)
      : program_(std::move(program)), graph_(g) {}

  void run(std::span<const HostTensor> inputs, std::span<const HostTensor> outputs) override {
    const std::vector<HostTensor> before = typed_copies(graph_, inputs);
    program_->run(inputs, outputs);
    if (!guards_hold(graph_, outputs)) return;
    for (const HostTensor& o : outputs)
      if (is_floating(o.ref.dtype) && worst(o) != 0) blame(before);
  }

 private:
  /// 0 finite, 1 has Inf, 2 has NaN.
  static int worst(const HostTensor& t) {
    if (!is_floating(t.ref.dtype)) return 0;
    int w = 0;
    for (double v : elements(t)) w = std::max(w, std::isnan(v) ? 2 : std::isinf(v) ? 1 : 0);
    return w;
  }

  [[noreturn]] void blame(const std::vector<HostTensor>& inputs) {
    std::vector<int> state(static_cast<size_t>(graph_.value_count()), 0);
    std::string given;
    for (size_t i = 0; i < inputs.size(); ++i) {
      state[static_cast<size_t>(graph_.inputs[i].value.id)] = worst(inputs[i]);
      if (given.empty() && worst(inputs[i]) != 0)
        given = fmt::format("check_numerics: input {} '{}' already holds {}",
                            graph_.type(graph_.inputs[i].value).str(), graph_.inputs[i].name,
                            worst(inputs[i]) == 2 ? "NaN" : "Inf");
    }
    interpret(graph_, inputs, [&](int node, const HostTensor& t) {
      const Node& n = graph_.nodes[static_cast<size_t>(node)];
      int before = 0;
      for (Value v : n.in) before = std::max(before, state[static_cast<size_t>(v.id)]);
      const int after = state[static_cast<size_t>(n.out.id)] = worst(t);
      const bool given_constant = n.in.empty();  // masks are made of infinities on purpose
      if (after > before && !given_constant)
        throw Error(ErrorKind::invalid,
                    fmt::format("check_numerics: {} made {} in {}", place(graph_, n),
                                after == 2 ? "NaN" : "Inf", graph_.type(n.out).str()),
                    n.origin.loc);
    });
    throw Error(ErrorKind::invalid, given.empty() ? "check_numerics: a result is not finite" : given);
  }

  std::unique_ptr<Program> program_;
  Graph graph_;
};

}  // namespace

std::unique_ptr<Program> check_against_reference(std::unique_ptr<Program> program, const Graph& g,
                                                 const StageOptions& options) {
  return std::make_unique<ReferenceCheck>(std::move(program), g, options);
}

std::unique_ptr<Program> check_for_nonfinite(std::unique_ptr<Program> program, const Graph& g) {
  return std::make_unique<NonfiniteCheck>(std::move(program), g);
}

}  // namespace kiln::detail
