// SPDX-License-Identifier: Apache-2.0
// models.json: the models that Kiln's modules can build, trained for the file's steps, eagerly and compiled.
#include "frontend/kiln.h"
#include "tests/golden/mode.h"
#include "tests/golden/models.h"
#include "tests/golden/run.h"
#include "tests/golden/train.h"

namespace kiln::golden {
namespace {

template <typename Step>
std::string train(const Model& model, const Json& j, Step&& step) {
  for (int64_t i = 0; i < j["steps"].get<int64_t>(); ++i) {
    const double loss = step().item();
    const Json& pair = j["losses"][static_cast<size_t>(i)];
    std::string d = i == 0 ? compare_scalar(pair, loss) : compare_late_loss(pair, loss);
    if (!d.empty()) return fmt::format("loss {}: {}", i, d);
    if (i == 0) d = check_gradients(model, j["grad_norms_step1"]);
    if (d.empty()) d = check_buffers(model, j, i);
    if (!d.empty()) return d;
  }
  return check_parameters(model, j);
}

std::string run(const Json& j, bool compiled) {
  const std::unique_ptr<Model> model = build_model(j);
  const auto optimizer =
      make_optimizer(j["optimizer"].get<std::string>(), j["optimizer_args"], model->parameters());
  const Inputs in = model_inputs(j);
  const auto step = [&] {
    optimizer->zero_grad();
    const Tensor loss = model->loss(in);
    loss.backward();
    optimizer->step();
    return loss;
  };
  if (!compiled) return train(*model, j, step);
  auto f = compile(step, compile_options());
  const std::string d = train(*model, j, f);
  const CallableStats stats = f.stats();
  if (d.empty() && stats.builds.size() != 1) return fmt::format("{} builds, expected 1", stats.builds.size());
  return d.empty() ? unrecorded(stats) : d;
}

}  // namespace
}  // namespace kiln::golden

int main(int argc, char** argv) {
  using kiln::golden::Json;
  return kiln::golden::golden_main("models", argc, argv, [](const Json&, const Json& j, bool compiled) {
    return kiln::golden::run(j, compiled);
  });
}
