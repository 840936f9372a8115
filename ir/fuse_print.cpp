// SPDX-License-Identifier: Apache-2.0
// Text of fused graphs: as kernels, and as the graph's nodes that each step computes.
#include "ir/fuse.h"

namespace kiln {

namespace {

std::string binding_str(const Binding& b) {
  constexpr const char* kNames[] = {"%", "partial ", "output "};
  return fmt::format("{}{}", kNames[static_cast<int>(b.kind)], b.id);
}

std::string kernel_str(const FusedKernel& k) {
  std::string s = loop::print(k.kernel);
  for (size_t i = 0; i < k.params.size(); ++i) s += fmt::format("  p{} = {}\n", i, binding_str(k.params[i]));
  return s;
}

/// The nodes of a kernel, and what it reads and writes.
std::string members_str(const FusedKernel& k, const Graph& g) {
  std::string s, reads, writes;
  for (int node : k.nodes) s += "  " + print_node(g, g.nodes[node]) + "\n";
  for (size_t p = 0; p < k.params.size(); ++p) {
    if (k.kernel.params[p].read) reads += " " + binding_str(k.params[p]);
    if (k.kernel.params[p].written) writes += " " + binding_str(k.params[p]);
  }
  return s + fmt::format("  reads{}\n  writes{}\n", reads, writes);
}

}  // namespace

std::string print(const FusedGraph& f, const Graph& g) {
  std::string s;
  for (const Step& step : f.steps) {
    for (size_t i = 0; i < step.prologue.size(); ++i)
      if (step.prologue[i] >= 0)
        s += fmt::format("prologue of operand {}:\n", i) + kernel_str(f.kernels[step.prologue[i]]);
    if (step.loop >= 0) s += fmt::format("loop {}\n", step.loop);
    if (step.node >= 0)
      s += fmt::format("node {} -> %{}{}{}\n", def(g.nodes[step.node].op).name, g.nodes[step.node].out.id,
                       step.keep ? " kept" : "", step.kernel >= 0 ? ", epilogue:" : "");
    if (step.kernel >= 0) s += kernel_str(f.kernels[step.kernel]);
  }
  return s;
}

std::string print_partition(const FusedGraph& f, const Graph& g) {
  std::string s;
  for (size_t i = 0; i < f.steps.size(); ++i) {
    const Step& step = f.steps[i];
    s += fmt::format("step {}\n", i);
    for (size_t p = 0; p < step.prologue.size(); ++p)
      if (step.prologue[p] >= 0)
        s += fmt::format(" prologue of operand {}\n", p) + members_str(f.kernels[step.prologue[p]], g);
    if (step.loop >= 0) s += fmt::format(" loop {}\n", step.loop);
    if (step.node >= 0)
      s += fmt::format(" node{}\n  {}\n", step.keep ? ", kept" : "", print_node(g, g.nodes[step.node]));
    if (step.kernel >= 0) s += (step.node >= 0 ? " epilogue\n" : "") + members_str(f.kernels[step.kernel], g);
  }
  return s;
}

}  // namespace kiln
