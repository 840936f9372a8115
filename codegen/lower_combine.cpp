// SPDX-License-Identifier: Apache-2.0
// Launches that become one: kernels of single elements, such as the updates of an optimizer, that differ in
// their sizes and operands alone. Such a launch has parts, each with buffers and dims of its own, and
// computes the bits that its parts would alone. Decides from works, cells and order, whatever the target.
#include <algorithm>
#include <numeric>

#include "codegen/lowering.h"

namespace kiln::detail {

namespace {

/// How many bytes of known size the arena's cells hold in each interval, and how long cells live.
class Lives {
 public:
  Lives(const std::vector<Work>& works, const std::vector<Cell>& cells,
        const std::vector<std::vector<int>>& intervals, bool longer)
      : cells_(cells), longer_(longer), last_(cells.size(), -1), held_(intervals.size(), 0) {
    for (const ArenaItem& i : arena_cells(cells, works, intervals)) {
      last_[static_cast<size_t>(i.buffer)] = i.last;
      if (!i.bytes.is_const()) continue;
      for (int t = i.first; t <= i.last; ++t) held_[static_cast<size_t>(t)] += i.bytes.value();
    }
    for (const int64_t h : held_) most_ = std::max(most_, h);
  }

  /// Lets `w` be in interval `to`, if what it uses may live until then.
  bool move(const Work& w, int to) {
    std::vector<int> grown;
    for (const int used : w.cells) {
      const int c = cells_[used].inside < 0 ? used : cells_[used].inside;
      if (last_[c] >= 0 && last_[c] < to && !std::count(grown.begin(), grown.end(), c)) grown.push_back(c);
    }
    if (grown.empty()) return true;
    if (!longer_) return false;
    std::vector<int64_t> held = held_;
    for (const int c : grown) {
      if (!cells_[c].bytes.is_const()) return false;
      for (int t = last_[c] + 1; t <= to; ++t)
        if ((held[static_cast<size_t>(t)] += cells_[c].bytes.value()) > most_) return false;
    }
    held_ = std::move(held);
    for (const int c : grown) last_[c] = to;
    return true;
  }

 private:
  const std::vector<Cell>& cells_;
  const bool longer_;
  std::vector<int> last_;  // by cell of the arena
  std::vector<int64_t> held_;
  int64_t most_ = kSmallArena;
};

/// The interval of each work, and the last one that it may move to.
struct Freedom {
  std::vector<int> at, latest;
  Freedom(const std::vector<Work>& works, const Order& order) : at(works.size()), latest(works.size()) {
    const auto& intervals = order.intervals;
    for (size_t t = 0; t < intervals.size(); ++t)
      for (const int w : intervals[t]) at[static_cast<size_t>(w)] = static_cast<int>(t);
    std::vector<int> until_wait(intervals.size());  // the next interval that ends with a wait
    int next = static_cast<int>(intervals.size()) - 1;
    for (size_t t = intervals.size(); t-- > 0; until_wait[t] = next)
      for (const int w : intervals[t])
        if (works[static_cast<size_t>(w)].kind == LaunchKind::wait) next = static_cast<int>(t);
    for (size_t w = 0; w < works.size(); ++w) {
      latest[w] = until_wait[static_cast<size_t>(at[w])];
      for (const int then : order.after[w])
        latest[w] = std::min(latest[w], at[static_cast<size_t>(then)] - 1);
    }
  }
};

}  // namespace

std::vector<std::vector<int>> find_companions(const std::vector<Work>& works, const std::vector<int>& kinds,
                                              const std::vector<Cell>& cells, const Order& order,
                                              bool longer) {
  const Freedom freedom(works, order);
  Lives lives(works, cells, order.intervals, longer);
  std::vector<int> left;
  for (size_t w = 0; w < works.size(); ++w)
    if (kinds[w] >= 0) left.push_back(static_cast<int>(w));
  // Of each kind the last ones first: the others can only move towards them.
  std::stable_sort(left.begin(), left.end(), [&](int a, int b) {
    return kinds[a] != kinds[b] ? kinds[a] < kinds[b] : freedom.at[a] > freedom.at[b];
  });
  std::vector<std::vector<int>> out;
  std::vector<bool> taken(works.size(), false);
  for (size_t i = 0; i < left.size(); ++i) {
    if (taken[left[i]]) continue;
    const int to = freedom.at[left[i]];
    std::vector<int> list = {left[i]};
    for (size_t j = i + 1; j < left.size() && kinds[left[j]] == kinds[left[i]]; ++j) {
      const int w = left[j];
      if (taken[w] || freedom.latest[w] < to || !lives.move(works[w], to)) continue;
      taken[w] = true;
      list.push_back(w);
    }
    std::sort(list.begin(), list.end());
    if (list.size() > 1) out.push_back(std::move(list));
  }
  return out;
}

namespace {

/// A kernel for all sizes, and the works that it could do.
struct Kind {
  loop::Kernel kernel;
  std::vector<SizeCase> cases;
};

/// Those of two works or more. A work of one element, whose kernel has no axis, is a case of any kernel that
/// is the same for one element.
std::vector<Kind> find_kinds(const std::vector<Work>& works) {
  std::vector<Kind> kinds;
  std::map<std::string, size_t> known, of_one;  // by text
  for (const bool axis : {true, false})
    for (size_t w = 0; w < works.size(); ++w) {
      const loop::Kernel* k = works[w].single.get();
      if (!k || k->axes.empty() == axis) continue;
      loop::AnySize any = *loop::any_size(*k);
      const std::string text = loop::print(any.kernel);
      if (const auto at = of_one.find(text); !axis && at != of_one.end()) {
        any.sizes.insert(any.sizes.begin(), Dim(1));
        kinds[at->second].cases.emplace_back(static_cast<int>(w), std::move(any.sizes));
        continue;
      }
      const auto [at, fresh] = known.try_emplace(text, kinds.size());
      if (fresh) {
        if (axis) of_one.try_emplace(loop::print(loop::one_element(any.kernel)), kinds.size());
        kinds.push_back({std::move(any.kernel), {}});
      }
      kinds[at->second].cases.emplace_back(static_cast<int>(w), std::move(any.sizes));
    }
  std::erase_if(kinds, [](const Kind& k) { return k.cases.size() < 2; });
  return kinds;
}

/// Whether an arena of `b` bytes is worse than one of `a`: more, or not known to be no more.
bool grows(const Dim& a, const Dim& b) {
  const Dim more = b - a;
  return !more.is_const() || (more.value() > 0 && !(b.is_const() && b.value() <= kSmallArena));
}

/// Each once, where it stands first.
std::vector<int> distinct(const std::vector<int>& list) {
  std::set<int> seen;
  std::vector<int> out;
  std::copy_if(list.begin(), list.end(), std::back_inserter(out),
               [&](int x) { return seen.insert(x).second; });
  return out;
}

}  // namespace

Order Lowering::combine(Order order) {
  struct Shared {
    Kind kind;
    LoopKernel source;
    bool parts = false;
  };
  std::vector<Shared> all;
  std::vector<int> kinds(works_.size(), -1);
  for (Kind& k : find_kinds(works_)) {
    auto source = writer_->parts(k.kernel);
    if (!source || !source->in_place) continue;
    for (const auto& [w, sizes] : k.cases) kinds[static_cast<size_t>(w)] = static_cast<int>(all.size());
    all.push_back({std::move(k), std::move(*source)});
  }
  if (all.empty()) return order;
  const auto arena = [&](const std::vector<Work>& works, const Order& at) {
    std::vector<Dim> offsets;
    return place_arena(arena_cells(cells_, works, at.intervals), offsets);
  };
  const Dim before = arena(works_, order);
  auto lists = find_companions(works_, kinds, cells_, order, true);
  if (!lists.empty()) {
    const std::vector<Work> works = join(lists).works;
    if (grows(before, arena(works, in_order(works))))
      lists = find_companions(works_, kinds, cells_, order, false);
  }
  for (const auto& list : lists) all[static_cast<size_t>(kinds[static_cast<size_t>(list[0])])].parts = true;
  for (Shared& s : all)
    share_kernel(s.kind.cases, s.parts ? std::move(s.source) : writer_->loop(s.kind.kernel, {}), s.parts);
  Joined now = join(lists);
  works_ = std::move(now.works);
  for (Collective& c : collectives_) c.start = now.place[c.start], c.wait = now.place[c.wait];
  forget_unused_kernels();
  return lists.empty() ? order : in_order(works_);
}

/// The works do a case each of one kernel; `parts`: that is written for launches of several parts.
void Lowering::share_kernel(const std::vector<SizeCase>& cases, LoopKernel source, bool parts) {
  const auto same = [&](const SizeCase& c) {
    return works_[static_cast<size_t>(c.first)].kernel == works_[static_cast<size_t>(cases[0].first)].kernel;
  };
  if (!parts && std::all_of(cases.begin(), cases.end(), same)) return;
  const int kernel = kernel_index(source.source.symbols[0]);
  for (const auto& [at, sizes] : cases) {
    Work& w = works_[static_cast<size_t>(at)];
    const Dim elements = w.single->axes.empty() ? Dim(1) : w.single->axes[0].extent;
    w.kernel = kernel;
    w.dims = sizes;
    w.tasks = ceildiv(elements, Dim(source.per_task));
    w.scratch = source.scratch;
    if (parts) w.parts = {{w.tasks, elements}};
  }
  add_source(std::move(source.source));
}

/// The works with each of the lists as one, where the last of the list is.
Lowering::Joined Lowering::join(const std::vector<std::vector<int>>& lists) const {
  std::vector<const std::vector<int>*> list_of(works_.size(), nullptr);
  for (const auto& list : lists)
    for (const int w : list) list_of[static_cast<size_t>(w)] = &list;
  Joined out;
  out.place.resize(works_.size());
  for (size_t w = 0; w < works_.size(); ++w) {
    if (list_of[w] && list_of[w]->back() != static_cast<int>(w)) continue;
    out.place[w] = out.works.size();
    out.works.push_back(list_of[w] ? joined(*list_of[w]) : works_[w]);
  }
  return out;
}

Work Lowering::joined(const std::vector<int>& list) const {
  Work out = works_[static_cast<size_t>(list[0])];
  out.starts.resize(out.cells.size());
  Traffic traffic;
  for (const int at : list) {
    const Work& w = works_[static_cast<size_t>(at)];
    traffic.add(*w.reached, w.cells);
    if (at == list[0]) continue;
    const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    append(out.cells, w.cells);
    append(out.starts, w.starts);
    out.starts.resize(out.cells.size());
    append(out.reads, w.reads);
    append(out.writes, w.writes);
    append(out.dims, w.dims);
    append(out.nodes, w.nodes);
    append(out.parts, w.parts);
    out.in_place.insert(w.in_place.begin(), w.in_place.end());
    out.tasks = out.tasks + w.tasks;
    out.flops = out.flops + w.flops;
  }
  out.reads = distinct(out.reads);
  out.nodes = distinct(out.nodes);
  out.bytes = traffic.bytes(cells_);
  out.single = out.reached = nullptr;
  return out;
}

/// Drops what no launch runs any more.
void Lowering::forget_unused_kernels() {
  std::vector<PlanKernel> kernels;
  std::map<int, int> place;
  for (Work& w : works_) {
    if (w.kind != LaunchKind::kernel) continue;
    const auto [at, fresh] = place.try_emplace(w.kernel, static_cast<int>(kernels.size()));
    if (fresh) kernels.push_back(plan().kernels[static_cast<size_t>(w.kernel)]);
    w.kernel = at->second;
  }
  plan().kernels = std::move(kernels);
  std::set<std::string> used;
  for (const PlanKernel& k : plan().kernels) used.insert(k.symbol);
  const auto is_used = [&](const KernelSource& s) {
    return std::any_of(s.symbols.begin(), s.symbols.end(), [&](const auto& x) { return used.count(x) > 0; });
  };
  for (const KernelSource& s : program_.kernels)
    if (is_used(s)) used.insert(s.calls.begin(), s.calls.end());
  std::erase_if(program_.kernels, [&](const KernelSource& s) { return !is_used(s); });
}

}  // namespace kiln::detail
