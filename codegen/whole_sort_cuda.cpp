// SPDX-License-Identifier: Apache-2.0
// CUDA kernels of sorts and searches. A warp, or a block, sorts the places of a line where the result will
// stand, by a bitonic network for any length: what lies behind the end counts as last, and equal keys are
// ordered by their places, so that the order is that of a stable sort. A search is a thread's.
// Source: K. Batcher, Sorting networks and their applications (1968), with the first step of each merge
// mirrored so that every comparison has one direction.
#include "codegen/whole_cuda.h"

namespace kiln::detail {

namespace {

constexpr int64_t kWarpLine = 128;  ///< a line of at most so many elements is a warp's

class SortCuda : WholeCuda {
 public:
  using WholeCuda::WholeCuda;

  NodeKernel write() {
    if (n_.op == op("searchsorted")) {
      search(each_element(shape(1)));
      end_loops(1);
      return finish(blocks_for(numel(shape(1))));
    }
    return sort();
  }

 private:
  NodeKernel sort() {
    const Dim all = numel(lines()), &n = shape(0)[dim()];
    const bool warps = n.is_const() && n.value() <= kWarpLine;
    const char* meet = warps ? "warp_barrier();" : "barrier();";
    text_.line("const i64 line = {};", warps ? fmt::format("block() * {} + warp()", kWarps) : "block()");
    text_.line("const i64 n = {}, self = {}, team = {};", size(n), warps ? "lane()" : "thread()",
               warps ? 32 : kThreads);
    text_.line("if (line < {}) {{", size(all));
    const Names on = unravel("line", lines(), "o");
    text_.line("for (i64 i = self; i < n; i += team) {{");
    WholeText::write(on_line(on, "i"), "i");
    end_loops(1);
    text_.line("{}", meet);
    text_.line("for (i32 size = 1; (i64(1) << (size - 1)) < n; ++size) {{");
    text_.line("for (i32 step = size - 1; step >= 0; --step) {{");
    text_.line("const i64 half = i64(1) << step, pairs = ((n - 1) >> (step + 1)) * half + half;");
    text_.line("for (i64 p = self; p < pairs; p += team) {{");
    text_.line("const i64 low = (p >> step << (step + 1)) + (p & (half - 1));");
    text_.line("const i64 high = step + 1 == size ? low ^ (2 * half - 1) : low + half;");
    text_.line("if (high < n) {{");
    compare(on);
    end_loops(2);
    text_.line("{}", meet);
    end_loops(3);
    return finish(warps ? ceildiv(all, Dim(kWarps)) : all);
  }
  /// Puts the places at low and high in order.
  void compare(const Names& on) {
    const char* descending = std::get<bool>(n_.attrs[1]) ? "true" : "false";
    const std::string low = place(on_line(on, "low"), out_, Dim(0));
    const std::string high = place(on_line(on, "high"), out_, Dim(0));
    text_.line("const i64 a = load<1>(out + ({})), b = load<1>(out + ({}));", low, high);
    text_.line("const auto x = {}, y = {};", element(0, on_line(on, "a")), element(0, on_line(on, "b")));
    text_.line("if (before<{0}>(y, x) || (b < a && !before<{0}>(x, y))) {{", descending);
    text_.line("store<1>(out + ({}), b);", low);
    text_.line("store<1>(out + ({}), a);", high);
    end_loops(1);
  }
};

}  // namespace

NodeKernel whole_sort_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return SortCuda(g, n, operands).write();
}

}  // namespace kiln::detail
