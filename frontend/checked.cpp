// SPDX-License-Identifier: Apache-2.0
#include "frontend/checked.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "frontend/state.h"
#include "runtime/collective.h"

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

bool is_effect(const Node& n) { return def(n.op).kind == OpKind::effect; }

/// Per value: how far it may be off, which is what the coarsest of the types that it was computed in allows.
std::vector<double> limits_of(const Graph& g) {
  std::vector<double> out(static_cast<size_t>(g.value_count()), 0);
  for (const Node& n : g.nodes) {
    double& own = out[static_cast<size_t>(n.out.id)];
    own = limit(g.type(n.out).dtype);
    if (is_effect(n)) own = std::max(own, limit(std::get<DType>(n.attrs[1])));  // rounded on the wire
    if (own > 0)
      for (Value v : n.in) own = std::max(own, out[static_cast<size_t>(v.id)]);
  }
  return out;
}

/// Whether `mine` holds on some rank of the groups that `g` communicates in. All ranks ask.
bool on_any_rank(const Graph& g, bool mine) {
  std::set<int64_t> groups;
  for (const Node& n : g.nodes)
    if (is_effect(n)) groups.insert(std::get<int64_t>(n.attrs[0]));
  uint8_t any = mine ? 1 : 0;
  for (int64_t group : groups)
    state()
        .groups[static_cast<size_t>(group)]
        ->all_reduce(&any, 1, DType::u8, ReduceOp::max, {"check", {}})
        ->wait();
  return any != 0;
}

class ReferenceCheck : public Program {
 public:
  ReferenceCheck(std::unique_ptr<Program> program, const Graph& g, const StageOptions& options)
      : program_(std::move(program)), graph_(g), options_(options), limits_(limits_of(g)) {}

  void run(std::span<const HostTensor> inputs, std::span<const HostTensor> outputs) override {
    const std::vector<HostTensor> before = typed_copies(graph_, inputs);
    program_->run(inputs, outputs);
    if (!guards_hold(graph_, outputs)) return;
    Sums sums;
    const std::vector<HostTensor> expected = interpret(graph_, before, [&](int node, const HostTensor& t) {
      if (is_effect(graph_.nodes[static_cast<size_t>(node)])) sums.push_back(copy_of(t));
    });
    for (size_t i = 0; i < outputs.size(); ++i)
      if (distance(elements(outputs[i]), elements(expected[i])) > output_limit(i))
        return blame(before, outputs, expected, sums);
  }

 private:
  /// What the effects gave, in order. Other ranks may have nothing to blame: they are not asked again.
  using Sums = std::vector<HostTensor>;

  double output_limit(size_t i) const { return limits_[static_cast<size_t>(graph_.outputs[i].value.id)]; }

  /// Compiles the same graph with every node as an output, and names the first that differs from eager on the
  /// same operands. Where none does, rounding has spread, unless the fused program is far off.
  void blame(const std::vector<HostTensor>& inputs, std::span<const HostTensor> outputs,
             const std::vector<HostTensor>& expected, const Sums& sums) {
    const std::vector<HostTensor> got = every_node(inputs, sums);
    std::vector<HostTensor> values(static_cast<size_t>(graph_.value_count()));
    for (size_t i = 0; i < inputs.size(); ++i)
      values[static_cast<size_t>(graph_.inputs[i].value.id)] = inputs[i];
    for (size_t i = 0; i < got.size(); ++i) {
      const Node& n = graph_.nodes[i];
      values[static_cast<size_t>(n.out.id)] = got[i];
      if (is_effect(n)) continue;
      std::vector<HostTensor> operands;
      for (Value v : n.in) operands.push_back(values[static_cast<size_t>(v.id)]);
      const double d = distance(elements(got[i]), elements(evaluate(n.op, operands, n.attrs)));
      if (d > limit(got[i].ref.dtype))
        throw Error(ErrorKind::internal,
                    fmt::format("check: {} differs from eager by {:.3g} of its largest value ({}) "
                                "(please report this)",
                                place(graph_, n), d, graph_.type(n.out).str()),
                    n.origin.loc);
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      if (distance(elements(outputs[i]), elements(expected[i])) > kSpread * output_limit(i))
        throw Error(
            ErrorKind::internal,
            fmt::format("check: output {} of {} differs from eager, but no single op does when each is "
                        "computed apart: fusion or memory planning is wrong (please report this)",
                        i, graph_.name));
  }

  /// The graph with every node as an output, and the results of effects as further inputs.
  Graph apart() const {
    Graph all;
    all.name = graph_.name;
    all.scopes = graph_.scopes;
    std::vector<Value> now(static_cast<size_t>(graph_.value_count()));
    for (const GraphInput& in : graph_.inputs)
      now[static_cast<size_t>(in.value.id)] = all.add_input(graph_.type(in.value), in.kind, in.name);
    for (const Node& n : graph_.nodes)
      if (is_effect(n))
        now[static_cast<size_t>(n.out.id)] = all.add_input(graph_.type(n.out), InputKind::captured, "");
    for (const Node& n : graph_.nodes) {
      if (is_effect(n)) continue;
      std::vector<Value> in;
      for (Value v : n.in) in.push_back(now[static_cast<size_t>(v.id)]);
      now[static_cast<size_t>(n.out.id)] = all.add_node(n.op, in, n.attrs, n.origin);
      all.add_output(now[static_cast<size_t>(n.out.id)]);
    }
    return all;
  }

  /// The results of all nodes.
  std::vector<HostTensor> every_node(std::vector<HostTensor> inputs, const Sums& sums) {
    inputs.insert(inputs.end(), sums.begin(), sums.end());
    std::vector<Sizes> strides;
    for (const HostTensor& in : inputs) strides.push_back(in.ref.strides);
    BuildRecord record;
    StageOptions plain = options_;
    plain.check = plain.check_numerics = false;
    std::vector<HostTensor> computed, out;
    auto sum = sums.begin();
    for (const Node& n : graph_.nodes) {
      Sizes shape;
      for (const Dim& d : graph_.type(n.out).shape) shape.push_back(d.value());
      out.push_back(is_effect(n) ? *sum++ : make_host_tensor(graph_.type(n.out).dtype, shape));
      if (!is_effect(n)) computed.push_back(out.back());
    }
    build_program(apart(), strides, plain, record)->run(inputs, computed);
    return out;
  }

  static constexpr double kSpread = 50;  ///< how far rounding may grow through a program, beyond one op's

  std::unique_ptr<Program> program_;
  Graph graph_;
  StageOptions options_;
  const std::vector<double> limits_;  ///< per value
};

class NonfiniteCheck : public Program {
 public:
  NonfiniteCheck(std::unique_ptr<Program> program, const Graph& g)
      : program_(std::move(program)), graph_(g) {}

  void run(std::span<const HostTensor> inputs, std::span<const HostTensor> outputs) override {
    const std::vector<HostTensor> before = typed_copies(graph_, inputs);
    program_->run(inputs, outputs);
    if (!guards_hold(graph_, outputs)) return;
    const bool mine =
        std::any_of(outputs.begin(), outputs.end(), [](const auto& o) { return worst(o) != 0; });
    if (on_any_rank(graph_, mine)) blame(before, mine);  // it communicates
  }

 private:
  /// 0 finite, 1 has Inf, 2 has NaN.
  static int worst(const HostTensor& t) {
    if (!is_floating(t.ref.dtype)) return 0;
    int w = 0;
    for (double v : elements(t)) w = std::max(w, std::isnan(v) ? 2 : std::isinf(v) ? 1 : 0);
    return w;
  }

  [[noreturn]] void blame(const std::vector<HostTensor>& inputs, bool mine) {
    std::vector<int> state(static_cast<size_t>(graph_.value_count()), 0);
    std::optional<Error> first;
    for (size_t i = 0; i < inputs.size(); ++i) {
      state[static_cast<size_t>(graph_.inputs[i].value.id)] = worst(inputs[i]);
      if (!first && worst(inputs[i]) != 0)
        first = Error(ErrorKind::invalid,
                      fmt::format("check_numerics: input {} '{}' already holds {}",
                                  graph_.type(graph_.inputs[i].value).str(), graph_.inputs[i].name,
                                  worst(inputs[i]) == 2 ? "NaN" : "Inf"));
    }
    bool made = false;
    interpret(graph_, inputs, [&](int node, const HostTensor& t) {
      const Node& n = graph_.nodes[static_cast<size_t>(node)];
      int before = 0;
      for (Value v : n.in) before = std::max(before, state[static_cast<size_t>(v.id)]);
      const int after = state[static_cast<size_t>(n.out.id)] = worst(t);
      const bool given_constant = n.in.empty();  // masks are made of infinities on purpose
      if (made || after <= before || given_constant) return;
      made = true;
      first = Error(ErrorKind::invalid,
                    fmt::format("check_numerics: {} made {} in {}", place(graph_, n),
                                after == 2 ? "NaN" : "Inf", graph_.type(n.out).str()),
                    n.origin.loc);
    });
    if (!mine) throw Error(ErrorKind::invalid, "check_numerics: a result of another rank is not finite");
    throw first ? *first : Error(ErrorKind::invalid, "check_numerics: a result is not finite");
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
