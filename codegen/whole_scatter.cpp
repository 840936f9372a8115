// SPDX-License-Identifier: Apache-2.0
// CPU kernels of scatters: each task owns a part of the result and takes what comes to it in the order of the
// indices, so that the bits are the same for any number of threads.
#include "codegen/whole_cpu.h"

namespace kiln::detail {

namespace {

class ScatterCpu : WholeCpu {
 public:
  using WholeCpu::WholeCpu;

  /// A task owns a tile of inner columns of a range of places of one outer block.
  NodeKernel write() {
    const Shape columns = inner();
    const Dim all = numel(columns), wide = tile_of(all, 64), tiles = ceildiv(all, wide);
    const Dim extent = shape(0)[dim()], ranges = tiles.is_const() ? ceildiv(Dim(8), tiles) : Dim(1);
    // Of a tile's columns each is another element, and nobody else's memory.
    const std::string each_column =
        "#pragma clang loop vectorize(assume_safety)\nfor (i64 c = first; c < end; ++c) {";
    begin_kernel();
    text_.line("const i64 tiles = {}, ranges = {}, extent = {};", size(tiles), size(ranges), size(extent));
    tile("task % tiles", all, wide);
    text_.line("const i64 range = task / tiles % ranges, places = (extent + ranges - 1) / ranges;");
    text_.line("const i64 low = range * places, high = low + places < extent ? low + places : extent;");
    const Names at = unravel("task / tiles / ranges", outer(), "o");
    begin_base();
    text_.line("for (i64 r = low; r < high; ++r) {{");
    text_.line("{}", each_column);
    copy_base(joined(at, {"r"}, unravel("c", columns, "c")));
    end_loops(3);
    if (n_.op == op("index_add")) {
      const Names j = loop(shape(1), "j");
      wrapped(read(1, j));
      text_.line("{}", each_column);
      const Names in = unravel("c", columns, "c");
      combine(joined(at, {"to"}, in), joined(at, j, in));
      end_loops(1 + j.size());
    } else {
      text_.line("for (i64 j = 0; j < {}; ++j) {{", size(shape(1)[dim()]));
      text_.line("{}", each_column);
      const Names in = unravel("c", columns, "c"), from = joined(at, {"j"}, in);
      const std::string has = has_sources(joined(at, {}, in));
      if (!has.empty()) text_.line("if (!({})) continue;", has);
      wrapped(read(1, from));
      combine(joined(at, {"to"}, in), from);
      end_loops(2);
    }
    end_kernel(numel(outer()) * tiles * ranges);
    return finish();
  }

 private:
  static Names joined(Names a, const Names& b, const Names& c) {
    a.insert(a.end(), b.begin(), b.end());
    a.insert(a.end(), c.begin(), c.end());
    return a;
  }
  /// Index `text` counted from the end when negative; skipped when another task's, or out of range.
  void wrapped(const std::string& text) {
    text_.line("i64 to = i64({});", text);
    text_.line("if (to < 0) to += extent;");
    text_.line("if (to < low || to >= high) continue;");
  }
};

}  // namespace

NodeKernel whole_scatter(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return ScatterCpu(g, n, operands).write();
}

}  // namespace kiln::detail
