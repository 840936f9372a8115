// SPDX-License-Identifier: Apache-2.0
// KILN_TEST_DEVICE=cuda or graphs puts a test's tensors on a GPU, by set_default_device. Linked into tests
// that are registered for it.
#include "frontend/tensor.h"
#include "ir/base/options.h"

namespace {

/// Before main, so that also tensors of static storage go there.
const bool chosen = [] {
  if (kiln::option("KILN_TEST_DEVICE") != "cpu") kiln::set_default_device(kiln::Device::cuda());
  return true;
}();

}  // namespace
