// SPDX-License-Identifier: Apache-2.0
// Random graphs on inputs that are mostly NaN, infinite, zero of either sign, denormal or huge: compiled code
// gives NaN, each infinity and zero where the interpreter does. KILN_FUZZ_GRAPHS graphs from seed
// KILN_FUZZ_SEED, each as drawn and optimised; in two of three, operands are not clamped to the domains of
// their ops. What else a value is, program_fuzz_test compares.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ir/base/options.h"
#include "tests/codegen/fuzz_case.h"
#include "tests/runtime/doubling_group.h"

namespace kiln {
namespace KILN_FILE {

using testing::GraphCase;
using testing::Layouts;
using testing::Rng;
using testing::Variant;

/// Two thirds of the elements special, as far as the dtype has such values. Huge ones overflow in a product;
/// sums of them do not, for then the order of a sum would decide.
HostTensor special_tensor(const Type& t, Rng& rng) {
  const bool f64 = t.dtype == DType::f64;
  const double inf = HUGE_VAL, huge = f64 ? 1e200 : 1e30, denormal = f64 ? 0x1p-1060 : 0x1p-140;
  const double values[] = {NAN, inf, -inf, 0, -0.0, denormal, -denormal, huge, -huge, 1, -1};
  HostTensor out = testing::random_tensor(t.dtype, testing::static_shape(t), rng, -2, 2);
  std::vector<double> v = testing::numbers(out);
  // Few tensors are NaN all over after a reduction: some have one kind of value only.
  const int64_t kinds = static_cast<int64_t>(std::size(values)), only = rng.below(2 * kinds);
  for (double& x : v)
    if (rng.chance(66)) x = only < kinds ? values[only] : values[rng.below(kinds)];
  return testing::tensor(t.dtype, testing::static_shape(t), v);
}

std::vector<HostTensor> special_inputs(const Graph& g, uint64_t seed) {
  Rng rng{seed ^ 0x5BEC1A1};
  std::vector<HostTensor> out = testing::random_inputs(g, seed);
  for (size_t i = 0; i < out.size(); ++i)
    if (is_floating(out[i].ref.dtype)) out[i] = special_tensor(g.type(g.inputs[i].value), rng);
  return out;
}

enum class Class { nan, up, down, zero, negative, positive };
/// Denormal results count as zero: the rounding of a function's last step decides between them.
Class class_of(double v, DType t) {
  if (std::isnan(v)) return Class::nan;
  if (std::isinf(v)) return v > 0 ? Class::up : Class::down;
  if (is_floating(t) && std::fabs(v) < (t == DType::f64 ? 0x1p-1022 : 0x1p-126)) return Class::zero;
  return v == 0 ? Class::zero : v < 0 ? Class::negative : Class::positive;
}

/// The first element whose class differs from what is wanted in all of `want`, or "".
std::string class_fault(const HostTensor& got, const std::vector<HostTensor>& want) {
  const DType t = got.ref.dtype;
  const std::vector<double> a = testing::numbers(got);
  std::vector<std::vector<double>> others;
  for (const HostTensor& w : want) others.push_back(testing::numbers(w));
  for (size_t i = 0; i < a.size(); ++i) {
    const auto same = [&](const std::vector<double>& b) { return class_of(a[i], t) == class_of(b[i], t); };
    if (std::any_of(others.begin(), others.end(), same)) continue;
    return fmt::format("element {} of {}: got {}, expected {}", i, a.size(), a[i], others[0][i]);
  }
  return "";
}

/// The largest finite magnitude, at least 1.
double largest(const HostTensor& t) {
  double most = 1;
  for (double v : testing::numbers(t))
    if (std::isfinite(v)) most = std::max(most, std::fabs(v));
  return most;
}

/// The half beside x, above or below: fused code need not round to halves between its ops.
template <typename T>
T half_beside(T x, bool above) {
  const float f = static_cast<float>(x);
  T beside = x;
  beside.bits = static_cast<uint16_t>(above ? x.bits + 1 : x.bits - 1);
  return std::isfinite(f) && f != 0 && static_cast<float>(beside) != 0 ? beside : x;
}

/// The interpreter with every result moved by what rounding may do, each element by itself, or, for every
/// other seed, all of a result alike, as equal ones are. Sums may cancel: there it is a few units in the last
/// place of the largest term.
std::vector<HostTensor> interpret_rounded(const Graph& g, const std::vector<HostTensor>& inputs,
                                          uint32_t seed) {
  std::mt19937 rng(seed);
  std::map<int, double> scale;
  for (size_t i = 0; i < inputs.size(); ++i) scale[g.inputs[i].value.id] = largest(inputs[i]);
  return interpret(g, inputs, [&](int at, const HostTensor& t) {
    const Node& node = g.nodes[at];
    const OpKind kind = def(node.op).kind;
    const bool sums =
        kind == OpKind::reduce || kind == OpKind::scan || kind == OpKind::scatter || kind == OpKind::contract;
    double terms = kind == OpKind::contract ? 1 : 0;
    for (Value v : node.in)
      terms = kind == OpKind::contract ? terms * scale[v.id] : std::max(terms, scale[v.id]);
    const auto draw = [&] { return 0x1p-22 * (static_cast<double>(rng() % 5) - 2); };
    const double alike = draw();
    const auto noise = [&] { return seed % 2 == 0 ? alike : draw(); };
    dispatch(t.ref.dtype, [&](auto zero) {
      using T = decltype(zero);
      if (kind == OpKind::view || kind == OpKind::gather || node.in.empty()) return;
      T* p = static_cast<T*>(t.ref.data);
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
        for (int64_t i = 0; i < t.ref.numel(); ++i)
          if (const double by = noise(); by != 0) p[i] = half_beside(p[i], by > 0);
      } else if constexpr (std::is_floating_point_v<T>) {
        for (int64_t i = 0; i < t.ref.numel(); ++i) {
          p[i] *= T(1 + noise());
          if (sums && terms < HUGE_VAL) p[i] += T(terms * noise());
        }
      }
    });
    scale[node.out.id] = largest(t);
  });
}

/// In each round an element whose sum cancels is of its class by chance, two times in five: so many rounds
/// that none of thousands of them misses it in all.
constexpr uint32_t kRounds = 48;

std::string class_fault(const GraphCase& c, const std::vector<HostTensor>& got) {
  std::vector<std::vector<HostTensor>> want;
  for (HostTensor& t : interpret(c.graph, c.inputs)) want.push_back({std::move(t)});
  for (uint32_t seed = 1;; ++seed) {
    std::string first;
    for (size_t k = 0; k < want.size() && first.empty(); ++k) {
      first = class_fault(got[k], want[k]);
      if (!first.empty()) first = fmt::format("output {}: {}", k, first);
    }
    if (first.empty() || seed > kRounds) return first;
    std::vector<HostTensor> other = interpret_rounded(c.graph, c.inputs, seed);
    for (size_t k = 0; k < want.size(); ++k) want[k].push_back(std::move(other[k]));
  }
}

std::vector<HostTensor> execute(const Graph& g, const Executable& exe, const std::vector<HostTensor>& inputs,
                                const Layouts& layouts) {
  testing::DoublingGroup group;
  ProcessGroup* const groups[] = {&group};
  return testing::execute(g, exe, inputs, 1, layouts, groups);
}

/// Whether a smaller graph compiled alone is as wrong.
bool wrong_alone(const GraphCase& c, bool optimised) {
  try {
    const Graph g = optimised ? optimize(c.graph) : c.graph;
    const CompiledProgram p = compile_program(g, {}, host_target(), {}, nullptr, 2);
    return !class_fault(c, execute(g, *testing::load(p).exe, c.inputs, {})).empty();
  } catch (const Error&) {
    return true;
  }
}

void check(const Variant& v, const Graph& drawn, const Executable& exe) {
  const GraphCase c{drawn, special_inputs(drawn, v.seed)};
  const std::string name = fmt::format("seed {}{}", v.seed, v.optimised ? ", optimised" : "");
  const std::string d = class_fault(c, execute(v.graph, exe, c.inputs, v.layouts));
  if (d.empty()) return;
  ADD_FAILURE() << name << ", " << d << "\n" << print(v.graph);
  const GraphCase small =
      testing::reduce_case(c, [&](const GraphCase& s) { return wrong_alone(s, v.optimised); });
  ADD_FAILURE() << name << ", reduced:\n" << print(small.graph);
}

void run_batch(uint64_t first, size_t count) {
  std::vector<Graph> drawn, graphs;
  std::vector<Variant> variants;
  std::vector<Layouts> layouts;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    testing::RandomGraphOptions o = testing::fuzz_options(seed);
    o.clamped = seed % 3 == 0;
    drawn.push_back(testing::random_graph(seed, o));
    for (const bool optimised : {false, true}) {
      graphs.push_back(optimised ? optimize(drawn.back()) : drawn.back());
      layouts.push_back(testing::layouts_for(graphs.back(), seed));
      variants.push_back({seed, optimised, graphs.back(), layouts.back()});
    }
  }
  const CompiledBatch batch = compile_batch(graphs, host_target(), {}, 2, layouts);
  std::shared_ptr<LoadedImage> image;
  if (!batch.image.bytes.empty()) image = std::make_shared<LoadedImage>(batch.image.bytes);
  for (size_t i = 0; i < variants.size() && !::testing::Test::HasFailure(); ++i)
    check(variants[i], drawn[i / 2], *testing::load(batch.plans[i], image).exe);
}

TEST(SpecialFuzz, NanInfAndZeroStandWhereTheInterpreterHasThem) {
  set_option("KILN_POISON", "1");
  host_functions().all_reduce = testing::double_in_place;
  const auto first = static_cast<uint64_t>(option_int("KILN_FUZZ_SEED"));
  const int64_t graphs = option_int("KILN_FUZZ_GRAPHS");
  constexpr int64_t kBatch = 100;
  for (int64_t at = 0; at < graphs && !HasFailure(); at += kBatch)
    run_batch(first + static_cast<uint64_t>(at), static_cast<size_t>(std::min(kBatch, graphs - at)));
  set_option("KILN_POISON", "");
}

}  // namespace KILN_FILE
}  // namespace kiln
