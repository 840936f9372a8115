// SPDX-License-Identifier: Apache-2.0
// Every derivative rule against central differences in double on the interpreter, first and second
// derivatives; the values that are stated for kinks; the walk itself.
#include "ir/autodiff.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tests/ir/gradient_cases.h"
#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Ints = std::vector<int64_t>;
using Case = GradientCase;

/// x -> loss, a 0-d f64, as a graph with one input per operand; the gradient's graph has the loss's gradients
/// as outputs.
struct Function {
  Graph g;
  std::vector<Value> x;
  Value loss;
};
/// sum(v * w), w fixed irregular weights: every element of v counts, each differently.
Value weighted(GraphBuilder& b, Value v, int salt) {
  const Type t = b.type(v);
  Value n = b.emit(op("iota"), {}, {int64_t{0}, Shape{numel(t.shape)}});
  n = b.emit(
      op("sin"),
      {b.emit(op("add"), {b.cast(n, DType::f64), b.constant(1 + salt, {DType::f64, {numel(t.shape)}})})});
  const Value product = b.emit(op("mul"), {b.reshape(v, {numel(t.shape)}), n});
  return b.sum(product, {0});
}
Function function_of(const Case& c) {
  Function f;
  for (const Ints& s : c.shapes)
    f.x.push_back(f.g.add_input({DType::f64, Shape(s.begin(), s.end())}, InputKind::arg, ""));
  GraphBuilder b(f.g);
  f.loss = weighted(b, c.emit(b, f.x), 0);
  return f;
}
/// Adds the gradients, and makes the function whose loss is a weighted sum of them.
Function gradient_of(Function f, std::vector<Value>& grads) {
  grads = gradients(f.g, f.loss, f.x);
  GraphBuilder b(f.g);
  Value sum = b.constant(0, {DType::f64, {}});
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i].valid()) sum = b.emit(op("add"), {sum, weighted(b, grads[i], 10 * static_cast<int>(i))});
  f.loss = sum;
  return f;
}

double value_of(const Function& f, const std::vector<HostTensor>& in) {
  Graph g = f.g;
  g.outputs.clear();
  g.add_output(f.loss);
  return numbers(interpret(g, in)[0])[0];
}

/// Compares the gradients of f with differences of order 4, (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h.
void check_gradients(const Function& f, std::vector<HostTensor> in) {
  Graph g = f.g;
  const std::vector<Value> grads = gradients(g, f.loss, f.x);
  verify(g);
  for (size_t i = 0; i < f.x.size(); ++i) {
    std::vector<double> got(static_cast<size_t>(in[i].ref.numel()), 0.);
    if (grads[i].valid()) {
      ASSERT_EQ(g.type(grads[i]), g.type(f.x[i]));
      g.outputs.clear();
      g.add_output(grads[i]);
      got = numbers(interpret(g, in)[0]);
    }
    double* p = static_cast<double*>(in[i].ref.data);
    for (size_t j = 0; j < got.size(); ++j) {
      constexpr double h = 1e-3;
      const double at = p[j];
      double d[4];
      const double steps[4] = {h, -h, 2 * h, -2 * h};
      for (int s = 0; s < 4; ++s) {
        p[j] = at + steps[s];
        d[s] = value_of(f, in);
      }
      p[j] = at;
      const double want = (8 * (d[0] - d[1]) - (d[2] - d[3])) / (12 * h);
      ASSERT_NEAR(got[j], want, 2e-8 * std::max(1., std::fabs(want))) << "operand " << i << " element " << j;
    }
  }
}

/// Operands away from kinks of the ops: distinct values, none within 4e-3 of another or of a multiple of 1/2.
std::vector<HostTensor> operands(const Case& c) {
  Rng rng{17};
  std::vector<HostTensor> in;
  for (const Ints& s : c.shapes) {
    HostTensor t = random_tensor(DType::f64, s, rng, c.lo + 0.01, c.hi - 0.01);
    double* p = static_cast<double*>(t.ref.data);
    for (int64_t i = 0; i < t.ref.numel(); ++i) {
      const double off = std::remainder(p[i], 0.5);
      if (std::fabs(off) < 0.02) p[i] += off < 0 ? -0.02 : 0.02;
    }
    in.push_back(t);
  }
  return in;
}

TEST(Autodiff, EveryRuleMatchesDifferences) {
  std::map<std::string, int> seen;
  for (const Case& c : gradient_cases()) {
    SCOPED_TRACE(
        fmt::format("{} of {} operands, the first of rank {}", c.name, c.shapes.size(), c.shapes[0].size()));
    ++seen[c.name];
    const Function f = function_of(c);
    check_gradients(f, operands(c));
    std::vector<Value> grads;
    const Function second = gradient_of(f, grads);
    for (Value g : grads) EXPECT_TRUE(g.valid());
    SCOPED_TRACE("second derivative");
    check_gradients(second, operands(c));
  }
  for (const OpDef* d : all_ops())
    EXPECT_EQ(seen.count(std::string(d->name)) > 0, d->grad != nullptr) << d->name;
}

/// Gradients of sum(o(in...)) as numbers.
std::vector<std::vector<double>> gradients_at(Op o, const std::vector<HostTensor>& in,
                                              const Attrs& attrs = {}) {
  Graph g;
  std::vector<Value> x;
  for (const HostTensor& t : in)
    x.push_back(
        g.add_input({t.ref.dtype, Shape(t.ref.shape.begin(), t.ref.shape.end())}, InputKind::arg, ""));
  GraphBuilder b(g);
  const Value y = b.emit(o, x, attrs);
  Ints all;
  for (int d = 0; d < b.type(y).rank(); ++d) all.push_back(d);
  for (Value v : gradients(g, b.sum(y, all), x)) g.add_output(v);
  std::vector<std::vector<double>> out;
  for (const HostTensor& t : interpret(g, in)) out.push_back(numbers(t));
  return out;
}
HostTensor vec(const std::vector<double>& v) {
  return tensor(DType::f32, {static_cast<int64_t>(v.size())}, v);
}
using Numbers = std::vector<double>;

TEST(Autodiff, StatedValuesAtKinks) {
  EXPECT_EQ(gradients_at(op("abs"), {vec({0, -0.0, 1})})[0], (Numbers{0, 0, 1}));
  const auto max = gradients_at(op("maximum"), {vec({1, 2, 3}), vec({1, 3, 2})});
  EXPECT_EQ(max[0], (Numbers{0.5, 0, 1}));
  EXPECT_EQ(max[1], (Numbers{0.5, 1, 0}));
  EXPECT_EQ(gradients_at(op("minimum"), {vec({1, 2}), vec({1, 3})})[1], (Numbers{0.5, 0}));
  EXPECT_EQ(gradients_at(op("amax"), {vec({3, 1, 3, 1})}, {Ints{0}})[0], (Numbers{0.5, 0, 0.5, 0}));
  const auto pow = gradients_at(op("pow"), {vec({0, 0, 2, -2}), vec({0, 2, 0, 2})});
  EXPECT_EQ(pow[0], (Numbers{0, 0, 0, -4}));
  EXPECT_EQ(pow[1][0], 0);
  EXPECT_EQ(pow[1][1], 0);
  EXPECT_TRUE(std::isnan(pow[1][3]));
  EXPECT_EQ(gradients_at(op("prod"), {vec({2, 0, 3})}, {Ints{0}})[0], (Numbers{0, 6, 0}));
  EXPECT_EQ(gradients_at(op("prod"), {vec({0, 0, 3})}, {Ints{0}})[0], (Numbers{0, 0, 0}));
  EXPECT_EQ(gradients_at(op("prod"), {vec({2, 4, 3})}, {Ints{0}})[0], (Numbers{12, 6, 8}));
  EXPECT_EQ(gradients_at(op("sqrt"), {vec({0})})[0], Numbers{INFINITY});
}

TEST(Autodiff, RunningProductsAreExactWithZeros) {
  for (const std::vector<double>& at : std::vector<std::vector<double>>{
           {2, 0, 3, 5}, {0, 3, 5, 2}, {2, 3, 5, 0}, {2, 0, 3, 0}, {0, 0, 3, 5}, {0, 0, 0, 0}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(at, ",")));
    const Function f = function_of({"cumprod", {{4}}, with(op("cumprod"), {int64_t{0}})});
    check_gradients(f, {tensor(DType::f64, {4}, at)});
  }
}

TEST(Autodiff, ScatteredProductsAreExactWithZeros) {
  // Both sources go to place 1.
  const auto at = [](const std::vector<double>& base, const std::vector<double>& src) {
    const Function f = function_of(
        {"scatter_prod", {{2}, {2}}, [](GraphBuilder& b, const std::vector<Value>& x) {
           return b.emit(op("scatter_prod"), {x[0], index_pattern(b, {2}, {1}), x[1]}, {int64_t{0}});
         }});
    check_gradients(f, {tensor(DType::f64, {2}, base), tensor(DType::f64, {2}, src)});
  };
  at({2, 3}, {5, 0});
  at({2, 3}, {0, 0});
  at({2, 0}, {5, 7});
  at({0, 0}, {0, 7});
}

/// The gradient of windows of a size known at the call is that of the same size known before.
TEST(Autodiff, WindowsOfSymbolicSize) {
  for (const int64_t size : {2, 3, 5})
    for (const int64_t step : {1, 2, 3, 6})
      for (const int64_t n : {5, 6, 7, 8, 11}) {
        const auto grad = [&](const Dim& extent) {
          Graph g;
          const Value x = g.add_input({DType::f64, {extent}}, InputKind::arg, "");
          GraphBuilder b(g);
          const Value w = b.emit(op("window"), {x}, {int64_t{0}, size, step, int64_t{1}});
          const Value loss = b.sum(b.emit(op("mul"), {w, w}), {0, 1});
          g.add_output(gradients(g, loss, {x})[0]);
          verify(g);
          std::vector<double> v;
          for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<double>(i + 1));
          return numbers(interpret(g, std::vector<HostTensor>{tensor(DType::f64, {n}, v)})[0]);
        };
        EXPECT_EQ(grad(Dim::symbol("N")), grad(Dim(n))) << size << " " << step << " " << n;
      }
}

TEST(Autodiff, ScattersShareAndOverwrite) {
  const auto grads = [](Op o, const std::vector<double>& base, const std::vector<double>& src) {
    Graph g;
    const Value x = g.add_input({DType::f32, {3}}, InputKind::arg, "");
    const Value i = g.add_input({DType::i64, {3}}, InputKind::arg, "");
    const Value y = g.add_input({DType::f32, {3}}, InputKind::arg, "");
    GraphBuilder b(g);
    const Value out = b.emit(o, {x, i, y}, {int64_t{0}});
    for (Value v : gradients(g, b.sum(out, {0}), {x, y})) g.add_output(v);
    std::vector<std::vector<double>> v;
    for (const HostTensor& t :
         interpret(g, std::vector<HostTensor>{vec(base), tensor(DType::i64, {3}, {0, 0, 1}), vec(src)}))
      v.push_back(numbers(t));
    return v;
  };
  const auto set = grads(op("scatter"), {1, 2, 3}, {4, 5, 6});
  EXPECT_EQ(set[0], (Numbers{0, 0, 1}));
  EXPECT_EQ(set[1], (Numbers{1, 1, 1}));  // also what was overwritten, as in PyTorch
  const auto most = grads(op("scatter_amax"), {4, 7, 3}, {4, 4, 6});
  EXPECT_EQ(most[0], (Numbers{1.0f / 3, 1, 1}));
  EXPECT_EQ(most[1], (Numbers{1.0f / 3, 1.0f / 3, 0}));
  const auto least = grads(op("scatter_amin"), {4, 7, 3}, {4, 5, 7});
  EXPECT_EQ(least[0], (Numbers{0.5, 0.5, 1}));
  EXPECT_EQ(least[1], (Numbers{0.5, 0, 0.5}));
}

TEST(Autodiff, RulesEmitFewNodes) {
  const auto emitted = [](std::string_view name) {
    Graph g;
    GraphBuilder b(g);
    std::vector<Value> x;
    for (int i = 0; i < def(*find_op(name)).inputs; ++i)
      x.push_back(g.add_input({DType::f32, {4}}, InputKind::arg, ""));
    const Value y = b.emit(*find_op(name), x, {});
    const Node n = g.nodes.back();
    const TapeEntry tape[] = {{n.op, n.in, n.out, &n.attrs, {}}};
    const Value seed = g.add_input({DType::f32, {4}}, InputKind::arg, "");
    const size_t before = g.nodes.size();
    differentiate(b, {tape, {{y, seed}}, [](Value) { return true; }, {}, {}});
    std::string ops;
    for (size_t i = before; i < g.nodes.size(); ++i) ops += fmt::format("{} ", def(g.nodes[i].op).name);
    return ops;
  };
  EXPECT_EQ(emitted("tanh"), "mul constant sub mul ");
  EXPECT_EQ(emitted("sigmoid"), "constant sub mul mul ");
  EXPECT_EQ(emitted("rsqrt"), "mul mul constant mul mul ");
  EXPECT_EQ(emitted("exp"), "mul ");
  EXPECT_EQ(emitted("add"), "");
  EXPECT_EQ(emitted("mul"), "mul mul ");
  EXPECT_EQ(emitted("div"), "div mul neg ");
}

TEST(Autodiff, ConstantsStopTheWalkAndIntegersGetNoGradient) {
  Graph g;
  GraphBuilder b(g);
  const Value x = g.add_input({DType::f32, {2}}, InputKind::arg, "x");
  const Value whole = b.emit(op("floor"), {x});
  const Value loss = b.sum(b.emit(op("mul"), {x, whole}), {0});
  const std::vector<Value> grad = gradients(g, loss, {x});
  g.add_output(grad[0]);
  EXPECT_EQ(numbers(interpret(g, std::vector<HostTensor>{vec({1.5, -1.5})})[0]), (Numbers{1, -2}));
  Graph h;
  GraphBuilder c(h);
  const Value y = h.add_input({DType::f32, {2}}, InputKind::arg, "y");
  const Value back = c.cast(c.cast(y, DType::i64), DType::f32);
  EXPECT_FALSE(gradients(h, c.sum(back, {0}), {y})[0].valid());
}

TEST(Autodiff, LeavesCompleteAsSoonAsTheirLastUseIsDone) {
  Graph g;
  GraphBuilder b(g);
  const Type t{DType::f32, {}};
  const Value x = g.add_input(t, InputKind::arg, "x"), w1 = g.add_input(t, InputKind::param, "w1"),
              w2 = g.add_input(t, InputKind::param, "w2");
  const Value h = b.emit(op("mul"), {x, w1}), y = b.emit(op("mul"), {h, w2});
  const std::vector<Node> nodes = g.nodes;
  std::vector<TapeEntry> tape;
  for (const Node& n : nodes) tape.push_back({n.op, n.in, n.out, &n.attrs, {}});
  std::vector<int> order;
  const auto hook = [&](Value v, Value grad) {
    order.push_back(v.id);
    return v == h ? b.emit(op("neg"), {grad}) : grad;
  };
  const auto needs = [&](Value v) { return v.id != x.id; };
  const auto done = differentiate(b, {tape, {{y, b.constant(1, t)}}, needs, hook, {}});
  EXPECT_EQ(order, (std::vector<int>{y.id, h.id, w2.id, w1.id}));
  g.add_output(done.back().second);
  const std::vector<HostTensor> in = {scalar(DType::f32, 3), scalar(DType::f32, 5), scalar(DType::f32, 7)};
  EXPECT_EQ(numbers(interpret(g, in)[0]), Numbers{-21});  // the hook's sign
}

/// Two results, p = a * b and q = a + b, differentiated as a whole by hand.
/// The gradients of slices lie side by side, and do not cost a tensor of the whole size each.
TEST(Autodiff, GradientsOfSlicesAreOneCat) {
  const auto gradient = [](const std::vector<Ints>& parts) {
    Graph g;
    GraphBuilder b(g);
    const Value x = g.add_input({DType::f64, {10, 3}}, InputKind::arg, "");
    Value loss = b.constant(0, {DType::f64, {}});
    for (size_t i = 0; i < parts.size(); ++i) {
      const Value part = b.emit(op("slice"), {x}, {Shape{parts[i][0], 0}, Shape{parts[i][1], 3}, Ints{1, 1}});
      loss = b.emit(op("add"), {loss, weighted(b, part, static_cast<int>(i))});
    }
    const Value grad = gradients(g, loss, {x})[0];
    g.add_output(grad);
    const auto count = [&](Op o) {
      return std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == o; });
    };
    return std::pair(count(op("cat")), count(op("pad")));
  };
  EXPECT_EQ(gradient({{4, 6}, {0, 4}, {6, 10}}), (std::pair<ptrdiff_t, ptrdiff_t>(1, 0)));
  EXPECT_EQ(gradient({{7, 8}, {1, 3}}), (std::pair<ptrdiff_t, ptrdiff_t>(1, 0)));           // zeros between
  EXPECT_EQ(gradient({{0, 9}, {1, 10}}), (std::pair<ptrdiff_t, ptrdiff_t>(0, 2)));          // they meet
  EXPECT_EQ(gradient({{0, 4}, {4, 10}, {0, 2}}), (std::pair<ptrdiff_t, ptrdiff_t>(1, 1)));  // one does
  EXPECT_EQ(gradient({{2, 5}}), (std::pair<ptrdiff_t, ptrdiff_t>(0, 1)));
}

TEST(Autodiff, RegionsGiveGradientsOfSeveralResults) {
  Graph g;
  GraphBuilder b(g);
  const Type t{DType::f32, {}};
  std::vector<Value> in;
  for (const char* name : {"a", "b", "p", "q"}) in.push_back(g.add_input(t, InputKind::arg, name));
  const Value y = b.emit(op("mul"), {in[2], in[2]});
  std::vector<int> order;
  TapeEntry region;
  region.in = {in[0], in[1]};
  region.outs = {in[2], in[3]};
  region.region = [&](std::span<const Value> grads, const std::function<void(size_t, Value)>& give) {
    EXPECT_TRUE(grads[0].valid());
    EXPECT_FALSE(grads[1].valid()) << "q reaches no seed";
    give(1, b.emit(op("mul"), {grads[0], in[0]}));
    order.push_back(-1);
    give(0, b.emit(op("mul"), {grads[0], in[1]}));
  };
  const TapeEntry after{op("mul"), {in[2], in[2]}, y, &g.nodes[0].attrs, {}};
  const std::vector<TapeEntry> tape{region, after};
  const auto seen = [&](Value v, Value grad) {
    order.push_back(v.id);
    return grad;
  };
  const auto done = differentiate(b, {tape, {{y, b.constant(1, t)}}, [](Value) { return true; }, seen, {}});
  EXPECT_EQ(order, (std::vector<int>{y.id, in[2].id, in[1].id, -1, in[0].id}))
      << "each as soon as it is given";
  g.add_output(done.back().second);
  const std::vector<HostTensor> at = {scalar(DType::f32, 3), scalar(DType::f32, 5), scalar(DType::f32, 15),
                                      scalar(DType::f32, 8)};
  EXPECT_EQ(numbers(interpret(g, at)[0]), Numbers{2 * 15 * 5});
}

}  // namespace KILN_FILE
}  // namespace kiln
