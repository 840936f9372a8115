// SPDX-License-Identifier: Apache-2.0
#include "frontend/rnn.h"

#include "frontend/functional.h"
#include "frontend/index_detail.h"
#include "frontend/window_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

using Ints = std::vector<int64_t>;

enum class Cell : int64_t { tanh, relu, gru, lstm };
constexpr const char* kNames[] = {"rnn_tanh", "rnn_relu", "gru", "lstm"};
constexpr const char* kCellNames[] = {"rnn_tanh_cell", "rnn_relu_cell", "gru_cell", "lstm_cell"};
int64_t gates_of(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }

/// Of one layer in one direction.
struct Weights {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;
};
struct State {
  Tensor h, c;
};

/// x w^T.
Tensor times(const Tensor& x, const Tensor& w) {
  return apply(op("dot_general"), {&x, &w}, {Ints{}, Ints{}, Ints{x.dim() - 1}, Ints{1}});
}
Tensor joined(const std::vector<Tensor>& parts, int64_t dim) {
  if (parts.size() == 1) return parts[0];
  std::vector<const Tensor*> in;
  for (const Tensor& p : parts) in.push_back(&p);
  return apply(op("cat"), in, {dim});
}

/// x[0], x[1], ...
std::vector<Tensor> apart(const Tensor& x) {
  std::vector<Tensor> out;
  for (int64_t i = 0; i < x.size(0); ++i)
    out.push_back(reshape_to(cut(x, 0, i, 1), Sizes(x.sizes().begin() + 1, x.sizes().end())));
  return out;
}

/// What the input adds to the gates: x w_ih^T, with all biases that are simply added.
Tensor input_part(Cell cell, const Tensor& x, const Weights& w) {
  const Tensor y = times(x, w.w_ih);
  if (!w.b_ih.defined()) return y;
  return add2(y, cell == Cell::gru ? w.b_ih : add2(w.b_ih, w.b_hh));
}

State step(Cell cell, const Tensor& in, const State& s, const Weights& w) {
  const Tensor from_h = times(s.h, w.w_hh);
  const int64_t n = in.size(1) / gates_of(cell);
  const auto part = [&](const Tensor& t, int64_t i) { return cut(t, 1, i * n, n); };
  if (cell == Cell::gru) {
    const Tensor from = w.b_hh.defined() ? add2(from_h, w.b_hh) : from_h;
    const auto gate = [&](int64_t i) { return unary(op("sigmoid"), add2(part(in, i), part(from, i))); };
    const Tensor reset = gate(0), update = gate(1);
    const Tensor fresh = unary(op("tanh"), add2(part(in, 2), mul2(reset, part(from, 2))));
    return {add2(fresh, mul2(update, sub2(s.h, fresh))), {}};
  }
  const Tensor sum = add2(in, from_h);
  if (cell == Cell::tanh) return {unary(op("tanh"), sum), {}};
  if (cell == Cell::relu) return {relu(sum), {}};
  const auto gate = [&](int64_t i) { return unary(op("sigmoid"), part(sum, i)); };
  const Tensor c = add2(mul2(gate(1), s.c), mul2(gate(0), unary(op("tanh"), part(sum, 2))));
  const Tensor h = mul2(gate(3), unary(op("tanh"), c));
  return {w.w_hr.defined() ? times(h, w.w_hr) : h, c};
}

struct Pass {
  Tensor output;  ///< [T, batch, out]
  State last;
};
/// One direction over x [T, batch, in]; live: for each step the sequences that have it, [batch, 1], or empty.
Pass run_direction(Cell cell, const Tensor& x, State s, const Weights& w, const std::vector<Tensor>& live,
                   bool reverse) {
  const std::vector<Tensor> in = apart(input_part(cell, x, w));
  std::vector<Tensor> out(in.size());
  for (size_t k = 0; k < in.size(); ++k) {
    const size_t t = reverse ? in.size() - 1 - k : k;
    State next = step(cell, in[t], s, w);
    Tensor seen = next.h;
    if (!live.empty()) {
      const Tensor on = expand_to(live[t], next.h.sizes());
      seen = select3(on, next.h, lit(next.h, 0));
      next.h = select3(on, next.h, s.h);
      if (next.c.defined()) next.c = select3(expand_to(live[t], next.c.sizes()), next.c, s.c);
    }
    out[t] = reshape_to(seen, {1, seen.size(0), seen.size(1)});
    s = next;
  }
  return {joined(out, 0), s};
}

/// What a call works on, checked.
struct Network {
  Cell cell;
  const char* name;
  int64_t layers, directions, batch, steps, hidden, out;
  std::vector<Weights> weights;  ///< by layer, then direction
};

void check_shape(const Tensor& t, const Sizes& expected, const std::string& what, const Tensor& x,
                 const char* name, Loc loc) {
  KILN_CHECK(t.defined() && t.sizes() == expected, invalid, "{} ({}): got {} {}, expected {}[{}] for x {}",
             name, loc.str(), what, t.type_str(), dtype_name(x.dtype()), fmt::join(expected, ","),
             x.type_str());
}

/// Operands that are there have the dtype of the first, x. `args`: what they are called, of which those
/// behind `repeated` come again and again; null: of any dtype.
void check_dtypes(Operands operands, std::span<const char* const> args, size_t repeated, const char* name,
                  Loc loc) {
  const Tensor& x = *operands[0];
  for (size_t i = 0; i < operands.size(); ++i) {
    const size_t at = i < args.size() ? i : repeated + (i - repeated) % (args.size() - repeated);
    KILN_CHECK(!args[at] || !operands[i]->defined() || operands[i]->dtype() == x.dtype(), invalid,
               "{} ({}): got {} {}, expected {} as of x {} (cast it with to())", name, loc.str(), args[at],
               operands[i]->type_str(), dtype_name(x.dtype()), x.type_str());
  }
}
constexpr const char* kLayerArgs[] = {"x", "h0", "c0", nullptr, "w_ih", "w_hh", "b_ih", "b_hh", "w_hr"};
constexpr const char* kCellArgs[] = {"x", "h", "c", "w_ih", "w_hh", "b_ih", "b_hh"};

/// x [T, batch, in].
Network network_of(Cell cell, const Tensor& x, const std::vector<Tensor>& given, const RecurrentOptions& o,
                   Loc loc) {
  Network n{cell,
            kNames[static_cast<size_t>(cell)],
            o.num_layers,
            o.bidirectional ? 2 : 1,
            x.size(1),
            x.size(0),
            0,
            0,
            {}};
  KILN_CHECK(o.num_layers > 0, invalid, "{} ({}): num_layers is {}, expected at least 1", n.name, loc.str(),
             o.num_layers);
  KILN_CHECK(n.steps > 0, invalid, "{} ({}): got x {} without a step", n.name, loc.str(), x.type_str());
  const auto groups = static_cast<size_t>(n.layers * n.directions);
  const size_t least = o.bias ? 4 : 2, each = given.size() / groups;
  KILN_CHECK(given.size() % groups == 0 && (each == least || (cell == Cell::lstm && each == least + 1)),
             invalid, "{} ({}): got {} weights, expected {} for {} layer(s), {} direction(s), {} bias",
             n.name, loc.str(), given.size(), groups * least, n.layers, n.directions,
             o.bias ? "with" : "without");
  KILN_CHECK(given[0].defined() && given[0].dim() == 2 && given[0].size(0) % gates_of(cell) == 0, invalid,
             "{} ({}): got w_ih {}, expected [{} * hidden, {}]", n.name, loc.str(), given[0].type_str(),
             gates_of(cell), x.size(2));
  const int64_t rows = given[0].size(0);
  n.hidden = rows / gates_of(cell);
  const bool projected = each > least;
  KILN_CHECK(!projected || (given[least].defined() && given[least].dim() == 2), invalid,
             "{} ({}): got w_hr {}, expected [projection, {}]", n.name, loc.str(), given[least].type_str(),
             n.hidden);
  n.out = projected ? given[least].size(0) : n.hidden;
  for (size_t g = 0; g < groups; ++g) {
    const Tensor* at = &given[g * each];
    const int64_t layer = static_cast<int64_t>(g) / n.directions;
    const std::string of =
        fmt::format(" of layer {}{}", layer, g % 2 && n.directions == 2 ? ", reverse" : "");
    Weights w{at[0], at[1], {}, {}, {}};
    check_shape(w.w_ih, {rows, layer == 0 ? x.size(2) : n.out * n.directions}, "w_ih" + of, x, n.name, loc);
    check_shape(w.w_hh, {rows, n.out}, "w_hh" + of, x, n.name, loc);
    if (o.bias) {
      w.b_ih = at[2];
      w.b_hh = at[3];
      check_shape(w.b_ih, {rows}, "b_ih" + of, x, n.name, loc);
      check_shape(w.b_hh, {rows}, "b_hh" + of, x, n.name, loc);
    }
    if (projected) check_shape(w.w_hr = at[least], {n.out, n.hidden}, "w_hr" + of, x, n.name, loc);
    n.weights.push_back(w);
  }
  return n;
}

/// One event: a layer over x [T, batch, in] gives its output [T, batch, out * directions], h and c
/// [directions, batch, ...].
std::vector<Tensor> run_layer(const Network& n, int64_t layer, const Tensor& x, const State& first,
                              const Tensor& lengths, Loc loc) {
  const int64_t from = layer * n.directions;
  std::vector<const Tensor*> operands{&x, &first.h, &first.c, &lengths};
  for (int64_t d = 0; d < n.directions; ++d) {
    const Weights& w = n.weights[static_cast<size_t>(from + d)];
    operands.insert(operands.end(), {&w.w_ih, &w.w_hh, &w.b_ih, &w.b_hh, &w.w_hr});
  }
  const int64_t ints[] = {from, n.directions};
  return call_many(n.name, loc, operands, ints, {}, [&](Operands in, const auto&) {
    check_dtypes(in, kLayerArgs, 4, n.name, loc);
    const Tensor &x = *in[0], &h = *in[1], &c = *in[2], &lengths = *in[3];
    std::vector<Tensor> live;
    if (lengths.defined()) {
      const Tensor l = cast_to(lengths, DType::i64);
      const Tensor low = binary(op("lt"), l, number(l, 1)), high = binary(op("gt"), l, number(l, n.steps));
      check_elements(l, binary(op("logical_or"), low, high), 0, n.name, loc, "lengths",
                     fmt::format("1 to {}", n.steps));
      // Sums lie in memory: each step reads its own, and all have the same kernels. Compared with the lengths
      // its number would be in the code.
      const Tensor step = iota(0, {n.steps, n.batch, 1});
      const Tensor ends = cast_to(binary(op("eq"), step, reshape_to(l, {1, n.batch, 1})), DType::i64);
      const Tensor ended = apply(op("cumsum"), {&ends}, {int64_t{0}});
      live = apart(binary(op("eq"), ended, number(ended, 0)));
    }
    std::vector<Tensor> outs, hs, cs;
    for (int64_t d = 0; d < n.directions; ++d) {
      const auto state_at = [&](const Tensor& t) {
        return t.defined() ? reshape_to(cut(t, 0, from + d, 1), {t.size(1), t.size(2)}) : t;
      };
      const Operands w = in.subspan(4 + 5 * static_cast<size_t>(d));
      const Pass p = run_direction(n.cell, x, {state_at(h), state_at(c)}, {*w[0], *w[1], *w[2], *w[3], *w[4]},
                                   live, d == 1);
      outs.push_back(p.output);
      hs.push_back(reshape_to(p.last.h, {1, n.batch, n.out}));
      if (p.last.c.defined()) cs.push_back(reshape_to(p.last.c, {1, n.batch, n.hidden}));
    }
    std::vector<Tensor> results{joined(outs, 2), joined(hs, 0)};
    if (!cs.empty()) results.push_back(joined(cs, 0));
    return results;
  });
}

/// A state as given, or zeros, as [layers * directions, batch, width].
Tensor first_state(const Tensor& given, bool batched, const Network& n, int64_t width, const char* what,
                   const Tensor& x, Loc loc) {
  const Sizes whole{n.layers * n.directions, n.batch, width};
  if (!given.defined()) return zeros(whole, {.dtype = x.dtype(), .device = x.device()}, loc);
  check_shape(given, batched ? whole : Sizes{whole[0], width}, what, x, n.name, loc);
  return batched ? given : unsqueeze(given, 1, loc);
}

void check_both(Cell cell, const State& given, const char* name, Loc loc) {
  KILN_CHECK(cell != Cell::lstm || given.h.defined() == given.c.defined(), invalid,
             "{} ({}): got h {} and c {}, expected both or neither", name, loc.str(), given.h.type_str(),
             given.c.type_str());
}

LSTMResult run(Cell cell, const Tensor& x0, const State& given, const std::vector<Tensor>& weights,
               const RecurrentOptions& o, Loc loc) {
  const char* name = kNames[static_cast<size_t>(cell)];
  require_floating(x0, name, loc);
  KILN_CHECK(x0.dim() == 3 || x0.dim() == 2, invalid,
             "{} ({}): got x {}, expected {}, or [T, in] of one sequence", name, loc.str(), x0.type_str(),
             o.batch_first ? "[batch, T, in]" : "[T, batch, in]");
  KILN_CHECK(o.dropout >= 0 && o.dropout <= 1, invalid, "{} ({}): dropout is {}, expected 0 to 1", name,
             loc.str(), o.dropout);
  const bool batched = x0.dim() == 3, swapped = batched && o.batch_first;
  Tensor x = !batched ? unsqueeze(x0, 1, loc) : swapped ? transpose(x0, 0, 1, loc) : x0;
  const Network n = network_of(cell, x, weights, o, loc);
  if (o.lengths.defined())
    KILN_CHECK(o.lengths.sizes() == Sizes{n.batch} &&
                   (o.lengths.dtype() == DType::i64 || o.lengths.dtype() == DType::i32),
               invalid, "{} ({}): got lengths {}, expected i64[{}]", name, loc.str(), o.lengths.type_str(),
               n.batch);
  check_both(cell, given, name, loc);
  State first{first_state(given.h, batched, n, n.out, "h0", x, loc), {}};
  if (cell == Cell::lstm) first.c = first_state(given.c, batched, n, n.hidden, "c0", x, loc);
  std::vector<Tensor> hs, cs;
  for (int64_t layer = 0; layer < n.layers; ++layer) {
    const std::vector<Tensor> results = run_layer(n, layer, x, first, o.lengths, loc);
    x = results[0];
    if (layer + 1 < n.layers) x = dropout(x, o.dropout, o.training, loc);
    hs.push_back(results[1]);
    if (results.size() > 2) cs.push_back(results[2]);
  }
  const auto whole = [&](const std::vector<Tensor>& parts) {
    if (parts.empty()) return Tensor();
    const Tensor t = parts.size() == 1 ? parts[0] : cat(parts, 0, loc);
    return batched ? t : squeeze(t, 1, loc);
  };
  return {!batched ? squeeze(x, 1, loc) : swapped ? transpose(x, 0, 1, loc) : x, {whole(hs), whole(cs)}};
}

RecurrentResult run_simple(Cell cell, const Tensor& x, const Tensor& h0, const std::vector<Tensor>& weights,
                           const RecurrentOptions& o, Loc loc) {
  const LSTMResult r = run(cell, x, {h0, {}}, weights, o, loc);
  return {r.output, r.state.h};
}

LSTMState run_cell(Cell cell, const Tensor& x0, const State& given, const Weights& w, Loc loc) {
  const char* name = kCellNames[static_cast<size_t>(cell)];
  require_floating(x0, name, loc);
  KILN_CHECK(x0.dim() == 2 || x0.dim() == 1, invalid, "{} ({}): got x {}, expected [batch, in] or [in]", name,
             loc.str(), x0.type_str());
  check_both(cell, given, name, loc);
  const bool batched = x0.dim() == 2;
  const Tensor x = batched ? x0 : unsqueeze(x0, 0, loc);
  KILN_CHECK(w.w_ih.defined() && w.w_ih.dim() == 2 && w.w_ih.size(0) % gates_of(cell) == 0, invalid,
             "{} ({}): got w_ih {}, expected [{} * hidden, {}]", name, loc.str(), w.w_ih.type_str(),
             gates_of(cell), x.size(1));
  const int64_t rows = w.w_ih.size(0), hidden = rows / gates_of(cell);
  check_shape(w.w_ih, {rows, x.size(1)}, "w_ih", x0, name, loc);
  check_shape(w.w_hh, {rows, hidden}, "w_hh", x0, name, loc);
  KILN_CHECK(w.b_ih.defined() == w.b_hh.defined(), invalid, "{} ({}): give both b_ih and b_hh, or neither",
             name, loc.str());
  if (w.b_ih.defined()) check_shape(w.b_ih, {rows}, "b_ih", x0, name, loc);
  if (w.b_hh.defined()) check_shape(w.b_hh, {rows}, "b_hh", x0, name, loc);
  const auto state_of = [&](const Tensor& t, const char* what) {
    if (!t.defined()) return zeros({x.size(0), hidden}, {.dtype = x.dtype(), .device = x.device()}, loc);
    check_shape(t, batched ? Sizes{x.size(0), hidden} : Sizes{hidden}, what, x0, name, loc);
    return batched ? t : unsqueeze(t, 0, loc);
  };
  const State s{state_of(given.h, "h"), cell == Cell::lstm ? state_of(given.c, "c") : Tensor()};
  const Tensor* operands[] = {&x, &s.h, &s.c, &w.w_ih, &w.w_hh, &w.b_ih, &w.b_hh};
  const std::vector<Tensor> out = call_many(name, loc, operands, {}, {}, [&](Operands in, const auto&) {
    check_dtypes(in, kCellArgs, 0, name, loc);
    const Weights own{*in[3], *in[4], *in[5], *in[6], {}};
    const State next = step(cell, input_part(cell, *in[0], own), {*in[1], *in[2]}, own);
    std::vector<Tensor> results{next.h};
    if (next.c.defined()) results.push_back(next.c);
    return results;
  });
  const auto given_rank = [&](const Tensor& t) { return batched ? t : squeeze(t, 0, loc); };
  return {given_rank(out[0]), out.size() > 1 ? given_rank(out[1]) : Tensor()};
}

}  // namespace

RecurrentResult rnn_tanh(const Tensor& x, const Tensor& h0, const std::vector<Tensor>& weights,
                         const RecurrentOptions& o, Loc loc) {
  return run_simple(Cell::tanh, x, h0, weights, o, loc);
}
RecurrentResult rnn_relu(const Tensor& x, const Tensor& h0, const std::vector<Tensor>& weights,
                         const RecurrentOptions& o, Loc loc) {
  return run_simple(Cell::relu, x, h0, weights, o, loc);
}
RecurrentResult gru(const Tensor& x, const Tensor& h0, const std::vector<Tensor>& weights,
                    const RecurrentOptions& o, Loc loc) {
  return run_simple(Cell::gru, x, h0, weights, o, loc);
}
LSTMResult lstm(const Tensor& x, const LSTMState& state, const std::vector<Tensor>& weights,
                const RecurrentOptions& o, Loc loc) {
  return run(Cell::lstm, x, {state.h, state.c}, weights, o, loc);
}

Tensor rnn_tanh_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih, const Tensor& b_hh, Loc loc) {
  return run_cell(Cell::tanh, x, {h, {}}, {w_ih, w_hh, b_ih, b_hh, {}}, loc).h;
}
Tensor rnn_relu_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                     const Tensor& b_ih, const Tensor& b_hh, Loc loc) {
  return run_cell(Cell::relu, x, {h, {}}, {w_ih, w_hh, b_ih, b_hh, {}}, loc).h;
}
Tensor gru_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                const Tensor& b_hh, Loc loc) {
  return run_cell(Cell::gru, x, {h, {}}, {w_ih, w_hh, b_ih, b_hh, {}}, loc).h;
}
LSTMState lstm_cell(const Tensor& x, const LSTMState& s, const Tensor& w_ih, const Tensor& w_hh,
                    const Tensor& b_ih, const Tensor& b_hh, Loc loc) {
  return run_cell(Cell::lstm, x, {s.h, s.c}, {w_ih, w_hh, b_ih, b_hh, {}}, loc);
}

}  // namespace kiln
