// SPDX-License-Identifier: Apache-2.0
// CPU kernels of scans. A task walks a few lines side by side. Few long lines are cut into chunks of a fixed
// length: what each carries on is found first, then every chunk begins with what those before it carry, in
// order, so that the bits are the same for any number of threads.
#include "codegen/whole_cpu.h"

namespace kiln::detail {

namespace {

constexpr int64_t kChunk = 4096;      ///< elements of a line
constexpr int64_t kSideBySide = 16;   ///< lines that are neighbours in memory
constexpr int64_t kEnoughTasks = 64;  ///< lines need no cutting beyond
constexpr int64_t kStateBytes = 16;   ///< at most, of what a line carries

class ScanCpu : WholeCpu {
 public:
  ScanCpu(const Graph& g, const Node& n, const std::vector<Operand>& operands)
      : WholeCpu(g, n, operands), columns_(numel(inner())), wide_(columns_.is(1) ? 1 : kSideBySide) {
    const Dim& n_dim = shape(0)[dim()];
    tiles_ = ceildiv(columns_, Dim(wide_));
    tasks_ = numel(outer()) * tiles_;
    const bool short_lines = n_dim.is_const() && n_dim.value() <= 2 * kChunk;
    const bool enough = tasks_.is_const() && tasks_.value() >= kEnoughTasks;
    chunks_ = short_lines || enough ? Dim(1) : ceildiv(n_dim, Dim(kChunk));
  }

  NodeKernel write() {
    if (!cut()) {
      scan();
      return finish();
    }
    kernel_.has_workspace = true;
    kernel_.workspace = tasks_ * chunks_ * Dim(wide_ * kStateBytes);
    totals();
    scan();
    return finish();
  }

 private:
  bool cut() const { return !chunks_.is(1); }

  void begin() {
    begin_kernel(cut() ? carried() : "");
    const Dim& n = shape(0)[dim()];
    text_.line("const i64 tiles = {};", size(tiles_));
    if (cut()) {
      text_.line("const i64 chunks = {}, chunk = task % chunks, part = task / chunks;", size(chunks_));
      text_.line("const i64 begin = chunk * {0}, stop = {1} - begin < {0} ? {1} : begin + {0};", kChunk,
                 size(n));
    } else {
      text_.line("const i64 part = task, begin = 0, stop = {};", size(n));
    }
    tile("part % tiles", columns_, Dim(wide_));
    text_.line("{} carry[{}];", carried(), wide_);
    at_ = unravel("part / tiles", outer(), "o");
  }
  /// For each element of the chunk: carry[k] after it, and its place.
  Names walk() {
    text_.line("for (i64 i = begin; i < stop; ++i) {{");
    text_.line("for (i64 c = first; c < end; ++c) {{");
    Names at = at_;
    at.push_back("i");
    for (const std::string& name : unravel("c", inner(), "c")) at.push_back(name);
    text_.line("auto& now = carry[c - first];");
    text_.line("now = step(now, {}, i);", element(0, at));
    return at;
  }
  /// What each chunk but a line's last carries on.
  void totals() {
    begin();
    text_.line("if (chunk + 1 == chunks) continue;");
    walk();
    end_loops(2);
    text_.line("for (i64 k = 0; k < {0}; ++k) workspace[task * {0} + k] = carry[k];", wide_);
    end_kernel(tasks_ * chunks_);
  }
  void scan() {
    begin();
    if (cut()) {
      text_.line("for (i64 b = part * chunks; b < task; ++b) {{");
      text_.line("for (i64 k = 0; k < {0}; ++k) carry[k] = then(carry[k], workspace[b * {0} + k]);", wide_);
      end_loops(1);
    }
    write_carried(walk(), "now");
    end_loops(2);
    end_kernel(tasks_ * chunks_);
  }

  Dim columns_;
  int64_t wide_;
  Dim tiles_, tasks_, chunks_;
  Names at_;
};

}  // namespace

NodeKernel whole_scan(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return ScanCpu(g, n, operands).write();
}

}  // namespace kiln::detail
