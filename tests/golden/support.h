// SPDX-License-Identifier: Apache-2.0
// Reading the golden files: their tensors from the formula, their expectations with the tolerances of
// tests/goldens/README.md, and the result lines. Must not know Tensor.
#pragma once

// A key that a case lacks ends the test; without asserts it would be read past the end of its object.
#define JSON_ASSERT(x) ((x) ? void() : __builtin_trap())

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dtype.h"

namespace kiln::golden {

using Json = nlohmann::json;

/// The folder that KILN_GOLDENS names, else tests/goldens.
std::string folder();

/// <folder>/<family>.json. Throws: io, if it cannot be read.
Json load(const std::string& family);

/// An array on the host, row-major.
struct HostTensor {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  int64_t numel() const;
};

/// The tensor of an entry {"name", "shape", "dtype", "lo", "hi" | "n"}.
HostTensor make_tensor(const Json& entry);

/// What a run gave: values of any dtype as double.
struct Values {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<double> data;
};
Values to_values(const HostTensor& t);

/// A number, or one of "nan", "inf", "-inf".
double number(const Json& j);

/// Compares with an expectation. `slack` widens the tolerance of elements (absolute).
/// Returns what differs, or "".
std::string compare(const Json& expectation, const Values& got, double slack = 0);

/// Compares with a scalar pair [value, relative deviation].
std::string compare_scalar(const Json& pair, double got, double factor = 8, double floor = 2e-6);
/// A loss after several optimizer steps.
inline std::string compare_late_loss(const Json& pair, double got) {
  return compare_scalar(pair, got, 20, 2e-5);
}

/// How one case went in one mode. Exempt is what a test lists, with a reason; what is unsupported is not.
enum class Outcome { pass, fail, unsupported, exempt };

/// Prints the result lines and keeps the exit status.
class Report {
 public:
  explicit Report(std::string family) : family_(std::move(family)) {}
  /// GOLDEN <family> <id> eager|compiled pass|fail|unsupported|exempt [reason]
  void line(const std::string& id, bool compiled, Outcome outcome, std::string reason = "");
  /// Prints the totals; 0 if something passed and nothing failed or was unsupported, else 1.
  int finish() const;

 private:
  std::string family_;
  int counts_[4] = {0, 0, 0, 0};
};

}  // namespace kiln::golden
