// SPDX-License-Identifier: Apache-2.0
// CPU kernels of scatters: each task owns a part of the result and takes what comes to it in the order of the
// indices, so that the bits are the same for any number of threads.
#include "codegen/whole_cpu.h"

namespace kiln::detail {

namespace {

class ScatterCpu : WholeCpu {
 public:
  using WholeCpu::WholeCpu;

  /// A task owns a tile of inner columns of one outer block.
  NodeKernel write() {
    const Shape columns = inner();
    const Dim all = numel(columns), wide = tile_of(all, 16), tiles = ceildiv(all, wide);
    const std::string each_column = "for (i64 c = first; c < end; ++c) {";
    begin_kernel();
    text_.line("const i64 tiles = {};", size(tiles));
    tile("task % tiles", all, wide);
    const Names at = unravel("task / tiles", outer(), "o");
    begin_base();
    text_.line("for (i64 r = 0; r < {}; ++r) {{", size(shape(0)[dim()]));
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
    end_kernel(numel(outer()) * tiles);
    return finish();
  }

 private:
  static Names joined(Names a, const Names& b, const Names& c) {
    a.insert(a.end(), b.begin(), b.end());
    a.insert(a.end(), c.begin(), c.end());
    return a;
  }
  /// Index `text` counted from the end when negative; skipped when out of range.
  void wrapped(const std::string& text) {
    const std::string extent = size(shape(0)[dim()]);
    text_.line("i64 to = i64({});", text);
    text_.line("if (to < 0) to += {};", extent);
    text_.line("if (to < 0 || to >= {}) continue;", extent);
  }
};

}  // namespace

NodeKernel whole_scatter(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return ScatterCpu(g, n, operands).write();
}

}  // namespace kiln::detail
