// SPDX-License-Identifier: Apache-2.0
#include "tests/ir/gradient_cases.h"

#include "ir/op.h"

namespace kiln::testing {

using Ints = std::vector<int64_t>;

Value index_pattern(GraphBuilder& b, const Shape& s, std::initializer_list<double> pattern) {
  const Dim n = numel(s);
  Value flat = b.emit(op("iota"), {}, {int64_t{0}, Shape{n}});
  Value out = b.constant_like(0, flat);
  const Value period = b.constant_like(static_cast<double>(pattern.size()), flat);
  const Value at = b.emit(op("remainder"), {flat, period});
  double i = 0;
  for (double p : pattern) {
    const Value here = b.emit(op("eq"), {at, b.constant_like(i++, flat)});
    out = b.emit(op("where"), {here, b.constant_like(p, flat), out});
  }
  return b.reshape(out, s);
}

std::function<Value(GraphBuilder&, const std::vector<Value>&)> with(Op o, Attrs attrs) {
  return [=](GraphBuilder& b, const std::vector<Value>& x) { return b.emit(o, x, attrs); };
}

namespace {

/// Gathers, scatters and contractions.
std::vector<GradientCase> place_cases() {
  return {
      {"take",
       {{4, 3}},
       [](GraphBuilder& b, const std::vector<Value>& x) {
         return b.emit(op("take"), {x[0], index_pattern(b, {2, 3}, {1, -1, 1, 0})}, {int64_t{0}});
       }},
      {"take_along",
       {{3, 4}},
       [](GraphBuilder& b, const std::vector<Value>& x) {
         return b.emit(op("take_along"), {x[0], index_pattern(b, {3, 2}, {3, 0, -1})}, {int64_t{1}});
       }},
      {"index_add",
       {{3, 4}, {3, 5}},
       [](GraphBuilder& b, const std::vector<Value>& x) {
         return b.emit(op("index_add"), {x[0], index_pattern(b, {5}, {0, 3, 3, -4, 1}), x[1]}, {int64_t{1}});
       }},
      {"scatter_add",
       {{3, 4}, {2, 4}},
       [](GraphBuilder& b, const std::vector<Value>& x) {
         return b.emit(op("scatter_add"), {x[0], index_pattern(b, {2, 4}, {0, 2, 2}), x[1]}, {int64_t{0}});
       }},
      {"dot_general", {{2, 3}, {3, 4}}, with(op("dot_general"), {Ints{}, Ints{}, Ints{1}, Ints{0}})},
      {"dot_general", {{2, 3}, {4, 3}}, with(op("dot_general"), {Ints{}, Ints{}, Ints{1}, Ints{1}})},
      {"dot_general", {{3, 2}, {3, 4}}, with(op("dot_general"), {Ints{}, Ints{}, Ints{0}, Ints{0}})},
      {"dot_general",
       {{2, 3, 4, 2}, {2, 4, 2, 3}},
       with(op("dot_general"), {Ints{1}, Ints{3}, Ints{3, 2}, Ints{2, 1}})},
      {"dot_general", {{2, 0}, {0, 3}}, with(op("dot_general"), {Ints{}, Ints{}, Ints{1}, Ints{0}})},
      {"dot_general", {{3}, {2}}, with(op("dot_general"), {Ints{}, Ints{}, Ints{}, Ints{}})},
      {"cast",
       {{3}},
       [](GraphBuilder& b, const std::vector<Value>& x) {
         return b.emit(op("mul"), {x[0], b.cast(x[0], DType::f64)});
       }},
  };
}

/// Windows, scans, and scatters of other kinds than sums.
std::vector<GradientCase> line_cases() {
  std::vector<GradientCase> c = {
      {"window", {{7}}, with(op("window"), {int64_t{0}, int64_t{3}, int64_t{2}, int64_t{1}})},
      {"window", {{2, 9}}, with(op("window"), {int64_t{1}, int64_t{3}, int64_t{2}, int64_t{2}})},
      {"window", {{5, 3}}, with(op("window"), {int64_t{0}, int64_t{2}, int64_t{3}, int64_t{4}})},
      {"window", {{8, 2}}, with(op("window"), {int64_t{0}, int64_t{2}, int64_t{2}, int64_t{1}})},
      {"window", {{3, 10}}, with(op("window"), {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{1}})},
      {"window", {{12}}, with(op("window"), {int64_t{0}, int64_t{5}, int64_t{2}, int64_t{1}})},
      {"window", {{13}}, with(op("window"), {int64_t{0}, int64_t{7}, int64_t{3}, int64_t{1}})},
      {"window", {{6}}, with(op("window"), {int64_t{0}, int64_t{4}, int64_t{9}, int64_t{1}})},
      {"skew", {{3, 4, 2}}, with(op("skew"), {int64_t{0}, int64_t{1}, Shape{5}})},
      {"skew", {{2, 5, 3}}, with(op("skew"), {int64_t{1}, int64_t{-2}, Shape{4}})},
      {"cumsum", {{3, 4}}, with(op("cumsum"), {int64_t{1}})},
      {"cumsum", {{3, 0}}, with(op("cumsum"), {int64_t{0}})},
      {"cumprod", {{2, 5}}, with(op("cumprod"), {int64_t{1}}), 0.5, 1.5},
      {"cumprod", {{3, 2}}, with(op("cumprod"), {int64_t{0}}), -2, -0.5},
      {"logcumsumexp", {{3, 4}}, with(op("logcumsumexp"), {int64_t{1}})},
      {"logcumsumexp", {{4, 2}}, with(op("logcumsumexp"), {int64_t{0}})},
      {"scatter",
       {{3, 4}, {2, 4}},
       [](GraphBuilder& b, const std::vector<Value>& x) {
         return b.emit(op("scatter"), {x[0], index_pattern(b, {2, 4}, {0, 2, -1, 1, 1, 0, 0, 0}), x[1]},
                       {int64_t{0}});
       }},
  };
  for (const Op o : {op("scatter_prod"), op("scatter_amax"), op("scatter_amin")})
    c.push_back(
        {std::string(def(o).name), {{2, 3}, {2, 5}}, [o](GraphBuilder& b, const std::vector<Value>& x) {
           return b.emit(o, {x[0], index_pattern(b, {2, 5}, {0, 2, 2, -3, 0, 1, 1}), x[1]}, {int64_t{1}});
         }});
  return c;
}

}  // namespace

std::vector<GradientCase> gradient_cases() {
  std::vector<GradientCase> c = {
      {"where",
       {{3, 2}, {3, 2}},
       [](GraphBuilder& b, const std::vector<Value>& x) {
         const Value c =
             b.emit(op("lt"), {index_pattern(b, {3, 2}, {0, 1, 0}), index_pattern(b, {3, 2}, {1})});
         return b.emit(op("where"), {c, x[0], x[1]});
       }},
      {"sum", {{3, 1, 4}}, with(op("sum"), {Ints{2, 1}})},
      {"sum", {{}}, with(op("sum"), {Ints{}})},
      {"prod", {{3, 4}}, with(op("prod"), {Ints{1}}), 0.5, 1.5},
      {"amax", {{3, 4}}, with(op("amax"), {Ints{1}})},
      {"amin", {{3, 4}}, with(op("amin"), {Ints{0, 1}})},
      {"expand", {{3, 1}}, with(op("expand"), {Shape{2, 3, 4}})},
      {"expand", {{}}, with(op("expand"), {Shape{5}})},
      {"expand", {{1, 1, 2}}, with(op("expand"), {Shape{1, 3, 2}})},
      {"permute", {{2, 3, 4}}, with(op("permute"), {Ints{2, 0, 1}})},
      {"reshape", {{2, 6}}, with(op("reshape"), {Shape{3, 4}})},
      {"slice", {{5, 4}}, with(op("slice"), {Shape{1, 0}, Shape{5, 3}, Ints{3, 1}})},
      {"slice", {{5}}, with(op("slice"), {Shape{2}, Shape{2}, Ints{2}})},
      {"slice", {{6}}, with(op("slice"), {Shape{1}, Shape{5}, Ints{2}})},
      {"pad", {{2, 3}}, with(op("pad"), {Shape{1, 0}, Shape{0, 2}, Ints{2, 0}, 3.0})},
      {"pad", {{0}}, with(op("pad"), {Shape{1}, Shape{1}, Ints{2}, 3.0})},
      {"flip", {{2, 3}}, with(op("flip"), {Ints{1}})},
      {"cat", {{2, 3}, {2, 1}, {2, 0}}, with(op("cat"), {int64_t{1}})},
      {"all_reduce",
       {{2, 3}, {5}},  // at 0 and 8 of the flat result; the rest is padding
       [](GraphBuilder& b, const std::vector<Value>& x) {
         const Value flat = b.emit(op("all_reduce"), x, {int64_t{0}, DType::f64});
         const auto piece = [&](int64_t from, int64_t to) {
           return b.emit(op("slice"), {flat}, {Shape{Dim(from)}, Shape{Dim(to)}, Ints{1}});
         };
         return b.emit(op("cat"), {piece(0, 6), piece(8, 13)}, {int64_t{0}});
       }},
  };
  for (GradientCase& p : place_cases()) c.push_back(std::move(p));
  for (GradientCase& p : line_cases()) c.push_back(std::move(p));
  for (const OpDef* d : all_ops()) {
    if (d->kind != OpKind::elementwise || !d->grad || d->name == "cast" || d->name == "where") continue;
    for (const Ints& s : {Ints{2, 3}, Ints{}, Ints{0}})
      c.push_back({std::string(d->name), std::vector<Ints>(static_cast<size_t>(d->inputs), s),
                   with(*find_op(d->name), {}), d->lo, d->hi});
  }
  return c;
}

}  // namespace kiln::testing
