// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/train.h"

#include <map>

#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

/// Reads arguments, and knows at the end which were not asked for.
class Arguments {
 public:
  explicit Arguments(const Json& args) {
    for (const auto& [key, value] : args.items()) left_[key] = value;
  }
  double real(const std::string& key, double fallback) {
    const auto it = left_.find(key);
    if (it == left_.end()) return fallback;
    const double v = number(it->second);
    left_.erase(it);
    return v;
  }
  void betas(double& a, double& b) {
    const auto it = left_.find("betas");
    if (it == left_.end()) return;
    a = number(it->second[0]);
    b = number(it->second[1]);
    left_.erase(it);
  }
  void done(const std::string& name) const {
    if (!left_.empty()) throw Unsupported(name + ": argument " + left_.begin()->first);
  }

 private:
  std::map<std::string, Json> left_;
};

}  // namespace

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& name, const Json& args,
                                                 std::vector<Tensor> params) {
  Arguments a(args);
  if (name == "SGD") {
    optim::SGDOptions o;
    o.lr = a.real("lr", o.lr);
    o.momentum = a.real("momentum", o.momentum);
    o.dampening = a.real("dampening", o.dampening);
    o.weight_decay = a.real("weight_decay", o.weight_decay);
    o.nesterov = a.real("nesterov", 0) != 0;
    a.done(name);
    return std::make_unique<optim::SGD>(std::move(params), o);
  }
  if (name == "AdamW") {
    optim::AdamWOptions o;
    o.lr = a.real("lr", o.lr);
    a.betas(o.beta1, o.beta2);
    o.eps = a.real("eps", o.eps);
    o.weight_decay = a.real("weight_decay", o.weight_decay);
    a.done(name);
    return std::make_unique<optim::AdamW>(std::move(params), o);
  }
  throw Unsupported("optimizer " + name);
}

}  // namespace kiln::golden
