// SPDX-License-Identifier: Apache-2.0
// optim.json: optimizers, schedules and gradient clipping on a small net, eagerly and compiled.
#include <cmath>
#include <map>

#include "frontend/kiln.h"
#include "tests/golden/eval.h"
#include "tests/golden/mode.h"
#include "tests/golden/run.h"
#include "tests/golden/train.h"

namespace kiln::golden {
namespace {

const std::vector<std::string> kParams = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};

struct Net {
  explicit Net(const Json& file) {
    for (const Json& entry : file["config"]["tensors"])
      tensors[entry["arg"].get<std::string>()] = tensor_of(entry);
    for (const std::string& name : kParams) params.push_back(tensors.at(name).requires_grad_());
  }
  Tensor loss() const {
    const Tensor hidden = tanh(linear(tensors.at("x"), params[0], params[1]));
    return mse_loss(linear(hidden, params[2], params[3]), tensors.at("y"));
  }
  std::map<std::string, Tensor> tensors;
  std::vector<Tensor> params;
};

std::string check_params(const Net& net, const Json& expected, const char* what) {
  for (const auto& [name, e] : expected.items()) {
    const std::string d = compare(e, values_of(net.tensors.at(name)));
    if (!d.empty()) return fmt::format("{} {}: {}", name, what, d);
  }
  return "";
}

// The file has the state of fc2 by PyTorch's names.
std::string check_state(const Net& net, const optim::Optimizer& optimizer, const Json& expected) {
  std::map<std::string, Tensor> state;
  for (const auto& [name, t] : optimizer.state_dict()) state[name] = t;
  for (const auto& [param, entries] : expected.items()) {
    size_t at = 0;
    while (optimizer.params()[at].impl() != net.tensors.at(param).impl()) ++at;
    for (const auto& [name, e] : entries.items()) {
      const std::string key = fmt::format("{}.{}", at, name);
      if (!state.contains(key)) return "no state " + key;
      Values got = values_of(state[key]);
      if (got.shape.empty()) got.dtype = DType::f32;  // numbers that the host keeps
      const std::string d = compare(e, got);
      if (!d.empty()) return fmt::format("state {}: {}", key, d);
    }
  }
  return "";
}

template <typename Step>
std::string run_losses(const Json& losses, Step&& step) {
  for (size_t i = 0; i < losses.size(); ++i) {
    const double loss = step().item();
    const std::string d = i == 0 ? compare_scalar(losses[i], loss) : compare_late_loss(losses[i], loss);
    if (!d.empty()) return fmt::format("loss {}: {}", i, d);
  }
  return "";
}

template <typename F>
std::string as_mode(bool compiled, F step, const Json& losses) {
  if (!compiled) return run_losses(losses, step);
  auto f = compile(step, compile_options());
  const std::string d = run_losses(losses, f);
  return d.empty() ? unrecorded(f.stats()) : d;
}

std::string run_optimizer(const Json& file, const Json& j, bool compiled) {
  Net net(file);
  const std::string name = j["optimizer"].get<std::string>();
  std::vector<Tensor> trained = net.params;
  if (name == "Muon") std::erase_if(trained, [](const Tensor& p) { return p.dim() != 2; });
  const auto optimizer = make_optimizer(name, j["args"], trained);
  const auto step = [&] {
    optimizer->zero_grad();
    for (Tensor& p : net.params) p.set_grad({});
    const Tensor loss = net.loss();
    loss.backward();
    optimizer->step();
    return loss;
  };
  std::string d = as_mode(compiled, step, j["losses"]);
  if (d.empty()) d = check_params(net, j["params"], "after the steps");
  return d.empty() ? check_state(net, *optimizer, j["state"]) : d;
}

std::string run_clip(const Json& file, const Json& j, bool compiled) {
  Net net(file);
  const Json& args = j["args"];
  const bool by_norm = args["kind"] == "norm";
  const auto step = [&] {
    for (Tensor& p : net.params) p.set_grad({});
    const Tensor loss = net.loss();
    loss.backward();
    if (by_norm)
      return optim::clip_grad_norm_(net.params, number(args["max_norm"]), number(args["norm_type"]));
    optim::clip_grad_value_(net.params, number(args["clip_value"]));
    return loss;
  };
  std::string d;
  if (by_norm) d = as_mode(compiled, step, Json::array({j["total_norm"]}));
  else if (compiled) compile(step, compile_options())();
  else step();
  for (size_t i = 0; d.empty() && i < kParams.size(); ++i) {
    d = compare(j["grads"][kParams[i]], values_of(net.params[i].grad()));
    if (!d.empty()) d = fmt::format("gradient of {}: {}", kParams[i], d);
  }
  return d;
}

std::string run_clip_training(const Json& file, const Json& j, bool compiled) {
  Net net(file);
  Json args = j["args"];
  for (const char* key : {"max_norm", "norm_type"}) args.erase(key);
  const auto optimizer = make_optimizer(j["optimizer"].get<std::string>(), args, net.params);
  std::vector<Tensor> norms;
  const auto step = [&] {
    optimizer->zero_grad();
    const Tensor loss = net.loss();
    loss.backward();
    norms.push_back(optim::clip_grad_norm_(net.params, number(j["args"]["max_norm"])));
    optimizer->step();
    return loss;
  };
  std::string d = as_mode(compiled, step, j["losses"]);
  for (size_t i = 0; d.empty() && i < norms.size(); ++i) {
    d = compare_late_loss(j["total_norms"][i], norms[i].item());
    if (!d.empty()) d = fmt::format("norm {}: {}", i, d);
  }
  return d.empty() ? check_params(net, j["params"], "after the steps") : d;
}

/// One rate per step, and one more after the last.
std::string run_schedule(const Json& file, const Json& j, bool compiled) {
  Net net(file);
  optim::SGD optimizer(net.params, {.lr = number(j["base_lr"]), .momentum = 0.9});
  const Schedule schedule = make_schedule(j["scheduler"].get<std::string>(), j["args"], optimizer);
  const auto step = [&] {
    optimizer.zero_grad();
    net.loss().backward();
    optimizer.step();
  };
  const auto compiled_step = compile(step, compile_options());
  const Json& lrs = j["lrs"];
  const auto differs = [](const Json& expected, double got) {
    return std::abs(got - number(expected)) > 1e-12 * std::abs(number(expected));
  };
  for (size_t i = 0; i < lrs.size(); ++i) {
    if (differs(lrs[i], optimizer.lr)) return fmt::format("lr {}: {}", i, double{optimizer.lr});
    if (differs(lrs[i], schedule.rates()[0])) return fmt::format("get_last_lr {}", i);
    if (i + 1 == lrs.size()) break;
    if (j.contains("momenta") && differs(j["momenta"][i], optimizer.options().momentum))
      return fmt::format("momentum {}: {}", i, optimizer.options().momentum);
    if (compiled) compiled_step();
    else step();
    schedule.step(j.contains("metrics") ? number(j["metrics"][i]) : 0);
  }
  const CallableStats stats = compiled_step.stats();
  if (stats.builds.size() != (compiled ? 1 : 0)) return fmt::format("{} builds", stats.builds.size());
  return unrecorded(stats);
}

std::string run(const Json& file, const Json& j, bool compiled) {
  const std::string kind = j["kind"].get<std::string>();
  if (kind == "optimizer") return run_optimizer(file, j, compiled);
  if (kind == "schedule") return run_schedule(file, j, compiled);
  if (kind == "clip") return run_clip(file, j, compiled);
  if (kind == "clip_training") return run_clip_training(file, j, compiled);
  throw Unsupported("kind " + kind);
}

}  // namespace
}  // namespace kiln::golden

int main(int argc, char** argv) { return kiln::golden::golden_main("optim", argc, argv, kiln::golden::run); }
