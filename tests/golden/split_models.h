// SPDX-License-Identifier: Apache-2.0
// The modules of buckets.json and split.json, by class name. Sizes are read from the shapes of the
// parameters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frontend/kiln.h"
#include "tests/golden/support.h"

namespace kiln::golden {

/// A module of the files: some tensors and host integers in, some tensors out.
class SplitModel : public nn::Module {
 public:
  virtual std::vector<Tensor> run(const std::vector<Tensor>& in, const std::vector<int64_t>& integers) = 0;
};

/// The shapes of the parameters of a case, by state_dict name.
std::map<std::string, Sizes> shapes_of(const Json& one);

/// The case's model with fresh parameters. Throws: invalid, when there is no such model.
std::unique_ptr<SplitModel> make_split_model(const Json& one);

}  // namespace kiln::golden
