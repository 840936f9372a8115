// SPDX-License-Identifier: Apache-2.0
// Kernels for CUDA.
#include "codegen/kernel_writer.h"
#include "codegen/lower_parts.h"
#include "codegen/source_cuda.h"

namespace kiln::detail {

namespace {

class CudaWriter : public KernelWriter {
 public:
  CudaWriter(const CudaTarget& target, const LowerOptions& o)
      : target_(target), matmul_{target.sm_count, target.shared_per_block, o.tf32}, library_(o.library) {}

  LoopKernel loop(const loop::Kernel& k, std::string_view schedule) const override {
    CudaLoopKernel s = write_cuda_kernel(k, target_, parse_row_schedule(schedule).value_or(RowSchedule{}));
    return loop_kernel(std::move(s));
  }
  std::optional<LoopKernel> parts(const loop::Kernel& k) const override {
    if (most_parts(static_cast<int>(k.params.size()), static_cast<int>(k.dims.size())) < 2) return {};
    return loop_kernel(write_cuda_parts(k, target_));
  }
  NodeKernel contract(const MatmulCase& c, std::string_view schedule) const override {
    const auto s = parse_cuda_matmul_schedule(schedule);
    return print_cuda_contract(c, s ? *s : choose_cuda_matmul_schedule(c.spec, matmul_));
  }
  /// One batch axis, and matrices whose rows or columns are contiguous and do not overlap.
  std::optional<LibraryKernel> library(const MatmulSpec& s, std::string_view) const override {
    const auto apart = [](const Dim& stride, const Dim& extent, const Dim& count) {
      const bool known = stride.is_const() && extent.is_const();
      return count.is(1) || (known ? stride.value() >= extent.value() : stride == extent);
    };
    const auto plain = [&](const MatmulOperand& x, const Dim& rows, const Dim& cols) {
      return x.col_stride.is(1) && apart(x.row_stride, cols, rows);
    };
    const auto fits = [&](const MatmulOperand& x, const Dim& rows, const Dim& cols) {
      return plain(x, rows, cols) || (x.row_stride.is(1) && apart(x.col_stride, rows, cols));
    };
    if (!library_ || s.batch.size() > 1 || !fits(s.a, s.m, s.k) || !fits(s.b, s.k, s.n) ||
        !plain(s.c, s.m, s.n))
      return {};
    const bool tf32 = matmul_.tf32 && s.dtype == DType::f32;
    LibraryKernel k{"cublaslt_" + std::string(tf32 ? "tf32" : dtype_name(s.dtype)),
                    {s.batch.empty() ? Dim(1) : s.batch[0], s.m, s.n, s.k}};
    for (const MatmulOperand* x : {&s.a, &s.b, &s.c})
      for (const Dim& d :
           {x->offset, x->batch_stride.empty() ? Dim(0) : x->batch_stride[0], x->row_stride, x->col_stride})
        k.dims.push_back(d);
    return k;
  }
  NodeKernel whole(const Graph& g, const Node& n, const std::vector<Operand>& operands) const override {
    return lower_whole_cuda(g, n, operands);
  }

 private:
  static LoopKernel loop_kernel(CudaLoopKernel s) {
    const std::string& symbol = s.kernel.symbol;
    return {{symbol + ".cu", std::move(s.text), {symbol}, {s.kernel}},
            s.tasks,
            s.scratch_bytes,
            s.in_place,
            s.per_task};
  }

  const CudaTarget& target_;
  const CudaMatmulTarget matmul_;
  const bool library_;
};

}  // namespace

std::unique_ptr<KernelWriter> cuda_writer(const CudaTarget& target, const LowerOptions& options) {
  return std::make_unique<CudaWriter>(target, options);
}

}  // namespace kiln::detail
