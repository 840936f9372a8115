// SPDX-License-Identifier: Apache-2.0
// Each row of ops.json that PyTorch runs in bf16: on inputs rounded to bf16, results and gradients are those
// of f32 on the same inputs up to kTolerance of the largest. Rows that are left out say why.
#include <algorithm>
#include <cmath>

#include "frontend/compile.h"
#include "frontend/ops.h"
#include "tests/golden/mode.h"
#include "tests/golden/ops_row.h"

namespace kiln::golden {
namespace {

/// Eight units in the last place: an op rounds its result once, a composite each step.
constexpr double kTolerance = 8 * 0x1p-8;

/// Rows that differ, and why. Still run: one that passes is an error.
struct Left {
  std::string_view id;
  bool compiled;
  std::string_view why;
};
constexpr Left kLeft[] = {
    {"sigmoid_sat", false, "the slope is y (1 - y) of a y that is rounded to bf16, as in PyTorch"},
};

struct Result {
  std::vector<Values> out;
  std::map<std::string, Values> grads;
};

Result run_in(const Json& row, bool compiled, DType dtype) {
  const auto convert = [&](const Tensor& t) { return to(to(t, DType::bf16), dtype); };
  const OpsRow c = prepare(row, convert);
  std::vector<Tensor> upstream;
  for (const Json& u : row["upstream"]) upstream.push_back(convert(tensor_of(u)));
  const auto call = [&] { return forward_backward(c, upstream); };
  Result r;
  for (const Tensor& t : compiled ? kiln::compile(call, compile_options())() : call())
    r.out.push_back(values_of(t));
  for (const auto& [name, t] : c.tensors)
    if (t.requires_grad() && t.grad().defined()) r.grads[name] = values_of(t.grad());
  return r;
}

std::string difference(const Values& got, const Values& want) {
  if (got.shape != want.shape) return "shapes differ";
  const bool floating = is_floating(want.dtype);
  if (floating ? got.dtype != DType::bf16 : got.dtype != want.dtype)
    return fmt::format("got {}", dtype_name(got.dtype));
  double most = 0;
  for (const double v : want.data)
    if (std::isfinite(v)) most = std::max(most, std::fabs(v));
  for (size_t i = 0; i < want.data.size(); ++i) {
    const double a = got.data[i], b = want.data[i];
    const bool same = a == b || (std::isnan(a) && std::isnan(b));
    if (!same && !(floating && std::fabs(a - b) <= kTolerance * most))
      return fmt::format("element {}: got {:.6g}, f32 gives {:.6g}, the largest is {:.6g}", i, a, b, most);
  }
  return "";
}

std::string compare_results(const Json& row, bool compiled) {
  const auto is_real = [](const Json& e) { return e["dtype"].get<std::string>().starts_with("float"); };
  if (std::none_of(row["tensors"].begin(), row["tensors"].end(), is_real))
    throw Exempt("no floating tensors");
  const Result got = run_in(row, compiled, DType::bf16), want = run_in(row, false, DType::f32);
  for (size_t i = 0; i < want.out.size(); ++i) {
    const std::string d = difference(got.out[i], want.out[i]);
    if (!d.empty()) return fmt::format("output {}: {}", i, d);
  }
  for (const auto& [name, g] : want.grads) {
    if (!got.grads.contains(name)) return fmt::format("gradient of {}: none", name);
    const std::string d = difference(got.grads.at(name), g);
    if (!d.empty()) return fmt::format("gradient of {}: {}", name, d);
  }
  return "";
}

std::string run(const Json& row, bool compiled) {
  const auto left = std::find_if(std::begin(kLeft), std::end(kLeft), [&](const Left& l) {
    return l.id == row["id"].get<std::string>() && l.compiled == compiled;
  });
  if (left == std::end(kLeft)) return compare_results(row, compiled);
  try {
    if (!compare_results(row, compiled).empty()) throw Exempt(std::string(left->why));
  } catch (const Error&) {
    throw Exempt(std::string(left->why));
  }
  return "passes: drop it from kLeft";
}

}  // namespace
}  // namespace kiln::golden

int main(int argc, char** argv) {
  return kiln::golden::ops_main("bf16", argc, argv, {false, true}, kiln::golden::run);
}
