// SPDX-License-Identifier: Apache-2.0
// Which kernels do the nodes that stay whole, for each target.
#include "codegen/whole_cpu.h"
#include "codegen/whole_cuda.h"

namespace kiln::detail {

namespace {

using Writer = NodeKernel (*)(const Graph&, const Node&, const std::vector<Operand>&);
struct Writers {
  Writer pad, cat, scatter, scan, sort;
};

NodeKernel by_kind(const Writers& w, const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  switch (def(n.op).kind) {
    case OpKind::view: return (n.op == op("cat") ? w.cat : w.pad)(g, n, operands);
    case OpKind::scatter: return w.scatter(g, n, operands);
    case OpKind::scan: return w.scan(g, n, operands);
    case OpKind::sort: return w.sort(g, n, operands);
    default:
      throw Error(
          ErrorKind::unsupported,
          fmt::format("{}{}: no kernel does it; got {}", def(n.op).name,
                      n.origin.loc.known() ? " (" + n.origin.loc.str() + ")" : "", g.type(n.out).str()),
          n.origin.loc);
  }
}

}  // namespace

NodeKernel lower_whole(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return by_kind({whole_pad, whole_cat, whole_scatter, whole_scan, whole_sort}, g, n, operands);
}
NodeKernel lower_whole_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return by_kind({whole_pad_cuda, whole_cat_cuda, whole_scatter_cuda, whole_scan_cuda, whole_sort_cuda}, g, n,
                 operands);
}

}  // namespace kiln::detail
