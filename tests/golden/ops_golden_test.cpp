// SPDX-License-Identifier: Apache-2.0
// ops.json: every case evaluates the expression that PyTorch evaluated, forward and backward, eagerly and
// compiled (built, then followed once more).
#include <cstring>
#include <map>

#include "frontend/compile.h"
#include "frontend/ops.h"
#include "tests/golden/eval.h"
#include "tests/golden/run.h"

namespace kiln::golden {
namespace {

struct Case {
  const Json& json;
  NodePtr expr;
  Variables variables;
  std::map<std::string, Tensor> tensors;
};

Case prepare(const Json& j) {
  Case c{j, parse_expression(j["expr"].get<std::string>()), {}, {}};
  for (const auto& [name, value] : j["args"].items()) c.variables[name] = value_of(value);
  for (const Json& entry : j["tensors"]) {
    Tensor t = tensor_of(entry);
    if (entry["grad"].get<bool>() && is_floating(t.dtype())) t.requires_grad_();
    const std::string name = entry["arg"].get<std::string>();
    c.tensors[name] = t;
    c.variables[name] = t;
  }
  return c;
}

// Nested results (a tuple of lists) count as one flat list, as in the file.
void flatten_into(std::vector<Tensor>& out, const Value& v) {
  if (v.is<List>()) {
    for (const Value& x : std::get<List>(v.v)) flatten_into(out, x);
  } else {
    out.push_back(v.tensor());
  }
}

std::vector<Tensor> forward(const Case& c) {
  std::vector<Tensor> out;
  flatten_into(out, evaluate(*c.expr, c.variables));
  return out;
}

std::vector<Tensor> forward_backward(const Case& c, const std::vector<Tensor>& upstream) {
  std::vector<Tensor> out = forward(c);
  const Json& rows = c.json["upstream"];
  std::vector<std::pair<size_t, size_t>> used;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto at = rows[i]["output"].get<size_t>();
    if (at < out.size() && out[at].requires_grad()) used.emplace_back(at, i);
  }
  for (size_t k = 0; k < used.size(); ++k)
    out[used[k].first].backward(upstream[used[k].second], k + 1 < used.size());
  return out;
}

std::string compare_outputs(const Case& c, const std::vector<Tensor>& out) {
  const Json& expected = c.json["outputs"];
  if (out.size() != expected.size())
    return fmt::format("got {} outputs, expected {}", out.size(), expected.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const std::string d = compare(expected[i], values_of(out[i]));
    if (!d.empty()) return fmt::format("output {}: {}", i, d);
  }
  return "";
}

std::string compare_grads(const Case& c) {
  for (const auto& [name, expected] : c.json["grads"].items()) {
    const Tensor g = c.tensors.at(name).grad();
    if (expected.is_null() != !g.defined())
      return fmt::format("gradient of {}: got {}, expected {}", name, g.defined() ? "one" : "none",
                         expected.is_null() ? "none" : "one");
    const std::string d = expected.is_null() ? "" : compare(expected, values_of(g));
    if (!d.empty()) return fmt::format("gradient of {}: {}", name, d);
  }
  return "";
}

std::string compare_mutated(const Case& c) {
  if (!c.json.contains("mutated")) return "";
  for (const auto& [name, expected] : c.json["mutated"].items()) {
    const std::string d = compare(expected, values_of(c.tensors.at(name)));
    if (!d.empty()) return fmt::format("{} after the call: {}", name, d);
  }
  return "";
}

std::string check(const Case& c, const std::vector<Tensor>& out) {
  std::string d = compare_outputs(c, out);
  if (d.empty()) d = compare_grads(c);
  return d.empty() ? compare_mutated(c) : d;
}

template <typename F>
std::string check_error(F&& run) {
  try {
    run();
  } catch (const Error& e) {
    return e.kind() == ErrorKind::invalid ? "" : fmt::format("another error: {}", e.what());
  }
  return "got a result, expected an error";
}

std::string run_eager(const Json& j) {
  const Case c = prepare(j);
  if (j.contains("error")) return check_error([&] { forward(c); });
  std::vector<Tensor> upstream;
  for (const Json& u : j["upstream"]) upstream.push_back(tensor_of(u));
  return check(c, forward_backward(c, upstream));
}

std::string run_compiled(const Json& j) {
  Case c = prepare(j);
  if (j.contains("error")) {
    auto f = compile([&] { return forward(c); });
    return check_error([&] { f(); });
  }
  std::vector<Tensor> upstream;
  for (const Json& u : j["upstream"]) upstream.push_back(tensor_of(u));
  auto f = compile([&] { return forward_backward(c, upstream); });
  const std::string first = check(c, f());
  if (!first.empty() || j.contains("mutated")) return first;
  for (auto& [name, t] : c.tensors) t.set_grad({});
  const std::string again = check(c, f());
  return again.empty() ? "" : "second call: " + again;
}

}  // namespace
}  // namespace kiln::golden

int main(int argc, char** argv) {
  using kiln::golden::Json;
  return kiln::golden::golden_main("ops", argc, argv, [](const Json&, const Json& j, bool compiled) {
    return compiled ? kiln::golden::run_compiled(j) : kiln::golden::run_eager(j);
  });
}
