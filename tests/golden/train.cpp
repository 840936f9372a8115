// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/train.h"

#include "frontend/optim/adagrad.h"
#include "frontend/optim/adam.h"
#include "frontend/optim/sgd.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

/// The names of what is a pair or a list in PyTorch.
std::vector<std::string> members_of(const std::string& argument) {
  if (argument == "betas") return {"beta1", "beta2"};
  if (argument == "etas") return {"eta_minus", "eta_plus"};
  if (argument == "step_sizes") return {"step_size_min", "step_size_max"};
  if (argument == "ns_coefficients") return {"ns_a", "ns_b", "ns_c"};
  return {argument};
}

void set(const std::vector<optim::Hyper>& all, const std::string& name, const Json& value,
         const std::string& optimizer) {
  for (const optim::Hyper& h : all)
    if (h.name == name) return h.set(value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0) : number(value));
  throw Unsupported(optimizer + ": argument " + name);
}

template <typename Class, typename Options>
std::unique_ptr<optim::Optimizer> make(const std::string& name, const Json& args,
                                       std::vector<Tensor> params) {
  Options o;
  for (const auto& [key, value] : args.items()) {
    const std::vector<std::string> members = members_of(key);
    for (size_t k = 0; k < members.size(); ++k)
      set(o.hypers(), members[k], members.size() == 1 ? value : value[k], name);
  }
  return std::make_unique<Class>(std::move(params), o);
}

}  // namespace

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& name, const Json& args,
                                                 std::vector<Tensor> params) {
  using namespace optim;  // NOLINT: its classes, by name
  using Make = std::unique_ptr<Optimizer> (*)(const std::string&, const Json&, std::vector<Tensor>);
  static const std::pair<const char*, Make> kClasses[] = {{"Adadelta", make<Adadelta, AdadeltaOptions>},
                                                          {"Adafactor", make<Adafactor, AdafactorOptions>},
                                                          {"Adagrad", make<Adagrad, AdagradOptions>},
                                                          {"Adam", make<Adam, AdamOptions>},
                                                          {"AdamW", make<AdamW, AdamWOptions>},
                                                          {"Adamax", make<Adamax, AdamaxOptions>},
                                                          {"ASGD", make<ASGD, ASGDOptions>},
                                                          {"Muon", make<Muon, MuonOptions>},
                                                          {"NAdam", make<NAdam, NAdamOptions>},
                                                          {"RAdam", make<RAdam, RAdamOptions>},
                                                          {"RMSprop", make<RMSprop, RMSpropOptions>},
                                                          {"Rprop", make<Rprop, RpropOptions>},
                                                          {"SGD", make<SGD, SGDOptions>}};
  for (const auto& [known, maker] : kClasses)
    if (name == known) return maker(name, args, std::move(params));
  throw Unsupported("optimizer " + name);
}

}  // namespace kiln::golden
