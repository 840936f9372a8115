// SPDX-License-Identifier: Apache-2.0
// What waits for a backward is found by compiling a draft: the joint graph goes through passes and fusion,
// and what steps of the forward store and steps of the backward read is counted. The choice is then a cut of
// the path into runs of ops: a run whose results are not kept costs what enters it, and its FLOPs once more.
// Source: Chen et al., Training deep nets with sublinear memory cost, 2016; the knapsack over what is made
// again is that of PyTorch's activation_memory_budget.
#include "frontend/activation_memory.h"

#include <algorithm>
#include <numeric>

#include "codegen/lower.h"
#include "frontend/outer_graph.h"
#include "ir/base/log.h"
#include "ir/fuse.h"
#include "ir/passes.h"
#include "ir/tile_loops.h"

namespace kiln::detail {

namespace {

/// Per op of a path: what its result takes.
using Bytes = std::vector<int64_t>;

int64_t bytes_of(const Type& t) { return numel(t.shape).value() * static_cast<int64_t>(dtype_size(t.dtype)); }

int64_t sum(const Bytes& bytes) { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

/// What steps of the forward store and steps of the backward read. Nodes of the forward have their place in
/// the path, from 1 on, as the line of their origin, those of the backward 0.
class Waiting {
 public:
  Waiting(const Graph& g, const FusedGraph& f, const std::vector<TileLoop>& loops, size_t path_ops)
      : g_(g),
        f_(f),
        loops_(loops),
        stored_(static_cast<size_t>(g.value_count()), false),
        waiting_(path_ops) {
    for (const Step& s : f.steps) visit(s);
  }
  Bytes take() { return std::move(waiting_); }

 private:
  bool later(int node) const { return g_.nodes[static_cast<size_t>(node)].origin.loc.line == 0; }

  bool later(const Step& s) const {
    const auto is_later = [this](int node) { return later(node); };
    bool any = s.node >= 0 && later(s.node);
    for (int k : {s.kernel, s.prologue[0], s.prologue[1]})
      if (k >= 0) {
        const std::vector<int>& nodes = f_.kernels[static_cast<size_t>(k)].nodes;
        any = any || std::any_of(nodes.begin(), nodes.end(), is_later);
      }
    if (s.loop >= 0) {
      const TileLoop& loop = loops_[static_cast<size_t>(s.loop)];
      for (int node = loop.begin; node < loop.end; ++node) any = any || later(node);
    }
    return any;
  }

  void visit(const Step& s) {
    const bool by_backward = later(s);
    for (const Operand& o : s.operands)
      if (o.base.valid()) read(o.base.id, by_backward);
    for (int k : {s.kernel, s.prologue[0], s.prologue[1]})
      if (k >= 0) visit(f_.kernels[static_cast<size_t>(k)], by_backward);
    if (by_backward) return;
    if (s.node >= 0 && (s.kernel < 0 || s.keep))
      stored_[static_cast<size_t>(g_.nodes[static_cast<size_t>(s.node)].out.id)] = true;
    if (s.loop >= 0)
      for (Value v : loops_[static_cast<size_t>(s.loop)].results) stored_[static_cast<size_t>(v.id)] = true;
  }

  void visit(const FusedKernel& k, bool by_backward) {
    for (size_t i = 0; i < k.params.size(); ++i) {
      if (k.params[i].kind != Binding::Kind::value) continue;
      if (k.kernel.params[i].read) read(k.params[i].id, by_backward);
      if (k.kernel.params[i].written && !by_backward) stored_[static_cast<size_t>(k.params[i].id)] = true;
    }
  }

  void read(int id, bool by_backward) {
    if (!by_backward || !stored_[static_cast<size_t>(id)] || !counted_.insert(id).second) return;
    const Node& n = g_.nodes[static_cast<size_t>(g_.producer({id}))];
    waiting_[n.origin.loc.line - 1] += bytes_of(g_.type({id}));
  }

  const Graph& g_;
  const FusedGraph& f_;
  const std::vector<TileLoop>& loops_;
  std::vector<bool> stored_;
  std::set<int> counted_;
  Bytes waiting_;
};

/// What waits for a backward inside the call, of each op of the path.
Bytes found_by_fusion(const Recorder& r, const ActivationRequest& request) {
  OuterGraph outer = outer_backward(r, request.roots);
  const size_t path_ops = r.graph.nodes.size();
  for (size_t i = 0; i < outer.graph.nodes.size(); ++i)
    outer.graph.nodes[i].origin.loc = {"", i < path_ops ? static_cast<uint32_t>(i) + 1 : 0};
  for (Value v : request.roots) outer.graph.add_output(v);
  for (const OuterStep& s : outer.steps) outer.graph.add_output(s.gradient);
  Graph g = optimize(outer.graph);
  FuseOptions options;
  if (!request.device.is_cuda())
    if (std::optional<TiledGraph> tiled = tile_loops(g, LowerOptions{}.loop_bytes)) {
      g = std::move(tiled->graph);
      options.loops = std::move(tiled->loops);
    }
  return Waiting(g, fuse(g, options), options.loops, path_ops).take();
}

/// What is handed over to a backward outside the call.
Bytes handed_over(Recorder r, const ActivationRequest& request) {
  Bytes bytes(r.graph.nodes.size());
  for (Value v : keep_for_backward(r, request.roots, request.live)) {
    const auto op = static_cast<size_t>(std::max(0, r.graph.producer(v)));
    bytes[std::min(op, bytes.size() - 1)] += bytes_of(r.graph.type(v));  // the rest are added behind the path
  }
  return bytes;
}

Bytes waiting(const Recorder& r, const ActivationRequest& request) {
  return request.outside ? handed_over(r, request) : found_by_fusion(r, request);
}

double flops_of(const Graph& g, const Node& n) {
  const double results = static_cast<double>(numel(g.type(n.out).shape).value());
  const OpDef& d = def(n.op);
  if (d.kind == OpKind::elementwise) return results * d.flops;
  if (n.in.empty() || d.view) return 0;
  const Shape& read = g.type(n.in[0]).shape;
  if (d.kind != OpKind::contract) return static_cast<double>(numel(read).value()) * d.flops;
  double terms = 1;
  for (int64_t dim : std::get<std::vector<int64_t>>(n.attrs[2]))
    terms *= static_cast<double>(read[static_cast<size_t>(dim)].value());
  return results * terms * d.flops;
}

/// A run of the path's ops, [begin, end).
struct Run {
  size_t begin = 0, end = 0;
  int64_t kept = 0;  ///< what its ops leave for the backward, but for results that ops behind it read
  std::vector<std::pair<size_t, int64_t>> entries;  ///< ops before it whose results it reads, and their bytes
  int64_t entering = 0;                             ///< of those, what would not be kept anyway
  double flops = 0;
};

/// Cuts of a path into runs, and what it costs to make some of them again.
class Cutter {
 public:
  Cutter(const Recorder& r, std::span<const Value> roots, const Bytes& kept)
      : r_(r), g_(r.graph), kept_(kept), crossing_(g_.nodes.size()), last_(g_.nodes.size()) {
    for (Value v : roots) end_ = std::max(end_, static_cast<size_t>(g_.producer(v) + 1));
    for (size_t i = 0; i < end_; ++i)
      for (Value v : g_.nodes[i].in)
        if (const int made = made_by(v); made >= 0) last_[static_cast<size_t>(made)] = i;
    for (size_t made = 0; made < end_; ++made)
      for (size_t i = made; i < last_[made] && is_activation(made); ++i)
        crossing_[i] += bytes_of(g_.type(g_.nodes[made].out));
  }

  /// Runs that leave `least` bytes or little more, cut where little crosses. The last is not among them: the
  /// backward begins with it.
  std::vector<Run> runs(int64_t least) const {
    std::vector<Run> runs;
    Run run;
    for (size_t i = 0; i < end_; ++i) {
      if (r_.region_of(g_.nodes[i].out) >= 0) {  // a checkpoint of the user's
        run = {i + 1, i + 1};
        continue;
      }
      run.kept += kept_[i];
      if (run.kept < least) continue;
      run.end = best_end(i, least / 2);
      if (run.end == end_) break;
      finish(run);
      runs.push_back(run);
      i = run.end - 1;
      run = {run.end, run.end};
    }
    return runs;
  }

  /// Bytes alive at once when the chosen of the runs, in order, are made again.
  int64_t alive(const std::vector<Run>& runs, const std::vector<bool>& chosen) const {
    Bytes kept(kept_.begin(), kept_.end());
    for (size_t i = 0; i < runs.size(); ++i)
      for (size_t op = runs[i].begin; chosen[i] && op < runs[i].end; ++op)
        if (stays_in(op, runs[i])) kept[op] = 0;
    for (size_t i = 0; i < runs.size(); ++i)
      if (chosen[i])
        for (const auto& [op, bytes] : runs[i].entries) kept[op] = std::max(kept[op], bytes);
    return peak(kept, runs, chosen);
  }

  /// The same where `kept` is what waits then.
  static int64_t peak(const Bytes& kept, const std::vector<Run>& runs, const std::vector<bool>& chosen) {
    int64_t most = sum(kept), before = 0;
    size_t op = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      for (; op < runs[i].end; ++op) before += kept[op];
      if (chosen[i]) most = std::max(most, before + runs[i].kept);
    }
    return most;
  }

 private:
  /// Whether nobody behind the run reads what the op made: the rules of those who do would keep it.
  bool stays_in(size_t op, const Run& run) const { return last_[op] < run.end; }

  /// The op whose memory holds `v`, or -1: an input.
  int made_by(Value v) const {
    int op = g_.producer(v);
    while (op >= 0 && def(g_.nodes[static_cast<size_t>(op)].op).view)
      op = g_.producer(g_.nodes[static_cast<size_t>(op)].in[0]);
    return op;
  }
  /// Whether gradients flow through what the op makes. The rest (masks, positions) is little.
  bool is_activation(size_t op) const {
    const Value v = g_.nodes[op].out;
    return r_.wants_grad(v) && !r_.leaf_values.count(v.id);
  }

  /// Where a run that may end behind op `i` ends: where the least crosses, before it leaves `more` bytes
  /// more.
  size_t best_end(size_t i, int64_t more) const {
    size_t best = i;
    for (size_t j = i + 1; j < end_ && (more -= kept_[j]) >= 0; ++j) {
      if (r_.region_of(g_.nodes[j].out) >= 0) break;
      if (crossing_[j] < crossing_[best]) best = j;
    }
    return best + 1;
  }

  /// Of the run's ops those count that what it keeps is made of.
  void finish(Run& run) const {
    run.kept = 0;
    std::map<size_t, int64_t> entries;
    std::vector<bool> needed(run.end - run.begin, false);
    for (size_t i = run.end; i-- > run.begin;) {
      const int64_t freed = stays_in(i, run) ? kept_[i] : 0;
      run.kept += freed;
      if (freed == 0 && !needed[i - run.begin]) continue;
      run.flops += flops_of(g_, g_.nodes[i]);
      for (Value v : g_.nodes[i].in) {
        const auto op = static_cast<size_t>(std::max(0, g_.producer(v)));
        if (g_.producer(v) >= 0 && op >= run.begin) needed[op - run.begin] = true;
        if (const int made = made_by(v); made >= 0 && static_cast<size_t>(made) < run.begin)
          if (const auto entry = static_cast<size_t>(made); is_activation(entry))
            entries[entry] = bytes_of(g_.type(g_.nodes[entry].out));
      }
    }
    run.entries.assign(entries.begin(), entries.end());
    for (const auto& [op, bytes] : run.entries) run.entering += kept_[op] > 0 ? 0 : bytes;
  }

  const Recorder& r_;
  const Graph& g_;
  const Bytes& kept_;
  Bytes crossing_;            ///< behind each op: results before it that ops behind it read
  std::vector<size_t> last_;  ///< per op: the last one that reads its result
  size_t end_ = 0;            ///< behind the last op that a root comes from
};

struct Choice {
  std::vector<Run> runs;
  std::vector<bool> chosen;
  int64_t alive = 0;
  double flops = 0;

  /// Whether it is to be preferred, of two that keep `budget` or two that do not.
  bool better_than(const Choice& o, int64_t budget) const {
    const bool fits = alive <= budget, other_fits = o.alive <= budget;
    if (fits != other_fits) return fits;
    return fits ? flops < o.flops : alive < o.alive;
  }
};

/// Of cuts into 2, 4, 8, ... runs of which those go first that free the most bytes for their FLOPs, the best.
Choice choose(const Cutter& cutter, int64_t total, int64_t budget) {
  constexpr size_t kMostRuns = 1024;
  Choice best;
  best.alive = total;
  size_t former = 0;
  for (int64_t least = total / 2; least > 0; least /= 2) {
    Choice c;
    c.runs = cutter.runs(least);
    if (c.runs.size() == former) continue;
    former = c.runs.size();
    c.chosen.assign(c.runs.size(), false);
    std::vector<size_t> order;
    for (size_t i = 0; i < c.runs.size(); ++i)
      if (c.runs[i].kept > c.runs[i].entering) order.push_back(i);
    const auto price = [&](size_t i) {
      return c.runs[i].flops / static_cast<double>(c.runs[i].kept - c.runs[i].entering);
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return price(a) < price(b); });
    for (size_t i : order) {
      c.chosen[i] = true;
      c.flops += c.runs[i].flops;
      c.alive = cutter.alive(c.runs, c.chosen);
      if (c.better_than(best, budget)) best = c;
      if (c.alive <= budget) break;
    }
    if (c.runs.size() > kMostRuns) break;
  }
  return best;
}

/// Makes the chosen runs regions of `r`.
void mark(Recorder& r, const Choice& choice) {
  for (size_t i = 0; i < choice.runs.size(); ++i) {
    if (!choice.chosen[i]) continue;
    const auto value = [&](size_t op) { return r.graph.nodes[op].out.id; };
    r.regions.push_back(
        {value(choice.runs[i].begin), value(choice.runs[i].end - 1) + 1, r.graph.value_count()});
  }
  std::sort(r.regions.begin(), r.regions.end(),
            [](const TracedRegion& a, const TracedRegion& b) { return a.begin < b.begin; });
}

}  // namespace

int64_t fit_activations(Recorder& r, const ActivationRequest& request) {
  std::erase_if(r.regions, [&](const TracedRegion& x) { return x.chosen_at == r.graph.value_count(); });
  const Bytes kept = waiting(r, request);
  const int64_t total = sum(kept);
  if (total <= request.budget) return total;
  const Cutter cutter(r, request.roots, kept);
  Choice best;
  best.alive = total;
  int64_t aim = request.budget;
  for (int tries = 0; tries < 8; ++tries) {  // what is left is fused otherwise than before: look again
    Choice c = choose(cutter, total, aim);
    Recorder draft = r;
    mark(draft, c);
    c.alive = Cutter::peak(waiting(draft, request), c.runs, c.chosen);
    const int64_t found = c.alive;
    if (c.better_than(best, request.budget)) best = std::move(c);
    if (found <= request.budget) break;
    aim = static_cast<int64_t>(static_cast<double>(aim) * std::min(0.9, static_cast<double>(request.budget) /
                                                                            static_cast<double>(found)));
  }
  mark(r, best);
  const auto mb = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const auto again = std::count(best.chosen.begin(), best.chosen.end(), true);
  log(best.alive <= request.budget ? LogLevel::info : LogLevel::warn,
      "activation_memory of {:.1f} MiB: {:.1f} MiB wait for the backward{}, {:.1f} without; {} runs of ops "
      "are "
      "computed twice ({:.2g} FLOP)",
      mb(request.budget), mb(best.alive), best.alive <= request.budget ? "" : " at the least", mb(total),
      again, best.flops);
  return best.alive;
}

}  // namespace kiln::detail
