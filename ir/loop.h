// SPDX-License-Identifier: Apache-2.0
// The loop IR: one kernel as an iteration domain and a flat SSA body, without a word about a target. Both
// writers read it; its canonical text is the kernel's identity. Must not know graphs, buffers or schedules.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/op.h"

namespace kiln::loop {

/// Axes stand in this order in a kernel: all batch axes, then all row axes, then all column axes.
enum class AxisRole : uint8_t { batch, row, col };

struct Axis {
  AxisRole role = AxisRole::col;
  Dim extent;
};

/// Where one term of an index takes its factor from.
struct IndexTerm {
  int axis = -1;   ///< an axis of the domain, or
  int value = -1;  ///< an integer SSA value (gather)
  Dim stride;
};

/// offset + sum of stride * (axis or value).
struct Index {
  Dim offset;
  std::vector<IndexTerm> terms;
  /// Adds `stride` times an axis, merging terms of one axis.
  void add_axis(int axis, const Dim& stride);
  void add_value(int value, const Dim& stride);
  /// Adds `factor` times another index.
  void add(const Index& other, const Dim& factor);
  bool is_constant() const { return terms.empty(); }
};

/// 0 <= index < extent.
struct Bound {
  Index index;
  Dim extent;
};

struct Param {
  DType dtype = DType::f32;
  bool read = false, written = false;
};

enum class InstrKind : uint8_t {
  load,         ///< params[param][index]; where a bound fails: zero
  fold,         ///< combines params[param][index + i * step] for i in [0, count), in order
  constant,     ///< `number`
  index,        ///< the value of `index`, as an integer
  inside,       ///< whether all bounds hold; bool
  elementwise,  ///< op's body over args
  reduce,       ///< op's combine of args[0] over the column axes; a row value
  store,        ///< params[param][index] = args[0], once per point of the axes it depends on
  partial,  ///< op's combine of args[0] over the row axes (and column axes, if all_cols) of one task, into
            ///< params[param][task * columns + column] (one column unless by_col)
};

/// In what elements of `t` are computed: f32 for the halves, which are storage.
constexpr DType computed(DType t) { return t == DType::bf16 || t == DType::f16 ? DType::f32 : t; }

struct Instr {
  InstrKind kind = InstrKind::constant;
  Op op;  ///< elementwise, reduce, fold, partial
  /// Of the result; store, partial: of the element. A half only where a cast rounds to it.
  DType dtype = DType::f32;
  std::vector<int> args;  ///< SSA values: indices of earlier instructions
  Attrs attrs;            ///< of an elementwise op
  bool rounded = false;   ///< a product that no sum may take unrounded (by FMA)
  int param = -1;
  Index index;
  std::vector<Bound> bounds;
  double number = 0;
  Dim count, step;        ///< fold
  bool all_cols = false;  ///< partial: reduced over the columns, too
  bool by_col = false;    ///< partial: one result per column
  uint32_t axes = 0;      ///< mask of the axes the result depends on
};

/// One fused region. Instruction i defines SSA value i (stores and partials define nothing).
struct Kernel {
  std::vector<Axis> axes;
  std::vector<Param> params;
  std::vector<Instr> body;
  std::vector<Dim> dims;  ///< symbolic sizes, in the order a launch passes them; printed as d0, d1, ...

  int axis_begin(AxisRole r) const;  ///< first axis of the role
  int axis_end(AxisRole r) const;    ///< one past its last axis
  Dim extent(AxisRole r) const;      ///< product of the extents
  uint32_t mask(AxisRole r) const;
  bool has(InstrKind kind) const;
  /// Text of a size: a number, or "d<i>" of dims.
  std::string size_str(const Dim& d) const;
};

/// One column axis and no reduction: cut into tasks anywhere. Its extent is always a size of the launch, so
/// that tensors of all sizes share the kernel.
bool is_flat(const Kernel& k);

/// A kernel of single elements as one for every extent and every count of its folds.
struct AnySize {
  Kernel kernel;           ///< canonical; its dims are symbols of its own, the extent first
  std::vector<Dim> sizes;  ///< the values of those dims in the kernel that it was made from
};
/// Nothing unless `k` has at most one axis, reduces nothing and stores an element per point.
std::optional<AnySize> any_size(const Kernel& k);
/// The case of one element of a kernel made by any_size, which has no axis: a kernel made by any_size, with
/// the same dims but for the extent.
Kernel one_element(const Kernel& any);

/// Lets the pointer of each parameter begin where the kernel's known offsets into it do, so that kernels that
/// differ only in the part of a buffer that they use are one. Returns the elements left out before, by
/// parameter, in whole units of kPointerBytes. Parameters in `kept` stay as they are.
std::vector<int64_t> rebase(Kernel& k, int kept = -1);
/// What pointers of kernels are multiples of.
inline constexpr int64_t kPointerBytes = 16;
/// The largest whole unit of kPointerBytes in `offset`, if that is known and not negative, in elements.
int64_t known_start(const Dim& offset, DType t);

/// Rows of one task: a fixed function of the sizes, so that partial results and bits never depend on threads.
Dim rows_per_task(const Kernel& k);
/// Row chunks, and so tasks, per batch element.
Dim row_chunks(const Kernel& k);

/// Sets each instruction's mask of axes from its operands and index.
void infer_axes(Kernel& k);
/// Drops axes of extent 1, merges neighbouring axes that every index walks as one, and numbers the dims.
/// Roles that no reduction needs are chosen anew unless kept; then batch axes stay apart.
void canonicalize(Kernel& k, bool keep_roles = false);
/// Canonical text: equal kernels print equally, whatever graph they came from.
std::string print(const Kernel& k);
/// Throws: internal, naming instruction and fault.
void verify(const Kernel& k);

}  // namespace kiln::loop
