// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/support.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>

#include "benchmarks/formula.h"
#include "ir/base/error.h"
#include "ir/base/options.h"

namespace kiln::golden {

namespace {

int64_t product(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

DType dtype_named(const std::string& name) {
  if (name == "float32") return DType::f32;
  if (name == "float64") return DType::f64;
  if (name == "int64") return DType::i64;
  if (name == "bool") return DType::boolean;
  if (name == "float16") return DType::f16;
  if (name == "bfloat16") return DType::bf16;
  throw Error(ErrorKind::unsupported, fmt::format("golden file: dtype {}", name));
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// Same class of number: NaN where NaN is expected, the same infinity, else within the tolerance.
bool close(double got, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected)) return got == expected;
  return std::abs(got - expected) <= tolerance;
}

std::string difference(const char* what, size_t at, double got, double expected, double tolerance) {
  if (close(got, expected, tolerance)) return "";
  return fmt::format("{} {}: got {:.9g}, expected {:.9g} within {:.3g}", what, at, got, expected, tolerance);
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values)
    if (std::isfinite(v)) most = std::max(most, std::abs(v));
  return most;
}

std::vector<double> numbers(const Json& list) {
  std::vector<double> out;
  for (const Json& j : list) out.push_back(number(j));
  return out;
}

std::string compare_elements(const Json& e, const Values& got, double slack) {
  const bool whole = e.contains("values");
  const std::vector<double> expected = numbers(whole ? e["values"] : e["at"]);
  double tolerance = 0;
  if (e.contains("dev"))
    tolerance = std::max(8 * number(e["dev"][2]), 1e-6 * std::max(1.0, largest(expected))) + slack;
  for (size_t i = 0; i < expected.size(); ++i) {
    const size_t at = whole ? i : e["index"][i].get<size_t>();
    const std::string d = difference("element", at, got.data.at(at), expected[i], tolerance);
    if (!d.empty()) return d;
  }
  return "";
}

std::string compare_sums(const Json& e, const Values& got) {
  double sum = 0, sumsq = 0;
  for (const double v : got.data) {
    const double f = static_cast<double>(static_cast<float>(v));
    sum += f;
    sumsq += f * f;
  }
  const double n = static_cast<double>(got.data.size()), want = number(e["sumsq"]);
  const double t0 = std::max(8 * number(e["sum_dev"][0]), 1e-6 * std::sqrt(n * want));
  const double t1 = std::max(8 * number(e["sum_dev"][1]), 4e-6 * want);
  std::string d = difference("sum over", got.data.size(), sum, number(e["sum"]), t0);
  if (d.empty()) d = difference("sum of squares over", got.data.size(), sumsq, want, t1);
  return d;
}

}  // namespace

std::string folder() {
  const std::string given = option("KILN_GOLDENS");
  return given.empty() ? std::string("tests/goldens") : given;
}

Json load(const std::string& family) {
  const std::string path = fmt::format("{}/{}.json", folder(), family);
  std::ifstream in(path);
  KILN_CHECK(in.good(), io, "goldens: cannot read {}", path);
  return Json::parse(in);
}

int64_t HostTensor::numel() const { return product(shape); }

HostTensor make_tensor(const Json& entry) {
  HostTensor t;
  t.dtype = dtype_named(entry["dtype"].get<std::string>());
  t.shape = entry["shape"].get<std::vector<int64_t>>();
  const auto n = static_cast<size_t>(t.numel());
  t.bytes.resize(n * dtype_size(t.dtype));
  const std::string name = entry["name"].get<std::string>();
  dispatch(t.dtype, [&]<typename T>(T) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      KILN_CHECK(false, unsupported, "golden file: tensor of {}", dtype_name(t.dtype));
    } else {
      const std::span<T> out(reinterpret_cast<T*>(t.bytes.data()), n);
      if (entry.contains("n")) {
        formula::fill_mod<T>(name, entry["n"].get<uint64_t>(), out);
        return;
      }
      KILN_CHECK(t.dtype == DType::f32, unsupported, "golden file: real tensor of {}", dtype_name(t.dtype));
      if constexpr (std::is_same_v<T, float>)
        formula::fill_real(name, entry["lo"].get<float>(), entry["hi"].get<float>(), out);
    }
  });
  return t;
}

Values to_values(const HostTensor& t) {
  Values v{t.dtype, t.shape, {}};
  const auto n = static_cast<size_t>(t.numel());
  v.data.reserve(n);
  dispatch(t.dtype, [&]<typename T>(T) {
    for (size_t i = 0; i < n; ++i) {
      T x;
      std::memcpy(&x, t.bytes.data() + i * sizeof(T), sizeof(T));
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
        v.data.push_back(static_cast<double>(static_cast<float>(x)));
      } else {
        v.data.push_back(static_cast<double>(x));
      }
    }
  });
  return v;
}

double number(const Json& j) {
  if (j.is_number()) return j.get<double>();
  if (j.is_boolean()) return j.get<bool>() ? 1 : 0;
  const std::string s = j.get<std::string>();
  if (s == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (s == "inf") return std::numeric_limits<double>::infinity();
  if (s == "-inf") return -std::numeric_limits<double>::infinity();
  throw Error(ErrorKind::invalid, fmt::format("golden file: '{}' is not a number", s));
}

std::string compare(const Json& e, const Values& got, double slack) {
  const auto shape = e["shape"].get<std::vector<int64_t>>();
  if (shape != got.shape || product(shape) != static_cast<int64_t>(got.data.size()))
    return fmt::format("shape: got {}, expected {}", shape_text(got.shape), shape_text(shape));
  const DType dtype = dtype_named(e["dtype"].get<std::string>());
  if (dtype != got.dtype)
    return fmt::format("dtype: got {}, expected {}", dtype_name(got.dtype), dtype_name(dtype));
  std::string d;
  if (e.contains("values") || e.contains("at")) d = compare_elements(e, got, slack);
  if (d.empty() && e.contains("sum")) d = compare_sums(e, got);
  return d;
}

std::string compare_scalar(const Json& pair, double got, double factor, double floor) {
  const double expected = number(pair[0]);
  const double tolerance = std::max(factor * number(pair[1]), floor) * std::abs(expected);
  if (close(got, expected, tolerance)) return "";
  return fmt::format("got {:.9g}, expected {:.9g} within {:.3g}", got, expected, tolerance);
}

void Report::line(const std::string& id, bool compiled, Outcome outcome, std::string reason) {
  constexpr const char* kNames[] = {"pass", "fail", "unsupported", "exempt"};
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  ++counts_[static_cast<int>(outcome)];
  std::cout << "GOLDEN " << family_ << ' ' << id << ' ' << (compiled ? "compiled" : "eager") << ' '
            << kNames[static_cast<int>(outcome)] << (reason.empty() ? "" : " ") << reason << std::endl;
}

int Report::finish() const {
  const auto [pass, fail, unsupported, exempt] = counts_;
  std::cout << family_ << ": " << pass << " pass, " << fail << " fail, " << unsupported << " unsupported, "
            << exempt << " exempt" << std::endl;
  return fail > 0 || unsupported > 0 || pass == 0 ? 1 : 0;
}

}  // namespace kiln::golden
