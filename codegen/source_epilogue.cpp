// SPDX-License-Identifier: Apache-2.0
#include "codegen/source_epilogue.h"

#include <algorithm>

namespace kiln::detail {

using loop::AxisRole;
using loop::Instr;
using loop::InstrKind;

namespace {
/// For each batch axis of the matmul one past the last kernel axis that it covers; empty when they do not
/// fit.
std::vector<int> covered(const loop::Kernel& k, const std::vector<Dim>& batch) {
  std::vector<int> ends;
  int at = 0;
  const int last = k.axis_end(AxisRole::batch);
  for (const Dim& n : batch) {
    Dim size(1);
    do {
      if (at == last) return {};
      size = size * k.axes[at++].extent;
    } while (size != n);
    ends.push_back(at);
  }
  return at == last ? ends : std::vector<int>{};
}
}  // namespace

bool is_epilogue(const loop::Kernel& k, const std::vector<Dim>& batch) {
  const auto count = [&](AxisRole r) { return k.axis_end(r) - k.axis_begin(r); };
  if (count(AxisRole::row) != 1 || count(AxisRole::col) != 1) return false;
  return batch.empty() ? count(AxisRole::batch) == 0 : !covered(k, batch).empty();
}

void EpilogueText::batch_axes(const MatmulVector& v) {
  const std::vector<int> ends = covered(k_, batch_);
  int from = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    std::string left = v.batch[i];
    for (int a = ends[i] - 1; a > from; --a) {
      line("const i64 a{} = ({}) % {};", a, left, size(k_.axes[a].extent));
      left = fmt::format("({}) / {}", left, size(k_.axes[a].extent));
    }
    line("const i64 a{} = {};", from, left);
    from = ends[i];
  }
}

std::string EpilogueText::setup(DimTable& dims) {
  text_.clear();
  for (size_t i = 0; i < k_.dims.size(); ++i) line("const i64 d{} = {};", i, dims.text(k_.dims[i]));
  for (size_t i = 0; i < k_.params.size(); ++i) {
    if (static_cast<int>(i) == accumulator_ && !keep_) continue;
    const bool written = k_.params[i].written || static_cast<int>(i) == accumulator_;
    line("{0}{1}* p{2} = static_cast<{0}{1}*>(buffers[{3}]);", written ? "" : "const ",
         storage_name(k_.params[i].dtype), i, i + 2);
  }
  return text_;
}

std::string EpilogueText::at(const MatmulVector& v) {
  text_.clear();
  const int row = k_.axis_begin(AxisRole::row), col = row + 1;
  vec_axis_ = v.along_cols ? col : row;
  // A value is one of vectors when it differs from lane to lane; what stems from the result always is.
  for (size_t i = 0; i < k_.body.size(); ++i) {
    const Instr& x = k_.body[i];
    p_.vector[i] = (x.axes >> vec_axis_ & 1) != 0 || (x.kind == InstrKind::load && x.param == accumulator_);
    for (int a : x.args) p_.vector[i] = p_.vector[i] || p_.vector[a];
  }
  // The template has words of its own by some of these names.
  line("using kn::load, kn::load_n, kn::load_strided, kn::load_strided_n, kn::gather_if, kn::broadcast;");
  line("using kn::store, kn::store_n, kn::store_strided, kn::store_strided_n, kn::first, kn::iota;");
  line("constexpr int W = {};", v.width);
  if (!v.full) line("const i64 tail = {};", v.lanes);
  batch_axes(v);
  line("const i64 a{} = {}, a{} = {};", row, v.row, col, v.col);
  for (int i = 0; i < static_cast<int>(k_.body.size()); ++i) {
    const Instr& x = k_.body[i];
    if (x.kind == InstrKind::store) {
      vector_store(x, !v.full);
    } else if (x.kind == InstrKind::load && x.param == accumulator_) {
      line("const {} v{} = {};", value_type(x.dtype, true), i, v.value);
      if (!keep_) continue;
      Instr kept = x;  // the result itself, at the place it is read from
      kept.kind = InstrKind::store;
      kept.args = {i};
      vector_store(kept, !v.full);
    } else {
      compute(i, p_.vector[i], !v.full);
      if (p_.vector[i]) continue;
      if (x.dtype == DType::boolean) line("const Mask<W> w{0} = broadcast_mask<W>(v{0}.lanes);", i);
      else line("const {0} w{1} = broadcast<W>(v{1});", value_type(x.dtype, true), i);
    }
  }
  line("(void)a{}, (void)a{};", row, col);
  return text_;
}

}  // namespace kiln::detail
