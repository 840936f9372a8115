// SPDX-License-Identifier: Apache-2.0
// What the golden programs share: tensors in and out of Kiln, and turning exceptions into outcomes.
#pragma once

#include <functional>
#include <stdexcept>
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

/// A check that does not apply to a case, or a case to a test, and why.
struct Exempt : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Whether a program's argument names the case: "=ID" names one, anything else is a part of an id.
bool wanted(const std::string& id, const std::string& filter);

/// Runs all cases of a family; `run` takes a case and whether to compile, and returns what differs, or "".
/// The program's one argument narrows the cases, see wanted().
/// Returns the exit status.
int golden_main(const std::string& family, int argc, char** argv,
                const std::function<std::string(const Json& file, const Json& one, bool compiled)>& run);
/// The same in one mode, of the cases that `filter` names as an argument does.
int golden_main(const std::string& family, const std::string& filter, bool compiled,
                const std::function<std::string(const Json& one)>& run);

/// Runs one case in one mode and prints its line: `body` returns what differs, or "".
/// Exempt gives "exempt", Unsupported and Error(unsupported) "unsupported"; any other exception fails.
void run_case(Report& report, const std::string& id, bool compiled, const std::function<std::string()>& body);

}  // namespace kiln::golden
