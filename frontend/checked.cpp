// SPDX-License-Identifier: Apache-2.0
#include "frontend/checked.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <set>

#include "frontend/late.h"
#include "frontend/state.h"
#include "ir/rounding.h"
#include "runtime/collective.h"

namespace kiln::detail {

namespace {

HostTensor copy_of(const HostTensor& t) {
  HostTensor c = make_host_tensor(t.ref.dtype, t.ref.shape);
  copy_elements(t.ref, c.ref);
  return c;
}

std::vector<HostTensor> typed_copies(const Graph& g, std::span<const DeviceTensor> inputs) {
  std::vector<HostTensor> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    HostTensor in = fetch(inputs[i]);
    in.ref.dtype = g.type(g.inputs[i].value).dtype;
    out.push_back(copy_of(in));
  }
  return out;
}

std::vector<HostTensor> fetched(std::span<const DeviceTensor> tensors) {
  std::vector<HostTensor> out;
  for (const DeviceTensor& t : tensors) out.push_back(fetch(t));
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
  if (n.origin.scope < 0) return s;
  std::string scope = g.scopes[static_cast<size_t>(n.origin.scope)];
  const std::string_view name = def(n.op).name;  // of the function too, where it is one op
  if (scope == name) return s;
  if (scope.ends_with("/" + std::string(name))) scope.resize(scope.size() - name.size() - 1);
  return s + " in " + scope;
}

/// Largest difference; infinite when NaN or Inf stand in other places.
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return INFINITY;
    worst = std::max(worst, std::abs(a[i] - b[i]));
  }
  return worst;
}

double largest(const std::vector<double>& v) {
  double most = 1e-6;
  for (const double x : v)
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  return most;
}

double limit(DType t) { return t == DType::f64 ? 1e-10 : t == DType::f32 ? 2e-4 : is_floating(t) ? 5e-2 : 0; }

/// What two right evaluations of one op may differ by, of its terms.
double rounding(DType t) {
  return t == DType::f64 ? 0x1p-51 : t == DType::f32 ? 0x1p-22 : t == DType::f16 ? 0x1p-10 : 0x1p-7;
}

bool is_any(Op o, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), def(o).name) != names.end();
}

/// Whether two right evaluations may differ: not where elements are only chosen or moved.
bool rounds(const Graph& g, const Node& n) {
  const DType t = g.type(n.out).dtype;
  if (!is_floating(t) || def(n.op).view) return false;
  if (n.op == op("cast")) {
    const DType from = g.type(n.in[0]).dtype;
    return is_floating(from) && dtype_size(from) > dtype_size(t);
  }
  return !is_any(
      n.op,
      {"constant",   "iota",    "random_uniform", "neg",          "abs",   "sign",      "maximum",
       "minimum",    "floor",   "ceil",           "round",        "trunc", "where",     "take",
       "take_along", "scatter", "scatter_amax",   "scatter_amin", "amax",  "amin",      "pad",
       "cat",        "flip",    "window",         "skew",         "fmod",  "remainder", "floor_divide"});
}

/// Each element off by a rounding of `terms`, up or down.
void shake(const HostTensor& t, const HostTensor& terms, std::mt19937& random) {
  const std::vector<double> by = elements(terms);
  dispatch(t.ref.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
    auto* v = static_cast<T*>(t.ref.data);
    for (size_t i = 0; i < by.size(); ++i) {
      const double off = by[i] * rounding(t.ref.dtype);
      v[i] = static_cast<T>(
          static_cast<Wide>(static_cast<double>(static_cast<Wide>(v[i])) + (random() & 1 ? off : -off)));
    }
  });
}

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

  void run(std::span<const DeviceTensor> inputs, std::span<const DeviceTensor> results) override {
    const std::vector<HostTensor> before = typed_copies(graph_, inputs);
    program_->run(inputs, results);
    settle(options_.device);
    const std::vector<HostTensor> outputs = fetched(results);
    if (!guards_hold(graph_, outputs)) return;
    Sums sums;
    const std::vector<HostTensor> expected = interpret(graph_, before, [&](int node, const HostTensor& t) {
      if (is_effect(graph_.nodes[static_cast<size_t>(node)])) sums.push_back(copy_of(t));
    });
    std::vector<double> off;
    bool suspect = false;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::vector<double> wanted = elements(expected[i]);
      off.push_back(difference(elements(outputs[i]), wanted));
      suspect = suspect || off[i] > output_limit(i) * largest(wanted);
    }
    if (suspect) blame(before, off, expected, sums);
  }

 private:
  /// What the effects gave, in order. Other ranks may have nothing to blame: they are not asked again.
  using Sums = std::vector<HostTensor>;

  double output_limit(size_t i) const { return limits_[static_cast<size_t>(graph_.outputs[i].value.id)]; }

  /// Throws if an output is further off than rounding can make it. Then the same graph is compiled with every
  /// node as an output, and the first that differs from eager on the same operands is named.
  void blame(const std::vector<HostTensor>& inputs, const std::vector<double>& off,
             const std::vector<HostTensor>& expected, const Sums& sums) {
    const std::vector<double> spread = spreads(inputs, expected, sums);
    size_t wrong = 0;
    const auto allowed = [&](size_t i) {
      return output_limit(i) * largest(elements(expected[i])) + kSpread * spread[i];
    };
    while (wrong < off.size() && off[wrong] <= allowed(wrong)) ++wrong;
    if (wrong == off.size()) return;
    name_an_op(inputs, sums);
    throw Error(ErrorKind::internal,
                fmt::format("check: output {} of {} differs from eager, but no single op does when each is "
                            "computed apart: fusion or memory planning is wrong (please report this)",
                            wrong, graph_.name));
  }

  /// By how much rounding moves each output: the reference, again and again, with each result off by a
  /// rounding. Where terms cancel (the gradient of a bias before a batch norm), that is all there is.
  std::vector<double> spreads(const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& expected,
                              const Sums& sums) const {
    std::vector<double> out(expected.size());
    for (uint32_t seed = 0; seed < kShakes; ++seed) {
      std::mt19937 random(seed);
      std::vector<HostTensor> values(static_cast<size_t>(graph_.value_count()));
      for (size_t i = 0; i < inputs.size(); ++i)
        values[static_cast<size_t>(graph_.inputs[i].value.id)] = inputs[i];
      auto sum = sums.begin();
      for (const Node& n : graph_.nodes) {
        HostTensor& result = values[static_cast<size_t>(n.out.id)];
        const std::vector<HostTensor> operands = operands_of(n, values);
        result = is_effect(n) ? *sum++ : evaluate(n.op, operands, n.attrs);
        if (!rounds(graph_, n)) continue;
        const HostTensor terms = rounding_terms(n, operands, result);
        result = copy_of(result);
        shake(result, terms, random);
      }
      for (size_t i = 0; i < out.size(); ++i)
        out[i] =
            std::max(out[i], difference(elements(values[static_cast<size_t>(graph_.outputs[i].value.id)]),
                                        elements(expected[i])));
    }
    return out;
  }

  static std::vector<HostTensor> operands_of(const Node& n, const std::vector<HostTensor>& values) {
    std::vector<HostTensor> out;
    for (Value v : n.in) out.push_back(values[static_cast<size_t>(v.id)]);
    return out;
  }

  /// Throws: internal, with the first op that is wrong on its operands.
  void name_an_op(const std::vector<HostTensor>& inputs, const Sums& sums) {
    const std::vector<HostTensor> got = every_node(inputs, sums);
    std::vector<HostTensor> values(static_cast<size_t>(graph_.value_count()));
    for (size_t i = 0; i < inputs.size(); ++i)
      values[static_cast<size_t>(graph_.inputs[i].value.id)] = inputs[i];
    for (size_t i = 0; i < got.size(); ++i) {
      const Node& n = graph_.nodes[i];
      values[static_cast<size_t>(n.out.id)] = got[i];
      if (is_effect(n)) continue;
      const std::vector<HostTensor> operands = operands_of(n, values);
      const HostTensor right = evaluate(n.op, operands, n.attrs);
      const double d = difference(elements(got[i]), elements(right)) /
                       largest(elements(rounding_terms(n, operands, right)));
      double allowed = limit(got[i].ref.dtype);
      if (allowed > 0)
        for (const HostTensor& t : operands) allowed = std::max(allowed, limit(t.ref.dtype));
      if (d > allowed)
        throw Error(ErrorKind::internal,
                    fmt::format("check: {} differs from eager by {:.3g} of its largest value ({}) "
                                "(please report this)",
                                place(graph_, n), d, type_text(graph_.type(n.out), options_.device)),
                    n.origin.loc);
    }
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
    std::vector<DeviceTensor> given, computed;
    for (const HostTensor& in : inputs) given.push_back(on_device(in, given.size()));
    for (const Node& n : graph_.nodes) {
      if (is_effect(n)) continue;
      Sizes shape;
      for (const Dim& d : graph_.type(n.out).shape) shape.push_back(d.value());
      computed.push_back(make_device_tensor(options_.device, graph_.type(n.out).dtype, shape));
    }
    build_program(apart(), strides, plain, record)->run(given, computed);
    std::vector<HostTensor> out;
    auto sum = sums.begin();
    auto next = computed.begin();
    for (const Node& n : graph_.nodes) out.push_back(is_effect(n) ? *sum++ : fetch(*next++));
    return out;
  }

  /// Input `i` of the program for a run of another.
  DeviceTensor on_device(const HostTensor& t, size_t i) const {
    const bool scalar = i < graph_.inputs.size() && graph_.inputs[i].kind == InputKind::scalar;
    if (scalar || !options_.device.is_cuda()) return {t.ref, t.storage, Device::cpu()};
    return memory_of(*upload(t, options_.device));
  }

  static constexpr uint32_t kShakes = 3;
  static constexpr double kSpread = 50;  ///< how much more than a shake true rounding may move an output

  std::unique_ptr<Program> program_;
  Graph graph_;
  StageOptions options_;
  const std::vector<double> limits_;  ///< per value
};

class NonfiniteCheck : public Program {
 public:
  NonfiniteCheck(std::unique_ptr<Program> program, const Graph& g, Device device)
      : program_(std::move(program)), graph_(g), device_(device) {}

  void run(std::span<const DeviceTensor> inputs, std::span<const DeviceTensor> results) override {
    const std::vector<HostTensor> before = typed_copies(graph_, inputs);
    program_->run(inputs, results);
    settle(device_);
    const std::vector<HostTensor> outputs = fetched(results);
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
                                  type_text(graph_.type(graph_.inputs[i].value), device_),
                                  graph_.inputs[i].name, worst(inputs[i]) == 2 ? "NaN" : "Inf"));
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
                                after == 2 ? "NaN" : "Inf", type_text(graph_.type(n.out), device_)),
                    n.origin.loc);
    });
    if (!mine) throw Error(ErrorKind::invalid, "check_numerics: a result of another rank is not finite");
    throw first ? *first : Error(ErrorKind::invalid, "check_numerics: a result is not finite");
  }

  std::unique_ptr<Program> program_;
  Graph graph_;
  const Device device_;
};

}  // namespace

std::unique_ptr<Program> check_against_reference(std::unique_ptr<Program> program, const Graph& g,
                                                 const StageOptions& options) {
  return std::make_unique<ReferenceCheck>(std::move(program), g, options);
}

std::unique_ptr<Program> check_for_nonfinite(std::unique_ptr<Program> program, const Graph& g,
                                             Device device) {
  return std::make_unique<NonfiniteCheck>(std::move(program), g, device);
}

}  // namespace kiln::detail
