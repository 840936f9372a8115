// SPDX-License-Identifier: Apache-2.0
// CPU kernel of a cat of many: a task copies one operand to its place.
#include "codegen/whole_cat.h"

#include "codegen/whole_cpu.h"

namespace kiln::detail {

namespace {

class CatCpu : WholeCpu {
 public:
  using WholeCpu::WholeCpu;

  NodeKernel write() {
    const std::vector<Dim> starts = cat_starts(g_, n_);
    const std::vector<CatClass> classes = cat_classes(g_, n_, operands_);
    std::vector<size_t> class_of(operands_.size());
    for (size_t c = 0; c < classes.size(); ++c)
      for (const size_t i : classes[c].operands) class_of[i] = c;
    std::string begins, kinds;
    for (size_t i = 0; i < operands_.size(); ++i) {
      begins += (i ? ", " : "") + size(starts[i]);
      kinds += fmt::format("{}{}", i ? ", " : "", class_of[i]);
    }
    begin_kernel();
    text_.line("const i64 begins[] = {{{}}};", begins);
    if (classes.size() > 1) text_.line("constexpr u8 kinds[] = {{{}}};", kinds);
    text_.line("const {0}* in = static_cast<const {0}*>(buffers[task]);", type_name(dtype()));
    text_.line("{}* to = out + begins[task] * ({});", type_name(dtype()), size(out_[dim()]));
    for (size_t c = 0; c < classes.size(); ++c) {
      if (classes.size() > 1) text_.line("if (kinds[task] == {}) {{", c);
      const Names at = loop(classes[c].shape, "i");
      text_.line("to[{}] = in[{}];", place(at, out_, Dim(0)),
                 place(at, classes[c].layout.strides, classes[c].layout.offset));
      end_loops(at.size());
      if (classes.size() > 1) text_.line("}}");
    }
    end_kernel(Dim(static_cast<int64_t>(operands_.size())));
    return finish();
  }
};

}  // namespace

NodeKernel whole_cat(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return CatCpu(g, n, operands).write();
}

}  // namespace kiln::detail
