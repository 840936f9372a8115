// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernel_case.h"

#include "codegen/compile_clang.h"
#include "codegen/source_digest.h"
#include "ir/base/hash.h"

namespace kiln {

namespace {

std::string text_of(const MatmulOperand& o) {
  std::string s =
      fmt::format("at {} rows {} cols {} batch", o.offset.str(), o.row_stride.str(), o.col_stride.str());
  for (const Dim& d : o.batch_stride) s += " " + d.str();
  if (!o.k_stride.empty()) s += " runs";
  for (const Dim& d : o.k_stride) s += " " + d.str();
  if (o.half) s += fmt::format(" as {}", dtype_name(*o.half));
  return s + "\n";
}

std::string text_of(const MatmulCase& c) {
  const MatmulSpec& m = c.spec;
  std::string s = fmt::format("matmul {} m {} n {} k {} joint {} batch", dtype_name(m.dtype), m.m.str(),
                              m.n.str(), m.k.str(), c.joint);
  for (const Dim& d : m.batch) s += " " + d.str();
  if (!m.k_outer.empty()) s += " runs";
  for (const Dim& d : m.k_outer) s += " " + d.str();
  s += "\na " + text_of(m.a) + "b " + text_of(m.b) + "c " + text_of(m.c);
  for (size_t i = 0; i < 2; ++i)
    if (const auto& p = c.fused.prologue[i])
      s += fmt::format("prologue of {} at {}\n", "ab"[i], p -> packed) + loop::print(p->kernel);
  if (const auto& e = c.fused.epilogue)
    s += fmt::format("epilogue of {}{}\n", e->accumulator, e->keep ? ", kept" : "") + loop::print(e->kernel);
  return s;
}

/// The sizes stand apart: kernels of one text serve many.
std::string text_of(const loop::Kernel& k) {
  std::string s = "rows\n" + loop::print(k);
  for (const Dim& d : k.dims) s += "size " + d.str() + "\n";
  return s;
}

std::string compiler_of(const Target& target) {
  const auto* cpu = std::get_if<CpuTarget>(&target);
  return cpu ? compiler_key(*cpu) : "cuda " + str(target);
}

}  // namespace

std::string kernel_key(const KernelCase& kernel, const Target& target) {
  return fmt::format("kiln kernel {}\n{}\n", detail::kSourceDigest, compiler_of(target)) +
         std::visit([](const auto& k) { return text_of(k); }, kernel);
}

std::string kernel_id(const KernelCase& kernel, const Target& target) {
  return hash128(kernel_key(kernel, target)).hex();
}

}  // namespace kiln
