// SPDX-License-Identifier: Apache-2.0
// What is said of collectives: names, and the sentences of their errors.
#include "runtime/collective.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "ir/base/wire.h"
#include "runtime/collective_queue.h"

namespace kiln {

const char* to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::all_reduce_mean: return "all_reduce_mean";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::barrier: return "barrier";
    case CollectiveKind::job: return "job";
  }
  return "collective";
}

const char* to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "sum";
    case ReduceOp::product: return "product";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
  }
  return "op";
}

void ProcessGroup::check() {
  if (const auto why = broken()) throw Error(ErrorKind::comm, fmt::format("rank {}: {}", rank(), *why));
}

WorkPtr all_reduce_as(ProcessGroup& group, void* data, int64_t count, DType dtype, DType wire,
                      const CollectiveSite& site) {
  if (wire == dtype) return group.all_reduce(data, count, dtype, ReduceOp::sum, site);
  return group.all_reduce_mean(data, count, dtype, wire, site);
}

std::string describe(const std::string& what, const CollectiveSite& site) {
  const std::string place = site.loc.str();
  if (site.phase.empty() && place.empty()) return what;
  const char* comma = site.phase.empty() || place.empty() ? "" : ", ";
  return fmt::format("{} ({}{}{})", what, site.phase, comma, place);
}

std::string describe(const Collective& c) {
  std::string text = c.name;
  if (c.kind != CollectiveKind::job) text = fmt::format("{} #{}", to_string(c.kind), c.number);
  const bool mean = c.kind == CollectiveKind::all_reduce_mean;
  if (c.kind < CollectiveKind::barrier)
    text += fmt::format(" of {}[{}]", dtype_name(mean ? c.given : c.dtype), c.count);
  if (mean) text += fmt::format(" in {}", dtype_name(c.dtype));
  if (reduces(c.kind) && c.op != ReduceOp::sum) text += fmt::format(" by {}", to_string(c.op));
  if (c.kind == CollectiveKind::broadcast) text += fmt::format(" from rank {}", c.root);
  return describe(text, c.site);
}

bool same_call(const Collective& a, const Collective& b) {
  return a.kind == b.kind && a.number == b.number && a.dtype == b.dtype && a.given == b.given &&
         a.op == b.op && a.root == b.root && a.count == b.count;
}

void check_call(const Collective& c, int size) {
  const std::string place = c.site.loc.known() ? fmt::format(" ({})", c.site.loc.str()) : "";
  const char* name = to_string(c.kind);
  KILN_CHECK(c.count >= 0, invalid, "{}{}: the count is negative; got {}", name, place, c.count);
  KILN_CHECK(c.count == 0 || (c.in && c.out), invalid, "{}{}: no memory is given for {}[{}]; got nullptr",
             name, place, dtype_name(c.dtype), c.count);
  KILN_CHECK(c.root >= 0 && c.root < size, invalid, "{}{}: no such root; got {}, expected 0 to {}", name,
             place, c.root, size - 1);
  KILN_CHECK(!reduces(c.kind) || c.dtype != DType::boolean, invalid,
             "{}{}: bool cannot be reduced; got bool[{}] (convert to u8, and take max for 'any')", name,
             place, c.count);
  if (c.kind != CollectiveKind::all_reduce_mean) return;
  KILN_CHECK(is_wire(c.dtype), invalid, "{}{}: means are sent as f16 or bf16; got {}", name, place,
             dtype_name(c.dtype));
  KILN_CHECK(is_floating(c.given), invalid, "{}{}: only floating numbers have a mean; got {}[{}]", name,
             place, dtype_name(c.given), c.count);
}

Seconds checked_time(Seconds t, const char* what) {
  KILN_CHECK(t.count() > 0, invalid, "{}: the time must be positive; got {}", what, to_string(t));
  return std::min(t, kLongestTime);
}

std::string to_string(Seconds s) { return fmt::format("{:.6g} s", s.count()); }

std::string rank_list(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string gave_up(int rank, const Collective& c, const std::string& why) {
  return fmt::format("rank {} gave up on {}: {}", rank, describe(c), why);
}

std::string mismatch(int rank_a, const std::string& a, int rank_b, const std::string& b) {
  return fmt::format(
      "rank {} called {} where rank {} called {} (all ranks must call the same collectives in the same "
      "order)",
      rank_a, a, rank_b, b);
}

std::string not_started(const std::vector<int>& ranks, Seconds limit) {
  return fmt::format("{} {} not started it within the timeout of {} (dead, stuck, or slow: then set_timeout)",
                     rank_list(ranks), ranks.size() == 1 ? "has" : "have", to_string(limit));
}

}  // namespace kiln
