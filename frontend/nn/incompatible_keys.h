// SPDX-License-Identifier: Apache-2.0
// What loading a state has left out.
#pragma once

#include <string>
#include <vector>

namespace kiln::nn {

/// The module's names in its order, the state's sorted. Source: what torch.nn.Module.load_state_dict returns;
/// mismatched_keys are transformers' (PyTorch refuses them).
struct IncompatibleKeys {
  std::vector<std::string> missing_keys;     ///< the module's, which the state has not
  std::vector<std::string> unexpected_keys;  ///< the state's, which the module has not
  std::vector<std::string> mismatched_keys;  ///< of both, in another shape or dtype

  bool empty() const { return missing_keys.empty() && unexpected_keys.empty() && mismatched_keys.empty(); }
};

}  // namespace kiln::nn
