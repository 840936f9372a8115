// SPDX-License-Identifier: Apache-2.0
// CPU kernel of a pad with gaps: a task makes what lies at one place of the first dim, the value everywhere,
// then the elements that come there.
#include "codegen/whole_cpu.h"

namespace kiln::detail {

namespace {

class PadCpu : WholeCpu {
 public:
  using WholeCpu::WholeCpu;

  NodeKernel write() {
    const Shape& low = std::get<Shape>(n_.attrs[0]);
    const auto& gaps = std::get<std::vector<int64_t>>(n_.attrs[2]);
    const auto beside = [](const Shape& x) { return Shape(x.begin() + 1, x.end()); };
    begin_kernel();
    const Names all = loop(beside(shape(-1)), "i");
    Names at = all;
    at.insert(at.begin(), "task");
    WholeText::write(at, constant(std::get<double>(n_.attrs[3])));
    end_loops(all.size());
    text_.line("const i64 away = task - {0}, from = away / {1};", size(low[0]), gaps[0] + 1);
    text_.line("if (away < 0 || away % {} != 0 || from >= {}) continue;", gaps[0] + 1, size(shape(0)[0]));
    const Names j = loop(beside(shape(0)), "j");
    Dim offset(0);
    Names to = j, source = j;
    to.insert(to.begin(), "task"), source.insert(source.begin(), "from");
    std::vector<Dim> strides = out_;
    for (size_t d = 1; d < low.size(); ++d) {
      offset = offset + low[d] * out_[d];
      strides[d] = out_[d] * Dim(gaps[d] + 1);
    }
    text_.line("store<1>(out + ({}), {});", place(to, strides, offset), read(0, source));
    end_loops(j.size());
    end_kernel(shape(-1)[0]);
    return finish();
  }
};

}  // namespace

NodeKernel whole_pad(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return PadCpu(g, n, operands).write();
}

}  // namespace kiln::detail
