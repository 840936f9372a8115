// SPDX-License-Identifier: Apache-2.0
// A pointwise kernel of the loop IR inside a matmul: the same values, printed where the template has a vector
// of the result in registers (epilogue) or wants one of an operand (prologue). Included by lower_contract.cpp
// and source_region.cpp only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/dim_table.h"
#include "codegen/matmul.h"
#include "codegen/source_values.h"

namespace kiln::detail {

/// What epilogues and prologues share: parameters, sizes and indices of a kernel under its own names.
class RegionText : protected ValueText {
 public:
  /// Declarations at the start of the matmul's kernel.
  std::string setup(DimTable& dims);

 protected:
  /// `k`: axes batch..., at most one row, at most one column, kept by canonicalize. `batch`: the matmul's
  /// batch axes that it walks. Its parameters are the matmul's buffers from `first_buffer` on, but for
  /// `in_registers` (-1: all are). `prefix` has a digit and is this region's alone.
  RegionText(const loop::Kernel& k, int in_registers, std::vector<Dim> batch, int first_buffer,
             std::string prefix)
      : ValueText(k),
        in_registers_(in_registers),
        batch_(std::move(batch)),
        first_buffer_(first_buffer),
        prefix_(std::move(prefix)),
        row_(axis(loop::AxisRole::row)),
        col_(axis(loop::AxisRole::col)) {}

  void begin(const MatmulVector& v);
  void batch_axes(const MatmulVector& v);
  void splat(int value);

  int in_registers_;
  std::vector<Dim> batch_;
  int first_buffer_;
  std::string prefix_;
  int row_, col_;  ///< axes, -1 if there is none

 private:
  int axis(loop::AxisRole r) const { return k_.axis_begin(r) < k_.axis_end(r) ? k_.axis_begin(r) : -1; }
};

class EpilogueText : public RegionText {
 public:
  /// Parameter `accumulator` of `k` is the matmul's result; it is stored, too, if `keep`.
  EpilogueText(const loop::Kernel& k, int accumulator, bool keep, std::vector<Dim> batch, int first_buffer)
      : RegionText(k, keep ? -1 : accumulator, std::move(batch), first_buffer, "ep0_"),
        accumulator_(accumulator),
        keep_(keep) {}

  /// Statements for one vector of the result.
  std::string at(const MatmulVector& v);

 private:
  int accumulator_;
  bool keep_;
};

class PrologueText : public RegionText {
 public:
  /// Parameter `packed` of `k` is the operand, stored by the last instruction.
  PrologueText(const loop::Kernel& k, int packed, std::vector<Dim> batch, int first_buffer,
               std::string prefix)
      : RegionText(k, packed, std::move(batch), first_buffer, std::move(prefix)) {}

  /// Statements before the vectors of one row or column: what is the same in all of them.
  std::string before(const MatmulVector& v);
  /// Statements that assign one vector of the operand. Lanes that are not valid become zero.
  std::string at(const MatmulVector& v);

 private:
  void look_along(const MatmulVector& v);
};

/// Whether the batch axes of `k` are these: each is one of the kernel's or several neighbours walked as one.
bool walks_batch(const loop::Kernel& k, const std::vector<Dim>& batch);
/// Whether EpilogueText can print `k` for a result with these batch axes.
bool is_epilogue(const loop::Kernel& k, const std::vector<Dim>& batch);

}  // namespace kiln::detail
