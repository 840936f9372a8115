// SPDX-License-Identifier: Apache-2.0
// Reads the text form of graphs back (print.cpp has the grammar). Every fault names line and column.
#include <cctype>
#include <charconv>
#include <map>

#include "ir/graph.h"

namespace kiln {

namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph graph() {
    word("graph");
    g_.name = try_punct('"') ? quoted() : name();
    punct('{');
    while (!try_punct('}')) statement();
    skip();
    if (at_ != text_.size()) fail("end of text");
    return std::move(g_);
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
      column = text_[i] == '\n' ? 1 : column + 1;
      line += text_[i] == '\n';
    }
    throw Error(ErrorKind::invalid,
                fmt::format("parse_graph: line {}, column {}: expected {}", line, column, expected));
  }
  [[noreturn]] void fail_at(size_t at, std::string_view expected) {
    at_ = at;
    fail(expected);
  }
  void skip() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
      else if (text_.substr(at_, 2) == "//") at_ = std::min(text_.find('\n', at_), text_.size());
      else return;
    }
  }
  bool try_punct(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void punct(char c) {
    if (!try_punct(c)) fail(fmt::format("'{}'", c));
  }
  std::string name() {
    skip();
    const size_t from = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    if (at_ == from) fail("a name");
    return std::string(text_.substr(from, at_ - from));
  }
  void word(std::string_view w) {
    skip();
    const size_t from = at_;
    if (name() == w) return;
    fail_at(from, fmt::format("'{}'", w));
  }
  template <typename T>
  T number(std::string_view what) {
    skip();
    T v{};
    const auto [end, ec] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (ec != std::errc()) fail(what);
    at_ = static_cast<size_t>(end - text_.data());
    return v;
  }
  std::string quoted() {
    std::string s;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\') ++at_;
      if (at_ < text_.size()) s += text_[at_++];
    }
    if (at_ >= text_.size()) fail("'\"'");
    ++at_;
    return s;
  }
  std::string maybe_quoted() { return try_punct('"') ? quoted() : ""; }

  int id() {
    punct('%');
    return number<int>("a value number");
  }
  Value value() {
    skip();
    const size_t from = at_;
    const auto it = values_.find(id());
    if (it != values_.end()) return it->second;
    fail_at(from, "a value that is defined above");
  }
  Shape dims() {
    punct('[');
    Shape s;
    if (try_punct(']')) return s;
    do s.push_back(parse_dim(dim_text()));
    while (try_punct(','));
    punct(']');
    return s;
  }
  /// Text up to the ',' or ']' that ends a dim, outside parentheses.
  std::string_view dim_text() {
    skip();
    const size_t from = at_;
    for (int depth = 0; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (depth == 0 && (c == ',' || c == ']' || c == '\n')) break;
      depth += (c == '(') - (c == ')');
    }
    return text_.substr(from, at_ - from);
  }
  DType dtype() {
    skip();
    const size_t from = at_;
    const std::string n = name();
    for (int i = 0; i < kDTypeCount; ++i)
      if (dtype_name(static_cast<DType>(i)) == n) return static_cast<DType>(i);
    fail_at(from, "a dtype");
  }
  Type type() {
    const DType t = dtype();
    return {t, dims()};
  }
  double real() {
    skip();
    for (std::string_view special : {"nan.", "inf.", "-inf."}) {
      if (text_.substr(at_, special.size()) != special) continue;
      at_ += special.size();
      return special[0] == 'n' ? NAN : special[0] == 'i' ? HUGE_VAL : -HUGE_VAL;
    }
    return number<double>("a real number");
  }
  AttrValue attr(AttrKind kind) {
    switch (kind) {
      case AttrKind::integer: return number<int64_t>("an integer");
      case AttrKind::real: return real();
      case AttrKind::dtype: skip(); return dtype();
      case AttrKind::dims: return dims();
      case AttrKind::boolean: {
        const std::string w = name();
        if (w != "true" && w != "false") fail("true or false");
        return w == "true";
      }
      case AttrKind::ints: break;
    }
    std::vector<int64_t> v;
    punct('(');
    if (try_punct(')')) return v;
    do v.push_back(number<int64_t>("an integer"));
    while (try_punct(','));
    punct(')');
    return v;
  }
  Attrs attrs(const OpDef& d) {
    Attrs out;
    if (d.attrs.empty()) return out;
    punct('{');
    for (size_t i = 0; i < d.attrs.size(); ++i) {
      if (i) punct(',');
      word(d.attrs[i].name);
      punct('=');
      out.push_back(attr(d.attrs[i].kind));
    }
    punct('}');
    return out;
  }
  void input(int n) {
    skip();
    Type t = type();
    const std::string kind = name();
    for (int k = 0; k <= static_cast<int>(InputKind::captured); ++k) {
      if (kind != to_string(static_cast<InputKind>(k))) continue;
      values_[n] = g_.add_input(std::move(t), static_cast<InputKind>(k), maybe_quoted());
      return;
    }
    fail("arg, param, state, scalar or captured");
  }
  void node(int n) {
    skip();
    const size_t type_at = at_;
    const Type t = type();
    skip();
    const size_t op_at = at_;
    const std::optional<Op> o = find_op(name());
    if (!o) fail_at(op_at, "an op");
    std::vector<Value> in;
    skip();
    if (at_ < text_.size() && text_[at_] == '%') {
      do in.push_back(value());
      while (try_punct(','));
    }
    Attrs a = attrs(def(*o));
    if (def(*o).inputs >= 0 && static_cast<size_t>(def(*o).inputs) != in.size())
      fail_at(op_at, fmt::format("{} operands of {}", def(*o).inputs, def(*o).name));
    const Value v = g_.add_node(*o, in, std::move(a));
    if (g_.type(v) != t) fail_at(type_at, fmt::format("type {} for {}", g_.type(v).str(), def(*o).name));
    values_[n] = v;
  }
  void output() {
    const Value v = value();
    int alias = -1;
    skip();
    if (text_.substr(at_, 6) == "alias=") {
      at_ += 6;
      alias = number<int>("an input number");
      skip();
    }
    const bool guard = text_.substr(at_, 5) == "guard";
    if (guard) word("guard");
    g_.add_output(v, alias, maybe_quoted());
    g_.outputs.back().guard = guard;
  }
  void statement() {
    skip();
    if (at_ < text_.size() && text_[at_] == 'o') {
      word("output");
      return output();
    }
    const int n = id();
    if (values_.count(n)) fail("a value number not used before");
    punct('=');
    skip();
    if (text_.substr(at_, 6) == "input ") {
      at_ += 6;
      return input(n);
    }
    node(n);
  }

  std::string_view text_;
  size_t at_ = 0;
  Graph g_;
  std::map<int, Value> values_;
};

}  // namespace

Graph parse_graph(std::string_view text) { return Parser(text).graph(); }

}  // namespace kiln
