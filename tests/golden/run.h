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

/// Whether the program's one argument lets a case run: "=ID" names one, anything else is a part of its id.
bool wanted(const std::string& id, const std::string& filter);

/// Runs one case in one mode and prints its line: `body` returns what differs, or "".
/// Unsupported and Error(unsupported) give "unsupported"; any other exception fails.
void run_case(Report& report, const std::string& id, bool compiled, const std::function<std::string()>& body);

}  // namespace kiln::golden
