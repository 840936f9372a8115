// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/run.h"

#include <exception>
#include <iostream>

#include "frontend/ops.h"
#include "ir/base/options.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

Tensor tensor_of(const Json& entry) {
  const HostTensor t = make_tensor(entry);
  return dispatch(t.dtype, [&]<typename T>(T) -> Tensor {
    const auto* p = reinterpret_cast<const T*>(t.bytes.data());
    return Tensor::from_span(std::span<const T>(p, static_cast<size_t>(t.numel())), t.shape);
  });
}

Values values_of(const Tensor& t) {
  Values v{t.dtype(), t.sizes(), {}};
  // A tensor of any dtype and strides, through its own conversion.
  const std::vector<double> data = to(t.detach(), DType::f64).to_vector<double>();
  v.data.assign(data.begin(), data.end());
  return v;
}

Value value_of(const Json& j) {
  if (j.is_null()) return {};
  if (j.is_boolean()) return j.get<bool>();
  if (j.is_number_integer()) return j.get<int64_t>();
  if (j.is_number()) return j.get<double>();
  if (j.is_array()) {
    List list;
    for (const Json& x : j) list.push_back(value_of(x));
    return list;
  }
  const std::string s = j.get<std::string>();
  if (s == "nan" || s == "inf" || s == "-inf") return number(j);
  return s;
}

void run_case(Report& report, const std::string& id, bool compiled,
              const std::function<std::string()>& body) {
  try {
    const std::string difference = body();
    report.line(id, compiled, difference.empty() ? Outcome::pass : Outcome::fail, difference);
  } catch (const Exempt& e) {
    report.line(id, compiled, Outcome::exempt, e.what());
  } catch (const Unsupported& e) {
    report.line(id, compiled, Outcome::unsupported, e.what());
  } catch (const Error& e) {
    const bool missing = e.kind() == ErrorKind::unsupported;
    report.line(id, compiled, missing ? Outcome::unsupported : Outcome::fail, e.what());
  } catch (const std::exception& e) {
    report.line(id, compiled, Outcome::fail, e.what());
  }
}

bool wanted(const std::string& id, const std::string& filter) {
  if (filter.starts_with('=')) return id == filter.substr(1);
  return id.find(filter) != std::string::npos;
}

namespace {

int run_cases(const std::string& family, const std::string& filter,
              const std::function<void(Report&, const Json& file, const Json& one)>& run) {
  try {
    Report report(family);
    const Json file = load(family);
    for (const Json& j : file["cases"])
      if (wanted(j["id"].get<std::string>(), filter)) run(report, file, j);
    return report.finish();
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    return 2;
  }
}

}  // namespace

int golden_main(const std::string& family, int argc, char** argv,
                const std::function<std::string(const Json&, const Json&, bool)>& run) {
  return run_cases(family, argc > 1 ? argv[1] : "", [&](Report& report, const Json& file, const Json& j) {
    const bool graphs = option("KILN_TEST_DEVICE") == "graphs";  // eager runs have none
    for (const bool compiled : {false, true}) {
      if (!compiled && graphs) continue;
      run_case(report, j["id"].get<std::string>(), compiled, [&] { return run(file, j, compiled); });
    }
  });
}

int golden_main(const std::string& family, const std::string& filter, bool compiled,
                const std::function<std::string(const Json&)>& run) {
  return run_cases(family, filter, [&](Report& report, const Json&, const Json& j) {
    run_case(report, j["id"].get<std::string>(), compiled, [&] { return run(j); });
  });
}

}  // namespace kiln::golden
