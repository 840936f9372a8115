// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan_call.h"

#include <algorithm>

#include "ir/base/error.h"

namespace kiln {

void check_call(const Plan& plan, const Invocation& call) {
  const auto count = [](size_t got, int32_t expected, const char* what) {
    KILN_CHECK(got == static_cast<size_t>(expected), invalid,
               "executor: number of {} differs; got {}, expected {}", what, got, expected);
  };
  count(call.externals.size(), plan.external_count, "externals");
  count(call.outputs.size(), plan.output_count, "outputs");
  count(call.scalars.size(), plan.scalar_count, "scalars");
  for (const PlanCollective& c : plan.collectives)
    KILN_CHECK(static_cast<size_t>(c.group) < call.groups.size() && call.groups[static_cast<size_t>(c.group)],
               invalid, "executor: the {} of the plan is on group {}; got {} groups", c.kind, c.group,
               call.groups.size());
}

std::vector<TimelineSpan> call_spans(const Plan& plan, const BoundPlan& bound, const Invocation& call,
                                     std::span<const int64_t> ns, int64_t start,
                                     std::span<const Work::Times> collectives) {
  std::vector<TimelineSpan> out;
  const auto size = [&](DimIndex d) { return d < 0 ? 0.0 : static_cast<double>(bound.dims[d]); };
  int64_t at = start;
  for (size_t i = 0; i < ns.size(); at += ns[i++]) {
    const Launch& l = plan.launches[i];
    const ProfileRow* row = l.profile < 0 ? nullptr : &plan.profile[static_cast<size_t>(l.profile)];
    constexpr const char* kCategory[] = {"kernel", "start", "wait"};
    out.push_back({TimelineRow::compute, row ? row->name : "kernel", kCategory[static_cast<int>(l.kind)], at,
                   at + ns[i], row ? size(row->bytes) : 0});
  }
  out.push_back({TimelineRow::compute, std::string(call.name), "call", start, at, 0, call.number});
  for (size_t i = 0; i < collectives.size(); ++i) {
    const PlanCollective& c = plan.collectives[i];
    out.push_back({TimelineRow::communication, fmt::format("{} {}", c.kind, i), "collective",
                   collectives[i].begin_ns, collectives[i].end_ns,
                   static_cast<double>(bound.dims[c.count]) * static_cast<double>(dtype_size(c.wire))});
  }
  return out;
}

std::string largest_buffers(const Plan& plan, const BoundPlan& bound) {
  std::vector<size_t> order;
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    if (plan.buffers[i].kind == BufferKind::arena) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bound.sizes[a] > bound.sizes[b]; });
  std::string out;
  for (size_t k = 0; k < std::min<size_t>(order.size(), 4); ++k)
    out += fmt::format("{}{} ({:.1f} MiB)", k ? ", " : "", plan.buffers[order[k]].name,
                       static_cast<double>(bound.sizes[order[k]]) / (1 << 20));
  return out.empty() ? "none" : out;
}

}  // namespace kiln
