// SPDX-License-Identifier: Apache-2.0
// Kernels of whole nodes for the CPU: what frames them. Included by whole_*.cpp only.
#pragma once

#include <algorithm>

#include "codegen/lower_parts.h"
#include "codegen/whole_text.h"
#include "ir/base/hash.h"

namespace kiln::detail {

class WholeCpu : protected WholeText {
 public:
  using WholeText::WholeText;

 protected:
  /// Pointers in parameter order: operands in memory, the result, the workspace as T.
  void begin_kernel(const std::string& workspace = "") {
    text_ = {};
    int param = 0;
    for (size_t i = 0; i < operands_.size(); ++i)
      if (operands_[i].base.valid())
        text_.line("const {0}* in{1} = static_cast<const {0}*>(buffers[{2}]);", type_name(dtype(i)), i,
                   param++);
    text_.line("{0}* out = static_cast<{0}*>(buffers[{1}]);", type_name(dtype()), param++);
    if (!workspace.empty()) text_.line("{0}* workspace = static_cast<{0}*>(buffers[{1}]);", workspace, param);
    text_.line("(void)dims, (void)scratch, (void)out;");
    text_.line("for (i64 task = task_begin; task < task_end; ++task) {{");
  }
  /// Ends the loop over tasks and what a task does.
  void end_kernel(const Dim& tasks, const Dim& scratch = Dim(0)) {
    text_.line("}}");
    bodies_.push_back(text_.str());
    kernel_.launches.push_back({"", tasks, scratch});
  }
  NodeKernel finish() {
    std::string all;
    for (const std::string& b : bodies_) all += b;
    const std::string name = "k_" + hash128(all).hex();
    kernel_.source.name = name + ".cpp";
    kernel_.source.text =
        fmt::format("// {}\n#include \"kiln_cpu.h\"\nusing namespace kn;\n", def(n_.op).name);
    for (size_t i = 0; i < bodies_.size(); ++i) {
      const std::string symbol = i + 1 == bodies_.size() ? name : fmt::format("{}_{}", name, i);
      kernel_.launches[i].symbol = symbol;
      kernel_.source.symbols.push_back(symbol);
      kernel_.source.text += fmt::format(
          "\nKILN_KERNEL void {}(void* const* buffers, const i64* dims, i64 task_begin, i64 "
          "task_end, void* scratch) {{\n{}}}\n",
          symbol, bodies_[i]);
    }
    kernel_.dims = dims_.dims();
    return std::move(kernel_);
  }

  /// Columns of one task where a dim is walked for many of them side by side.
  static Dim tile_of(const Dim& columns, int64_t least) {
    return columns.is_const() ? Dim(std::max<int64_t>(least, (columns.value() + 7) / 8)) : Dim(64);
  }
  /// The columns [first, end) of tile `number`.
  void tile(const std::string& number, const Dim& columns, const Dim& tile) {
    text_.line("const i64 first = ({}) * {};", number, size(tile));
    text_.line("const i64 end = {0} - first < {1} ? {0} : first + {1};", size(columns), size(tile));
  }

  NodeKernel kernel_;

 private:
  std::vector<std::string> bodies_;
};

// One for each kind of node.
NodeKernel whole_cat(const Graph& g, const Node& n, const std::vector<Operand>& operands);
NodeKernel whole_pad(const Graph& g, const Node& n, const std::vector<Operand>& operands);
NodeKernel whole_scatter(const Graph& g, const Node& n, const std::vector<Operand>& operands);
NodeKernel whole_scan(const Graph& g, const Node& n, const std::vector<Operand>& operands);
NodeKernel whole_sort(const Graph& g, const Node& n, const std::vector<Operand>& operands);

}  // namespace kiln::detail
