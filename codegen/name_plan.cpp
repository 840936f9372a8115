// SPDX-License-Identifier: Apache-2.0
// What people call the parts of a plan. Names come from the graph at hand, never from the cache: they are in
// no key.
#include <set>

#include "codegen/lower.h"

namespace kiln {

namespace {

/// "layer_norm+linear": the innermost scopes of the nodes, four at most.
std::string scope_names(const Graph& g, const std::vector<int32_t>& nodes) {
  std::set<std::string> seen;
  std::string out;
  int parts = 0;
  for (int32_t n : nodes) {
    const int32_t scope = g.nodes[static_cast<size_t>(n)].origin.scope;
    if (scope < 0) continue;
    const std::string& path = g.scopes[static_cast<size_t>(scope)];
    const std::string part = path.substr(path.rfind('/') + 1);
    if (!seen.insert(part).second || parts == 4) continue;
    out += (parts++ ? "+" : "") + part;
  }
  return out;
}

/// Appends those lines of the nodes that are not there yet.
void add_lines(const Graph& g, const ProfileRow& row, std::string& lines) {
  for (int32_t node : row.sources) {
    if (node < 0 || node >= static_cast<int32_t>(g.nodes.size())) continue;
    const std::string line = g.nodes[static_cast<size_t>(node)].origin.loc.str();
    if (line.empty() || (" " + lines + " ").find(" " + line + " ") != std::string::npos) continue;
    lines += (lines.empty() ? "" : " ") + line;
  }
}

}  // namespace

std::string lines_of(const Graph& g, const ProfileRow& row) {
  std::string lines;
  add_lines(g, row, lines);
  return lines;
}

KernelLines kernel_lines(const Graph& g, const Plan& plan) {
  KernelLines out;
  for (const Launch& l : plan.launches) {
    if (l.kind != LaunchKind::kernel) continue;
    const PlanKernel& k = plan.kernels[static_cast<size_t>(l.kernel)];
    if (!k.builtin && l.profile >= 0)
      add_lines(g, plan.profile[static_cast<size_t>(l.profile)], out[k.symbol]);
  }
  return out;
}

void name_plan(const Graph& g, Plan& plan) {
  std::vector<std::string> externals, scalars, outputs;
  for (const GraphInput& in : g.inputs)
    (in.kind == InputKind::scalar ? scalars : externals).push_back(in.name);
  for (const GraphOutput& out : g.outputs)
    if (out.alias_input < 0) outputs.push_back(out.name);
  for (PlanBuffer& b : plan.buffers) {
    if (b.kind == BufferKind::external) b.name = externals[static_cast<size_t>(b.index)];
    if (b.kind == BufferKind::scalar) b.name = scalars[static_cast<size_t>(b.index)];
    if (b.kind == BufferKind::output) b.name = outputs[static_cast<size_t>(b.index)];
  }
  for (ProfileRow& row : plan.profile) {
    row.name = scope_names(g, row.sources);
    if (row.name.empty()) row.name = row.ops.empty() ? "copy" : row.ops.substr(0, 40);
  }
  for (const Launch& l : plan.launches) {
    if (l.parts.size() > 1)
      plan.profile[static_cast<size_t>(l.profile)].name += fmt::format(" x{}", l.parts.size());
    if (l.kind == LaunchKind::kernel) continue;
    const PlanCollective& c = plan.collectives[static_cast<size_t>(l.kernel)];
    plan.profile[static_cast<size_t>(l.profile)].name =
        fmt::format("{} {} {}", l.kind == LaunchKind::start ? "start" : "wait", c.kind, l.kernel);
  }
}

}  // namespace kiln
