// SPDX-License-Identifier: Apache-2.0
#include "codegen/source_phases.h"

#include <algorithm>
#include <map>

namespace kiln::detail {

namespace {

using loop::Instr;
using loop::InstrKind;

std::vector<int> operands(const Instr& i) {
  std::vector<int> out = i.args;
  const auto add = [&](const loop::Index& x) {
    for (const loop::IndexTerm& t : x.terms)
      if (t.value >= 0) out.push_back(t.value);
  };
  add(i.index);
  for (const loop::Bound& b : i.bounds) add(b.index);
  return out;
}

bool ends(const Instr& i) { return i.kind == InstrKind::store || i.kind == InstrKind::partial; }

/// Work of computing a vector value again from loads.
class Recompute {
 public:
  Recompute(const loop::Kernel& k, const Phases& p) : k_(k), p_(p) {}
  double cost(int v) {
    if (!p_.vector[v]) return 0;
    const auto at = memo_.find(v);
    if (at != memo_.end()) return at->second;
    const Instr& i = k_.body[v];
    double c = 0;
    if (i.kind == InstrKind::load) c = plain(i) ? 1 : 8;
    if (i.kind == InstrKind::fold) c = 100;
    if (i.kind == InstrKind::elementwise) c = def(i.op).flops;
    for (int a : operands(i)) c += cost(a);
    return memo_[v] = c;
  }

 private:
  bool plain(const Instr& i) const {
    if (!i.bounds.empty()) return false;
    const int last = static_cast<int>(k_.axes.size()) - 1;
    for (const loop::IndexTerm& t : i.index.terms)
      if (t.value >= 0 || (t.axis == last && !t.stride.is(1))) return false;
    return true;
  }
  const loop::Kernel& k_;
  const Phases& p_;
  std::map<int, double> memo_;
};

/// Loads by column move to the first pass that uses them.
void delay_loads(const loop::Kernel& k, Phases& p) {
  std::vector<int> first(k.body.size(), p.count);
  for (size_t v = 0; v < k.body.size(); ++v) {
    const Instr& i = k.body[v];
    const int pass = i.kind == InstrKind::reduce ? p.at[v] - 1 : p.at[v];
    for (int a : operands(i)) first[a] = std::min(first[a], pass);
  }
  for (size_t v = 0; v < k.body.size(); ++v)
    if (k.body[v].kind == InstrKind::load && p.vector[v] && first[v] < p.count)
      p.at[v] = std::max(p.at[v], first[v]);
}

}  // namespace

Phases plan_phases(const loop::Kernel& k, double reload_cost, bool late_loads) {
  const size_t n = k.body.size();
  Phases p;
  p.vector.assign(n, false);
  p.at.assign(n, 0);
  p.saved.assign(n, false);
  const uint32_t cols = k.mask(loop::AxisRole::col);
  for (size_t v = 0; v < n; ++v) {
    const Instr& i = k.body[v];
    p.vector[v] = (i.axes & cols) != 0;
    for (int a : operands(i)) p.at[v] = std::max(p.at[v], p.at[a]);
    // A value that is the same in all columns is still reduced in the pass for which it is ready.
    if (i.kind == InstrKind::reduce) ++p.at[v];
    if (p.vector[v] || i.kind == InstrKind::reduce)
      p.count = std::max(p.count, p.at[v] + (i.kind == InstrKind::reduce ? 0 : 1));
    if (i.kind == InstrKind::partial && i.all_cols) p.count = std::max(p.count, p.at[v] + 1);
  }
  if (late_loads) delay_loads(k, p);
  p.compute.resize(p.count);
  p.reload.resize(p.count);
  Recompute again(k, p);
  std::vector<std::vector<bool>> need(p.count, std::vector<bool>(n, false));
  for (int pass = p.count; pass-- > 0;) {
    for (size_t v = n; v-- > 0;) {
      const Instr& i = k.body[v];
      const bool reduces = i.kind == InstrKind::reduce && p.at[v] == pass + 1;
      const bool sinks =
          ends(i) && p.at[v] == pass && (p.vector[v] || (i.kind == InstrKind::partial && i.all_cols));
      if (reduces || sinks) {
        for (int a : operands(i)) need[pass][a] = true;
        if (sinks) p.compute[pass].push_back(static_cast<int>(v));
        continue;
      }
      if (!need[pass][v] || !p.vector[v]) continue;
      if (p.at[v] == pass || again.cost(static_cast<int>(v)) <= reload_cost) {
        p.compute[pass].push_back(static_cast<int>(v));
        for (int a : operands(i)) need[pass][a] = true;
      } else {
        p.reload[pass].push_back(static_cast<int>(v));
        p.saved[v] = true;
        need[p.at[v]][v] = true;
      }
    }
    std::reverse(p.compute[pass].begin(), p.compute[pass].end());
    std::reverse(p.reload[pass].begin(), p.reload[pass].end());
  }
  return p;
}

}  // namespace kiln::detail
