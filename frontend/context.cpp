// SPDX-License-Identifier: Apache-2.0
#include "frontend/context.h"

#include "codegen/compile_sim.h"
#include "frontend/state.h"
#include "ir/base/options.h"
#include "ir/interpret.h"
#include "runtime/blas.h"
#include "runtime/collective.h"
#include "runtime/cuda/driver.h"
#include "runtime/thread_pool.h"

namespace kiln::detail {

namespace {
/// Strides of a rank-3 operand as the runtime's view of a batch of matrices.
MatrixView view_of(const TensorRef& t) { return {t.data, t.strides[0], t.strides[1], t.strides[2]}; }

void host_matmul(const TensorRef& a, const TensorRef& b, const TensorRef& c) {
  matmul(c.dtype, c.shape[0], c.shape[1], c.shape[2], a.shape[2], view_of(a), view_of(b), view_of(c));
}

void host_all_reduce(int64_t group, DType wire, const TensorRef& t) {
  const std::vector<ProcessGroup*>& groups = state().groups;
  KILN_ASSERT(static_cast<size_t>(group) < groups.size(), "no process group {} on this thread", group);
  if (state().announce) state().announce(false);
  all_reduce_as(*groups[static_cast<size_t>(group)], t.data, t.numel(), t.dtype, wire,
                {"backward", state().user_loc()})
      ->wait();
}
}  // namespace

Context::Context() : target(parse_target(option("KILN_TARGET"))), recorder(option("KILN_RECORD")) {
  check_environment();
  if (const std::string trace = option("KILN_TRACE"); !trace.empty())
    timeline_ = std::make_unique<Timeline>(trace);
}

Context& context() {
  static Context* const c = new Context();
  return *c;
}

void install_host_functions() {
  static const bool done = [] {
    host_functions().matmul = host_matmul;
    host_functions().all_reduce = host_all_reduce;
    host_functions().parallel_for = [](int64_t n, int64_t grain,
                                       const std::function<void(int64_t, int64_t)>& f) {
      kiln::parallel_for(n, grain, [&f](int64_t begin, int64_t end) { f(begin, end); });
    };
    // The simulated device compiles the kernels that it is given, the runtime's own among them.
    cuda::set_sim_compile([](const CudaModule& module) {
      return compile_sim(module, &context().cache, &state().sim_compiled);
    });
    return true;
  }();
  (void)done;
}

}  // namespace kiln::detail
