// SPDX-License-Identifier: Apache-2.0
// CUDA kernel of a pad with gaps: a thread for each element of the result, and what comes to it, if anything
// does.
#include "codegen/whole_cuda.h"

namespace kiln::detail {

namespace {

class PadCuda : WholeCuda {
 public:
  using WholeCuda::WholeCuda;

  NodeKernel write() {
    const Shape& low = std::get<Shape>(n_.attrs[0]);
    const auto& gaps = std::get<std::vector<int64_t>>(n_.attrs[2]);
    const Names at = each_element(shape(-1));
    std::string inside;
    Names from;
    for (size_t d = 0; d < at.size(); ++d) {
      text_.line("const i64 s{0} = {1} - {2}, f{0} = s{0} / {3};", d, at[d], size(low[d]), gaps[d] + 1);
      inside += fmt::format("{0}s{1} >= 0 && f{1} < {2}", inside.empty() ? "" : " && ", d, size(shape(0)[d]));
      if (gaps[d] > 0) inside += fmt::format(" && s{} % {} == 0", d, gaps[d] + 1);
      from.push_back(fmt::format("f{}", d));
    }
    text_.line("auto x = {};", constant(std::get<double>(n_.attrs[3])));
    text_.line("if ({}) x = {};", inside.empty() ? "true" : inside, read(0, from));
    text_.line("store<1>(out + e, x);");
    end_loops(1);
    return finish(blocks_for(numel(shape(-1))));
  }
};

}  // namespace

NodeKernel whole_pad_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return PadCuda(g, n, operands).write();
}

}  // namespace kiln::detail
