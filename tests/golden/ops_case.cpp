// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/ops_case.h"

#include "frontend/compile.h"
#include "tests/golden/mode.h"
#include "tests/golden/ops_row.h"

namespace kiln::golden {
namespace {

using Case = OpsRow;

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

/// What KILN_DUMP asks for goes into a folder per row.
void dump_to(const std::string& id) {
  static const std::string folder = option("KILN_DUMP_DIR");
  if (!option("KILN_DUMP").empty()) set_option("KILN_DUMP_DIR", folder + "/" + id);
}

}  // namespace

std::string run_ops_eagerly(const Json& j) {
  const Case c = prepare(j);
  if (j.contains("error")) return check_error([&] { forward(c); });
  std::vector<Tensor> upstream;
  for (const Json& u : j["upstream"]) upstream.push_back(tensor_of(u));
  return check(c, forward_backward(c, upstream));
}

std::string run_ops_compiled(const Json& j) {
  dump_to(j["id"].get<std::string>());
  Case c = prepare(j);
  if (j.contains("error")) {
    auto f = compile([&] { return forward(c); });
    // A GPU tells when its results are read.
    return check_error([&] {
      for (const Tensor& t : f()) values_of(t);
    });
  }
  std::vector<Tensor> upstream;
  for (const Json& u : j["upstream"]) upstream.push_back(tensor_of(u));
  auto f = compile([&] { return forward_backward(c, upstream); }, compile_options());
  const std::string first = check(c, f());
  if (!first.empty() || j.contains("mutated")) return first;
  for (const char* call : {"second", "third"}) {
    for (auto& [name, t] : c.tensors) t.set_grad({});
    const std::string again = check(c, f());
    if (!again.empty()) return fmt::format("{} call: {}", call, again);
  }
  return unrecorded(f.stats());
}

}  // namespace kiln::golden
