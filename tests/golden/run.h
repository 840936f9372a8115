// SPDX-License-Identifier: Apache-2.0
// What the golden programs share: tensors in and out of Kiln, and turning exceptions into outcomes.
#pragma once

#include <functional>
#include <string>

#include "frontend/tensor.h"
#include "tests/golden/support.h"

namespace kiln::golden {

/// The formula tensor of an entry.
Tensor tensor_of(const Json& entry);
/// What a tensor holds.
Values values_of(const Tensor& t);
/// A value of `args`: numbers, strings, lists, null. Numbers keep being integers or not.
struct Value;
Value value_of(const Json& j);

/// Runs all cases of a family; `run` takes a case and whether to compile, and returns what differs, or "".
/// The program's one argument narrows the cases: "=ID" names one, anything else is a part of an id.
/// Returns the exit status.
int golden_main(const std::string& family, int argc, char** argv,
                const std::function<std::string(const Json& file, const Json& one, bool compiled)>& run);

/// Runs one case in one mode and prints its line: `body` returns what differs, or "".
/// Unsupported and Error(unsupported) give "unsupported"; any other exception fails.
void run_case(Report& report, const std::string& id, bool compiled, const std::function<std::string()>& body);

}  // namespace kiln::golden
