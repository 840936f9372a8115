// SPDX-License-Identifier: Apache-2.0
// functions_test EMULATOR RUNNER: what ops.json has little of, compiled for AArch64 and run under the
// emulator, against eager evaluation here: functions of the C library on f64, writes to memory that tensors
// share, a guard that does not hold. Status 77: there is no emulator or no runner.
#include <cmath>

#include "frontend/kiln.h"
#include "ir/base/error.h"
#include "tests/aarch64/emulator.h"

namespace kiln {
namespace {

int failures = 0;

void report(const std::string& what, const std::string& wrong) {
  failures += wrong.empty() ? 0 : 1;
  fmt::print("{}: {}\n", what, wrong.empty() ? "agree" : wrong);
}

/// What differs, or "".
std::string difference(const Tensor& got, const Tensor& expected, double tolerance) {
  const std::vector<double> a = to(got.detach(), DType::f64).to_vector<double>();
  const std::vector<double> b = to(expected.detach(), DType::f64).to_vector<double>();
  if (a.size() != b.size()) return fmt::format("got {} elements, expected {}", a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= tolerance * (1 + std::abs(b[i]))))
      return fmt::format("element {}: got {:.17g}, expected {:.17g}", i, a[i], b[i]);
  return "";
}

void check(const std::string& what, const std::function<Tensor()>& f, double tolerance) {
  report(what, difference(compile(f)(), f(), tolerance));
}

/// In (0, 1), which all functions take.
Tensor numbers(int64_t n) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(n));
  return Tensor::from_span(std::span<const double>(v), {n});
}

void check_functions() {
  const Tensor x = numbers(37), y = numbers(37) * 3 + 0.25;
  const std::pair<const char*, std::function<Tensor()>> all[] = {
      {"log2", [&] { return log2(x); }},        {"log10", [&] { return log10(x); }},
      {"sin", [&] { return sin(y * 1e5); }},    {"cos", [&] { return cos(y * 1e5); }},
      {"tan", [&] { return tan(x); }},          {"asin", [&] { return asin(x); }},
      {"acos", [&] { return acos(x); }},        {"atan", [&] { return atan(y); }},
      {"sinh", [&] { return sinh(y); }},        {"cosh", [&] { return cosh(y); }},
      {"erfc", [&] { return erfc(y); }},        {"pow", [&] { return pow(y, x); }},
      {"fmod", [&] { return fmod(y * 7, x); }}, {"atan2", [&] { return atan2(x, y); }}};
  for (const auto& [name, f] : all) check(fmt::format("{} of f64", name), f, 1e-14);
}

/// One memory, read and written through two tensors at an odd address.
void check_shared_memory() {
  const auto run = [](bool compiled) {
    const Tensor x = to(numbers(70), DType::f32), part = narrow(x, 0, 3, 57);
    const std::function<void()> f = [&] {
      NoGrad guard;
      Tensor all = x, view = part;
      view.mul_(2);
      all.add_(ones({70}));
    };
    if (compiled) compile(f)();
    else f();
    return x;
  };
  report("shared memory", difference(run(true), run(false), 0));
}

/// An index that is out of range ends the call, and nothing else.
void check_guard() {
  const Tensor table = to(numbers(24), DType::f32).reshape({6, 4});
  const auto f = compile([&](const Tensor& index) { return index_select(table, 0, index); });
  const auto rows = [](std::vector<int64_t> v) {
    return Tensor::from_span(std::span<const int64_t>(v), {static_cast<int64_t>(v.size())});
  };
  report("rows", difference(f(rows({5, 0, 3})), index_select(table, 0, rows({5, 0, 3})), 0));
  std::string wrong = "no error for row 6 of 6";
  try {
    f(rows({5, 6, 3}));
  } catch (const Error& e) {
    wrong = e.kind() == ErrorKind::invalid ? "" : e.what();
  }
  report("a row that is not there", wrong);
  report("rows again", difference(f(rows({1, 1, 2})), index_select(table, 0, rows({1, 1, 2})), 0));
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  using namespace kiln;
  return emulated::emulated_main(argc, argv, [](const emulated::Cpu&) {
    check_functions();
    check_shared_memory();
    check_guard();
    return failures > 0 ? 1 : 0;
  });
}
