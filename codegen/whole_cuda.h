// SPDX-License-Identifier: Apache-2.0
// Kernels of whole nodes for CUDA: what frames them. Included by whole_*.cpp only.
#pragma once

#include "codegen/lower_parts.h"
#include "codegen/whole_text.h"
#include "ir/base/hash.h"

namespace kiln::detail {

class WholeCuda : protected WholeText {
 public:
  WholeCuda(const Graph& g, const Node& n, const std::vector<Operand>& operands) : WholeText(g, n, operands) {
    for (size_t i = 0; i < operands_.size(); ++i)
      if (operands_[i].base.valid())
        text_.line("const {0}* in{1} = static_cast<const {0}*>(buffers[{2}]);", type_name(dtype(i)), i,
                   buffers_++);
    text_.line("{0}* out = static_cast<{0}*>(buffers[{1}]);", type_name(dtype()), buffers_++);
  }

 protected:
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;

  /// The kernel as `blocks` with so many bytes of shared memory.
  NodeKernel finish(const Dim& blocks, const Dim& shared = Dim(0)) {
    NodeKernel k;
    k.dims = dims_.dims();
    CudaKernel c{"k_" + hash128(text_.str()).hex(), kThreads, buffers_, static_cast<int>(k.dims.size())};
    k.source = {
        c.symbol + ".cu",
        fmt::format("// {}\n#include \"kiln_cuda.h\"\nusing namespace kn;\n\nKILN_CUDA_KERNEL({}, {}, {}, "
                    "{}) {{\n{}}}\n",
                    def(n_.op).name, c.symbol, c.threads, c.buffer_count, c.dim_count, text_.str()),
        {c.symbol},
        {c}};
    k.launches.push_back({c.symbol, blocks, shared});
    return k;
  }

  /// Each line along the dim is a matter of its own. Lines that are neighbours in memory: a thread for each.
  bool side_by_side() const {
    const Dim beside = numel(inner());
    return !beside.is_const() || beside.value() >= 32;
  }
  /// A thread for each of so many elements of `over`: begins `if`, names its place.
  Names each_element(const Shape& over) {
    text_.line("const i64 e = block() * {} + thread();", kThreads);
    text_.line("if (e < {}) {{", size(numel(over)));
    return unravel("e", over, "i");
  }
  static Dim blocks_for(const Dim& threads) { return ceildiv(threads, Dim(kThreads)); }

 private:
  int buffers_ = 0;
};

// One for each kind of node.
NodeKernel whole_cat_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands);
NodeKernel whole_pad_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands);
NodeKernel whole_scatter_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands);
NodeKernel whole_scan_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands);
NodeKernel whole_sort_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands);

}  // namespace kiln::detail
