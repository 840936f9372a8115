// SPDX-License-Identifier: Apache-2.0
// C++ text of the values of one kernel: loads, stores, scalar bodies, index expressions, for all lanes or for
// one. Decides nothing about loops. Included by source_*.cpp and whole_text.h only.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/source_phases.h"
#include "ir/loop.h"

namespace kiln::detail {

/// Name of a dtype in the prelude, as it lies in memory.
const char* storage_name(DType t);
/// `v` as a literal of the type that kernels compute in, infinities and NaN too; of no half.
std::string number_text(double v, DType t);
/// Where a combination starts: what leaves every element as it is. Throws: unsupported.
std::string identity_text(Op o, DType t);

class ValueText {
 protected:
  explicit ValueText(const loop::Kernel& k) : ValueText(k, plan_phases(k)) {}
  ValueText(const loop::Kernel& k, Phases p) : k_(k), p_(std::move(p)) {}

  // --- text ---

  template <typename... A>
  void line(fmt::format_string<A...> f, A&&... a) {
    text_ +=
        std::string(static_cast<size_t>(indent_) * 2, ' ') + fmt::format(f, std::forward<A>(a)...) + "\n";
  }
  void open(const std::string& head) {
    line("{} {{", head);
    ++indent_;
  }
  void close() {
    --indent_;
    line("}}");
  }

  std::string size(const Dim& d) const {
    const std::string s = k_.size_str(d);
    return s[0] != 'd' && (d.value() > INT32_MAX || d.value() < INT32_MIN) ? s + "l" : s;
  }

  // --- expressions ---

  std::string value_type(DType t, bool vector) const;
  std::string vec(int v) const;
  static std::string substitute(std::string_view body, const std::vector<std::string>& args, DType t);
  std::string combine(Op o, DType t, const std::string& a, const std::string& b) const;
  /// Sum of the terms over scalars; with `vector`, the part that is the same in all lanes.
  std::string index_text(const loop::Index& x, bool vector) const;
  Dim lane_stride(const loop::Index& x) const;
  bool named_by_lanes(const loop::Index& x) const;
  /// The index in each lane.
  std::string lane_indices(const loop::Index& x) const;
  std::string scalar_test(const std::vector<loop::Bound>& bounds) const;
  std::string lane_test(const std::vector<loop::Bound>& bounds) const;
  void compute(int v, bool vector, bool tail);
  std::string point_text(const loop::Instr& i, bool vector) const;
  void scalar_load(int v);
  void vector_load(int v, bool tail);
  /// Lanes with places of their own, or past a bound.
  void masked_load(int v, bool tail);
  void fold(int v, bool vector, bool tail);
  void vector_store(const loop::Instr& i, bool tail);

  const loop::Kernel& k_;
  Phases p_;
  int vec_axis_ = -1;  ///< the last axis, if it is a column axis
  int indent_ = 0;
  std::string text_;
};

}  // namespace kiln::detail
