// SPDX-License-Identifier: Apache-2.0
// CUDA kernels of scatters. Each warp, or each thread, owns a range of the dim that indices name and looks
// through all indices in their order, so that every result has one order.
#include <algorithm>

#include "codegen/whole_cuda.h"

namespace kiln::detail {

namespace {

constexpr int64_t kRanges = 512;  ///< at most, of a dim of known size: each range costs a look at all indices

class ScatterCuda : WholeCuda {
 public:
  using WholeCuda::WholeCuda;

  NodeKernel write() {
    const Dim blocks = n_.op == op("index_add") ? index_add() : along_lines();
    return finish(blocks);
  }

 private:
  /// The place that an index names, or -1.
  void find(const std::string& index, const Dim& extent) {
    text_.line("to = i64({});", index);
    text_.line("if (to < 0) to += {};", size(extent));
    text_.line("if (to < 0 || to >= {}) to = -1;", size(extent));
  }

  // --- ranges of the dim that is indexed ---

  /// Places of one range.
  static Dim range_of(const Dim& n) {
    if (!n.is_const()) return Dim(64);
    return Dim(std::max<int64_t>(1, (n.value() + kRanges - 1) / kRanges));
  }
  static Dim ranges_of(const Dim& n) { return ceildiv(n, range_of(n)); }
  /// Declares [begin, end) of range `number`; both are n where there is none.
  void range(const std::string& number, const Dim& n) {
    const std::string per = size(range_of(n)), all = size(n);
    text_.line("const i64 begin = {0} * {1} < {2} ? {0} * {1} : {2};", number, per, all);
    text_.line("const i64 end = begin + {0} < {1} ? begin + {0} : {1};", per, all);
  }

  /// x as [outer, size, inner]. A warp owns a range of one outer block, and every 32nd of the columns, or
  /// more of them where it has no others beside it.
  Dim index_add() {
    const Shape &idx = shape(1), columns_of = inner();
    const Dim cols = numel(columns_of), extent = shape(0)[dim()], ranges = ranges_of(extent);
    int beside = kWarps;  // warps on the columns of one range
    while (cols.is_const() && beside > 1 && (beside / 2) * 32 >= cols.value()) beside /= 2;
    const int together = kWarps / beside;
    const Dim blocks = ceildiv(ranges, Dim(together));
    text_.line("const i64 blocks = {};", size(blocks));
    range(fmt::format("(block() % blocks * {} + warp() / {})", together, beside), extent);
    const Names at = unravel("block() / blocks", outer(), "o");
    const std::string columns = fmt::format("for (i64 c = warp() % {} * 32 + lane(); c < {}; c += {}) {{",
                                            beside, size(cols), beside * 32);
    const auto point = [&](const std::string& middle, const Names& in) {
      Names p = at;
      if (!middle.empty()) p.push_back(middle);
      p.insert(p.end(), in.begin(), in.end());
      return p;
    };
    begin_base();
    // A loop over one place makes NVRTC 13.0 crash for sm_80 and sm_90.
    if (range_of(extent).is(1)) text_.line("if (const i64 r = begin; r < end) {{");
    else text_.line("for (i64 r = begin; r < end; ++r) {{");
    text_.line("{}", columns);
    copy_base(point("r", unravel("c", columns_of, "c")));
    end_loops(3);
    begin_scan(numel(idx));
    const Names j = unravel("j", idx, "j");
    find(read(1, j), extent);
    hits();
    text_.line("for (i32 k = 0; k < 32; ++k) {{");
    text_.line("if ((mine >> k & 1) == 0) continue;");
    text_.line("const i64 row = shuffle(to, k), from = first + k;");
    const Names jk = unravel("from", idx, "f");
    text_.line("{}", columns);
    const Names in = unravel("c", columns_of, "c");
    Names src = at;
    src.insert(src.end(), jk.begin(), jk.end());
    src.insert(src.end(), in.begin(), in.end());
    combine(point("row", in), src);
    end_loops(3);
    return numel(outer()) * blocks;
  }

  /// 32 indices at a time, one in each lane: j, and `to` to be found.
  void begin_scan(const Dim& count) {
    text_.line("for (i64 first = 0; first < {}; first += 32) {{", size(count));
    text_.line("const i64 j = first + lane();");
    text_.line("i64 to = -1;");
    text_.line("if (j < {}) {{", size(count));
  }
  /// Ends the search; which lanes found a place in the range, as bits.
  void hits() {
    text_.line("}}");
    text_.line("const u32 hit = to >= begin && to < end ? 1u << lane() : 0u;");
    text_.line("const u32 mine = warp_reduce(hit, [](u32 a, u32 b) KN_LAMBDA {{ return a | b; }});");
    text_.line("if (mine == 0) continue;");
  }

  /// Each line along the dim is a matter of its own. Many lines beside each other in memory: a thread for
  /// each line and range. Few: a warp, whose lanes add at once what goes to different places.
  Dim along_lines() {
    const Dim &extent = shape(0)[dim()], all = numel(lines()), ranges = ranges_of(extent);
    const bool beside = side_by_side();
    text_.line("const i64 ranges = {}, lines = {};", size(ranges), size(all));
    // Neighbouring threads have neighbouring lines.
    text_.line("const i64 owner = block() * {} + {};", beside ? kThreads : kWarps,
               beside ? "thread()" : "warp()");
    text_.line("const i64 line = owner % lines;");
    range("(owner / lines)", extent);
    const Names at = unravel("line", lines(), "o");
    begin_base();
    text_.line("for (i64 r = begin{}; r < end; r += {}) {{", beside ? "" : " + lane()", beside ? 1 : 32);
    copy_base(on_line(at, "r"));
    end_loops(2);
    updates(at, beside);
    return ceildiv(ranges * all, Dim(beside ? kThreads : kWarps));
  }

  void updates(const Names& at, bool beside) {
    const Dim &extent = shape(0)[dim()], &count = shape(1)[dim()];
    const Names from = on_line(at, "j"), to = on_line(at, "to");
    const std::string sources = has_sources(at);
    if (!sources.empty()) text_.line("if ({}) {{", sources);
    if (beside) {
      text_.line("for (i64 j = 0; j < {}; ++j) {{", size(count));
      text_.line("i64 to = -1;");
      find(read(1, from), extent);
      text_.line("if (to < begin || to >= end) continue;");
      combine(to, from);
      end_loops(1);
    } else {
      text_.line("warp_barrier();");
      begin_scan(count);
      find(read(1, from), extent);
      hits();
      // How many lanes before this one go to the same place: it waits for so many rounds.
      text_.line("i32 round = 0, rounds = 0;");
      text_.line("for (i32 k = 0; k < 32; ++k) round += shuffle(to, k) == to && k < lane();");
      text_.line("if (hit == 0) round = -1;");
      text_.line("rounds = warp_reduce(round, [](i32 a, i32 b) KN_LAMBDA {{ return a > b ? a : b; }});");
      text_.line("for (i32 r = 0; r <= rounds; ++r) {{");
      text_.line("if (round == r) {{");
      combine(to, from);
      text_.line("}}");
      text_.line("warp_barrier();");
      end_loops(2);
    }
    if (!sources.empty()) text_.line("}}");
  }
};

}  // namespace

NodeKernel whole_scatter_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return ScatterCuda(g, n, operands).write();
}

}  // namespace kiln::detail
