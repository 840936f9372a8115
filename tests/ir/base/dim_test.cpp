// SPDX-License-Identifier: Apache-2.0
// Random expressions are built twice: as a Dim and as a tree that is evaluated with plain integers.
#include "ir/base/dim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

using Env = std::map<std::string, int64_t, std::less<>>;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  }
  return "no error";
}

/// An expression that knows nothing of canonical forms.
struct Tree {
  char op = 'c';  // c constant, s symbol, + - * / % < >
  int64_t value = 0;
  std::string symbol;
  std::shared_ptr<Tree> a, b;
};
using TreePtr = std::shared_ptr<Tree>;

class RandomTrees {
 public:
  explicit RandomTrees(uint64_t seed) : rng_(seed) {}
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(rng_); }

  TreePtr make(int depth) {
    auto t = std::make_shared<Tree>();
    if (depth == 0 || pick(0, 5) == 0) {
      t->op = pick(0, 1) ? 's' : 'c';
      t->value = pick(-6, 6);
      t->symbol = std::string(1, static_cast<char>('A' + pick(0, 2))) + (pick(0, 1) ? "" : "_1");
      return t;
    }
    t->op = "+++--**/%<>"[pick(0, 10)];
    t->a = make(depth - 1);
    t->b = make(depth - 1);
    if (t->op == '/' || t->op == '%') t->b = divisor();
    return t;
  }

  Env env() {
    Env e;
    for (const char* s : {"A", "A_1", "B", "B_1", "C", "C_1"}) {
      const int64_t v = pick(-7, 7);
      e[s] = v == 0 ? 9 : v;  // symbols serve as divisors
    }
    return e;
  }

 private:
  /// Never zero: a constant, a symbol, or a multiple of one.
  TreePtr divisor() {
    auto t = std::make_shared<Tree>();
    t->op = pick(0, 2) ? 'c' : 's';
    t->value = pick(1, 4) * (pick(0, 1) ? 1 : -1);
    t->symbol = "B";
    return t;
  }
  std::mt19937_64 rng_;
};

Dim to_dim(const Tree& t) {
  if (t.op == 'c') return Dim(t.value);
  if (t.op == 's') return Dim::symbol(t.symbol);
  const Dim a = to_dim(*t.a), b = to_dim(*t.b);
  switch (t.op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return floordiv(a, b);
    case '%': return mod(a, b);
    case '<': return min(a, b);
    default: return max(a, b);
  }
}

int64_t direct(const Tree& t, const Env& env) {
  if (t.op == 'c') return t.value;
  if (t.op == 's') return env.at(t.symbol);
  const int64_t a = direct(*t.a, env), b = direct(*t.b, env);
  switch (t.op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
    case '%':
      return a - b * static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
    case '<': return std::min(a, b);
    default: return std::max(a, b);
  }
}

TEST(Dim, RandomExpressionsEvaluateLikePlainArithmetic) {
  RandomTrees random(1);
  int symbolic = 0;
  for (int i = 0; i < 20000; ++i) {
    const TreePtr t = random.make(static_cast<int>(random.pick(0, 3)));
    const Dim d = to_dim(*t);
    symbolic += !d.is_const();
    for (int k = 0; k < 3; ++k) {
      const Env env = random.env();
      ASSERT_EQ(d.eval(env), direct(*t, env)) << d.str();
    }
  }
  EXPECT_GT(symbolic, 8000);
}

TEST(Dim, RandomExpressionsReadBackExactly) {
  RandomTrees random(2);
  for (int i = 0; i < 20000; ++i) {
    const Dim d = to_dim(*random.make(static_cast<int>(random.pick(0, 3))));
    const Dim again = parse_dim(d.str());
    ASSERT_EQ(again, d);
    ASSERT_EQ(again.str(), d.str());
  }
}

TEST(Dim, EqualPolynomialsAreEqualHoweverBuilt) {
  RandomTrees random(3);
  for (int i = 0; i < 5000; ++i) {
    const Dim a = to_dim(*random.make(2)), b = to_dim(*random.make(2)), c = to_dim(*random.make(2));
    ASSERT_EQ(a + b, b + a);
    ASSERT_EQ((a + b) + c, a + (b + c));
    ASSERT_EQ(a * b, b * a);
    ASSERT_EQ(a * (b + c), a * b + a * c);
    ASSERT_EQ((a - b) + b, a);
    ASSERT_TRUE((a - a).is(0));
    ASSERT_EQ(min(a, b), min(b, a));
    ASSERT_EQ(max(a, b), max(b, a));
  }
}

TEST(Dim, DifferentPolynomialsDiffer) {
  const Dim a = Dim::symbol("A"), b = Dim::symbol("B");
  const Dim all[] = {a,     b,     a + b,  a - b,  a * b,          a * a,
                     a * 2, a + 1, Dim(1), Dim(0), floordiv(a, b), mod(a, b)};
  for (size_t i = 0; i < std::size(all); ++i)
    for (size_t k = 0; k < std::size(all); ++k) EXPECT_EQ(all[i] == all[k], i == k) << i << " " << k;
}

TEST(Dim, DividesExactlyWhereItCan) {
  const Dim a = Dim::symbol("A"), b = Dim::symbol("B");
  EXPECT_EQ(floordiv(a * b * 6 + a * 4, a * 2), b * 3 + 2);
  EXPECT_TRUE(mod(a * b * 6 + a * 4, a * 2).is(0));
  EXPECT_EQ(floordiv(a * 3, Dim(2)).str(), "div(3*A,2)");
  EXPECT_EQ(ceildiv(a, Dim(16)).eval({{"A", 17}}), 2);
  EXPECT_EQ(ceildiv(a, Dim(16)).eval({{"A", 0}}), 0);
  EXPECT_EQ(floordiv(a * -5, a).str(), "-5");
}

TEST(Dim, IsDivisibleForAllValuesOfItsSymbols) {
  const Dim b = Dim::symbol("B");
  EXPECT_TRUE(divisible(b, 1));
  EXPECT_FALSE(divisible(b, 2));
  EXPECT_TRUE(divisible(b * Dim(8) + Dim(4), 4));
  EXPECT_FALSE(divisible(b * Dim(8) + Dim(4), 8));
  EXPECT_TRUE(divisible(Dim(0), 16));
  EXPECT_FALSE(divisible(Dim(-6), 4));
}

TEST(Dim, NegativeNumbersRoundDown) {
  EXPECT_EQ(floordiv(Dim(-7), Dim(2)).value(), -4);
  EXPECT_EQ(floordiv(Dim(7), Dim(-2)).value(), -4);
  EXPECT_EQ(floordiv(Dim(-7), Dim(-2)).value(), 3);
  EXPECT_EQ(mod(Dim(-7), Dim(3)).value(), 2);
  EXPECT_EQ(mod(Dim(7), Dim(-3)).value(), -2);
  EXPECT_EQ(mod(Dim(-6), Dim(3)).value(), 0);
}

TEST(Dim, Prints) {
  const Dim a = Dim::symbol("A"), b = Dim::symbol("B");
  EXPECT_EQ((b + a * b * 2 - 3).str(), "2*A*B+B-3");
  EXPECT_EQ((Dim(0) - a).str(), "-A");
  EXPECT_EQ(shape_str({a, Dim(784)}), "[A,784]");
  EXPECT_EQ(shape_str({}), "[]");
  EXPECT_TRUE(numel({}).is(1));
  EXPECT_TRUE(numel({a, Dim(0)}).is(0));
  std::vector<std::string> used;
  (min(a, b) + a).collect_symbols(used);
  std::sort(used.begin(), used.end());
  EXPECT_EQ(used, (std::vector<std::string>{"A", "B"}));
}

TEST(Dim, WholeRangeReadsBack) {
  for (const int64_t v : {INT64_MAX, INT64_MIN, int64_t{0}, int64_t{-1}}) {
    EXPECT_EQ(parse_dim(Dim(v).str()).value(), v);
    const Dim d = Dim::symbol("A") + Dim(v);
    EXPECT_EQ(parse_dim(d.str()), d) << d.str();
  }
  EXPECT_EQ(parse_dim("2 * A + 1"), Dim::symbol("A") * 2 + 1);
}

TEST(Dim, OverflowIsAnError) {
  const Dim big(INT64_MAX);
  EXPECT_EQ(message_of([&] { (void)(big + 1); }),
            "invalid: size 9223372036854775807 + 1 does not fit in 64 bits");
  EXPECT_EQ(message_of([&] {
              (void)numel({big, Dim(2)});
            }),
            "invalid: size 9223372036854775807 * 2 does not fit in 64 bits");
  EXPECT_EQ(message_of([&] { (void)floordiv(Dim(INT64_MIN), Dim(-1)); }),
            "invalid: size -9223372036854775808 * -1 does not fit in 64 bits");
  EXPECT_EQ(message_of([&] {
              (Dim::symbol("A") * Dim::symbol("A")).eval({{"A", int64_t{1} << 40}});
            }),
            "invalid: size 1099511627776 * 1099511627776 does not fit in 64 bits");
}

TEST(Dim, Errors) {
  const Dim a = Dim::symbol("A");
  EXPECT_EQ(message_of([&] { (void)floordiv(a, Dim(0)); }), "invalid: division of dim A by zero");
  EXPECT_EQ(message_of([&] { (void)mod(a, Dim(0)); }), "invalid: modulo of dim A by zero");
  EXPECT_EQ(message_of([&] {
              (void)floordiv(Dim(3), a).eval({{"A", 0}});
            }),
            "invalid: div(3,A): division by zero");
  EXPECT_NE(message_of([&] { (void)a.value(); }).find("Dim A is symbolic"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)a.eval({}); }).find("no value for symbol A"), std::string::npos);
}

TEST(Dim, ParseErrorsNameTheColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "invalid: dim '': expected a number or a name at column 1"},
      {"A+", "invalid: dim 'A+': expected a number or a name at column 3"},
      {"A B", "invalid: dim 'A B': expected end of text at column 3"},
      {"3x", "invalid: dim '3x': expected an integer of 64 bits before at column 3"},
      {"9223372036854775808",
       "invalid: dim '9223372036854775808': expected an integer of 64 bits before at column 20"},
      {"div(A)", "invalid: dim 'div(A)': expected ',' at column 6"},
      {"div(A,B", "invalid: dim 'div(A,B': expected ')' at column 8"},
      {"pow(A,B)", "invalid: dim 'pow(A,B)': expected div, mod, min or max at column 9"},
      {"div(A,0)", "invalid: division of dim A by zero"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(message_of([&] { (void)parse_dim(text); }), message);
}

}  // namespace KILN_FILE
}  // namespace kiln
