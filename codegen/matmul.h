// SPDX-License-Identifier: Apache-2.0
// The CPU's matmul template: C[b,m,n] = epilogue(sum_k A[b,m,k] * B[b,k,n]) as readable C++ source, packed
// and register-blocked for one shape, with places where a region printer puts prologue and epilogue code.
// Must not know graphs or regions: operands are plain strides, fused code comes in through callbacks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/dim_table.h"
#include "ir/base/dim.h"
#include "ir/base/dtype.h"

namespace kiln {

/// Where one operand lies: element (b..., r, c) is at offset + sum(b[i] * batch_stride[i]) + r * row_stride +
/// c * col_stride, in elements, of kernel buffer `buffer`.
struct MatmulOperand {
  int buffer = 0;
  Dim offset = 0;
  std::vector<Dim> batch_stride;  ///< one per batch axis; 0 broadcasts
  Dim row_stride, col_stride;
  /// On the CPU: bf16 or f16 where it lies in memory so, of a matmul in f32.
  std::optional<DType> half = {};
  std::vector<Dim> k_stride = {};  ///< one per axis of MatmulSpec::k_outer
};

/// One contraction. Shapes: A[batch..., m, k], B[batch..., k, n], C[batch..., m, n].
struct MatmulSpec {
  DType dtype = DType::f32;  ///< of the sums: f32 or f64; on CUDA also bf16 and f16, for those stored so
  std::vector<Dim> batch;    ///< any number of axes
  Dim m, n, k;
  /// Axes around k, outermost first, where no one stride says where both operands go on (windows): sums run
  /// over them, too. A is read in place then, and nothing is in halves.
  std::vector<Dim> k_outer = {};
  MatmulOperand a{0, 0, {}, 0, 0}, b{1, 0, {}, 0, 0}, c{2, 0, {}, 0, 0};
  /// All products of a sum.
  Dim products() const { return numel(k_outer) * k; }
};

/// What the schedule needs to know of a CPU.
struct MatmulTarget {
  int vector_bytes = 32;
  int vector_registers = 16;
  int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 16 << 20;
  bool bf16_pairs = false;  ///< one instruction multiplies and adds two bf16 for each f32 lane
};

/// How A reaches the micro kernel.
enum class PackA : uint8_t {
  none,  ///< read in place
  rows,  ///< copied to [row][k]: A's rows are contiguous
  cols,  ///< copied to panels of [k][mr]: A's columns are contiguous
};

/// Everything that is chosen about one matmul. Numeric part: pairs, apart and split_k. The rest moves work,
/// never bits: every element is one chain of fused multiply-adds in the order of k.
struct MatmulSchedule {
  /// Operands in bf16 stay so, two neighbours along k in a word. Of each pair the second product is added
  /// first, and operands and sums below 2^-126 count as zero, as the instruction has it.
  bool pairs = false;
  /// The epilogue is a launch of its own, over the stored product. Numeric: halves are rounded where they are
  /// stored, and the compiler contracts what it finds in one loop. print_matmul does not look at it.
  bool apart = false;
  int width = 8;       ///< elements of a vector
  int mr = 6, nv = 2;  ///< register block: rows, vectors of columns
  /// k range packed at a time; even with pairs. With k_outer: whole runs of k, along its last axis, that are
  /// not longer, or parts of one.
  int64_t kc = 512;
  int64_t mc = 6;       ///< rows of A packed at a time, a multiple of mr
  int64_t tile_m = 96;  ///< rows of a task, a multiple of mc
  int64_t tile_n = 96;  ///< columns of a task, a multiple of mr * nv
  PackA pack_a = PackA::rows;
  bool pack_b = true;
  /// Consecutive tasks share rows of A, not columns of B. Only for B in place: a packed one serves the tasks
  /// of its columns, which must follow each other.
  bool by_rows = false;
  int split_k = 1;  ///< ranges of k summed apart, then in order
  bool operator==(const MatmulSchedule&) const = default;
};

/// Which operands are computed while they are packed.
struct MatmulPrologues {
  bool a = false, b = false;
};

/// Parts of a schedule that are given; what is 0 or empty is the model's to choose.
struct MatmulWish {
  int mr = 0, nv = 0;
  std::optional<PackA> pack_a;
  std::optional<bool> pack_b;
  int64_t kc = 0;     ///< most of it
  int64_t tasks = 0;  ///< to aim at
  int split_k = 0;
  bool apart = false;
  bool by_rows = false;  ///< where B stays in place
};

/// A schedule for `spec` on `target`, from shape and target alone. What else is chosen fits the wish; the
/// wish must fit the spec (print_matmul says when not).
MatmulSchedule choose_matmul_schedule(const MatmulSpec& spec, const MatmulTarget& target,
                                      const MatmulPrologues& prologues = {}, const MatmulWish& wish = {});

/// A vector of a matrix that fused code loads or stores. Lane 0 is element (batch..., row, col). The strings
/// are C++ expressions; their names begin with "mm_".
struct MatmulVector {
  std::string
      value;  ///< variable of type V, `width` floats or doubles: to read (epilogue) or to assign (prologue)
  std::vector<std::string> batch;
  std::string row, col;
  bool along_cols = true;  ///< further lanes walk columns (rows if false)
  int width = 0;           ///< lanes of `value`
  std::string lanes;       ///< number of valid lanes, 1..width: a literal or a variable
  bool full = true;        ///< all lanes are valid
};

/// The names under which task hooks, and the epilogue beside them, find one task: which tile it is, and the
/// part of C it computes.
struct MatmulTask {
  std::vector<std::string> batch;
  std::string tile_m, tile_n, row, rows, col, cols;
  std::string scratch;  ///< T* to MatmulHooks::scratch_elements elements, private to the thread
};

using MatmulHook = std::function<std::string(const MatmulVector&)>;
using MatmulTaskHook = std::function<std::string(const MatmulTask&)>;

/// Code fused into a matmul. Each callback returns C++ statements, printed into a scope of their own; an
/// empty callback stands for a plain load or store. They may use `buffers`, `dims`, the types T (element) and
/// V (ext_vector_type of T, as loads and stores of the words load, store, load_lanes, store_lanes take it),
/// and what `setup` declares. Names declared by `setup` must contain a digit ("in0"): the template's own
/// never do.
struct MatmulHooks {
  std::string setup;                  ///< statements at the start of the kernel
  MatmulHook prologue_a, prologue_b;  ///< assigns `value`; runs once per packed copy of an element
  MatmulHook line_a, line_b;          ///< before the vectors of a row (of a column, unless along_cols), in a
                                      ///< scope around theirs; `value` and lanes say nothing
  MatmulHook epilogue;                ///< runs once per element of C, and must store C itself
  MatmulTaskHook task_begin, task_end;
  int64_t scratch_elements = 0;  ///< of the dtype, for the task hooks
  /// Most lanes that the accesses of prologues and epilogue are aligned for. CUDA asks for no more, and for
  /// whole vectors only; the CPU does not care.
  int width_a = 1, width_b = 1, width_c = 1;
};

/// One launch of a printed matmul.
struct MatmulLaunch {
  std::string symbol;
  Dim tasks;
  Dim scratch_bytes;
};

/// Source of a matmul. With split_k the second launch needs a barrier before it, and both use buffer
/// `workspace_buffer` of `workspace_bytes`.
struct MatmulSource {
  std::string text;
  std::vector<MatmulLaunch> launches;
  int workspace_buffer = -1;
  Dim workspace_bytes = 0;
};

/// Prints the kernel `name` (extern "C", KernelFn of ir/kernel_image.h). Self-contained text: other kernels
/// may stand in the same source. Symbolic sizes go through `dims`. `workspace_buffer` is the parameter used
/// for split_k. Throws: internal, for a schedule that does not fit the spec.
MatmulSource print_matmul(const std::string& name, const MatmulSpec& spec, const MatmulSchedule& schedule,
                          const MatmulHooks& hooks, DimTable& dims, int workspace_buffer = 3);

}  // namespace kiln
