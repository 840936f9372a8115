// SPDX-License-Identifier: Apache-2.0
// CPU kernels of sorts and searches: a task sorts a line by merging, or searches for a range of values.
#include "codegen/whole_cpu.h"

namespace kiln::detail {

namespace {

constexpr int64_t kValues = 1024;  ///< that a task searches for

class SortCpu : WholeCpu {
 public:
  using WholeCpu::WholeCpu;

  NodeKernel write() {
    begin_kernel();
    if (n_.op == op("searchsorted")) search_range();
    else sort_line();
    return finish();
  }

 private:
  /// In scratch: the places, as many again, and the keys.
  void sort_line() {
    const Dim& n = shape(0)[dim()];
    const char* key = compute_name(dtype(0));
    text_.line("i64* order = static_cast<i64*>(scratch);");
    text_.line("{0}* key = reinterpret_cast<{0}*>(order + 2 * {1});", key, size(n));
    const Names line = unravel("task", lines(), "o");
    text_.line("for (i64 i = 0; i < {}; ++i) key[i] = {};", size(n), element(0, on_line(line, "i")));
    text_.line("const i64* sorted = sort_places<{}>(key, {}, order);",
               std::get<bool>(n_.attrs[1]) ? "true" : "false", size(n));
    text_.line("for (i64 i = 0; i < {}; ++i) {{", size(n));
    WholeText::write(on_line(line, "i"), "sorted[i]");
    end_loops(1);
    end_kernel(numel(lines()), n * Dim(3 * static_cast<int64_t>(sizeof(int64_t))));
  }
  void search_range() {
    const Dim all = numel(shape(1));
    text_.line("const i64 begin = task * {0}, end = {1} - begin < {0} ? {1} : begin + {0};", kValues,
               size(all));
    text_.line("for (i64 e = begin; e < end; ++e) {{");
    search(unravel("e", shape(1), "i"));
    end_loops(1);
    end_kernel(ceildiv(all, Dim(kValues)));
  }
};

}  // namespace

NodeKernel whole_sort(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return SortCpu(g, n, operands).write();
}

}  // namespace kiln::detail
