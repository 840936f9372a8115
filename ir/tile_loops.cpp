// SPDX-License-Identifier: Apache-2.0
// Finds loops over tiles in three steps: what belongs to a matrix (Scores), which part of it must wait for
// results of another part (levels: a backward starts from the forward's results), and the graph in which the
// nodes of a level stand together (Tiler).
#include "ir/tile_loops.h"

#include <algorithm>
#include <queue>

#include "ir/rewrite.h"
#include "ir/tile_scores.h"

namespace kiln {

namespace {

using detail::Axes;
using detail::Scores;
using Ints = std::vector<int64_t>;

const Ints& ints(const Node& n, size_t attr) { return std::get<Ints>(n.attrs[attr]); }

/// The graph with the nodes of each loop side by side.
class Tiler {
 public:
  Tiler(const Graph& g, const std::vector<Scores>& all)
      : g_(g), users_(g), inside_(g.nodes.size(), false), r_(g) {
    for (const Scores& s : all)
      for (const int n : s.nodes)
        if (s.hot.count(node(n).out.id)) inside_[static_cast<size_t>(n)] = true;
    for (const Scores& s : all) add_loops(s);
    find_needed();
  }

  TiledGraph run() {
    for (const int item : order()) {
      if (item < static_cast<int>(g_.nodes.size())) add(item);
      else add_loop(loop_of(item));
    }
    out_.graph = r_.finish();
    return std::move(out_);
  }

 private:
  struct Loop {
    const Scores* scores;
    std::set<int> nodes;  ///< in order
    std::set<int> own;    ///< of these, not computed for another loop before
    std::set<int> reads;  ///< values
  };

  const Node& node(int i) const { return g_.nodes[static_cast<size_t>(i)]; }

  // --- levels ---

  /// How often a value had to wait for results of the matrix that left its space. Nodes of it that are of no
  /// product are of no level: each loop computes them.
  std::map<int, int> levels(const Scores& s) const {
    std::vector<int> waits(static_cast<size_t>(g_.value_count()), 0);
    std::map<int, int> of;
    for (int i = 0; i < static_cast<int>(g_.nodes.size()); ++i) {
      const bool inside = s.nodes.count(i) && s.hot.count(node(i).out.id);
      int level = 0;
      for (const Value v : node(i).in) {
        const auto made = of.find(g_.producer(v));
        level = std::max(level, made == of.end() ? waits[static_cast<size_t>(v.id)] : made->second + !inside);
      }
      if (inside) of[i] = level;
      else waits[static_cast<size_t>(node(i).out.id)] = level;
    }
    return of;
  }

  void add_loops(const Scores& s) {
    const std::map<int, int> level = levels(s);
    int last = 0;
    for (const auto& [n, l] : level) last = std::max(last, l);
    for (int l = 0; l <= last; ++l) {
      Loop loop{&s, {}, {}, {}};
      std::vector<int> todo;
      for (const auto& [n, of] : level)
        if (of == l && (s.sinks.count(n) || !s.is_square(node(n).out.id))) todo.push_back(n);
      while (!todo.empty()) {
        const int n = todo.back();
        todo.pop_back();
        if (!loop.nodes.insert(n).second) continue;
        const auto of = level.find(n);
        if (of != level.end() && of->second == l) loop.own.insert(n);
        for (const Value v : node(n).in) {
          const int p = g_.producer(v);
          const auto before = level.find(p);
          // Numbers of rows that an earlier loop has left in memory are not computed again.
          const bool stored = before != level.end() && before->second < l && !s.is_square(v.id);
          if (s.nodes.count(p) && !stored) todo.push_back(p);
          else loop.reads.insert(v.id);
        }
      }
      if (!loop.nodes.empty()) loops_.push_back(std::move(loop));
    }
  }

  // --- order ---

  /// Nodes outside of the loops that something needs.
  void find_needed() {
    needed_.assign(g_.nodes.size(), false);
    std::vector<bool> read(static_cast<size_t>(g_.value_count()), false);
    for (const GraphOutput& o : g_.outputs) read[static_cast<size_t>(o.value.id)] = true;
    for (const Loop& l : loops_)
      for (const int v : l.reads) read[static_cast<size_t>(v)] = true;
    for (int i = static_cast<int>(g_.nodes.size()); i-- > 0;) {
      const bool effect = def(node(i).op).kind == OpKind::effect;
      if (inside_[static_cast<size_t>(i)] || (!effect && !read[static_cast<size_t>(node(i).out.id)]))
        continue;
      needed_[static_cast<size_t>(i)] = true;
      for (const Value v : node(i).in) read[static_cast<size_t>(v.id)] = true;
    }
  }

  /// Nodes outside, and behind them loops, each after what it reads and else as early as in the old graph.
  std::vector<int> order() const {
    const int nodes = static_cast<int>(g_.nodes.size()), items = nodes + static_cast<int>(loops_.size());
    std::vector<int> makes(g_.nodes.size(), -1);  // the item that makes a node's value for others
    for (int i = 0; i < nodes; ++i)
      if (needed_[static_cast<size_t>(i)]) makes[static_cast<size_t>(i)] = i;
    for (int l = nodes; l < items; ++l)
      for (const int n : loop_of(l).own) makes[static_cast<size_t>(n)] = l;
    std::vector<std::vector<int>> then(static_cast<size_t>(items));
    std::vector<int> waits(static_cast<size_t>(items), 0);
    const auto wait_for = [&](int item, Value v) {
      const int p = g_.producer(v);
      if (p < 0) return;
      then[static_cast<size_t>(makes[static_cast<size_t>(p)])].push_back(item);
      ++waits[static_cast<size_t>(item)];
    };
    for (int i = 0; i < nodes; ++i)
      if (needed_[static_cast<size_t>(i)])
        for (const Value v : node(i).in) wait_for(i, v);
    for (int l = nodes; l < items; ++l)
      for (const int v : loop_of(l).reads) wait_for(l, Value{v});
    using Entry = std::pair<int, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    const auto push = [&](int item) {
      ready.push({item < nodes ? item : *loop_of(item).own.rbegin(), item});
    };
    for (int i = 0; i < items; ++i)
      if (waits[static_cast<size_t>(i)] == 0 && (i >= nodes || needed_[static_cast<size_t>(i)])) push(i);
    std::vector<int> list;
    while (!ready.empty()) {
      list.push_back(ready.top().second);
      ready.pop();
      for (const int t : then[static_cast<size_t>(list.back())])
        if (--waits[static_cast<size_t>(t)] == 0) push(t);
    }
    const auto all =
        std::count(needed_.begin(), needed_.end(), true) + static_cast<std::ptrdiff_t>(loops_.size());
    KILN_ASSERT(static_cast<std::ptrdiff_t>(list.size()) == all, "tiles made a cycle: {} of {} items",
                list.size(), all);
    return list;
  }
  const Loop& loop_of(int item) const { return loops_[static_cast<size_t>(item) - g_.nodes.size()]; }

  // --- the new graph ---

  Value now(Value old) const { return r_.to[static_cast<size_t>(old.id)]; }
  void add(int n) {
    r_.set(node(n).out, r_.out.add_node(node(n).op, r_.mapped(node(n).in), node(n).attrs, node(n).origin));
    out_.source_of.push_back(n);
  }

  /// What a loop computes again must not stand for the value where it was computed first.
  void add_loop(const Loop& l) {
    const Scores& s = *l.scores;
    TileLoop tile;
    tile.extents = s.extents;
    for (const int v : l.reads) {
      tile.reads.push_back(now(Value{v}));
      tile.axes[tile.reads.back().id] = s.axes.at(v);
    }
    tile.begin = static_cast<int>(r_.out.nodes.size());
    const std::vector<Value> before = r_.to;
    for (const int n : l.nodes) add(n);
    tile.end = static_cast<int>(r_.out.nodes.size());
    for (const int n : l.nodes) {
      const Value old = node(n).out;
      tile.axes[now(old).id] = s.axes.at(old.id);
      if (l.own.count(n) && is_read_outside(old, l)) tile.results.push_back(now(old));
      else r_.set(old, before[static_cast<size_t>(old.id)]);
    }
    tile.band = taken_columns(r_.out, tile);
    out_.loops.push_back(std::move(tile));
  }
  bool is_read_outside(Value v, const Loop& by) const {
    const std::vector<int>& readers = users_.of[static_cast<size_t>(v.id)];
    return users_.outputs.count(v.id) > 0 ||
           std::any_of(readers.begin(), readers.end(),
                       [&](int n) { return needed_[static_cast<size_t>(n)]; }) ||
           std::any_of(loops_.begin(), loops_.end(),
                       [&](const Loop& l) { return &l != &by && l.reads.count(v.id) > 0; });
  }

  const Graph& g_;
  const detail::Users users_;
  std::vector<bool> inside_;  // by node: belongs to a matrix
  std::vector<Loop> loops_;
  std::vector<bool> needed_;
  detail::Rewrite r_;
  TiledGraph out_;
};

}  // namespace

bool TileLoop::has(Value v, int axis) const {
  const Axes& of = axes.at(v.id);
  return std::find(of.begin(), of.end(), axis) != of.end();
}

namespace {

/// The result of a contraction whose columns come last, from one where they do not.
Value turned(Graph& g, const Node& n, const std::vector<Value>& in) {
  Value v =
      g.add_node(n.op, std::vector{in[1], in[0]}, {n.attrs[1], n.attrs[0], n.attrs[3], n.attrs[2]}, n.origin);
  Ints order;
  for (int64_t d = 0; d < g.type(v).rank(); ++d) order.push_back(d);
  std::swap(order.back(), order[order.size() - 2]);
  return g.add_node(op("permute"), std::vector{v}, {order}, n.origin);
}

/// The result of a contraction of halves, rounded from one that sums in f32.
Value summed_wide(Graph& g, const Node& n, const std::vector<Value>& in) {
  std::vector<Value> wide;
  for (const Value x : in) wide.push_back(g.add_node(op("cast"), std::vector{x}, {DType::f32}, n.origin));
  const DType narrow = g.type(in[0]).dtype;
  return g.add_node(op("cast"), std::vector{g.add_node(n.op, wide, n.attrs, n.origin)}, {narrow}, n.origin);
}

/// The result of a reduction, from one over `columns` alone.
Value reduced_twice(Graph& g, const Node& n, const std::vector<Value>& in, int64_t columns) {
  Ints rest;
  for (const int64_t d : ints(n, 0))
    if (d != columns) rest.push_back(d - (d > columns));
  const Value v = g.add_node(n.op, in, {Ints{columns}}, n.origin);
  return g.add_node(n.op, std::vector{v}, {rest}, n.origin);
}

/// The graph with each odd node as several: a part of the matrix's loop, and what is left to do.
Graph evened(const Graph& g, const std::map<int, int64_t>& odd, std::vector<int32_t>& source_of) {
  detail::Rewrite r(g);
  for (int i = 0; i < static_cast<int>(g.nodes.size()); ++i) {
    const Node& n = g.nodes[static_cast<size_t>(i)];
    const auto at = odd.find(i);
    const std::vector<Value> in = r.mapped(n.in);
    Value v;
    if (at == odd.end()) v = r.out.add_node(n.op, in, n.attrs, n.origin);
    else if (at->second == Scores::kColumnsLast) v = turned(r.out, n, in);
    else if (at->second == Scores::kHalves) v = summed_wide(r.out, n, in);
    else v = reduced_twice(r.out, n, in, at->second);
    r.set(n.out, v);
    source_of.resize(r.out.nodes.size(), i);
  }
  return r.finish();
}

}  // namespace

std::optional<TiledGraph> tile_loops(const Graph& g, int64_t least_bytes) {
  const std::vector<Scores> all = detail::find_scores(g, least_bytes);
  if (all.empty()) return std::nullopt;
  std::map<int, int64_t> odd;
  for (const Scores& s : all) odd.insert(s.odd.begin(), s.odd.end());
  if (odd.empty()) return Tiler(g, all).run();
  std::vector<int32_t> source_of;
  std::optional<TiledGraph> tiled = tile_loops(evened(g, odd, source_of), least_bytes);
  if (tiled)
    for (int32_t& n : tiled->source_of) n = source_of[static_cast<size_t>(n)];
  return tiled;
}

}  // namespace kiln
