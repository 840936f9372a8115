// SPDX-License-Identifier: Apache-2.0
// minilm.json: the real weights of all-MiniLM-L6-v2 in the model of examples/bert, eagerly and compiled.
// Exits with 77 where examples/bert/setup.sh has not brought them.
#include <cmath>
#include <filesystem>

#include "examples/bert/model.h"
#include "examples/bert/wordpiece.h"
#include "tests/golden/mode.h"
#include "tests/golden/run.h"

namespace kiln::golden {
namespace {

constexpr const char* kModel = "data/minilm";

struct Batch {
  Tensor ids, mask;
};

Batch encode(const Json& file) {
  const Json& tokens = file["cases"][0];
  const bert::WordPiece tokenizer(std::string(kModel) + "/vocab.txt");
  const bert::Encoding e =
      tokenizer.encode(tokens["texts"].get<std::vector<std::string>>(), tokens["max_length"].get<size_t>());
  return {Tensor::from_vector(e.input_ids, {e.texts, e.length}),
          Tensor::from_vector(e.attention_mask, {e.texts, e.length})};
}

std::string check_tokens(const Json& file, const Json& j) {
  const Batch b = encode(file);
  const auto flat = [](const Json& rows) {
    std::vector<int64_t> out;
    for (const Json& row : rows)
      for (const Json& v : row) out.push_back(v.get<int64_t>());
    return out;
  };
  if (b.ids.to_vector<int64_t>() != flat(j["input_ids"])) return "other ids";
  return b.mask.to_vector<int64_t>() != flat(j["attention_mask"]) ? "another mask" : "";
}

std::string beyond(const char* what, double got, double expected, double tolerance) {
  if (std::abs(got - expected) <= tolerance) return "";
  return fmt::format("{}: got {}, expected {} within {}", what, got, expected, tolerance);
}

std::string check_embeddings(const Json& j, const Tensor& hidden, const Tensor& embeddings) {
  const std::vector<float> got = embeddings.to_vector<float>();
  const int64_t width = embeddings.size(1);
  const double slack = std::max(8 * j["dev"].get<double>(), 1e-6);
  for (size_t i = 0; i < j["values"].size(); ++i)
    for (size_t k = 0; k < j["values"][i].size(); ++k) {
      const std::string d =
          beyond(fmt::format("embedding {}, element {}", i, k).c_str(),
                 got[i * static_cast<size_t>(width) + k], j["values"][i][k].get<double>(), slack);
      if (!d.empty()) return d;
    }
  const double cosine = (select(embeddings, 0, 0) * select(embeddings, 0, 6)).sum().item();
  std::string d = beyond("cosine of texts 0 and 6", cosine, j["cosine_0_6"].get<double>(), slack);
  double sum = 0, sumsq = 0;
  for (const double v : hidden.to_vector<float>()) sum += v, sumsq += v * v;
  const double expected = j["hidden_sumsq"].get<double>();
  if (d.empty()) d = beyond("sum of squares of the hidden states", sumsq, expected, 4e-6 * expected);
  const double spread = 1e-6 * std::sqrt(static_cast<double>(hidden.numel()) * expected);
  return d.empty() ? beyond("sum of the hidden states", sum, j["hidden_sum"].get<double>(), spread) : d;
}

std::string run_embeddings(const Json& file, const Json& j, bool compiled) {
  bert::Bert model(bert::read_config(std::string(kModel) + "/config.json"));
  bert::load_pretrained(model, kModel);
  model.eval();
  const auto forward = [&](const Tensor& ids, const Tensor& mask) {
    const NoGrad guard;
    return std::pair(model(ids, mask), bert::embed(model, ids, mask));
  };
  const Batch b = encode(file);
  const auto [hidden, embeddings] =
      compiled ? compile(forward, compile_options())(b.ids, b.mask) : forward(b.ids, b.mask);
  return check_embeddings(j, hidden, embeddings);
}

std::string check_norms(const Json& expected, const bert::Classifier& model) {
  std::map<std::string, Tensor> grads;
  for (const auto& [name, p] : model.named_parameters())
    grads[name.starts_with("bert.") ? name.substr(5) : name] = p.grad();
  for (const auto& [name, pair] : expected.items()) {
    if (!grads[name].defined()) return "no gradient of " + name;
    double sum = 0;
    for (const double v : values_of(grads[name]).data) sum += v * v;
    const std::string d = compare_scalar(pair, std::sqrt(sum));
    if (!d.empty()) return fmt::format("gradient norm of {}: {}", name, d);
  }
  return "";
}

std::string run_finetune(const Json& file, const Json& j, bool compiled) {
  bert::Classifier model(bert::read_config(std::string(kModel) + "/config.json"), 3);
  bert::load_pretrained(model.bert(), kModel);
  model.eval();  // no dropout
  {
    const NoGrad guard;
    model.head().weight.copy_(tensor_of({{"name", "minilm/head.weight"},
                                         {"shape", {3, model.bert().config().hidden_size}},
                                         {"dtype", "float32"},
                                         {"lo", -0.05},
                                         {"hi", 0.05}}));
    model.head().bias.zero_();
  }
  optim::AdamW optimizer(model.parameters(), {.lr = 2e-5, .weight_decay = 0.01});
  const Batch b = encode(file);
  const Tensor classes = Tensor::from_vector(std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0}, {7});
  const auto step = [&] {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(model(b.ids, b.mask), classes);
    loss.backward();
    optimizer.step();
    return loss;
  };
  auto f = compile(step, compile_options());
  for (size_t i = 0; i < j["losses"].size(); ++i) {
    const double loss = (compiled ? f() : step()).item();
    std::string d = i == 0 ? compare_scalar(j["losses"][i], loss) : compare_late_loss(j["losses"][i], loss);
    if (!d.empty()) return fmt::format("loss {}: {}", i, d);
    if (i == 0) d = check_norms(j["grad_norms_step1"], model);
    if (!d.empty()) return d;
  }
  return compiled && f.stats().builds.size() != 1 ? "more than one build" : "";
}

std::string run(const Json& file, const Json& j, bool compiled) {
  const std::string id = j["id"].get<std::string>();
  if (id == "minilm/tokens") return check_tokens(file, j);
  return id == "minilm/embeddings" ? run_embeddings(file, j, compiled) : run_finetune(file, j, compiled);
}

}  // namespace
}  // namespace kiln::golden

int main(int argc, char** argv) {
  if (!std::filesystem::exists(kiln::golden::kModel)) {
    fmt::print("skipped: no {} (examples/bert/setup.sh brings it)\n", kiln::golden::kModel);
    return 77;
  }
  return kiln::golden::golden_main("minilm", argc, argv, kiln::golden::run);
}
