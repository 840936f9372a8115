// SPDX-License-Identifier: Apache-2.0
// How the kinds of ops take part in kernels: what an element of a node reads.
#include <algorithm>

#include "ir/fuse_groups.h"

namespace kiln::detail {

namespace {

size_t dim_of(const Node& n) { return static_cast<size_t>(std::get<int64_t>(n.attrs[0])); }

/// A scatter_add with one source per line along its dim: each element knows whether it is hit.
bool is_one_hot(const Graph& g, const Node& n) {
  if (n.op != op("scatter_add")) return false;
  const Shape &x = g.type(n.in[0]).shape, &idx = g.type(n.in[1]).shape;
  for (size_t d = 0; d < x.size(); ++d)
    if (d == dim_of(n) ? !idx[d].is(1) : idx[d] != x[d]) return false;
  return true;
}

bool has_gaps(const Node& n) {
  if (n.op != op("pad")) return false;
  const auto& gaps = std::get<std::vector<int64_t>>(n.attrs[2]);
  return std::any_of(gaps.begin(), gaps.end(), [](int64_t i) { return i != 0; });
}

/// A cat that is copied together from memory: inside a kernel each element would look at all its operands.
bool joins_many(const Node& n) { return n.op == op("cat") && n.in.size() > 8; }

/// A place that the index tensor names.
loop::Index named(Value index) {
  loop::Index x;
  x.add_value(index.id, Dim(1));
  return x;
}

std::vector<OperandRead> gather_reads(const Graph& g, const Node& n, const Access& at) {
  const size_t dim = dim_of(n), idx_rank = g.type(n.in[1]).shape.size(), rank = g.type(n.in[0]).shape.size();
  Access index = at, table = at;
  if (n.op == op("take")) {
    const auto from = at.idx.begin() + static_cast<ptrdiff_t>(dim);
    index.idx.assign(from, from + static_cast<ptrdiff_t>(idx_rank));
    table.idx.assign(at.idx.begin(), from);
    table.idx.push_back(named(n.in[1]));
    table.idx.insert(table.idx.end(), from + static_cast<ptrdiff_t>(idx_rank), at.idx.end());
  } else {
    table.idx[dim] = named(n.in[1]);
  }
  KILN_ASSERT(table.idx.size() == rank, "{}: {} indices for rank {}", def(n.op).name, table.idx.size(), rank);
  table.bounds.push_back({table.idx[dim], g.type(n.in[0]).shape[dim]});
  return {{1, std::move(index)}, {0, std::move(table)}};
}

}  // namespace

std::vector<int64_t> reduced_dims(const Graph& g, const Node& n) {
  std::vector<int64_t> d = std::get<std::vector<int64_t>>(n.attrs[0]);
  std::erase_if(d, [&](int64_t i) { return g.type(n.in[0]).shape[i].is(1); });
  std::sort(d.begin(), d.end());
  return d;
}

ComputeForm compute_form(const Graph& g, const Node& n) {
  switch (def(n.op).kind) {
    case OpKind::view: return has_gaps(n) || joins_many(n) ? ComputeForm::whole : ComputeForm::view;
    case OpKind::elementwise:
    case OpKind::gather: return ComputeForm::point;
    case OpKind::reduce:
      return reduced_dims(g, n).empty() && !def(n.op).body.empty() ? ComputeForm::point : ComputeForm::reduce;
    case OpKind::scatter: return is_one_hot(g, n) ? ComputeForm::point : ComputeForm::whole;
    default: return ComputeForm::whole;
  }
}

bool contracts(const Graph& g, const Opaque& x) {
  return x.loop < 0 && def(g.nodes[x.node].op).kind == OpKind::contract;
}

std::vector<OperandRead> point_reads(const Graph& g, const Node& n, const Access& at) {
  std::vector<OperandRead> reads;
  switch (def(n.op).kind) {
    case OpKind::gather: return gather_reads(g, n, at);
    case OpKind::scatter: {
      Access line = at;
      line.idx[dim_of(n)] = {};
      return {{0, at}, {1, line}, {2, line}};
    }
    case OpKind::reduce: {  // over dims of extent 1: the element itself
      Access in = at;
      std::vector<int64_t> dims = std::get<std::vector<int64_t>>(n.attrs[0]);
      std::sort(dims.begin(), dims.end());
      for (int64_t d : dims) in.idx.insert(in.idx.begin() + d, loop::Index());
      return {{0, in}};
    }
    default:
      for (size_t i = 0; i < n.in.size(); ++i) {
        Access in = at;
        if (g.type(n.in[i]).shape.empty() && !g.type(n.out).shape.empty()) in = {{}, at.bounds, false};
        reads.push_back({static_cast<int>(i), std::move(in)});
      }
      return reads;
  }
}

}  // namespace kiln::detail
