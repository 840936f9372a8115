// SPDX-License-Identifier: Apache-2.0
#include "examples/pretrained/load.h"

#include <map>

namespace pretrained {

using kiln::Tensor;

void load(kiln::nn::Module& model, const std::string& folder,
          const std::function<Place(const std::string& name)>& place) {
  std::map<std::string, Tensor> given;
  std::string faults;
  for (const auto& [name, t] : kiln::load_file(folder, true)) {
    const Place p = place(name);
    if (p.name.empty()) continue;
    const bool turn = p.transpose && t.dim() == 2;
    if (!given.emplace(p.name, turn ? kiln::t(t) : t).second)
      faults += fmt::format("\n  twice: {} (as {}, too)", p.name, name);
  }
  kiln::NamedTensors state;
  for (const auto& [name, own] : model.state_dict()) {
    const auto it = given.find(name);
    if (it == given.end()) faults += fmt::format("\n  missing: {} {}", name, own.type_str());
    else if (it->second.sizes() != own.sizes() || !kiln::is_floating(it->second.dtype()))
      faults += fmt::format("\n  {}: got {}, expected {}", name, it->second.type_str(), own.type_str());
    else state.emplace_back(name, it->second.to(own.dtype()));
  }
  KILN_CHECK(faults.empty(), invalid, "checkpoint {}: it does not fit the model of its config.json{}", folder,
             faults);
  model.load_state_dict(state);
}

}  // namespace pretrained
