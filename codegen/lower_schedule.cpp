// SPDX-License-Identifier: Apache-2.0
// Order of launches, barriers between them, and the arena. Works on cells and works alone.
#include <algorithm>
#include <limits>
#include <set>

#include "codegen/lower_parts.h"

namespace kiln::detail {

namespace {

/// Which works must follow which.
struct Edges {
  std::vector<std::set<int>> after;
  explicit Edges(size_t n) : after(n) {}
  void add(int first, int then) {
    if (first != then) after[first].insert(then);
  }
  bool reaches(int from, int to) const {
    std::vector<int> stack = {from};
    std::set<int> seen = {from};
    while (!stack.empty()) {
      const int s = stack.back();
      stack.pop_back();
      if (s == to) return true;
      for (int t : after[s])
        if (seen.insert(t).second) stack.push_back(t);
    }
    return false;
  }
};

/// Collectives start and end in order, so that all ranks agree on it.
void order_collectives(const std::vector<Work>& works, Edges& edges) {
  int start = -1, wait = -1;
  for (size_t w = 0; w < works.size(); ++w) {
    if (works[w].kind == LaunchKind::kernel) continue;
    int& before = works[w].kind == LaunchKind::start ? start : wait;
    if (before >= 0) edges.add(before, static_cast<int>(w));
    before = static_cast<int>(w);
  }
}

/// The works that a wait comes before, waits included.
std::vector<bool> behind_waits(const std::vector<Work>& works, const Edges& edges) {
  std::vector<bool> behind(works.size(), false);
  std::vector<int> stack;
  for (size_t w = 0; w < works.size(); ++w)
    if (works[w].kind == LaunchKind::wait) stack.push_back(static_cast<int>(w));
  while (!stack.empty()) {
    const int w = stack.back();
    stack.pop_back();
    if (behind[w]) continue;
    behind[w] = true;
    stack.insert(stack.end(), edges.after[w].begin(), edges.after[w].end());
  }
  return behind;
}

/// Whether the new value may take the old one's place: its writer comes after all readers of the old value
/// and after the `guards`, the works that make one.
bool honour(const std::vector<Work>& works, const Overwrite& o, const std::vector<int>& guards, int writer,
            Edges& edges) {
  for (int g : guards)
    if (g == writer || edges.reaches(writer, g)) return false;
  std::vector<int> readers;
  for (size_t w = 0; w < works.size(); ++w)
    if (std::count(works[w].reads.begin(), works[w].reads.end(), o.old_cell))
      readers.push_back(static_cast<int>(w));
  for (int r : readers) {
    const bool apart = !works[r].in_place.count({o.old_cell, o.cell});
    if (r == writer ? apart : edges.reaches(writer, r)) return false;
  }
  for (int r : readers) edges.add(r, writer);
  for (int g : guards) edges.add(g, writer);
  return true;
}

bool same_place(const loop::Index& a, const loop::Index& b) {
  const auto same = [](const loop::IndexTerm& x, const loop::IndexTerm& y) {
    return x.axis == y.axis && x.axis >= 0 && x.stride == y.stride;
  };
  return a.offset == b.offset && a.terms.size() == b.terms.size() &&
         std::is_permutation(a.terms.begin(), a.terms.end(), b.terms.begin(), same);
}

/// Whether all that is read of parameter `from` lies where `to` is written by the same iteration, later.
bool reads_where_it_writes(const loop::Kernel& k, int from, int to) {
  const auto store = std::find_if(k.body.begin(), k.body.end(), [&](const loop::Instr& i) {
    return i.kind == loop::InstrKind::store && i.param == to;
  });
  const auto elsewhere = [&](const loop::Instr& i) {
    return i.param == from && (i.kind != loop::InstrKind::load || !same_place(i.index, store->index));
  };
  return store != k.body.end() && std::none_of(k.body.begin(), store, elsewhere) &&
         std::none_of(store, k.body.end(), [&](const loop::Instr& i) { return i.param == from; });
}

}  // namespace

std::set<std::pair<int, int>> in_place_pairs(const loop::Kernel& k, const std::vector<int>& cells) {
  std::set<std::pair<int, int>> yes, no;
  for (size_t from = 0; from < k.params.size(); ++from)
    for (size_t to = 0; to < k.params.size(); ++to) {
      if (!k.params[from].read || !k.params[to].written) continue;
      const bool fits = reads_where_it_writes(k, static_cast<int>(from), static_cast<int>(to));
      (fits ? yes : no).insert({cells[from], cells[to]});
    }
  for (const auto& pair : no) yes.erase(pair);
  return yes;
}

Order schedule(const std::vector<Work>& works, const std::vector<Overwrite>& overwrites,
               const std::vector<int>& guard_cells, int cells, std::vector<int>& clashes) {
  std::vector<int> writer(cells, -1);
  for (size_t w = 0; w < works.size(); ++w)
    for (int c : works[w].writes) writer[c] = static_cast<int>(w);
  Edges edges(works.size());
  for (size_t w = 0; w < works.size(); ++w)
    for (int c : works[w].reads)
      if (writer[c] >= 0) edges.add(writer[c], static_cast<int>(w));
  order_collectives(works, edges);
  std::vector<int> guards;
  for (int c : guard_cells)
    if (writer[c] >= 0) guards.push_back(writer[c]);
  // Ranks that fail have said nothing to the others yet, where no guard is made from a sum.
  for (size_t w = 0; w < works.size(); ++w)
    for (int g : guards)
      if (works[w].kind == LaunchKind::start && !edges.reaches(static_cast<int>(w), g))
        edges.add(g, static_cast<int>(w));
  for (size_t i = 0; i < overwrites.size(); ++i) {
    const int w = writer[overwrites[i].cell];
    if (w >= 0 && !honour(works, overwrites[i], guards, w, edges)) clashes.push_back(static_cast<int>(i));
  }
  std::vector<int> waits(works.size(), 0);
  for (const auto& list : edges.after)
    for (int t : list) ++waits[t];
  const std::vector<bool> behind = behind_waits(works, edges);
  // In an interval the others come first: a wait holds up whoever comes to it.
  const auto before = [&](int a, int b) {
    const bool x = works[a].kind == LaunchKind::wait, y = works[b].kind == LaunchKind::wait;
    return x == y ? a < b : y;
  };
  std::vector<std::vector<int>> out;
  std::vector<int> ready, late;  // late: ready, but behind a wait
  for (size_t w = 0; w < works.size(); ++w)
    if (waits[w] == 0) (behind[w] ? late : ready).push_back(static_cast<int>(w));
  size_t placed = 0;
  while (!ready.empty() || !late.empty()) {
    if (ready.empty()) {
      std::swap(ready, late);
      std::sort(ready.begin(), ready.end(), before);
    }
    std::vector<int> next;
    for (int w : ready)
      for (int t : edges.after[w])
        if (--waits[t] == 0) (behind[t] && !behind[w] ? late : next).push_back(t);
    placed += ready.size();
    std::sort(next.begin(), next.end(), before);
    out.push_back(std::move(ready));
    ready = std::move(next);
  }
  KILN_ASSERT(placed == works.size(), "launches wait for each other: {} of {} placed", placed, works.size());
  return {std::move(out), std::move(edges.after)};
}

void take_places(std::vector<Cell>& cells, const std::vector<Work>& works,
                 const std::vector<std::vector<int>>& intervals) {
  std::vector<int> first(cells.size(), -1);
  std::vector<std::pair<int, int>> last(cells.size(), {-1, 0});  // interval, and uses in it
  for (size_t t = 0; t < intervals.size(); ++t)
    for (int w : intervals[t])
      for (int c : works[static_cast<size_t>(w)].cells) {
        const int now = static_cast<int>(t);
        if (first[c] < 0) first[c] = now;
        last[c] = {now, last[c].first == now ? last[c].second + 1 : 1};
      }
  std::set<int> apart;  // pieces and what they are pieces of
  for (size_t c = 0; c < cells.size(); ++c)
    if (cells[c].inside >= 0) apart.insert({static_cast<int>(c), cells[c].inside});
  std::set<int> taken;
  const auto fits = [&](int from, int to, int now) {
    const Cell &a = cells[from], &b = cells[to];
    return a.buffer < 0 && b.buffer < 0 && a.dtype == b.dtype && a.bytes == b.bytes && !apart.count(from) &&
           !apart.count(to) && !taken.count(from) && b.inside < 0 && first[to] == now &&
           last[from] == std::pair(now, 1) && first[from] < now;
  };
  for (size_t t = 0; t < intervals.size(); ++t)
    for (int w : intervals[t])
      for (const auto& [from, to] : works[static_cast<size_t>(w)].in_place) {
        if (!fits(from, to, static_cast<int>(t))) continue;
        taken.insert(from);
        cells[to].inside = cells[from].inside < 0 ? from : cells[from].inside;
      }
}

std::vector<ArenaItem> arena_cells(const std::vector<Cell>& cells, const std::vector<Work>& works,
                                   const std::vector<std::vector<int>>& intervals) {
  std::vector<int> first(cells.size(), -1), last(cells.size(), -1);
  for (size_t t = 0; t < intervals.size(); ++t)
    for (int w : intervals[t])
      for (int used : works[static_cast<size_t>(w)].cells) {
        const int c = cells[used].inside < 0 ? used : cells[used].inside;
        if (first[c] < 0) first[c] = static_cast<int>(t);
        last[c] = static_cast<int>(t);
      }
  std::vector<ArenaItem> items;
  for (int c = 0; c < static_cast<int>(cells.size()); ++c)
    if (cells[c].buffer < 0 && first[c] >= 0) items.push_back({c, cells[c].bytes, first[c], last[c]});
  return items;
}

namespace {

/// The intervals of works that sink one after the other, the last first, so that what feeds them follows.
class Sinking {
 public:
  Sinking(const std::vector<Work>& works, const std::vector<Cell>& cells, const Order& order)
      : works_(works), cells_(cells), order_(order), at_(works.size()), last_(cells.size(), -1) {
    for (size_t t = 0; t < order.intervals.size(); ++t)
      for (int w : order.intervals[t]) {
        at_[static_cast<size_t>(w)] = static_cast<int>(t);
        if (works[static_cast<size_t>(w)].kind == LaunchKind::wait) waits_.push_back(static_cast<int>(t));
        for (int c : works[static_cast<size_t>(w)].cells) last_[root(c)] = static_cast<int>(t);
      }
  }
  std::vector<std::vector<int>> run() {
    for (size_t t = order_.intervals.size(); t-- > 0;)
      for (int w : order_.intervals[t]) sink(w);
    std::vector<std::vector<int>> all(order_.intervals.size()), out;
    for (const auto& interval : order_.intervals)
      for (int w : interval) all[static_cast<size_t>(at_[static_cast<size_t>(w)])].push_back(w);
    for (auto& interval : all)
      if (!interval.empty()) out.push_back(std::move(interval));
    return out;
  }

 private:
  size_t root(int c) const { return static_cast<size_t>(cells_[c].inside < 0 ? c : cells_[c].inside); }
  /// Bytes of a cell in the arena; none of what has a place of its own, or no size yet.
  int64_t bytes(int c) const {
    const Cell& cell = cells_[c];
    return cell.buffer < 0 && cell.inside < 0 && cell.bytes.is_const() ? cell.bytes.value() : 0;
  }
  void sink(int w) {
    const Work& work = works_[static_cast<size_t>(w)];
    const std::set<int>& after = order_.after[static_cast<size_t>(w)];
    int& at = at_[static_cast<size_t>(w)];
    if (work.kind != LaunchKind::kernel || after.empty()) return;
    int latest = std::numeric_limits<int>::max();
    for (int next : after) latest = std::min(latest, at_[static_cast<size_t>(next)] - 1);
    const auto wait = std::lower_bound(waits_.begin(), waits_.end(), at);
    if (wait != waits_.end()) latest = std::min(latest, *wait);
    int64_t written = 0, kept = 0;
    for (int c : std::set<int>(work.writes.begin(), work.writes.end())) written += bytes(c);
    for (int c : std::set<int>(work.reads.begin(), work.reads.end()))
      if (last_[root(c)] < latest) kept += bytes(c);
    if (latest <= at || written <= kept) return;
    at = latest;
    for (int c : work.cells) last_[root(c)] = std::max(last_[root(c)], latest);
  }

  const std::vector<Work>& works_;
  const std::vector<Cell>& cells_;
  const Order& order_;
  std::vector<int> at_, last_;  // by work, by cell: intervals
  std::vector<int> waits_;      // intervals with one
};

}  // namespace

void sink_works(const std::vector<Work>& works, const std::vector<Cell>& cells, Order& order) {
  std::vector<std::vector<int>> sunk = Sinking(works, cells, order).run();
  if (sunk == order.intervals) return;
  std::vector<Dim> offsets;
  const Dim now = place_arena(arena_cells(cells, works, order.intervals), offsets);
  const Dim then = place_arena(arena_cells(cells, works, sunk), offsets);
  if (now.is_const() && then.is_const() && then.value() < now.value()) order.intervals = std::move(sunk);
}

DimIndex DimPool::add(const Dim& d) {
  const auto [at, fresh] = known_.try_emplace(d.str(), static_cast<DimIndex>(plan_.dims.size()));
  if (fresh) plan_.dims.push_back(d);
  return at->second;
}

namespace {

constexpr int64_t kAlign = 64;

Dim aligned(const Dim& bytes) { return ceildiv(bytes, Dim(kAlign)) * Dim(kAlign); }

/// Largest first, each at the lowest place that no live neighbour holds.
int64_t place_known(const std::vector<ArenaItem>& items, const std::vector<size_t>& which,
                    std::vector<Dim>& offsets) {
  std::vector<size_t> order = which;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return items[a].bytes.value() > items[b].bytes.value(); });
  struct Placed {
    int64_t from, to;
    int first, last;
  };
  std::vector<Placed> placed;  // by place
  int64_t size = 0;
  for (size_t i : order) {
    const int64_t bytes = aligned(items[i].bytes).value();
    int64_t at = 0;
    for (const Placed& p : placed) {
      if (p.last < items[i].first || p.first > items[i].last) continue;
      if (at + bytes <= p.from) break;
      at = std::max(at, p.to);
    }
    const Placed mine{at, at + bytes, items[i].first, items[i].last};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), mine,
                                   [](const Placed& a, const Placed& b) { return a.from < b.from; }),
                  mine);
    offsets[i] = Dim(at);
    size = std::max(size, mine.to);
  }
  return size;
}

}  // namespace

Dim place_arena(const std::vector<ArenaItem>& items, std::vector<Dim>& offsets) {
  offsets.assign(items.size(), Dim(0));
  std::vector<size_t> known;
  for (size_t i = 0; i < items.size(); ++i)
    if (items[i].bytes.is_const()) known.push_back(i);
  Dim end(place_known(items, known, offsets));
  // Sizes of the call: places shared by buffers of one size expression whose lives do not meet.
  struct Place {
    Dim at, bytes;
    int last;
  };
  std::vector<Place> places;
  std::vector<size_t> order;
  for (size_t i = 0; i < items.size(); ++i)
    if (!items[i].bytes.is_const()) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return items[a].first < items[b].first; });
  for (size_t i : order) {
    const auto at = std::find_if(places.begin(), places.end(), [&](const Place& p) {
      return p.last < items[i].first && p.bytes == items[i].bytes;
    });
    if (at != places.end()) {
      offsets[i] = at->at;
      at->last = items[i].last;
      continue;
    }
    places.push_back({end, items[i].bytes, items[i].last});
    offsets[i] = end;
    end = end + aligned(items[i].bytes);
  }
  return end;
}

}  // namespace kiln::detail
