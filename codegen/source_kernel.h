// SPDX-License-Identifier: Apache-2.0
// Text that the kernels of all targets have in common around their loops: rows, scalars, splats, places of
// columns. Decides nothing about loops. Included by source_*.cpp only.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "codegen/source_values.h"

namespace kiln::detail {

class KernelText : protected ValueText {
 protected:
  explicit KernelText(const loop::Kernel& k) : KernelText(k, plan_phases(k)) {}
  KernelText(const loop::Kernel& k, Phases p) : ValueText(k, std::move(p)) {
    flat_ = loop::is_flat(k_);
    col_begin_ = k_.axis_begin(loop::AxisRole::col);
    vec_axis_ = static_cast<int>(k_.axes.size()) - 1;
    has_cols_ = col_begin_ <= vec_axis_;
  }

  /// What the source says it is.
  std::string comment() const;

  /// Begins the body: lanes of a vector, pointers, sizes.
  void parameters(int width);

  // --- rows ---

  std::string rows_text() const;
  /// Axes [from, to) of a linear index over them.
  void decode(const std::string& linear, int from, int to);

  // --- scalars: the same in all columns ---

  bool is_uniform(int v) const { return k_.body[v].axes == 0; }
  /// Scalars that are ready for `pass`; the uniform ones stand before the task loop.
  void scalars(int pass, bool uniform);
  std::string scalar_store(const loop::Instr& i) const;
  /// Scalars that vector code of this pass uses, spread over the lanes once.
  void splats(int pass);

  // --- columns ---

  std::vector<int> reduces_in(int pass) const;
  std::string linear_column() const;
  /// What instruction v combines, as a vector: past the tail what leaves every element as it is.
  std::string combined_vector(int v, bool tail) const;
  static std::string load_columns(const std::string& at, bool tail);
  void store_columns(const std::string& at, const std::string& x, bool tail);
  /// The accumulators r<v>[0], ... of instruction v, combined in order.
  std::string accumulators_text(int v, int count) const;

  // --- partial results of a task ---

  bool columnwise(int v) const { return k_.body[v].by_col; }
  bool lanewise(int v) const { return has_cols_ && k_.body[v].all_cols; }

  const char* integer_ = "i64";  ///< of axes
  int col_begin_ = 0;
  bool flat_ = false, has_cols_ = false;

 private:
  std::set<int> splatted_;
};

}  // namespace kiln::detail
