// SPDX-License-Identifier: Apache-2.0
// Canonical form: a sum of terms, each an integer coefficient times a sorted product of atoms.
// Atoms are symbols and opaque calls (div, mod, min, max) over Dims; both are ordered by their text.
#include "ir/base/dim.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "ir/base/error.h"

namespace kiln {

namespace {
struct Atom {
  std::string text;  // symbol name, or "div(a,b)": unique, so it is the identity
  char call = 0;     // 0 symbol, 'd' div, 'm' mod, '<' min, '>' max
  Dim a, b;
};
using AtomPtr = std::shared_ptr<const Atom>;
struct AtomLess {
  bool operator()(const AtomPtr& x, const AtomPtr& y) const { return x->text < y->text; }
};
struct MonomialLess {
  bool operator()(const std::vector<AtomPtr>& x, const std::vector<AtomPtr>& y) const {
    if (x.size() != y.size()) return x.size() > y.size();  // higher degree first; the constant last
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i]->text != y[i]->text) return x[i]->text < y[i]->text;
    return false;
  }
};
using Terms = std::map<std::vector<AtomPtr>, int64_t, MonomialLess>;

int64_t checked_add(int64_t a, int64_t b) {
  int64_t out;
  if (__builtin_add_overflow(a, b, &out))
    throw SizeOverflow(fmt::format("size {} + {} does not fit in 64 bits", a, b));
  return out;
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t out;
  if (__builtin_mul_overflow(a, b, &out))
    throw SizeOverflow(fmt::format("size {} * {} does not fit in 64 bits", a, b));
  return out;
}

int64_t floor_div(int64_t a, int64_t b) {
  if (b == -1) return checked_mul(a, -1);
  const int64_t q = a / b;
  return (a % b != 0 && (a % b < 0) != (b < 0)) ? q - 1 : q;
}

/// Takes the sign of b, so that a == floor_div(a, b) * b + floor_mod(a, b).
int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t m = a % b;
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}
}  // namespace

struct Dim::Expr {
  Terms terms;
};

struct DimOps {
  static Terms terms(const Dim& d) {
    if (d.expr_) return d.expr_->terms;
    Terms t;
    if (d.value_ != 0) t[{}] = d.value_;
    return t;
  }
  static Dim make(Terms t) {
    std::erase_if(t, [](const auto& e) { return e.second == 0; });
    if (t.empty()) return Dim(int64_t{0});
    if (t.size() == 1 && t.begin()->first.empty()) return Dim(t.begin()->second);
    Dim d;
    d.expr_ = std::make_shared<const Dim::Expr>(Dim::Expr{std::move(t)});
    return d;
  }
  static Dim atom(Atom a) { return make(Terms{{{std::make_shared<const Atom>(std::move(a))}, 1}}); }
  static Dim call(char kind, const char* name, const Dim& a, const Dim& b) {
    return atom({fmt::format("{}({},{})", name, a.str(), b.str()), kind, a, b});
  }
};

Dim Dim::symbol(std::string_view name) { return DimOps::atom({std::string(name)}); }

int64_t Dim::value() const {
  KILN_ASSERT(is_const(), "Dim {} is symbolic", str());
  return value_;
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return Dim(checked_add(a.value_, b.value_));
  Terms t = DimOps::terms(a);
  for (const auto& [m, c] : DimOps::terms(b)) {
    int64_t& coef = t[m];
    coef = checked_add(coef, c);
  }
  return DimOps::make(std::move(t));
}

Dim operator-(const Dim& a, const Dim& b) { return a + b * Dim(-1); }

Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return Dim(checked_mul(a.value_, b.value_));
  Terms out;
  for (const auto& [ma, ca] : DimOps::terms(a)) {
    for (const auto& [mb, cb] : DimOps::terms(b)) {
      std::vector<AtomPtr> m;
      std::merge(ma.begin(), ma.end(), mb.begin(), mb.end(), std::back_inserter(m), AtomLess());
      int64_t& coef = out[m];
      coef = checked_add(coef, checked_mul(ca, cb));
    }
  }
  return DimOps::make(std::move(out));
}

namespace {
/// a / b when b is one term that divides every term of a.
bool exact_div(const Terms& a, const Terms& b, Terms& out) {
  if (b.size() != 1) return false;
  const auto& [mb, cb] = *b.begin();
  for (const auto& [ma, ca] : a) {
    if (cb != -1 && ca % cb != 0) return false;
    if (!std::includes(ma.begin(), ma.end(), mb.begin(), mb.end(), AtomLess())) return false;
    std::vector<AtomPtr> m;
    std::set_difference(ma.begin(), ma.end(), mb.begin(), mb.end(), std::back_inserter(m), AtomLess());
    out[m] = floor_div(ca, cb);
  }
  return true;
}
}  // namespace

Dim floordiv(const Dim& a, const Dim& b) {
  KILN_CHECK(!b.is(0), invalid, "division of dim {} by zero", a.str());
  if (a.is_const() && b.is_const()) return Dim(floor_div(a.value_, b.value_));
  if (b.is(1)) return a;
  if (a == b) return Dim(1);
  Terms out;
  if (exact_div(DimOps::terms(a), DimOps::terms(b), out)) return DimOps::make(std::move(out));
  return DimOps::call('d', "div", a, b);
}

Dim mod(const Dim& a, const Dim& b) {
  KILN_CHECK(!b.is(0), invalid, "modulo of dim {} by zero", a.str());
  if (a.is_const() && b.is_const()) return Dim(floor_mod(a.value_, b.value_));
  Terms out;
  if (b.is(1) || a == b || exact_div(DimOps::terms(a), DimOps::terms(b), out)) return Dim(0);
  return DimOps::call('m', "mod", a, b);
}

Dim min(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return Dim(std::min(a.value_, b.value_));
  if (a == b) return a;
  return a.str() < b.str() ? DimOps::call('<', "min", a, b) : DimOps::call('<', "min", b, a);
}

Dim max(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return Dim(std::max(a.value_, b.value_));
  if (a == b) return a;
  return a.str() < b.str() ? DimOps::call('>', "max", a, b) : DimOps::call('>', "max", b, a);
}

bool operator==(const Dim& a, const Dim& b) {
  if (a.is_const() || b.is_const()) return a.is_const() && b.is_const() && a.value_ == b.value_;
  if (a.expr_ == b.expr_) return true;
  return a.str() == b.str();
}

int64_t Dim::eval(const std::map<std::string, int64_t, std::less<>>& symbols) const {
  if (is_const()) return value_;
  int64_t sum = 0;
  for (const auto& [monomial, coef] : expr_->terms) {
    int64_t product = coef;
    for (const AtomPtr& atom : monomial) {
      if (atom->call == 0) {
        const auto it = symbols.find(atom->text);
        KILN_ASSERT(it != symbols.end(), "no value for symbol {}", atom->text);
        product = checked_mul(product, it->second);
        continue;
      }
      const int64_t a = atom->a.eval(symbols), b = atom->b.eval(symbols);
      int64_t value = 0;
      const bool divides = atom->call == 'd' || atom->call == 'm';
      KILN_CHECK(b != 0 || !divides, invalid, "{}: division by zero", atom->text);
      if (atom->call == 'd') value = floor_div(a, b);
      if (atom->call == 'm') value = floor_mod(a, b);
      if (atom->call == '<') value = std::min(a, b);
      if (atom->call == '>') value = std::max(a, b);
      product = checked_mul(product, value);
    }
    sum = checked_add(sum, product);
  }
  return sum;
}

void Dim::collect_symbols(std::vector<std::string>& out) const {
  if (is_const()) return;
  for (const auto& [monomial, coef] : expr_->terms) {
    for (const AtomPtr& atom : monomial) {
      if (atom->call != 0) {
        atom->a.collect_symbols(out);
        atom->b.collect_symbols(out);
      } else if (std::find(out.begin(), out.end(), atom->text) == out.end()) {
        out.push_back(atom->text);
      }
    }
  }
}

std::string Dim::str() const {
  if (is_const()) return std::to_string(value_);
  std::string out;
  for (const auto& [monomial, coef] : expr_->terms) {
    std::string term;
    for (const AtomPtr& atom : monomial) term += (term.empty() ? "" : "*") + atom->text;
    const uint64_t mag = coef < 0 ? -static_cast<uint64_t>(coef) : static_cast<uint64_t>(coef);
    if (monomial.empty()) term = std::to_string(mag);
    else if (mag != 1) term = fmt::format("{}*{}", mag, term);
    if (out.empty()) out = (coef < 0 ? "-" : "") + term;
    else out += (coef < 0 ? "-" : "+") + term;
  }
  return out;
}

namespace {
/// Recursive descent over: sum := ['-'] product {('+'|'-') product}; product := factor {'*' factor}.
class DimParser {
 public:
  explicit DimParser(std::string_view text) : text_(text) {}
  Dim parse() {
    Dim d = sum();
    if (at_ != text_.size()) fail("end of text");
    return d;
  }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  [[noreturn]] void fail(const char* expected) const {
    throw Error(ErrorKind::invalid,
                fmt::format("dim '{}': expected {} at column {}", text_, expected, at_ + 1));
  }
  bool eat(char c) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Dim sum() {
    Dim d = product(eat('-'));
    while (true) {
      if (eat('+')) d = d + product();
      else if (eat('-')) d = d + product(true);
      else return d;
    }
  }
  Dim product(bool negative = false) {
    Dim d = factor(negative);
    while (eat('*')) d = d * factor();
    return d;
  }
  /// A factor, negated if `negative`: the sign belongs to the digits, or INT64_MIN could not be read.
  Dim factor(bool negative = false) {
    eat(' ');
    const size_t from = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const std::string word(text_.substr(from, at_ - from));
    if (word.empty()) fail("a number or a name");
    if (is_digit(word[0])) return number((negative ? "-" : "") + word);
    const Dim d = eat('(') ? call(word) : Dim::symbol(word);
    return negative ? Dim(0) - d : d;
  }
  Dim number(const std::string& digits) {
    int64_t value = 0;
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (ec != std::errc() || end != digits.data() + digits.size()) fail("an integer of 64 bits before");
    return Dim(value);
  }
  Dim call(const std::string& word) {
    const Dim a = sum();
    if (!eat(',')) fail("','");
    const Dim b = sum();
    if (!eat(')')) fail("')'");
    if (word == "div") return floordiv(a, b);
    if (word == "mod") return mod(a, b);
    if (word == "min") return min(a, b);
    if (word == "max") return max(a, b);
    fail("div, mod, min or max");
  }
  std::string_view text_;
  size_t at_ = 0;
};
}  // namespace

Dim parse_dim(std::string_view text) { return DimParser(text).parse(); }

bool divisible(const Dim& d, int64_t n) {
  if (n == 1) return true;
  return d.is_const() ? d.value() % n == 0 : mod(d, Dim(n)).is(0);
}

Dim numel(const Shape& shape) {
  Dim n(1);
  for (const Dim& d : shape) n = n * d;
  return n;
}

std::string shape_str(const Shape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? "," : "") + shape[i].str();
  return out + "]";
}

}  // namespace kiln
