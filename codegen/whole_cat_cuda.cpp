// SPDX-License-Identifier: Apache-2.0
// CUDA kernel of a cat of many: a thread for each element of the result.
#include "codegen/whole_cat.h"
#include "codegen/whole_cuda.h"

namespace kiln::detail {

namespace {

class CatCuda : WholeCuda {
 public:
  using WholeCuda::WholeCuda;

  NodeKernel write() {
    const std::vector<Dim> starts = cat_starts(g_, n_);
    const std::vector<CatClass> classes = cat_classes(g_, n_, operands_);
    Names at = each_element(shape(-1));
    const std::string along = at[dim()];
    text_.line("i64 begin = 0;");
    text_.line("int operand = 0;");
    for (size_t i = 1; i < operands_.size(); ++i)
      text_.line("if ({} >= {}) begin = {}, operand = {};", along, size(starts[i]), size(starts[i]), i);
    text_.line("const {0}* in = static_cast<const {0}*>(buffers[operand]);", type_name(dtype()));
    at[dim()] = fmt::format("({} - begin)", along);
    for (size_t c = 0; c < classes.size(); ++c) {
      std::string which;
      for (const size_t i : classes[c].operands)
        which += fmt::format("{}operand == {}", which.empty() ? "" : " || ", i);
      if (classes.size() > 1) text_.line("{}if ({})", c ? "else " : "", which);
      text_.line("store<1>(out + e, load<1>(in + ({})));",
                 place(at, classes[c].layout.strides, classes[c].layout.offset));
    }
    end_loops(1);
    return finish(blocks_for(numel(shape(-1))));
  }
};

}  // namespace

NodeKernel whole_cat_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return CatCuda(g, n, operands).write();
}

}  // namespace kiln::detail
