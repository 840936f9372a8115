// SPDX-License-Identifier: Apache-2.0
#include "ir/min_cut.h"

#include <algorithm>

namespace kiln {

namespace {

/// A flow network with integer capacities, solved by Dinic's algorithm; edges are tried in the order added.
class Network {
 public:
  static constexpr int64_t kInfinite = int64_t{1} << 60;

  explicit Network(int vertices) : edges_of_(static_cast<size_t>(vertices)) {}

  void add(int from, int to, int64_t capacity) {
    edges_of_[static_cast<size_t>(from)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({to, capacity});
    edges_of_[static_cast<size_t>(to)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({from, 0});
  }

  void saturate(int source, int sink) {
    while (measure(source, sink)) {
      next_.assign(edges_of_.size(), 0);
      while (augment(source, sink)) {
      }
    }
  }

  /// Which vertices can still send flow to `sink`.
  std::vector<bool> above(int sink) const {
    std::vector<bool> seen(edges_of_.size(), false);
    std::vector<int> queue{sink};
    seen[static_cast<size_t>(sink)] = true;
    for (size_t i = 0; i < queue.size(); ++i)
      for (int e : edges_of_[static_cast<size_t>(queue[i])]) {
        const int from = edges_[static_cast<size_t>(e)].to;
        if (seen[static_cast<size_t>(from)] || edges_[static_cast<size_t>(e ^ 1)].left == 0) continue;
        seen[static_cast<size_t>(from)] = true;
        queue.push_back(from);
      }
    return seen;
  }

 private:
  struct Edge {
    int to;
    int64_t left;  ///< capacity not used yet; edge e ^ 1 runs the other way
  };

  /// Distances from the source along edges with capacity left. False: the sink is cut off.
  bool measure(int source, int sink) {
    distance_.assign(edges_of_.size(), -1);
    distance_[static_cast<size_t>(source)] = 0;
    std::vector<int> queue{source};
    for (size_t i = 0; i < queue.size(); ++i)
      for (int e : edges_of_[static_cast<size_t>(queue[i])]) {
        const Edge& edge = edges_[static_cast<size_t>(e)];
        if (edge.left == 0 || distance_[static_cast<size_t>(edge.to)] >= 0) continue;
        distance_[static_cast<size_t>(edge.to)] = distance_[static_cast<size_t>(queue[i])] + 1;
        queue.push_back(edge.to);
      }
    return distance_[static_cast<size_t>(sink)] >= 0;
  }

  /// Sends flow along one shortest path. Without recursion: paths are as long as the graph is deep.
  bool augment(int source, int sink) {
    std::vector<int> path;
    int at = source;
    while (at != sink) {
      const auto v = static_cast<size_t>(at);
      if (next_[v] == edges_of_[v].size()) {  // a dead end: never enter it again
        if (path.empty()) return false;
        at = edges_[static_cast<size_t>(path.back() ^ 1)].to;
        path.pop_back();
        ++next_[static_cast<size_t>(at)];
        continue;
      }
      const int e = edges_of_[v][next_[v]];
      const Edge& edge = edges_[static_cast<size_t>(e)];
      if (edge.left == 0 || distance_[static_cast<size_t>(edge.to)] != distance_[v] + 1) {
        ++next_[v];
        continue;
      }
      path.push_back(e);
      at = edge.to;
    }
    int64_t flow = kInfinite;
    for (int e : path) flow = std::min(flow, edges_[static_cast<size_t>(e)].left);
    for (int e : path) {
      edges_[static_cast<size_t>(e)].left -= flow;
      edges_[static_cast<size_t>(e ^ 1)].left += flow;
    }
    return true;
  }

  std::vector<Edge> edges_;
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> distance_;
  std::vector<size_t> next_;
};

int64_t bytes_of(const Type& t) {
  return std::max<int64_t>(1, numel(t.shape).value() * static_cast<int64_t>(dtype_size(t.dtype)));
}

}  // namespace

bool cheap_to_repeat(const Node& n) {
  const OpKind kind = def(n.op).kind;
  return kind == OpKind::elementwise || (kind == OpKind::view && n.op != op("cat"));
}

std::vector<Value> values_to_keep(const Graph& g, std::span<const Value> reads,
                                  std::span<const Holding> holding) {
  // A value is an edge from vertex 2 * id to 2 * id + 1; cutting it keeps it. Far less than infinite, for
  // cuts that must go through what cannot be kept.
  constexpr int64_t kGone = Network::kInfinite >> 20;
  const int source = 2 * g.value_count(), sink = source + 1;
  Network network(sink + 1);
  for (int id = 0; id < g.value_count(); ++id) {
    const Holding h = holding[static_cast<size_t>(id)];
    const int64_t cost = h == Holding::free ? 0 : h == Holding::gone ? kGone : bytes_of(g.type(Value{id}));
    network.add(2 * id, 2 * id + 1, cost);
    const int node = g.producer(Value{id});
    const bool repeats =
        h == Holding::none && node >= 0 && cheap_to_repeat(g.nodes[static_cast<size_t>(node)]);
    if (!repeats) network.add(source, 2 * id, Network::kInfinite);
    else
      for (Value in : g.nodes[static_cast<size_t>(node)].in)
        network.add(2 * in.id + 1, 2 * id, Network::kInfinite);
  }
  for (Value v : reads) network.add(2 * v.id + 1, sink, Network::kInfinite);
  network.saturate(source, sink);
  const std::vector<bool> later = network.above(sink);
  std::vector<Value> keep;
  for (int id = 0; id < g.value_count(); ++id)
    if (later[static_cast<size_t>(2 * id + 1)] && !later[static_cast<size_t>(2 * id)] &&
        holding[static_cast<size_t>(id)] != Holding::free)
      keep.push_back({id});
  return keep;
}

}  // namespace kiln
