// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/ops_row.h"

#include <iostream>

namespace kiln::golden {

OpsRow prepare(const Json& row, const std::function<Tensor(const Tensor&)>& convert) {
  OpsRow c{row, parse_expression(row["expr"].get<std::string>()), {}, {}};
  for (const auto& [name, value] : row["args"].items()) c.variables[name] = value_of(value);
  for (const Json& entry : row["tensors"]) {
    Tensor t = tensor_of(entry);
    const bool floating = is_floating(t.dtype());
    if (floating && convert) t = convert(t);
    if (entry["grad"].get<bool>() && floating) t.requires_grad_();
    const std::string name = entry["arg"].get<std::string>();
    c.tensors[name] = t;
    c.variables[name] = t;
  }
  return c;
}

namespace {

void flatten_into(std::vector<Tensor>& out, const Value& v) {
  if (v.is<List>()) {
    for (const Value& x : std::get<List>(v.v)) flatten_into(out, x);
  } else {
    out.push_back(v.tensor());
  }
}

}  // namespace

std::vector<Tensor> forward(const OpsRow& c) {
  std::vector<Tensor> out;
  flatten_into(out, evaluate(*c.expr, c.variables));
  return out;
}

std::vector<Tensor> forward_backward(const OpsRow& c, const std::vector<Tensor>& upstream) {
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

int ops_main(const std::string& check, int argc, char** argv, const std::vector<bool>& modes,
             const std::function<std::string(const Json& row, bool compiled)>& run) {
  try {
    Report report(check);
    const Json file = load("ops");
    for (const Json& row : file["cases"]) {
      const std::string id = row["id"].get<std::string>();
      if (row.contains("error") || (argc > 1 && !wanted(id, argv[1]))) continue;
      for (const bool compiled : modes) {
        run_case(report, id, compiled, [&] { return run(row, compiled); });
      }
    }
    return report.finish();
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    return 2;
  }
}

}  // namespace kiln::golden
