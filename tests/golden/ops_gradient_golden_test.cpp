// SPDX-License-Identifier: Apache-2.0
// Each row of ops.json with a gradient, in f64: what backward gives against differences of the forward, for a
// few elements of each tensor and along one direction that moves them all. Eagerly; and compiled on a GPU and
// where programs are recorded, which a plain run leaves to ops_golden_test.
#include <algorithm>
#include <cmath>

#include "frontend/compile.h"
#include "frontend/ops.h"
#include "ir/base/options.h"
#include "tests/golden/mode.h"
#include "tests/golden/ops_row.h"

namespace kiln::golden {
namespace {

constexpr double kStep = 1e-5;
/// Where the slopes on both sides differ by more than this the function has a kink.
constexpr double kKink = 1e-3;
constexpr double kTolerance = 1e-6;

/// Rows whose gradient is, as in PyTorch, not the slope of what they compute.
struct Left {
  std::string_view id, why;
};
constexpr Left kLeft[] = {
    {"bce_saturated", "its points are the ends of the domain, 0 and 1"},
    {"cast_roundtrip", "its result is rounded to f32"},
    {"detach_partial", "a detached factor counts as constant"},
    {"embedding_negpad", "the padding's row gets no gradient"},
    {"embedding_pad", "the padding's row gets no gradient"},
    {"max_pool2d_ties", "of equal elements the first gets all, in several windows"},
    {"nan_to_num", "the gradient is NaN: zero times that of the log of a negative number"},
    {"where_nan_grad", "the gradient is NaN: zero times that of the branch not taken"},
};

using Numbers = std::vector<double>;
using Moves = std::map<std::string, Numbers>;

Tensor moved(const Tensor& t, const Numbers& by) {
  Numbers v = to(t, DType::f64).to_vector<double>();
  for (size_t i = 0; i < by.size(); ++i) v[i] += by[i];
  return Tensor::from_span(std::span<const double>(v), t.sizes());
}

/// The row in f64 with its tensors moved; those of `moves` are the ones with a gradient.
OpsRow prepare_at(const Json& row, const Moves& moves) {
  size_t at = 0;
  std::vector<std::string> names;
  for (const Json& entry : row["tensors"])
    if (entry["dtype"].get<std::string>().starts_with("float")) names.push_back(entry["arg"]);
  return prepare(row, [&](const Tensor& t) {
    const auto it = moves.find(names[at++]);
    return moved(t, it == moves.end() ? Numbers{} : it->second);
  });
}

std::vector<Tensor> upstreams(const Json& row) {
  std::vector<Tensor> out;
  for (const Json& u : row["upstream"]) out.push_back(to(tensor_of(u), DType::f64));
  return out;
}

/// The sum of the outputs times their upstream gradients, which is what backward differentiates.
double loss_at(const Json& row, const Moves& moves) {
  const OpsRow c = prepare_at(row, moves);
  const std::vector<Tensor> out = forward(c);
  double loss = 0;
  for (const Json& u : row["upstream"]) {
    const Numbers y = values_of(out.at(u["output"].get<size_t>())).data, w = values_of(tensor_of(u)).data;
    for (size_t i = 0; i < y.size(); ++i) loss += y[i] * w[i];
  }
  return loss;
}

/// "" if `got` is the slope at the row's point along `along`. At a kink any slope between those of both sides
/// is one; along a direction that moves several elements at once kinks say nothing. Nor does a step out of
/// the domain.
std::string check_slope(const Json& row, double here, const Moves& along, double got, bool one) {
  Moves back = along, forth = along;
  for (auto& [name, v] : back)
    for (double& x : v) x *= -kStep;
  for (auto& [name, v] : forth)
    for (double& x : v) x *= kStep;
  const double up = loss_at(row, forth), down = loss_at(row, back);
  const double right = (up - here) / kStep, left = (here - down) / kStep, middle = (up - down) / (2 * kStep);
  if (!std::isfinite(middle)) return "";
  const double scale = std::max(1.0, std::fabs(middle));
  if (std::fabs(right - left) > kKink * scale) {
    const double low = std::min(left, right) - kKink * scale, high = std::max(left, right) + kKink * scale;
    if (!one || (got >= low && got <= high)) return "";
    return fmt::format("got {:.9g}, slopes are {:.9g} and {:.9g}", got, left, right);
  }
  if (std::fabs(got - middle) <= kTolerance * scale) return "";
  return fmt::format("got {:.9g}, differences give {:.9g}", got, middle);
}

/// First, last and one between.
std::vector<size_t> sample(size_t n) {
  std::vector<size_t> at = {0, n / 3, n - 1};
  at.erase(std::unique(at.begin(), at.end()), at.end());
  return n == 0 ? std::vector<size_t>{} : at;
}

std::string check_gradients(const Json& row, const std::map<std::string, Numbers>& grads) {
  const double here = loss_at(row, {});
  if (!std::isfinite(here)) throw Exempt("its result is not finite");
  Moves all;
  double slope = 0;
  for (const auto& [name, g] : grads) {
    Numbers& along = all[name];
    for (size_t i = 0; i < g.size(); ++i) {
      along.push_back(std::sin(1.0 + 1.7 * static_cast<double>(i)));
      slope += along.back() * g[i];
    }
    for (const size_t i : sample(g.size())) {
      Numbers one(g.size());
      one[i] = 1;
      const std::string d = check_slope(row, here, {{name, one}}, g[i], true);
      if (!d.empty()) return fmt::format("gradient of {}, element {}: {}", name, i, d);
    }
  }
  const std::string d = check_slope(row, here, all, slope, false);
  return d.empty() ? "" : "along a direction: " + d;
}

std::string compare_gradients(const Json& row, bool compiled) {
  if (row["upstream"].empty()) throw Exempt("no gradient");
  const OpsRow c = prepare_at(row, {});
  const auto step = [&, upstream = upstreams(row)] { return forward_backward(c, upstream); };
  compiled ? compile(step, compile_options())() : step();
  std::map<std::string, Numbers> grads;
  for (const Json& entry : row["tensors"]) {
    const std::string name = entry["arg"].get<std::string>();
    if (!entry["grad"].get<bool>() || !is_floating(c.tensors.at(name).dtype())) continue;
    const Tensor g = c.tensors.at(name).grad();
    grads[name] = g.defined() ? values_of(g).data : Numbers(static_cast<size_t>(c.tensors.at(name).numel()));
  }
  return check_gradients(row, grads);
}

std::string run(const Json& row, bool compiled) {
  const auto left = std::find_if(std::begin(kLeft), std::end(kLeft),
                                 [&](const Left& l) { return l.id == row["id"].get<std::string>(); });
  if (left == std::end(kLeft)) return compare_gradients(row, compiled);
  try {
    if (!compare_gradients(row, compiled).empty()) throw Exempt(std::string(left->why));
  } catch (const Error&) {
    throw Exempt(std::string(left->why));
  }
  return "passes: drop it from kLeft";
}

}  // namespace
}  // namespace kiln::golden

int main(int argc, char** argv) {
  std::vector<bool> modes = {false};
  if (kiln::option("KILN_TEST_DEVICE") != "cpu" || !kiln::option("KILN_RECORD").empty())
    modes.push_back(true);
  return kiln::golden::ops_main("gradient", argc, argv, modes, kiln::golden::run);
}
