// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/expr.h"

#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "tests/golden/support.h"

namespace kiln::golden {
namespace KILN_FILE {

std::string parsed(std::string_view s) {
  try {
    return to_string(*parse_expression(s));
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(GoldenExpr, Operators) {
  EXPECT_EQ(parsed("2 * x + 3.5"), "(+ (* 2 x) 3.5)");
  EXPECT_EQ(parsed("a - b - c"), "(- (- a b) c)");
  EXPECT_EQ(parsed("-x ** 2 ** 3"), "(- (** x (** 2 3)))");
  EXPECT_EQ(parsed("~a | b & c == d"), "(== (| (~ a) (& b c)) d)");
  EXPECT_EQ(parsed("(q @ k) // 2 % 3 >> 1"), "(>> (% (// (@ q k) 2) 3) 1)");
  EXPECT_EQ(parsed("1e-08 * 2."), "(* 1e-08 2)");
}

TEST(GoldenExpr, CallsAndAttributes) {
  EXPECT_EQ(parsed("torch.sum(x, dim=dim, keepdim=True)"), "(call torch.sum x dim=dim keepdim=True)");
  EXPECT_EQ(parsed("torch.linalg.vector_norm(x, 2)"), "(call torch.linalg.vector_norm x 2)");
  EXPECT_EQ(parsed("x.to(torch.float16).dtype"), "(.dtype (call (.to x) torch.float16))");
  EXPECT_EQ(parsed("f()"), "(call f)");
  EXPECT_EQ(parsed("torch.sort(s)[0]"), "(index (call torch.sort s) 0)");
  EXPECT_EQ(parsed("float('-inf')"), "(call float '-inf')");
}

TEST(GoldenExpr, Subscripts) {
  EXPECT_EQ(parsed("x[1::2, ::3]"), "(index x (slice 1 _ 2) (slice _ _ 3))");
  EXPECT_EQ(parsed("x[-3:, :-2]"), "(index x (slice (- 3) _ _) (slice _ (- 2) _))");
  EXPECT_EQ(parsed("x[..., None, 1:]"), "(index x ... None (slice 1 _ _))");
  EXPECT_EQ(parsed("x[1, :, -1]"), "(index x 1 (slice _ _ _) (- 1))");
}

TEST(GoldenExpr, TuplesAndLists) {
  EXPECT_EQ(parsed("(a, b), [x, y]"), "(tuple (tuple a b) (list x y))");
  EXPECT_EQ(parsed("(2,)"), "(tuple 2)");
  EXPECT_EQ(parsed("()"), "(tuple)");
  EXPECT_EQ(parsed("(x)"), "x");
}

TEST(GoldenExpr, Errors) {
  EXPECT_EQ(parsed("f(x"), "expression 'f(x': expected ')' at column 3");
  EXPECT_EQ(parsed("x y"), "expression 'x y': unexpected 'y' at column 2");
  EXPECT_EQ(parsed("'a"), "expression ''a': a string without an end at column 0");
  EXPECT_EQ(parsed(""), "expression '': unexpected end at column 0");
  EXPECT_EQ(parsed("f(1=2)"), "expression 'f(1=2)': a keyword that is not a name at column 3");
}

TEST(GoldenExpr, EveryGoldenParses) {
  const Json ops = load("ops");
  for (const Json& c : ops["cases"]) {
    const std::string text = parsed(c["expr"].get<std::string>());
    EXPECT_FALSE(text.starts_with("expression")) << text;
  }
}

}  // namespace KILN_FILE
}  // namespace kiln::golden
