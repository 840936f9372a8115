// SPDX-License-Identifier: Apache-2.0
// What a launch reports of itself: the bytes that it must move, from what its accesses reach, and its ops.
#include "codegen/lower_parts.h"

namespace kiln::detail {

void Traffic::add(const loop::Kernel& k, std::span<const int> cells, int skipped) {
  std::vector<std::vector<Reach>> all = reaches(k);
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int>(i) == skipped) continue;
    for (Reach& r : all[i]) add(cells[i], std::move(r));
  }
}

Traffic operator+(Traffic a, const Traffic& b) {
  for (const auto& [cell, reaches] : b.reaches_)
    for (const Reach& r : reaches) a.add(cell, r);
  return a;
}

Dim Traffic::bytes(const std::vector<Cell>& cells) const {
  Dim sum(0);
  for (const auto& [c, reaches] : reaches_) {
    const Cell& cell = cells[static_cast<size_t>(c)];
    const Dim size(static_cast<int64_t>(dtype_size(cell.dtype)));
    sum = sum + footprint(reaches, floordiv(cell.bytes, size)) * size;
  }
  return sum;
}

std::vector<int32_t> sources_of(const Graph& g, const std::vector<int>& nodes) {
  std::vector<int32_t> out;
  for (const int n : nodes)
    if (g.nodes[static_cast<size_t>(n)].op != op("constant")) out.push_back(n);
  if (out.empty()) out.assign(nodes.begin(), nodes.end());
  return out;
}

std::string ops_text(const Graph& g, const std::vector<int>& nodes) {
  std::string out;
  std::set<std::string_view> seen;
  for (const int n : nodes) {
    const OpDef& o = def(g.nodes[static_cast<size_t>(n)].op);
    if (o.kind == OpKind::view || !seen.insert(o.name).second) continue;
    out += (out.empty() ? "" : " ") + std::string(o.name);
  }
  return out;
}

}  // namespace kiln::detail
