// SPDX-License-Identifier: Apache-2.0
// The one process-wide context: what eager evaluation borrows from the runtime, the disk cache, the target.
#pragma once

#include <functional>
#include <memory>

#include "codegen/cpu_target.h"
#include "codegen/disk_cache.h"
#include "codegen/job.h"
#include "runtime/timeline.h"

namespace kiln {
struct CompiledProgram;
}  // namespace kiln

namespace kiln::detail {

class Program;
struct StageOptions;

struct Context {
  Context();
  DiskCache cache;
  CpuTarget target;
  JobRecorder recorder;  ///< to KILN_RECORD
  /// Makes the programs of a `target` that is not this CPU; empty: kernels run here. Tests put an emulator
  /// there before anything is compiled.
  std::function<std::unique_ptr<Program>(const Graph&, CompiledProgram&&, const StageOptions&)> foreign;
  /// The trace that KILN_TRACE asks for, or null.
  Timeline* timeline() const { return timeline_.get(); }

 private:
  std::unique_ptr<Timeline> timeline_;
};

/// Made on first use; never destroyed, since tensors of static storage may outlive main(). Threads: any.
Context& context();

/// Lets eager evaluation use the runtime's threads and matrix products. Idempotent, cheap.
void install_host_functions();

}  // namespace kiln::detail
