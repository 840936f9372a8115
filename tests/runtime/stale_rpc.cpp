// SPDX-License-Identifier: Apache-2.0
// A library with the entry point of libkiln_rpc.so and an interface that Kiln does not know.
#include "runtime/rpc/rpc_abi.h"

namespace {
constexpr kiln::rpc::Api kApi = {kiln::rpc::kAbiVersion + 1};
}  // namespace

extern "C" const kiln::rpc::Api* kiln_rpc_api() { return &kApi; }
