// SPDX-License-Identifier: Apache-2.0
// models.json among ranks: each trains on its rows of the batch, and all end where PyTorch's one process ends
// with the same bits.
#include "frontend/nn/distributed_data_parallel.h"
#include "tests/golden/eval.h"
#include "tests/golden/models.h"
#include "tests/golden/ranks.h"
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

struct Trained {
  std::vector<double> losses;
  std::string bits;
};

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

std::string train(const Json& j, bool compiled, int rank, int world, const GroupPtr& group, Trained& out) {
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

std::string run(const Json& j, bool compiled, int world, bool gloo) {
  std::vector<Trained> trained(static_cast<size_t>(world));
  const std::string d = first_difference(on_ranks(world, gloo, [&](int rank, const GroupPtr& group) {
    return train(j, compiled, rank, world, group, trained[static_cast<size_t>(rank)]);
  }));
  if (!d.empty()) return d;
  for (const Trained& t : trained)
    if (t.bits != trained[0].bits) return "the ranks' parameters have other bits";
  for (size_t i = 0; i < trained[0].losses.size(); ++i) {
    double mean = 0;
    for (const Trained& t : trained) mean += t.losses[i] / world;
    const Json& pair = j["losses"][i];
    const std::string of = i == 0 ? compare_scalar(pair, mean) : compare_late_loss(pair, mean);
    if (!of.empty()) return fmt::format("mean loss {}: {}", i, of);
  }
  return "";
}

}  // namespace
}  // namespace kiln::golden

int main(int argc, char** argv) {
  using namespace kiln::golden;
  return golden_main("models", argc, argv, [](const Json&, const Json& j, bool compiled) -> std::string {
    const std::string id = j["id"];
    // One with a batch that four ranks share and one with tied weights; the others are the same again.
    if (id != "mlp" && id != "gpt-tiny") throw Unsupported("run by one process in models_golden_test");
    for (const int world : {1, 2, 4}) {
      const std::string d = run(j, compiled, world, false);
      if (!d.empty()) return fmt::format("{} ranks: {}", world, d);
    }
    const std::string d = compiled ? run(j, compiled, 2, true) : "";
    if (!d.empty()) return "2 ranks, gloo: " + d;
    return "";
  });
}
