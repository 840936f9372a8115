// SPDX-License-Identifier: Apache-2.0
#include "codegen/fused_text.h"

#include "codegen/wide_access.h"

namespace kiln::detail {

namespace {

std::string commented(const std::string& text) {
  std::string s;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    s += "//   " + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return s;
}

/// Most lanes of a prologue that the template walks along what lies side by side in its operand.
int prologue_width(const MatmulCase& c, size_t i) {
  const MatmulOperand& o = i == 0 ? c.spec.a : c.spec.b;
  const bool along_cols = o.col_stride.is(1) && (i == 1 || !o.row_stride.is(1));
  const Prologue& p = *c.fused.prologue[i];
  return aligned_width(p.kernel, along_cols ? loop::AxisRole::col : loop::AxisRole::row, p.packed);
}

}  // namespace

FusedText::FusedText(const MatmulCase& c) : case_(c) {
  const MatmulSpec& spec = c.spec;
  const std::vector<Dim> shared(spec.batch.begin(), spec.batch.begin() + static_cast<ptrdiff_t>(c.joint));
  for (size_t i = 0; i < 2; ++i) {
    if (!c.fused.prologue[i]) continue;
    const Prologue& p = *c.fused.prologue[i];
    KILN_ASSERT(walks_batch(p.kernel, shared), "prologue of operand {} walks other batch axes", i);
    prologue_[i].emplace(p.kernel, p.packed, shared, result_, i == 0 ? "pa0_" : "pb0_");
    result_ += static_cast<int>(p.kernel.params.size());
  }
  buffers_ = result_ + 1;
  if (!c.fused.epilogue) return;
  const Epilogue& e = *c.fused.epilogue;
  epilogue_.emplace(e.kernel, e.accumulator, e.keep, spec.batch, result_);
  buffers_ = result_ + static_cast<int>(e.kernel.params.size());
}

MatmulHooks FusedText::hooks(DimTable& dims) {
  MatmulHooks h;
  const auto set = [&](size_t i, MatmulHook& line, MatmulHook& at, int& width) {
    std::optional<PrologueText>& p = prologue_[i];
    if (!p) return;
    h.setup += p->setup(dims);
    line = [&p](const MatmulVector& v) { return p->before(v); };
    at = [&p](const MatmulVector& v) { return p->at(v); };
    width = prologue_width(case_, i);
  };
  set(0, h.line_a, h.prologue_a, h.width_a);
  set(1, h.line_b, h.prologue_b, h.width_b);
  if (!epilogue_) return h;
  h.setup += epilogue_->setup(dims);
  h.epilogue = [this](const MatmulVector& v) { return epilogue_->at(v); };
  const Epilogue& e = *case_.fused.epilogue;
  h.width_c = aligned_width(e.kernel, loop::AxisRole::col, e.keep ? -1 : e.accumulator);
  return h;
}

std::string heading(const Fused& f) {
  std::string s = "// dot_general\n";
  for (size_t i = 0; i < 2; ++i)
    if (f.prologue[i])
      s += fmt::format("// prologue of {}\n", "ab"[i]) + commented(loop::print(f.prologue[i]->kernel));
  return f.epilogue ? s + "// epilogue\n" + commented(loop::print(f.epilogue->kernel)) : s;
}

}  // namespace kiln::detail
