// SPDX-License-Identifier: Apache-2.0
// One row of ops.json as tensors and an expression, for the tests that evaluate it: in f32 against PyTorch's
// numbers, in f64 against differences, in bf16 against f32.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/golden/eval.h"
#include "tests/golden/run.h"

namespace kiln::golden {

struct OpsRow {
  const Json& json;
  NodePtr expr;
  Variables variables;
  std::map<std::string, Tensor> tensors;
};

/// Makes the row's tensors; what `convert` makes of a floating one takes its place.
OpsRow prepare(const Json& row, const std::function<Tensor(const Tensor&)>& convert = {});

/// Evaluates the expression. Nested results (a tuple of lists) are one flat list, as in the file.
std::vector<Tensor> forward(const OpsRow& c);

/// The same, and backward from those outputs that the row has upstream gradients for.
std::vector<Tensor> forward_backward(const OpsRow& c, const std::vector<Tensor>& upstream);

/// Runs a check on each row of ops.json that ends in no error, in the given modes, and prints its lines
/// "GOLDEN <check> ...". The program's argument is that of golden_main(). Returns the exit status.
int ops_main(const std::string& check, int argc, char** argv, const std::vector<bool>& modes,
             const std::function<std::string(const Json& row, bool compiled)>& run);

}  // namespace kiln::golden
