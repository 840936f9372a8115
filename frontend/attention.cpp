// SPDX-License-Identifier: Apache-2.0
#include "frontend/attention.h"

#include <cmath>

#include "frontend/functional.h"
#include "frontend/functional_detail.h"
#include "frontend/state.h"
#include "frontend/window_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

constexpr const char* kName = "multi_head_attention_forward";
using Ints = std::vector<int64_t>;

/// A call, checked; q, k, v are [l or s, n, width].
struct Call {
  Tensor q, k, v;
  int64_t heads, n, l, s, e;
  const MultiheadAttentionWeights& w;
  const MultiheadAttentionOptions& o;
  bool keys_are_queries, values_are_keys;  ///< the same tensors: projected by one product
};

void check(const Tensor& t, const Sizes& expected, const char* what, const Tensor& q, Loc loc) {
  KILN_CHECK(t.defined() && t.sizes() == expected, invalid,
             "{} ({}): got {} {}, expected {}[{}] for query {}", kName, loc.str(), what, t.type_str(),
             dtype_name(q.dtype()), fmt::join(expected, ","), q.type_str());
}
void check_optional(const Tensor& t, const Sizes& expected, const char* what, const Tensor& q, Loc loc) {
  if (t.defined()) check(t, expected, what, q, loc);
}

void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads, Loc loc) {
  for (const auto& [t, arg] : {std::pair{&q, "query"}, std::pair{&k, "key"}, std::pair{&v, "value"}})
    require_floating(*t, kName, loc, arg);
  const int64_t rank = q.dim();
  bool fits = (rank == 2 || rank == 3) && k.dim() == rank && v.dim() == rank && k.size(0) == v.size(0);
  if (fits && rank == 3) fits = k.size(1) == q.size(1) && v.size(1) == q.size(1);
  KILN_CHECK(fits, invalid,
             "{} ({}): got query {}, key {}, value {}, expected [l, n, e], [s, n, kdim], [s, n, vdim] of one "
             "dtype, or all without n",
             kName, loc.str(), q.type_str(), k.type_str(), v.type_str());
  KILN_CHECK(heads > 0 && q.size(-1) % heads == 0, invalid,
             "{} ({}): the width of query {} does not divide into {} heads", kName, loc.str(), q.type_str(),
             heads);
}

void check_weights(const Call& c, Loc loc) {
  const int64_t e = c.e;
  if (c.w.in_proj_weight.defined()) {
    check(c.w.in_proj_weight, {3 * e, e}, "in_proj_weight", c.q, loc);
    KILN_CHECK(
        c.k.size(2) == e && c.v.size(2) == e, invalid,
        "{} ({}): got key {} and value {} for in_proj_weight, expected the query's width {} (others need "
        "q_proj_weight, k_proj_weight and v_proj_weight)",
        kName, loc.str(), c.k.type_str(), c.v.type_str(), e);
  } else {
    check(c.w.q_proj_weight, {e, e}, "q_proj_weight", c.q, loc);
    check(c.w.k_proj_weight, {e, c.k.size(2)}, "k_proj_weight", c.q, loc);
    check(c.w.v_proj_weight, {e, c.v.size(2)}, "v_proj_weight", c.q, loc);
  }
  check_optional(c.w.in_proj_bias, {3 * e}, "in_proj_bias", c.q, loc);
  check_optional(c.w.bias_k, {1, 1, e}, "bias_k", c.q, loc);
  check_optional(c.w.bias_v, {1, 1, e}, "bias_v", c.q, loc);
  KILN_CHECK(c.w.bias_k.defined() == c.w.bias_v.defined(), invalid,
             "{} ({}): give both bias_k and bias_v, or neither", kName, loc.str());
  check(c.w.out_proj_weight, {e, e}, "out_proj_weight", c.q, loc);
  check_optional(c.w.out_proj_bias, {e}, "out_proj_bias", c.q, loc);
  KILN_CHECK(c.o.dropout_p >= 0 && c.o.dropout_p <= 1, invalid, "{} ({}): dropout_p is {}, expected 0 to 1",
             kName, loc.str(), c.o.dropout_p);
}

void check_masks(const Call& c, bool batched, Loc loc) {
  const Tensor &keys = c.o.key_padding_mask, &scores = c.o.attn_mask;
  const Sizes of_keys = batched ? Sizes{c.n, c.s} : Sizes{c.s};
  KILN_CHECK(!keys.defined() || (keys.sizes() == of_keys), invalid,
             "{} ({}): got key_padding_mask {}, expected [{}] for key {}, bool or added", kName, loc.str(),
             keys.type_str(), fmt::join(of_keys, ","), c.k.type_str());
  const bool fits = !scores.defined() || scores.sizes() == Sizes{c.l, c.s} ||
                    scores.sizes() == Sizes{c.n * c.heads, c.l, c.s};
  KILN_CHECK(fits, invalid, "{} ({}): got attn_mask {}, expected [{},{}] or [{},{},{}], bool or added", kName,
             loc.str(), scores.type_str(), c.l, c.s, c.n * c.heads, c.l, c.s);
}

/// All operands have the query's dtype; masks may be bool.
void check_dtypes(Operands operands, Loc loc) {
  constexpr const char* kArgs[] = {"query",
                                   "key",
                                   "value",
                                   "in_proj_weight",
                                   "q_proj_weight",
                                   "k_proj_weight",
                                   "v_proj_weight",
                                   "in_proj_bias",
                                   "bias_k",
                                   "bias_v",
                                   "out_proj_weight",
                                   "out_proj_bias",
                                   "key_padding_mask",
                                   "attn_mask"};
  const Tensor& q = *operands[0];
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor& t = *operands[i];
    const bool is_mask = i + 2 >= operands.size();
    KILN_CHECK(!t.defined() || t.dtype() == q.dtype() || (is_mask && t.dtype() == DType::boolean), invalid,
               "{} ({}): got {} {} beside query {}, expected one dtype (masks may be bool)", kName, loc.str(),
               kArgs[i], t.type_str(), q.type_str());
  }
}

/// Queries, keys and values, projected to [length, n, e].
std::array<Tensor, 3> projected(const Call& c, Loc loc) {
  const int64_t e = c.e;
  const auto bias = [&](int64_t i, int64_t count) {
    return c.w.in_proj_bias.defined() ? cut(c.w.in_proj_bias, 0, i * e, count * e) : Tensor();
  };
  const auto third = [&](const Tensor& x, int64_t i) { return cut(x, 2, i * e, e); };
  if (!c.w.in_proj_weight.defined())
    return {linear(c.q, c.w.q_proj_weight, bias(0, 1), loc), linear(c.k, c.w.k_proj_weight, bias(1, 1), loc),
            linear(c.v, c.w.v_proj_weight, bias(2, 1), loc)};
  const auto weight = [&](int64_t i, int64_t count) { return cut(c.w.in_proj_weight, 0, i * e, count * e); };
  if (c.keys_are_queries && c.values_are_keys) {
    const Tensor all = linear(c.q, c.w.in_proj_weight, c.w.in_proj_bias, loc);
    return {third(all, 0), third(all, 1), third(all, 2)};
  }
  const Tensor q = linear(c.q, weight(0, 1), bias(0, 1), loc);
  if (c.values_are_keys) {
    const Tensor both = linear(c.k, weight(1, 2), bias(1, 2), loc);
    return {q, third(both, 0), third(both, 1)};
  }
  return {q, linear(c.k, weight(1, 1), bias(1, 1), loc), linear(c.v, weight(2, 1), bias(2, 1), loc)};
}

/// [length, n, e] -> [n, heads, length, size], after the one more row that there may be.
Tensor with_heads(Tensor x, const Tensor& extra, const Call& c) {
  if (extra.defined()) {
    const Tensor row = expand_to(extra, {1, c.n, c.e});
    x = apply(op("cat"), {&x, &row}, {int64_t{0}});
  }
  const Tensor h = permuted(reshape_to(x, {x.size(0), c.n, c.heads, c.e / c.heads}), {1, 2, 0, 3});
  return h;
}

/// What is added to the scores [n, heads, l, keys], or undefined.
Tensor added_mask(const Call& c, int64_t keys) {
  const Tensor like = c.q;
  const auto as_added = [&](const Tensor& m) {
    return m.dtype() == DType::boolean ? select3(m, lit(like, -INFINITY), lit(like, 0)) : m;
  };
  Tensor sum;
  const auto add = [&](const Tensor& m) { sum = sum.defined() ? add2(sum, m) : m; };
  if (c.o.attn_mask.defined()) {
    const Tensor m = as_added(c.o.attn_mask);
    add(reshape_to(m, m.dim() == 2 ? Sizes{1, 1, c.l, c.s} : Sizes{c.n, c.heads, c.l, c.s}));
  }
  if (c.o.is_causal) {
    const Sizes square{1, 1, c.l, c.s};
    add(as_added(binary(op("lt"), iota(2, square), iota(3, square))));
  }
  if (c.o.key_padding_mask.defined()) add(reshape_to(as_added(c.o.key_padding_mask), {c.n, 1, 1, c.s}));
  if (sum.defined() && keys > c.s) sum = pad_dims(sum, 3, {0}, {keys - c.s}, 0);
  return sum;
}

std::vector<Tensor> body(const Call& c, const std::vector<Tensor>& draw, Loc loc) {
  const auto [pq, pk, pv] = projected(c, loc);
  const Tensor q = with_heads(pq, {}, c);
  Tensor k = with_heads(pk, c.w.bias_k, c), v = with_heads(pv, c.w.bias_v, c);
  if (c.o.add_zero_attn) {
    k = pad_dims(k, 2, {0}, {1}, 0);
    v = pad_dims(v, 2, {0}, {1}, 0);
  }
  const Tensor scaled = mul2(q, lit(q, 1 / std::sqrt(static_cast<double>(c.e / c.heads))));
  Tensor scores = matmul(scaled, k.transpose(-1, -2, loc), loc);
  if (const Tensor mask = added_mask(c, k.size(2)); mask.defined()) scores = add2(scores, mask);
  Tensor p = c.o.need_weights ? softmax(scores, -1, loc) : safe_softmax(scores);
  if (!draw.empty()) p = dropped(p, p.sizes(), draw[0], draw[1], draw[2]);
  const Tensor joined = reshape_to(permuted(matmul(p, v, loc), {2, 0, 1, 3}), {c.l, c.n, c.e});
  std::vector<Tensor> out{linear(joined, c.w.out_proj_weight, c.w.out_proj_bias, loc)};
  if (!c.o.need_weights) return out;
  const Tensor sum = c.o.average_attn_weights ? reduce(op("sum"), p, {1}, false) : p;
  out.push_back(c.o.average_attn_weights ? mul2(sum, lit(sum, 1.0 / static_cast<double>(c.heads))) : p);
  return out;
}

}  // namespace

MultiheadAttentionResult multi_head_attention_forward(const Tensor& query, const Tensor& key,
                                                      const Tensor& value, int64_t heads,
                                                      const MultiheadAttentionWeights& w,
                                                      const MultiheadAttentionOptions& o, Loc loc) {
  check_inputs(query, key, value, heads, loc);
  const bool batched = query.dim() == 3;
  const auto with_batch = [&](const Tensor& x) { return batched ? x : unsqueeze(x, 1, loc); };
  const bool keys_are_queries = key.impl() == query.impl(), values_are_keys = value.impl() == key.impl();
  const Tensor q = with_batch(query), k = keys_are_queries ? q : with_batch(key),
               v = values_are_keys ? k : with_batch(value);
  const Call c{q,         k,         v, heads, q.size(1),        q.size(0),
               k.size(0), q.size(2), w, o,     keys_are_queries, values_are_keys};
  check_weights(c, loc);
  check_masks(c, batched, loc);
  const bool drop = o.training && o.dropout_p > 0;
  std::vector<Scalar> scalars;
  if (drop) {
    const GeneratorState g = next_random();
    scalars = {o.dropout_p, static_cast<int64_t>(g.seed), static_cast<int64_t>(g.offset)};
  }
  const Tensor* operands[] = {&c.q,
                              &c.k,
                              &c.v,
                              &w.in_proj_weight,
                              &w.q_proj_weight,
                              &w.k_proj_weight,
                              &w.v_proj_weight,
                              &w.in_proj_bias,
                              &w.bias_k,
                              &w.bias_v,
                              &w.out_proj_weight,
                              &w.out_proj_bias,
                              &o.key_padding_mask,
                              &o.attn_mask};
  const int64_t ints[] = {heads,       o.add_zero_attn,  o.need_weights, o.average_attn_weights,
                          o.is_causal, keys_are_queries, values_are_keys};
  const std::vector<Tensor> r =
      call_many(kName, loc, operands, ints, scalars, [&](Operands in, const std::vector<Tensor>& draw) {
        check_dtypes(in, loc);
        const MultiheadAttentionWeights weights{*in[3], *in[4], *in[5],  *in[6], *in[7],
                                                *in[8], *in[9], *in[10], *in[11]};
        MultiheadAttentionOptions options = o;
        options.key_padding_mask = *in[12];
        options.attn_mask = *in[13];
        const Call own{
            *in[0],           *in[1], *in[2], heads, c.n, c.l, c.s, c.e, weights, options, c.keys_are_queries,
            c.values_are_keys};
        return body(own, draw, loc);
      });
  return {batched ? r[0] : squeeze(r[0], 1, loc),
          r.size() < 2 || batched ? (r.size() < 2 ? Tensor() : r[1]) : squeeze(r[1], 0, loc)};
}

}  // namespace kiln
