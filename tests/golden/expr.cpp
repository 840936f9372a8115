// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/expr.h"

#include <cctype>
#include <charconv>

#include "ir/base/error.h"

namespace kiln::golden {

namespace {

using Kind = Node::Kind;

NodePtr make(Kind kind, std::string text = "") {
  auto n = std::make_unique<Node>();
  n->kind = kind;
  n->text = std::move(text);
  return n;
}

class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source) { advance(); }

  NodePtr whole() {
    NodePtr n = tuple_or_one("");
    expect_end();
    return n;
  }

 private:
  // The longest operators first.
  static constexpr std::string_view kOperators[] = {"...", "**", "//", "<<", ">>", "==", "!=", "<=", ">="};

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorKind::unsupported,
                fmt::format("expression '{}': {} at column {}", source_, what, begin_));
  }

  void expect_end() const {
    if (!token_.empty()) fail(fmt::format("unexpected '{}'", token_));
  }

  void advance() {
    size_t i = at_;
    while (i < source_.size() && std::isspace(static_cast<unsigned char>(source_[i]))) ++i;
    begin_ = i;
    size_t end = i;
    if (i < source_.size()) end = token_end(i);
    token_ = source_.substr(i, end - i);
    at_ = end;
  }

  size_t token_end(size_t i) const {
    const auto c = static_cast<unsigned char>(source_[i]);
    const auto word = [](unsigned char x) { return std::isalnum(x) || x == '_'; };
    if (std::isalpha(c) || c == '_') return run(i, word);
    if (std::isdigit(c)) return number_end(i);
    if (c == '\'' || c == '"') {
      const size_t close = source_.find(static_cast<char>(c), i + 1);
      if (close == std::string_view::npos) fail("a string without an end");
      return close + 1;
    }
    for (const std::string_view op : kOperators)
      if (source_.substr(i).starts_with(op)) return i + op.size();
    return i + 1;
  }

  template <typename F>
  size_t run(size_t i, F&& inside) const {
    while (i < source_.size() && inside(static_cast<unsigned char>(source_[i]))) ++i;
    return i;
  }

  size_t number_end(size_t i) const {
    const auto digit = [](unsigned char x) { return std::isdigit(x) != 0; };
    i = run(i, digit);
    if (i < source_.size() && source_[i] == '.') i = run(i + 1, digit);
    if (i < source_.size() && (source_[i] == 'e' || source_[i] == 'E')) {
      ++i;
      if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
      i = run(i, digit);
    }
    return i;
  }

  bool accept(std::string_view text) {
    if (token_ != text) return false;
    advance();
    return true;
  }
  void expect(std::string_view text) {
    if (!accept(text)) fail(fmt::format("expected '{}'", text));
  }

  // a, b, c up to `close` (which stays); one element without a comma is that element.
  NodePtr tuple_or_one(std::string_view close) {
    if (!close.empty() && token_ == close) return make(Kind::tuple);
    NodePtr first = expression(0);
    if (token_ != ",") return first;
    NodePtr n = make(Kind::tuple);
    n->kids.push_back(std::move(first));
    while (accept(",") && token_ != close) n->kids.push_back(expression(0));
    return n;
  }

  static int precedence(std::string_view op) {
    if (op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=") return 1;
    if (op == "|") return 2;
    if (op == "^") return 3;
    if (op == "&") return 4;
    if (op == "<<" || op == ">>") return 5;
    if (op == "+" || op == "-") return 6;
    if (op == "*" || op == "/" || op == "//" || op == "%" || op == "@") return 7;
    if (op == "**") return 9;
    return 0;
  }

  NodePtr expression(int above) {
    NodePtr left = prefix();
    while (true) {
      const int p = precedence(token_);
      if (p == 0 || p <= above) return left;
      NodePtr n = make(Kind::binary, std::string(token_));
      advance();
      n->kids.push_back(std::move(left));
      n->kids.push_back(expression(p == 9 ? p - 1 : p));
      left = std::move(n);
    }
  }

  NodePtr prefix() {
    if (token_ == "-" || token_ == "~") {
      NodePtr n = make(Kind::unary, std::string(token_));
      advance();
      n->kids.push_back(expression(8));
      return n;
    }
    return postfix(atom());
  }

  NodePtr atom() {
    if (token_.empty()) fail("unexpected end");
    const auto c = static_cast<unsigned char>(token_[0]);
    NodePtr n;
    if (std::isdigit(c)) return number();
    if (c == '\'' || c == '"') {
      n = make(Kind::string, std::string(token_.substr(1, token_.size() - 2)));
    } else if (std::isalpha(c) || c == '_') {
      n = make(Kind::name, std::string(token_));
    } else if (token_ == "...") {
      n = make(Kind::ellipsis);
    } else if (accept("(")) {
      n = tuple_or_one(")");
      expect(")");
      return n;
    } else if (accept("[")) {
      n = make(Kind::list);
      while (token_ != "]") {
        n->kids.push_back(expression(0));
        if (!accept(",")) break;
      }
      expect("]");
      return n;
    } else {
      fail(fmt::format("unexpected '{}'", token_));
    }
    advance();
    return n;
  }

  NodePtr number() {
    const bool whole = token_.find_first_of(".eE") == std::string_view::npos;
    NodePtr n = make(whole ? Kind::integer : Kind::real);
    const char* end = token_.data() + token_.size();
    const auto r = whole ? std::from_chars(token_.data(), end, n->integer)
                         : std::from_chars(token_.data(), end, n->real);
    if (r.ec != std::errc() || r.ptr != end) fail("a bad number");
    advance();
    return n;
  }

  static bool is_module(const Node& n) {
    return n.kind == Kind::name && (n.text == "torch" || n.text == "F" || n.text == "math" ||
                                    n.text == "torch.linalg" || n.text == "torch._VF");
  }

  NodePtr postfix(NodePtr n) {
    while (true) {
      if (accept(".")) {
        const std::string member(token_);
        advance();
        if (is_module(*n)) {
          n->text += "." + member;
          continue;
        }
        NodePtr a = make(Kind::attribute, member);
        a->kids.push_back(std::move(n));
        n = std::move(a);
      } else if (accept("(")) {
        n = call(std::move(n));
      } else if (accept("[")) {
        n = subscript(std::move(n));
      } else {
        return n;
      }
    }
  }

  NodePtr call(NodePtr callee) {
    NodePtr n = make(Kind::call);
    n->kids.push_back(std::move(callee));
    while (token_ != ")") {
      NodePtr argument = expression(0);
      std::string keyword;
      if (token_ == "=") {
        if (argument->kind != Kind::name) fail("a keyword that is not a name");
        keyword = argument->text;
        advance();
        argument = expression(0);
      }
      n->kids.push_back(std::move(argument));
      n->keywords.push_back(std::move(keyword));
      if (!accept(",")) break;
    }
    expect(")");
    return n;
  }

  NodePtr subscript(NodePtr base) {
    NodePtr n = make(Kind::subscript);
    n->kids.push_back(std::move(base));
    while (token_ != "]") {
      n->kids.push_back(index());
      if (!accept(",")) break;
    }
    expect("]");
    return n;
  }

  NodePtr index() {
    NodePtr first = token_ == ":" ? nullptr : expression(0);
    if (token_ != ":") return first;
    NodePtr n = make(Kind::slice);
    n->kids.push_back(std::move(first));
    for (int part = 1; part < 3; ++part) {
      const bool colon = accept(":");
      const bool empty = !colon || token_ == ":" || token_ == "," || token_ == "]";
      n->kids.push_back(empty ? nullptr : expression(0));
    }
    return n;
  }

  std::string_view source_;
  std::string_view token_;
  size_t at_ = 0;
  size_t begin_ = 0;
};

std::string list(std::string_view head, const std::vector<NodePtr>& kids) {
  std::string out = "(" + std::string(head);
  for (const NodePtr& k : kids) out += " " + (k ? to_string(*k) : "_");
  return out + ")";
}

}  // namespace

NodePtr parse_expression(std::string_view source) { return Parser(source).whole(); }

std::string to_string(const Node& n) {
  switch (n.kind) {
    case Kind::integer: return std::to_string(n.integer);
    case Kind::real: return fmt::format("{}", n.real);
    case Kind::string: return "'" + n.text + "'";
    case Kind::name: return n.text;
    case Kind::attribute: return list("." + n.text, n.kids);
    case Kind::subscript: return list("index", n.kids);
    case Kind::slice: return list("slice", n.kids);
    case Kind::ellipsis: return "...";
    case Kind::tuple: return list("tuple", n.kids);
    case Kind::list: return list("list", n.kids);
    case Kind::unary:
    case Kind::binary: return list(n.text, n.kids);
    case Kind::call: break;
  }
  std::string out = "(call " + to_string(*n.kids[0]);
  for (size_t i = 1; i < n.kids.size(); ++i) {
    const std::string& key = n.keywords[i - 1];
    out += " " + (key.empty() ? "" : key + "=") + to_string(*n.kids[i]);
  }
  return out + ")";
}

}  // namespace kiln::golden
