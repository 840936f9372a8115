// SPDX-License-Identifier: Apache-2.0
// A matmul and what is fused into it, by the template for CUDA.
#include "codegen/fused_text.h"
#include "codegen/lower_parts.h"
#include "codegen/matmul_cuda.h"

namespace kiln::detail {

NodeKernel print_cuda_contract(const MatmulCase& c, const CudaMatmulSchedule& schedule) {
  NodeKernel out;
  int buffers = 0;
  const CudaMatmulSource m = named_by_text([&](const std::string& name) {
    DimTable dims;
    FusedText text(c);
    MatmulSpec spec = c.spec;
    spec.c.buffer = text.result();
    buffers = text.buffers() + (schedule.split_k > 1 ? 1 : 0);
    CudaMatmulSource s =
        print_matmul_cuda(name, spec, schedule, text.hooks(dims), dims, buffers, text.buffers());
    out.source = {name + ".cu", heading(c.fused) + s.text, {}, {}};
    out.dims = dims.dims();
    return s;
  });
  for (const CudaMatmulLaunch& l : m.launches) {
    out.source.symbols.push_back(l.symbol);
    out.source.cuda.push_back({l.symbol, l.threads, buffers, static_cast<int>(out.dims.size())});
    out.launches.push_back({l.symbol, l.tasks, Dim(l.shared_bytes)});
  }
  out.has_workspace = m.workspace_buffer >= 0;
  out.workspace = m.workspace_bytes;
  return out;
}

}  // namespace kiln::detail
