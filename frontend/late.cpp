// SPDX-License-Identifier: Apache-2.0
#include "frontend/late.h"

#include "frontend/state.h"

namespace kiln::detail {

namespace {

/// What an open call has changed is taken back before what earlier calls have.
void report(std::optional<GuardFailure> failure) {
  if (!failure) return;
  State& s = state();
  for (std::function<void()>& undo : failure->undo) s.undo.push_back(std::move(undo));
  if (!s.open) take_back_late();
  std::rethrow_exception(failure->error);
}

}  // namespace

void settle(Device device) {
  if (device.is_cuda()) report(cuda_device(device.index).guards().look(true));
}

void report_late() {
  for (CudaDevice* d : made_cuda_devices()) report(d->guards().look(false));
}

void complete(Device device, GuardedCall call) {
  CudaGuards& guards = cuda_device(device.index).guards();
  if (!call.check && !guards.pending()) return;
  guards.then(std::move(call));
  report(guards.look(false));
}

void take_back_late() {
  for (const std::function<void()>& undo : std::exchange(state().undo, {})) undo();
}

}  // namespace kiln::detail
