// SPDX-License-Identifier: Apache-2.0
// einsum: the equation becomes lists of labels, and operands are joined one by one with dot_general.
#include <map>
#include <set>

#include "frontend/linalg.h"
#include "frontend/ops_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

/// A letter, or -1 for the last dim of "...", -2 for the one before it.
using Label = int;
using Labels = std::vector<Label>;

constexpr Label kEllipsis = 0;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

struct Equation {
  std::vector<Labels> operands;
  Labels result;
};

/// One side's term: letters, and kEllipsis at most once.
Labels term(std::string_view text, std::string_view equation, Loc loc) {
  Labels out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    const bool dots = text.substr(i, 3) == "...";
    KILN_CHECK(dots || is_letter(text[i]), invalid, "einsum ({}): '{}' in '{}' is no letter", loc.str(),
               text[i], equation);
    KILN_CHECK(!dots || std::find(out.begin(), out.end(), kEllipsis) == out.end(), invalid,
               "einsum ({}): two ellipses in a term of '{}'", loc.str(), equation);
    out.push_back(dots ? kEllipsis : text[i]);
    if (dots) i += 2;
  }
  return out;
}

std::vector<Labels> terms(std::string_view text, std::string_view equation, Loc loc) {
  std::vector<Labels> out;
  for (size_t at = 0;;) {
    const size_t comma = std::min(text.find(',', at), text.size());
    out.push_back(term(text.substr(at, comma - at), equation, loc));
    if (comma == text.size()) return out;
    at = comma + 1;
  }
}

Labels with_dots_as(const Labels& labels, int64_t dims) {
  Labels out;
  for (Label l : labels) {
    if (l != kEllipsis) out.push_back(l);
    for (int64_t d = dims; l == kEllipsis && d > 0; --d) out.push_back(static_cast<Label>(-d));
  }
  return out;
}

/// The result's labels where the equation names none: the ellipsis, then what stands once.
Labels implied(const std::vector<Labels>& operands) {
  std::map<Label, int> times;
  for (const Labels& o : operands)
    for (Label l : o) ++times[l];
  Labels out;
  if (times.count(kEllipsis)) out.push_back(kEllipsis);
  for (const auto& [label, n] : times)
    if (label != kEllipsis && n == 1) out.push_back(label);
  return out;
}

Equation parse(std::string_view equation, const std::vector<Tensor>& tensors, Loc loc) {
  const size_t arrow = equation.find("->");
  Equation e{terms(equation.substr(0, arrow), equation, loc), {}};
  KILN_CHECK(e.operands.size() == tensors.size(), invalid, "einsum ({}): '{}' has {} operands, got {}",
             loc.str(), equation, e.operands.size(), tensors.size());
  e.result =
      arrow == std::string_view::npos ? implied(e.operands) : term(equation.substr(arrow + 2), equation, loc);
  int64_t widest = 0;
  std::set<Label> known;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Labels& labels = e.operands[i];
    const bool dots = std::find(labels.begin(), labels.end(), kEllipsis) != labels.end();
    const int64_t named = static_cast<int64_t>(labels.size()) - dots, rank = tensors[i].dim();
    KILN_CHECK(dots ? named <= rank : named == rank, invalid,
               "einsum ({}): '{}' names {} dims, got tensors[{}] {}", loc.str(), equation, named, i,
               tensors[i].type_str());
    labels = with_dots_as(labels, rank - named);
    widest = std::max(widest, rank - named);
    known.insert(labels.begin(), labels.end());
  }
  e.result = with_dots_as(e.result, widest);
  std::set<Label> seen;
  for (Label l : e.result)
    KILN_CHECK(known.count(l) && seen.insert(l).second, invalid,
               "einsum ({}): the result of '{}' has a label {}", loc.str(), equation,
               known.count(l) ? "twice" : "that no operand has");
  return e;
}

/// The sizes of all labels; those of 1 give way to others.
std::map<Label, int64_t> label_sizes(const Equation& e, const std::vector<Tensor>& tensors,
                                     std::string_view equation, Loc loc) {
  std::map<Label, int64_t> sizes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::map<Label, int64_t> own;
    for (size_t d = 0; d < e.operands[i].size(); ++d) {
      const int64_t n = tensors[i].sizes()[d];
      const auto [at, first] = own.emplace(e.operands[i][d], n);
      KILN_CHECK(first || at->second == n, invalid,
                 "einsum ({}): a label of '{}' stands for {} and {} in tensors[{}] {}", loc.str(), equation,
                 at->second, n, i, tensors[i].type_str());
    }
    for (const auto& [label, n] : own) {
      int64_t& size = sizes.emplace(label, n).first->second;
      KILN_CHECK(size == n || size == 1 || n == 1, invalid,
                 "einsum ({}): a label of '{}' stands for {} and, in tensors[{}] {}, for {}", loc.str(),
                 equation, size, i, tensors[i].type_str(), n);
      if (size == 1) size = n;
    }
  }
  return sizes;
}

/// A tensor and the label of each dim.
struct Labelled {
  Tensor t;
  Labels labels;

  bool has(Label l) const { return std::find(labels.begin(), labels.end(), l) != labels.end(); }
  int64_t place(Label l) const { return std::find(labels.begin(), labels.end(), l) - labels.begin(); }
};

/// Dims i and j become one, of the elements whose indices in them are equal.
void take_diagonal(Labelled& x, size_t i, size_t j) {
  const Sizes s = x.t.sizes();
  const Tensor same = binary(op("eq"), iota(static_cast<int64_t>(i), s), iota(static_cast<int64_t>(j), s));
  x.t = reduce(op("sum"), select3(same, x.t, lit(x.t, 0)), {static_cast<int64_t>(j)}, false);
  x.labels.erase(x.labels.begin() + static_cast<ptrdiff_t>(j));
}

/// Each label once, and without dims of size 1 that broadcast.
Labelled simple(const Tensor& t, Labels labels, const std::map<Label, int64_t>& sizes) {
  Labelled x{t, std::move(labels)};
  for (size_t i = 0; i < x.labels.size(); ++i)
    for (size_t j = x.labels.size() - 1; j > i; --j)
      if (x.labels[j] == x.labels[i]) take_diagonal(x, i, j);
  Sizes s;
  Labels kept;
  for (size_t i = 0; i < x.labels.size(); ++i) {
    const int64_t n = x.t.sizes()[i];
    if (n == 1 && sizes.at(x.labels[i]) != 1) continue;
    s.push_back(n);
    kept.push_back(x.labels[i]);
  }
  return {reshape_to(x.t, s), kept};
}

/// Labels that nothing else needs are summed.
void sum_others(Labelled& x, const std::set<Label>& needed) {
  Sizes dims;
  Labels kept;
  for (size_t i = 0; i < x.labels.size(); ++i) {
    if (needed.count(x.labels[i])) kept.push_back(x.labels[i]);
    else dims.push_back(static_cast<int64_t>(i));
  }
  x.t = reduce(op("sum"), x.t, dims, false);
  x.labels = kept;
}

/// x with its dims in the order of `labels`, of size 1 where it has none.
Tensor aligned(const Labelled& x, const Labels& labels) {
  Sizes order, s;
  for (Label l : labels) {
    if (x.has(l)) order.push_back(x.place(l));
    s.push_back(x.has(l) ? x.t.size(x.place(l)) : 1);
  }
  const bool moved = !std::is_sorted(order.begin(), order.end());
  return reshape_to(moved ? apply(op("permute"), {&x.t}, {order}) : x.t, s);
}

Labelled product(Labelled a, Labelled b, const std::set<Label>& needed) {
  std::set<Label> in_a(a.labels.begin(), a.labels.end()), in_b(b.labels.begin(), b.labels.end());
  in_a.insert(needed.begin(), needed.end());
  in_b.insert(needed.begin(), needed.end());
  sum_others(a, in_b);
  sum_others(b, in_a);
  std::vector<int64_t> batch_a, batch_b, contract_a, contract_b;
  Labels batch, free_a, free_b;
  for (Label l : a.labels) {
    if (!b.has(l)) {
      free_a.push_back(l);
      continue;
    }
    (needed.count(l) ? batch_a : contract_a).push_back(a.place(l));
    (needed.count(l) ? batch_b : contract_b).push_back(b.place(l));
    if (needed.count(l)) batch.push_back(l);
  }
  for (Label l : b.labels)
    if (!a.has(l)) free_b.push_back(l);
  Labels labels = batch;
  labels.insert(labels.end(), free_a.begin(), free_a.end());
  labels.insert(labels.end(), free_b.begin(), free_b.end());
  if (contract_a.empty()) return {mul2(aligned(a, labels), aligned(b, labels)), labels};
  return {apply(op("dot_general"), {&a.t, &b.t}, {batch_a, batch_b, contract_a, contract_b}), labels};
}

Tensor einsum_body(const Equation& e, Operands tensors, const std::map<Label, int64_t>& sizes) {
  Labelled all = simple(*tensors[0], e.operands[0], sizes);
  for (size_t i = 1; i < tensors.size(); ++i) {
    std::set<Label> needed(e.result.begin(), e.result.end());
    for (size_t k = i + 1; k < tensors.size(); ++k) needed.insert(e.operands[k].begin(), e.operands[k].end());
    all = product(std::move(all), simple(*tensors[i], e.operands[i], sizes), needed);
  }
  sum_others(all, std::set<Label>(e.result.begin(), e.result.end()));
  return aligned(all, e.result);
}

}  // namespace

Tensor einsum(std::string_view equation, const std::vector<Tensor>& tensors, Loc loc) {
  require_all(tensors, "einsum", loc);
  std::vector<const Tensor*> operands;
  for (const Tensor& t : tensors) operands.push_back(&t);
  const Equation e = parse(equation, tensors, loc);
  const std::map<Label, int64_t> sizes = label_sizes(e, tensors, equation, loc);
  const Sizes text(equation.begin(), equation.end());
  return call({"einsum", loc, operands, text, {}}, [&](Operands in, const auto&) {
    for (size_t i = 0; i < in.size(); ++i)
      KILN_CHECK(in[i]->dtype() == in[0]->dtype() && in[i]->dtype() != DType::boolean, invalid,
                 "einsum ({}): got tensors[{}] {} beside tensors[0] {}, expected numbers of one dtype (cast "
                 "with to())",
                 loc.str(), i, in[i]->type_str(), in[0]->type_str());
    return einsum_body(e, in, sizes);
  });
}

}  // namespace kiln
