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
  int64_t runs = 1;         ///< with k_outer: runs of k in a chunk
  int64_t a_ld = 0;         ///< between rows (PackA::rows) or k steps (PackA::cols) of packed A
  int64_t a_pad = 0;        ///< words behind each of its panels, with pairs and PackA::cols
  bool one_chunk = false;   ///< all of k fits kc
  bool plain_c = false;     ///< no epilogue, C's rows contiguous: the micro kernel may store C itself
  bool partial = false;     ///< a task's partial sums wait in scratch between chunks of k
  bool row_by_row = false;  ///< a last block of unknown height runs as single rows
  bool exact_rows = false;  ///< micro kernels never compute rows past m
  bool exact = false;       ///< ... nor columns past n
  int row_tail = 0;         ///< rows of the last block where a smaller kernel runs them; 0: none
  int col_tail = 0;         ///< vectors of the last block where a narrower kernel runs them; 0: none
  bool half_tail = false;   ///< of which the last is half a vector
  int64_t pack_b_elements = 0, pack_a_elements = 0, tile_elements = 0;  ///< with pairs: words, of a T's size
  bool b_shared = false;  ///< B is the same for every batch index
};

/// The type of the operand's elements in memory, as it is printed.
inline const char* element_type(const MatmulOperand& o) {
  return !o.half ? "T" : *o.half == DType::bf16 ? "kn::bf16" : "kn::f16";
}

/// What packed operands are made of, as it is printed: words of two bf16 or elements, and vectors of them.
inline const char* packed_type(const MatmulSchedule& s) { return s.pairs ? "P" : "T"; }
inline const char* packed_vector(const MatmulSchedule& s) { return s.pairs ? "Q" : "V"; }
/// The printed name of the steps of the micro kernel over a chunk of k.
inline const char* chunk_steps(const MatmulSpec& spec, const MatmulSchedule& s) {
  return s.pairs ? "kp" : spec.k_outer.empty() ? "kk" : "ks";
}

/// The printed names of the packed B to fill and of the place of its step 0 among all steps of k.
inline const char* packed_b_name(const MatmulSpec& spec) {
  return spec.k_outer.empty() ? "packed_b" : "packed_run";
}
inline const char* packed_b_step(const MatmulSpec& spec) { return spec.k_outer.empty() ? "k_at" : "k_row"; }

/// Whether the last of the elements along k that are taken `unit` at a time may stand in an incomplete unit.
bool k_has_tail(const MatmulSpec& spec, const MatmulSchedule& schedule, const MatmulShape& shape, int unit);

/// Vector types, loads and stores with and without a lane count, and the transposition of a square.
void print_matmul_words(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& schedule,
                        bool transpose);

/// The words of pairs of bf16.
void print_pair_words(SourceText& out, int width);

/// Whether the last columns fill no more than half a vector of 64 bytes: they are computed as one of 32,
/// which takes half the time where a CPU works on halves, and no longer where it does not.
bool has_half_tail(const MatmulSpec& spec, int width, bool pairs);

/// A micro kernel: `rows` x `vectors` accumulators over k, the last vector of each row perhaps half a one.
struct MicroKernel {
  int rows = 0, vectors = 0;
  bool half = false;
  bool is_half(int vector) const { return half && vector + 1 == vectors; }
  std::string name() const { return fmt::format("micro_{}x{}{}", rows, vectors, half ? "h" : ""); }
};
void print_micro_kernel(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& schedule,
                        const MatmulShape& shape, const MicroKernel& kernel, DimTable& dims);

/// Statements that pack the chunk of B of a task, and a block of `mc` rows of A.
void print_pack_b(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& schedule,
                  const MatmulShape& shape, const MatmulHooks& hooks, DimTable& dims);
void print_pack_a(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& schedule,
                  const MatmulShape& shape, const MatmulHooks& hooks, DimTable& dims);

/// The same for words of two bf16 (MatmulSchedule::pairs).
void print_pack_a_pairs(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& schedule,
                        const MatmulShape& shape, const MatmulHooks& hooks, DimTable& dims);
void print_pack_b_pairs(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& schedule,
                        const MatmulShape& shape, const MatmulHooks& hooks, DimTable& dims);

/// Statements that set `to` to the vector at (row, col) of an operand: prologue, or a load through `address`.
/// `lanes` is "" for a whole vector; the others become zero.
std::string load_vector(const MatmulHook& prologue, const MatmulSpec& spec, const MatmulSchedule& schedule,
                        const std::string& row, const std::string& col, bool along_cols,
                        const std::string& address, const std::string& lanes, const char* to = "x");

/// What a prologue says once for all vectors of the row `at` (of the column, unless along_cols).
void print_line(SourceText& out, const MatmulHook& hook, const MatmulSpec& spec,
                const MatmulSchedule& schedule, bool along_cols, const std::string& at);

/// A loop over `count` by `step`, `body(lanes)` printing one step; lanes is "" for a whole one.
template <typename Body>
void vector_loop(SourceText& out, int step, const std::string& index, const std::string& count, bool tail,
                 const Body& body) {
  out.line("long {} = 0;", index);
  out.line("for (; {0} + {1} <= {2}; {0} += {1}) {{", index, step, count);
  body(std::string());
  out.lines("}");
  if (!tail) return;
  out.line("if ({} < {}) {{", index, count);
  out.line("const long lanes = {} - {};", count, index);
  body(std::string("lanes"));
  out.lines("}");
}

/// Walks the columns of a task in vectors, panel after panel: `body(at, to, lanes)` per vector, where `at` is
/// its column in the task and `to` its place in packed B, whose step `step` is being packed.
template <typename Body>
void panel_loop(SourceText& out, const MatmulSpec& spec, const MatmulSchedule& s, const MatmulShape& shape,
                const std::string& step, const Body& body) {
  const char* steps = chunk_steps(spec, s);
  out.line("long j = 0;");
  out.line("for (; j + {0} <= cols; j += {0}) {{", shape.nr);
  for (int v = 0; v < s.nv; ++v)
    body(fmt::format("j + {}", v * s.width),
         fmt::format("{} + j * {} + {} * {} + {}", packed_b_name(spec), steps, step, shape.nr, v * s.width),
         std::string());
  out.lines("}");
  if (spec.n.is_const() && spec.n.value() % shape.nr == 0) return;
  out.line("if (j < cols) {{");
  out.line("{}* const to = {} + j * {} + {} * {} - j;", packed_type(s), packed_b_name(spec), steps, step,
           shape.nr);
  out.line("for (; j + {0} <= cols; j += {0}) {{", s.width);
  body(std::string("j"), std::string("to + j"), std::string());
  out.lines("}");
  if (!spec.n.is_const() || spec.n.value() % s.width != 0) {
    out.lines("if (j < cols) {");
    if (spec.n.is_const()) out.line("const long lanes = {};", spec.n.value() % s.width);
    else out.lines("const long lanes = cols - j;");
    body(std::string("j"), std::string("to + j"), std::string("lanes"));
    out.lines("}");
  }
  out.lines("}");
}

/// Statements that run a hook in a scope of its own, under the names that MatmulVector promises. `at` needs
/// row, col, along_cols and lanes ("" for a whole vector); `variable` is assigned (prologue) or read
/// (epilogue).
std::string call_hook(const MatmulHook& hook, const MatmulSpec& spec, const MatmulSchedule& schedule,
                      MatmulVector at, const std::string& variable, bool assign);

/// Names of the batch indices in the printed kernel: mm_b0, mm_b1, ...
std::vector<std::string> batch_names(const MatmulSpec& spec);

}  // namespace kiln::detail
