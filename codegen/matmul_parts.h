// SPDX-License-Identifier: Apache-2.0
// The pieces of a printed matmul: what matmul.cpp puts together. Private to the matmul template.
#pragma once

#include <string>

#include "codegen/matmul.h"
#include "codegen/source_text.h"

namespace kiln::detail {

/// The numbers that the printed text is made of, derived once from spec and schedule.
struct MatmulShape {
  MatmulShape(const MatmulSpec& spec, const MatmulSchedule& schedule, const MatmulHooks& hooks);

  int64_t nr = 0;           ///< columns of a register block
  int64_t a_ld = 0;         ///< elements between rows (PackA::rows) or k steps (PackA::cols) of packed A
  bool one_chunk = false;   ///< all of k fits kc
  bool plain_c = false;     ///< no epilogue, C's rows contiguous: the micro kernel may store C itself
  bool partial = false;     ///< a task's partial sums wait in scratch between chunks of k
  bool row_by_row = false;  ///< a last block of unknown height runs as single rows
  bool exact_rows = false;  ///< micro kernels never compute rows past m
  bool exact = false;       ///< ... nor columns past n
  int row_tail = 0;         ///< rows of the last block where a smaller kernel runs them; 0: none
  int col_tail = 0;         ///< vectors of the last block where a narrower kernel runs them; 0: none
  int64_t pack_b_elements = 0, pack_a_elements = 0, tile_elements = 0;
  bool b_shared = false;  ///< B is the same for every batch index
};

/// Vector types, loads and stores with and without a lane count, and the transposition of a square.
void print_matmul_words(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& schedule,
                        bool transpose);

/// One micro kernel: `rows` x `vectors` accumulators over k.
void print_micro_kernel(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& schedule,
                        const MatmulShape& shape, int rows, int vectors, DimTable& dims);

/// Statements that pack the chunk of B of a task, and a block of `mc` rows of A.
void print_pack_b(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& schedule,
                  const MatmulShape& shape, const MatmulHooks& hooks, DimTable& dims);
void print_pack_a(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& schedule,
                  const MatmulShape& shape, const MatmulHooks& hooks, DimTable& dims);

/// Statements that run a hook in a scope of its own, under the names that MatmulVector promises. `at` needs
/// row, col, along_cols and lanes ("" for a whole vector); `variable` is assigned (prologue) or read
/// (epilogue).
std::string call_hook(const MatmulHook& hook, const MatmulSpec& spec, const MatmulSchedule& schedule,
                      MatmulVector at, const std::string& variable, bool assign);

/// Names of the batch indices in the printed kernel: mm_b0, mm_b1, ...
std::vector<std::string> batch_names(const MatmulSpec& spec);

}  // namespace kiln::detail
