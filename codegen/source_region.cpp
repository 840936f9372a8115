// SPDX-License-Identifier: Apache-2.0
#include "codegen/source_region.h"

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

bool walks_batch(const loop::Kernel& k, const std::vector<Dim>& batch) {
  return batch.empty() ? k.axis_end(AxisRole::batch) == 0 : !covered(k, batch).empty();
}

bool is_epilogue(const loop::Kernel& k, const std::vector<Dim>& batch) {
  const auto count = [&](AxisRole r) { return k.axis_end(r) - k.axis_begin(r); };
  return count(AxisRole::row) == 1 && count(AxisRole::col) == 1 && walks_batch(k, batch);
}

void RegionText::batch_axes(const MatmulVector& v) {
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

std::string RegionText::setup(DimTable& dims) {
  text_.clear();
  for (size_t i = 0; i < k_.dims.size(); ++i)
    line("const i64 {}d{} = {};", prefix_, i, dims.text(k_.dims[i]));
  for (int i = 0; i < static_cast<int>(k_.params.size()); ++i) {
    if (i == in_registers_) continue;
    const char* type = storage_name(k_.params[i].dtype);
    line("{0}* const {1}p{2} = static_cast<{0}*>(buffers[{3}]);", type, prefix_, i, first_buffer_ + i);
  }
  return text_;
}

/// The names that ValueText uses, of this region.
void RegionText::begin(const MatmulVector& v) {
  line("using kn::load, kn::load_n, kn::load_strided, kn::load_strided_n, kn::gather_if, kn::broadcast;");
  line("using kn::store, kn::store_n, kn::store_strided, kn::store_strided_n, kn::first, kn::iota;");
  line("constexpr int W = {};", v.width);
  for (size_t i = 0; i < k_.dims.size(); ++i) line("const i64 d{0} = {1}d{0};", i, prefix_);
  for (int i = 0; i < static_cast<int>(k_.params.size()); ++i)
    if (i != in_registers_) line("auto* const p{0} = {1}p{0};", i, prefix_);
  batch_axes(v);
}

/// A value that is the same in all lanes, spread over them.
void RegionText::splat(int value) {
  const DType t = k_.body[value].dtype;
  if (t == DType::boolean) line("const Mask<W> w{0} = broadcast_mask<W>(v{0}.lanes);", value);
  else line("const {0} w{1} = broadcast<W>(v{1});", value_type(t, true), value);
}

std::string EpilogueText::at(const MatmulVector& v) {
  text_.clear();
  vec_axis_ = v.along_cols ? col_ : row_;
  // A value is one of vectors when it differs from lane to lane; what stems from the result always is.
  for (size_t i = 0; i < k_.body.size(); ++i) {
    const Instr& x = k_.body[i];
    p_.vector[i] = (x.axes >> vec_axis_ & 1) != 0 || (x.kind == InstrKind::load && x.param == accumulator_);
    for (int a : x.args) p_.vector[i] = p_.vector[i] || p_.vector[a];
  }
  begin(v);
  if (!v.full) line("const i64 tail = {};", v.lanes);
  line("const i64 a{} = {}, a{} = {};", row_, v.row, col_, v.col);
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
      if (!p_.vector[i]) splat(i);
    }
  }
  line("(void)a{}, (void)a{};", row_, col_);
  return text_;
}

/// Which values differ from lane to lane when lanes walk as `v` says.
void PrologueText::look_along(const MatmulVector& v) {
  vec_axis_ = v.along_cols ? col_ : row_;
  for (size_t i = 0; i < k_.body.size(); ++i)
    p_.vector[i] = vec_axis_ >= 0 && (k_.body[i].axes >> vec_axis_ & 1) != 0;
}

std::string PrologueText::before(const MatmulVector& v) {
  text_.clear();
  look_along(v);
  begin(v);
  const int fixed = v.along_cols ? row_ : col_;
  if (fixed >= 0) line("const i64 a{0} = {1};\n(void)a{0};", fixed, v.along_cols ? v.row : v.col);
  for (int i = 0; i < static_cast<int>(k_.body.size()); ++i) {
    if (p_.vector[i] || k_.body[i].kind == InstrKind::store) continue;
    compute(i, false, false);
    splat(i);
    line("(void)w{};", i);
  }
  return text_;
}

std::string PrologueText::at(const MatmulVector& v) {
  text_.clear();
  look_along(v);
  if (!v.full) line("const i64 tail = {};", v.lanes);
  if (vec_axis_ >= 0) line("const i64 a{} = {};", vec_axis_, v.along_cols ? v.col : v.row);
  for (int i = 0; i < static_cast<int>(k_.body.size()); ++i) {
    const Instr& x = k_.body[i];
    if (x.kind != InstrKind::store) {
      if (p_.vector[i]) compute(i, true, !v.full);
    } else if (v.full) {
      line("{} = {};", v.value, vec(x.args[0]));
    } else {
      line("{} = select(first<W>(tail), {}, broadcast<W>({}(0)));", v.value, vec(x.args[0]),
           storage_name(x.dtype));
    }
  }
  return text_;
}

}  // namespace kiln::detail
