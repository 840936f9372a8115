// SPDX-License-Identifier: Apache-2.0
// The GPT-2 example: checkpoints in the form of Hugging Face's, and the numbers of PyTorch's gpt-tiny.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "examples/gpt2/model.h"
#include "tests/golden/run.h"

namespace gpt2 {
namespace KILN_FILE {

namespace fs = std::filesystem;
using kiln::NamedTensors;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const kiln::Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  }
  return "no error";
}

class Gpt2Files : public ::testing::Test {
 protected:
  Gpt2Files() : dir_((fs::temp_directory_path() / ("kiln-gpt2-" + std::to_string(getpid()))).string()) {
    fs::create_directories(dir_);
  }
  ~Gpt2Files() override { fs::remove_all(dir_); }
  Config config(const std::string& more = "") const {
    std::ofstream(dir_ + "/config.json")
        << R"({"model_type": "gpt2", "vocab_size": 96, "n_positions": 32, "n_embd": 64, "n_layer": 2,
               "n_head": 4, "n_inner": null)"
        << more << "}";
    return read_config(dir_ + "/config.json");
  }
  std::string config_error(const std::string& more) const {
    std::string text = error_of([&] { config(more); });
    const std::string path = dir_ + "/config.json";
    if (const size_t at = text.find(path); at != std::string::npos) text.replace(at, path.size(), "@");
    return text;
  }
  /// What a checkpoint of transformers has for this model: matrices of blocks are [in, out].
  static NamedTensors checkpoint_of(const Gpt2& model, const std::string& prefix) {
    NamedTensors out;
    for (const auto& [name, t] : model.state_dict()) {
      const bool matrix = t.dim() == 2 && name.find(".h.") != std::string::npos;
      out.emplace_back(prefix + name.substr(12), matrix ? kiln::t(t.detach()) : t);
    }
    return out;
  }
  void save(const NamedTensors& state) const { kiln::save_file(state, dir_ + "/model.safetensors"); }
  std::string dir_;
};

std::vector<float> logits_of(Gpt2& model) {
  const kiln::NoGrad guard;
  model.eval();
  return model(Tensor::from_vector(std::vector<int64_t>{5, 6, 7, 8}, {2, 2})).to_vector<float>();
}

TEST_F(Gpt2Files, LossOfPyTorchsGptTiny) {
  const kiln::golden::Json file = kiln::golden::load("models");
  for (const kiln::golden::Json& j : file["cases"]) {
    if (j["id"] != "gpt-tiny") continue;
    // The names that transformers gives to the same weights; its attention has a bias.
    const std::vector<std::pair<std::regex, std::string>> names = {
        {std::regex("^blocks"), "h"},           {std::regex("\\.ln([12])"), ".ln_$1"},
        {std::regex("\\.qkv"), ".attn.c_attn"}, {std::regex("\\.proj"), ".attn.c_proj"},
        {std::regex("\\.fc"), ".mlp.c_fc"},     {std::regex("\\.out"), ".mlp.c_proj"}};
    NamedTensors state;
    for (const auto& entry : j["tensors"]) {
      std::string name = entry["param"].get<std::string>();
      for (const auto& [from, to] : names) name = std::regex_replace(name, from, to);
      const Tensor t = kiln::golden::tensor_of(entry);
      const bool matrix = t.dim() == 2 && name.starts_with("h.");
      state.emplace_back("transformer." + name, matrix ? kiln::t(t) : t);
    }
    for (const char* block : {"0", "1"})
      state.emplace_back(fmt::format("transformer.h.{}.attn.c_attn.bias", block), kiln::zeros({192}));
    save(state);
    Gpt2 model(config());
    load_pretrained(model, dir_);
    model.eval();
    const Tensor ids = kiln::golden::tensor_of(j["inputs"][0]);
    const auto loss = [&](const Tensor& x) {
      const kiln::NoGrad guard;
      const Tensor logits = kiln::slice(model(x), 1, 0, 31).reshape({-1, 96});
      return kiln::cross_entropy(logits, kiln::slice(x, 1, 1, 32).reshape({-1}));
    };
    EXPECT_EQ(kiln::golden::compare_scalar(j["losses"][0], loss(ids).item()), "");
    EXPECT_EQ(kiln::golden::compare_scalar(j["losses"][0], kiln::compile(loss)(ids).item()), "");
    return;
  }
  FAIL() << "no gpt-tiny among the goldens";
}

TEST_F(Gpt2Files, CheckpointsWithAndWithoutPrefixMasksAndHead) {
  Gpt2 a(config()), b(config()), c(config());
  NamedTensors state = checkpoint_of(a, "transformer.");
  state.emplace_back("lm_head.weight", a.state_dict()[0].second);
  save(state);
  load_pretrained(b, dir_);
  EXPECT_EQ(logits_of(a), logits_of(b));

  state = checkpoint_of(a, "");
  state.emplace_back("h.0.attn.bias", kiln::ones({1, 1, 32, 32}));
  state.emplace_back("h.0.attn.masked_bias", kiln::full({}, -1e4));
  save(state);
  load_pretrained(c, dir_);
  EXPECT_EQ(logits_of(a), logits_of(c));
}

TEST_F(Gpt2Files, ShardsAreLoaded) {
  Gpt2 a(config()), b(config());
  const NamedTensors state = checkpoint_of(a, "transformer.");
  const auto half = static_cast<ptrdiff_t>(state.size() / 2);
  std::string map;
  for (size_t i = 0; i < state.size(); ++i)
    map += fmt::format("{}\"{}\":\"{}.safetensors\"", i ? "," : "", state[i].first,
                       static_cast<ptrdiff_t>(i) < half ? "a" : "b");
  kiln::save_file({state.begin(), state.begin() + half}, dir_ + "/a.safetensors");
  kiln::save_file({state.begin() + half, state.end()}, dir_ + "/b.safetensors");
  std::ofstream(dir_ + "/model.safetensors.index.json") << "{\"weight_map\":{" << map << "}}";
  load_pretrained(b, dir_);
  EXPECT_EQ(logits_of(a), logits_of(b));
}

TEST_F(Gpt2Files, CheckpointsThatDoNotFitSayHow) {
  Gpt2 a(config()), b(config());
  NamedTensors state = checkpoint_of(a, "");
  for (auto& [name, t] : state)
    if (name == "h.1.attn.c_attn.weight") t = kiln::t(t);
  state.erase(state.begin());
  save(state);
  EXPECT_EQ(error_of([&] { load_pretrained(b, dir_); }),
            "invalid: checkpoint " + dir_ +
                ": it does not fit the model of its config.json\n"
                "  missing: transformer.wte.weight f32[96,64]\n"
                "  transformer.h.1.attn.c_attn.weight: got f32[64,192], expected f32[192,64]");
  state = checkpoint_of(a, "transformer.");
  state.emplace_back("wte.weight", kiln::zeros({1}));
  save(state);
  EXPECT_THAT(error_of([&] { load_pretrained(b, dir_); }),
              HasSubstr("\n  twice: transformer.wte.weight (as "));
  state.back() = {"lm_head.weight", kiln::zeros({96, 64})};
  save(state);
  EXPECT_THAT(error_of([&] { load_pretrained(b, dir_); }),
              HasSubstr("'lm_head.weight' is not 'transformer.wte.weight'"));
}

TEST_F(Gpt2Files, ConfigsThatAreOtherModels) {
  EXPECT_EQ(config().n_inner, 256);
  EXPECT_EQ(config(R"(, "activation_function": "gelu")").activation, kiln::GeluApproximate::none);
  EXPECT_EQ(config_error(R"(, "activation_function": "relu")"),
            "unsupported: config @: 'activation_function' is \"relu\"; expected \"gelu_new\", "
            "\"gelu_pytorch_tanh\" or \"gelu\"");
  EXPECT_EQ(config_error(R"(, "tie_word_embeddings": false)"),
            "unsupported: config @: 'tie_word_embeddings' is false; expected true");
  EXPECT_EQ(config_error(R"(, "add_cross_attention": true)"),
            "unsupported: config @: 'add_cross_attention' is true; expected false");
  EXPECT_EQ(config_error(R"(, "scale_attn_weights": 1)"),
            "invalid: config @: bad 'scale_attn_weights'; got 1, expected true or false");
  EXPECT_EQ(config_error(R"(, "n_head": 5)"), "invalid: config @: 'n_embd' 64 is no multiple of 'n_head' 5");
  EXPECT_EQ(config_error(R"(, "model_type": "bert")"),
            "invalid: config @: a model of another family; got \"bert\", expected \"gpt2\"");
  EXPECT_EQ(config_error(R"(, "activation_function": 3)"),
            "invalid: config @: bad 'activation_function'; got 3, expected a string");
}

TEST_F(Gpt2Files, GenerationTakesTheLikeliestToken) {
  Gpt2 model(config(R"(, "initializer_range": 0.5)"));
  const std::vector<int64_t> got = generate(model, {3, 1}, 4);
  ASSERT_EQ(got.size(), 6u);
  for (size_t n = 2; n < got.size(); ++n) {
    const kiln::NoGrad guard;
    const Tensor ids =
        Tensor::from_vector(std::vector<int64_t>(got.begin(), got.begin() + static_cast<ptrdiff_t>(n)),
                            {1, static_cast<int64_t>(n)});
    EXPECT_EQ(kiln::argmax(model(ids), 2).to_vector<int64_t>().back(), got[n]);
  }
  EXPECT_EQ(generate(model, {3}, 0), (std::vector<int64_t>{3}));
  EXPECT_EQ(error_of([&] { generate(model, {}, 1); }), "invalid: generate: no tokens to go on from");
  EXPECT_EQ(error_of([&] { generate(model, {96}, 1); }), "invalid: generate: 96 is no token; there are 96");
  EXPECT_EQ(error_of([&] { generate(model, {1}, 32); }),
            "invalid: generate: 33 tokens; this model has positions for 32");
}

}  // namespace KILN_FILE
}  // namespace gpt2
