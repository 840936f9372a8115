// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/models_ranks.h"

#include "frontend/nn/distributed_data_parallel.h"
#include "tests/golden/eval.h"
#include "tests/golden/run.h"
#include "tests/golden/train.h"

namespace kiln::golden {

namespace {

/// Rows of a rank; every input has the batch first.
Inputs part(const Inputs& all, int rank, int world) {
  Inputs mine;
  for (const auto& [name, t] : all) {
    const int64_t rows = t.sizes()[0] / world;
    mine[name] = narrow(t, 0, rank * rows, rows).clone();
  }
  return mine;
}

std::string bits_of(const Model& model) {
  std::string out;
  for (const auto& [name, p] : model.named_parameters())
    for (const float v : p.to_vector<float>()) out.append(reinterpret_cast<const char*>(&v), sizeof v);
  return out;
}

/// DistributedDataParallel calls modules on tensors; the model's inputs are the rank's own.
struct Lossy : nn::Module {
  Lossy(Model& m, Inputs in) : model(m), inputs(std::move(in)) { register_module("model", model); }
  Tensor forward(const Tensor&) override { return model.loss(inputs); }
  Model& model;
  Inputs inputs;
};

}  // namespace

std::string train_rank(const Json& j, bool compiled, int rank, int world, const GroupPtr& group,
                       Trained& out) {
  const std::unique_ptr<Model> model = build_model(j);
  Lossy lossy(*model, part(model_inputs(j), rank, world));
  nn::DistributedDataParallel ddp(lossy, group, {.bucket_cap_mb = 1});
  const auto optimizer =
      make_optimizer(j["optimizer"].get<std::string>(), j["optimizer_args"], model->parameters());
  const Tensor nothing = zeros({});
  const auto step = [&] {
    optimizer->zero_grad();
    const Tensor loss = ddp(nothing);
    loss.backward();
    optimizer->step();
    return loss;
  };
  const auto fast = compile(step);
  for (int64_t i = 0; i < j["steps"].get<int64_t>(); ++i) {
    out.losses.push_back((compiled ? fast() : step()).item());
    const std::string d = i == 0 ? check_gradients(*model, j["grad_norms_step1"]) : "";
    if (!d.empty()) return d;
  }
  if (compiled && fast.stats().builds.size() != 1)
    return fmt::format("{} builds", fast.stats().builds.size());
  out.bits = bits_of(*model);
  return check_parameters(*model, j);
}

std::string compare_ranks(const Json& j, const std::vector<Trained>& ranks) {
  for (const Trained& t : ranks)
    if (t.bits != ranks[0].bits) return "the ranks' parameters have other bits";
  for (size_t i = 0; i < ranks[0].losses.size(); ++i) {
    double mean = 0;
    for (const Trained& t : ranks) mean += t.losses[i] / static_cast<double>(ranks.size());
    const Json& pair = j["losses"][i];
    const std::string of = i == 0 ? compare_scalar(pair, mean) : compare_late_loss(pair, mean);
    if (!of.empty()) return fmt::format("mean loss {}: {}", i, of);
  }
  return "";
}

}  // namespace kiln::golden
