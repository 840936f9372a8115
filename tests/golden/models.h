// SPDX-License-Identifier: Apache-2.0
// The models of models.json that Kiln's modules can build, and what the file expects of them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "frontend/kiln.h"
#include "tests/golden/support.h"

namespace kiln::golden {

using Inputs = std::map<std::string, Tensor>;

/// A model of the file: its loss from the inputs by name.
class Model : public nn::Module {
 public:
  virtual Tensor loss(const Inputs& in) = 0;
};

/// Those that look at images; null for other names.
inline int64_t integer(const Json& config, const char* key) { return config[key].get<int64_t>(); }

std::unique_ptr<Model> vision_model(const std::string& name, const Json& config);
/// Those of transformers that examples/bert has the parts of; null for other names.
std::unique_ptr<Model> bert_model(const std::string& name, const Json& config);
/// Those that read sequences or categories; null for other names.
std::unique_ptr<Model> sequence_model(const std::string& name, const Json& config);

/// Of a case, with its weights. Throws: Unsupported.
std::unique_ptr<Model> build_model(const Json& j);
Inputs model_inputs(const Json& j);

/// What differs, or "": the norms of the gradients of the first step, and the parameters after the last.
std::string check_gradients(const Model& model, const Json& expected);
std::string check_parameters(const Model& model, const Json& j);
/// After step number `step`, from 0: the buffers, if the file has those of that step.
std::string check_buffers(const Model& model, const Json& j, int64_t step);

}  // namespace kiln::golden
