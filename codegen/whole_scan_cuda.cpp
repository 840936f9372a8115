// SPDX-License-Identifier: Apache-2.0
// CUDA kernels of scans: a thread walks each of many lines side by side; else a warp, or a block, takes a
// line piece by piece, each an ordered scan over its threads.
#include "codegen/whole_cuda.h"

namespace kiln::detail {

namespace {

constexpr int64_t kWarpLine = 256;       ///< a line of at most so many elements is a warp's
constexpr int64_t kCudaStateBytes = 16;  ///< at most, of what a line carries

class ScanCuda : WholeCuda {
 public:
  using WholeCuda::WholeCuda;

  NodeKernel write() {
    const Dim all = numel(lines()), &n = shape(0)[dim()];
    text_.line("using State = {};", carried());
    text_.line("State carry;");
    if (side_by_side()) {
      const Names at = on_line(each_element(lines()), "i");
      text_.line("for (i64 i = 0; i < {}; ++i) {{", size(n));
      text_.line("carry = step(carry, {}, i);", element(0, at));
      write_carried(at, "carry");
      end_loops(2);
      return finish(blocks_for(all));
    }
    const bool warps = n.is_const() && n.value() <= kWarpLine;
    text_.line("const i64 line = {};", warps ? fmt::format("block() * {} + warp()", kWarps) : "block()");
    text_.line("if (line < {}) {{", size(all));
    const Names at = on_line(unravel("line", lines(), "o"), "i");
    text_.line("for (i64 first = 0; first < {}; first += {}) {{", size(n), warps ? 32 : kThreads);
    text_.line("const i64 i = first + {};", warps ? "lane()" : "thread()");
    text_.line("State own;");
    text_.line("if (i < {}) own = start(own, {}, i);", size(n), element(0, at));
    text_.line("const auto f = [](State a, State b) KN_LAMBDA {{ return then(a, b); }};");
    if (warps) {
      text_.line("own = then(carry, warp_scan(own, f));");
      text_.line("carry = shuffle(own, 31);");
    } else {
      text_.line("own = block_scan<{}>(own, carry, f, shared<State>(0));", kThreads);
    }
    text_.line("if (i < {}) {{", size(n));
    write_carried(at, "own");
    end_loops(3);
    const Dim shared(warps ? 0 : kWarps * kCudaStateBytes);
    return finish(warps ? ceildiv(all, Dim(kWarps)) : all, shared);
  }
};

}  // namespace

NodeKernel whole_scan_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return ScanCuda(g, n, operands).write();
}

}  // namespace kiln::detail
