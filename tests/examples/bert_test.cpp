// SPDX-License-Identifier: Apache-2.0
// The BERT example with a model of a few numbers: config, checkpoints, sayings, comparison and training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "examples/bert/bag_of_words.h"
#include "examples/bert/finetune.h"

namespace bert {
namespace KILN_FILE {

namespace fs = std::filesystem;
using kiln::NamedTensors;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kTiny = R"({"model_type": "bert", "vocab_size": 30, "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12, "max_position_embeddings": 9,
  "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0)";

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const kiln::Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  }
  return "no error";
}

class BertFiles : public ::testing::Test {
 protected:
  BertFiles() : dir_((fs::temp_directory_path() / ("kiln-bert-" + std::to_string(getpid()))).string()) {
    fs::create_directories(dir_);
  }
  ~BertFiles() override { fs::remove_all(dir_); }
  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
    return dir_ + "/" + name;
  }
  /// What is wrong with a config, without the path.
  std::string config_error(const std::string& text) const {
    const std::string path = put("config.json", text);
    std::string error = error_of([&] { read_config(path); });
    if (const size_t at = error.find(path); at != std::string::npos) error.replace(at, path.size(), "@");
    return error;
  }
  Config tiny() const { return read_config(put("config.json", std::string(kTiny) + "}")); }
  std::string dir_;
};

TEST_F(BertFiles, ConfigsAreRead) {
  const Config c = tiny();
  EXPECT_EQ(c.hidden_size, 8);
  EXPECT_EQ(c.num_hidden_layers, 2);
  EXPECT_EQ(c.hidden_dropout_prob, 0);
  EXPECT_EQ(c.type_vocab_size, 2);
  EXPECT_EQ(c.layer_norm_eps, 1e-12);
}

TEST_F(BertFiles, BadConfigs) {
  EXPECT_EQ(error_of([&] { read_config(dir_ + "/none"); }),
            "io: config " + dir_ + "/none: cannot read the file; No such file or directory");
  EXPECT_THAT(config_error("{"), HasSubstr("invalid: config @: not JSON; "));
  EXPECT_EQ(config_error("[]"), "invalid: config @: not a JSON object");
  EXPECT_EQ(config_error(R"({"model_type": "gpt2"})"),
            R"(invalid: config @: a model of another family; got "gpt2", expected "bert")");
  EXPECT_EQ(config_error(R"({"hidden_act": "relu"})"),
            R"(unsupported: config @: 'hidden_act' is "relu"; expected "gelu")");
  EXPECT_EQ(config_error(R"({"position_embedding_type": "relative_key"})"),
            R"(unsupported: config @: 'position_embedding_type' is "relative_key"; expected "absolute")");
  EXPECT_EQ(config_error(R"({"vocab_size": 0})"),
            "invalid: config @: bad 'vocab_size'; got 0, expected a whole number >= 1");
  EXPECT_EQ(config_error(R"({"vocab_size": 7.5})"),
            "invalid: config @: bad 'vocab_size'; got 7.5, expected a whole number >= 1");
  EXPECT_EQ(config_error(R"({"hidden_dropout_prob": 2})"),
            "invalid: config @: bad 'hidden_dropout_prob'; got 2, expected a number from 0 to 1");
  EXPECT_EQ(config_error(R"({"hidden_size": 10, "num_attention_heads": 3})"),
            "invalid: config @: 'hidden_size' 10 is no multiple of 'num_attention_heads' 3");
  EXPECT_EQ(config_error(R"({"vocab_size": 3, "pad_token_id": 3})"),
            "invalid: config @: 'pad_token_id' 3 is no token; 'vocab_size' is 3");
}

NamedTensors renamed(const Bert& model, const std::string& prefix) {
  NamedTensors out;
  for (const auto& [name, t] : model.state_dict()) out.emplace_back(prefix + name, t);
  return out;
}

std::vector<float> hidden_of(Bert& model) {
  const kiln::NoGrad guard;
  const Tensor ids = Tensor::from_vector(std::vector<int64_t>{1, 2, 3, 4, 5, 0}, {2, 3});
  const Tensor mask = Tensor::from_vector(std::vector<int64_t>{1, 1, 1, 1, 1, 0}, {2, 3});
  return model(ids, mask).to_vector<float>();
}

TEST_F(BertFiles, CheckpointsOfBodiesAndOfModelsWithAHead) {
  Bert a(tiny()), b(tiny());
  EXPECT_NE(hidden_of(a), hidden_of(b));
  NamedTensors state = renamed(a, "");
  state.emplace_back("embeddings.position_ids", kiln::arange(9));
  kiln::save_file(state, dir_ + "/model.safetensors");
  load_pretrained(b, dir_);
  EXPECT_EQ(hidden_of(a), hidden_of(b));

  Bert c(tiny());
  state = renamed(a, "bert.");
  state.emplace_back("cls.predictions.bias", kiln::zeros({30}));
  kiln::save_file(state, dir_ + "/model.safetensors");
  load_pretrained(c, dir_);
  EXPECT_EQ(hidden_of(a), hidden_of(c));
}

TEST_F(BertFiles, ModelsWithoutAPoolingLayer) {
  Bert a(tiny(), false), b(tiny(), false), whole(tiny());
  kiln::save_file(renamed(a, "bert."), dir_ + "/model.safetensors");
  load_pretrained(b, dir_);
  EXPECT_EQ(hidden_of(a), hidden_of(b));
  EXPECT_THAT(error_of([&] { load_pretrained(whole, dir_); }),
              HasSubstr("\n  missing: pooler.dense.weight "));
  EXPECT_EQ(whole.pool(kiln::ones({2, 3, 8})).sizes(), (kiln::Sizes{2, 8}));
  EXPECT_EQ(error_of([&] {
              a.pool(kiln::ones({2, 3, 8}));
            }),
            "invalid: Bert: this model was made without a pooling layer");
}

TEST_F(BertFiles, OldNamesOfNormsAndOtherDtypes) {
  Bert a(tiny()), b(tiny());
  NamedTensors state;
  for (const auto& [name, t] : a.state_dict()) {
    std::string old = name;
    if (const size_t at = old.find("LayerNorm.weight"); at != std::string::npos)
      old.replace(at, 16, "LayerNorm.gamma");
    if (const size_t at = old.find("LayerNorm.bias"); at != std::string::npos)
      old.replace(at, 14, "LayerNorm.beta");
    state.emplace_back(old, t.detach().to(kiln::DType::f64));
  }
  kiln::save_file(state, dir_ + "/model.safetensors");
  load_pretrained(b, dir_);
  EXPECT_EQ(hidden_of(a), hidden_of(b));
}

TEST_F(BertFiles, CheckpointsThatDoNotFitSayHow) {
  Bert a(tiny()), b(tiny());
  NamedTensors state = renamed(a, "");
  state.erase(state.begin() + 3);
  state[0].second = kiln::zeros({31, 8});
  kiln::save_file(state, dir_ + "/model.safetensors");
  EXPECT_EQ(error_of([&] { load_pretrained(b, dir_); }),
            "invalid: checkpoint " + dir_ +
                ": it does not fit the model of its config.json\n"
                "  embeddings.word_embeddings.weight: got f32[31,8], expected f32[30,8]\n"
                "  missing: embeddings.LayerNorm.weight f32[8]");
  kiln::save_file({{"x", kiln::zeros({1})}}, dir_ + "/model.safetensors");
  EXPECT_THAT(error_of([&] { load_pretrained(b, dir_); }),
              HasSubstr("\n  missing: embeddings.word_embeddings.weight f32[30,8]\n"));
}

TEST_F(BertFiles, TextsThatAreTooLongForTheModel) {
  Bert model(tiny());
  const Tensor ids = kiln::zeros({1, 10}, {kiln::DType::i64});
  EXPECT_EQ(error_of([&] { model(ids, ids); }),
            "invalid: Bert: 10 tokens a text; this model has positions for 9 (encode with max_length 9)");
  EXPECT_EQ(
      error_of([&] {
        model(ids, kiln::zeros({1, 9}));
      }),
      "invalid: Bert: got ids i64[1,10], mask f32[1,9] and segments i64[1,10], expected all [batch, seq]");
}

TEST_F(BertFiles, PaddingChangesNothing) {
  Bert model(tiny());
  model.eval();
  const kiln::NoGrad guard;
  const auto embedding = [&](std::vector<int64_t> ids, std::vector<int64_t> mask) {
    const auto n = static_cast<int64_t>(ids.size());
    return embed(model, Tensor::from_vector(ids, {1, n}), Tensor::from_vector(mask, {1, n}))
        .to_vector<float>();
  };
  const std::vector<float> bare = embedding({3, 4, 5}, {1, 1, 1}),
                           padded = embedding({3, 4, 5, 0, 7}, {1, 1, 1, 0, 0});
  double square = 0;
  for (size_t i = 0; i < bare.size(); ++i) {
    EXPECT_NEAR(bare[i], padded[i], 1e-6);
    square += bare[i] * bare[i];
  }
  EXPECT_NEAR(square, 1, 1e-6);
}

TEST(Sayings, TextsBetweenPercentLines) {
  EXPECT_THAT(split_sayings("a\nb\n%\n\n  \n%\n50 % off\n%%\n%\r\nc"),
              ElementsAre("a\nb\n", "50 % off\n%%\n", "c\n"));
  EXPECT_THAT(split_sayings(""), ElementsAre());
}

class SayingFiles : public BertFiles {
 protected:
  void fill(const std::string& name, const std::string& word, int n) const {
    std::string text;
    for (int i = 0; i < n; ++i) text += word + " is number " + std::to_string(i) + "\n%\n";
    put(name, text);
  }
};

TEST_F(SayingFiles, AQuarterIsForTheTest) {
  fill("a", "cat", 40);
  fill("b", "dog", 20);
  const Sayings s = read_sayings(dir_, {"a", "b"}, 32, 1);
  EXPECT_EQ(s.test.size(), 8u + 5u);
  EXPECT_EQ(s.train.size(), 24u + 15u);
  std::set<std::string> texts;
  for (const auto* part : {&s.train, &s.test})
    for (const Saying& one : *part) {
      EXPECT_TRUE(texts.insert(one.text).second);
      EXPECT_EQ(one.file, one.text.starts_with("dog"));
    }
  EXPECT_NE(read_sayings(dir_, {"a", "b"}, 32, 2).test[0].text, s.test[0].text);
  EXPECT_EQ(read_sayings(dir_, {"a", "b"}, 32, 1).test[0].text, s.test[0].text);
  EXPECT_EQ(read_sayings(dir_, {"a", "b"}, 0, 1).train.size(), 30u + 15u);
}

TEST_F(SayingFiles, WhatTwoFilesHaveCountsOnce) {
  fill("a", "cat", 20);
  fill("b", "cat", 30);
  const Sayings s = read_sayings(dir_, {"a", "b"}, 0, 1);
  EXPECT_EQ(s.train.size() + s.test.size(), 30u);
}

TEST_F(SayingFiles, FilesThatCannotServe) {
  EXPECT_EQ(error_of([&] { read_sayings(dir_, {"none"}, 0, 1); }),
            "io: sayings " + dir_ +
                "/none: cannot read the file; No such file or directory (Debian's package "
                "`fortunes` has it)");
  fill("a", "cat", 7);
  EXPECT_EQ(error_of([&] { read_sayings(dir_, {"a"}, 0, 1); }),
            "invalid: sayings " + dir_ + "/a: got 7 sayings, expected at least 8 between lines of %");
}

TEST(BagOfWords, FeaturesAreTfIdfOfUnitLength) {
  const WordPiece tokenizer("tests/goldens/minilm/vocab.txt");
  const std::vector<Saying> train = {{"a b b", 0}, {"a c", 1}};
  const BagOfWords bag(train, tokenizer);
  EXPECT_EQ(bag.words(), 3);
  EXPECT_THAT(bag.features(train).to_vector<float>(), ElementsAre(0, 1, 0, 0, 0, 1));  // "a" is in all
  const std::vector<float> both = bag.features({{"C b B d", 0}}).to_vector<float>();
  EXPECT_FLOAT_EQ(both[1] / both[2], 1 + std::log(2.0f));
  EXPECT_FLOAT_EQ(both[1] * both[1] + both[2] * both[2], 1);
  EXPECT_THAT(bag.features({{"d", 0}}).to_vector<float>(), ElementsAre(0, 0, 0));
}

TEST_F(SayingFiles, WordsTellFilesApart) {
  fill("a", "cat", 40);
  fill("b", "dog", 40);
  const WordPiece tokenizer("tests/goldens/minilm/vocab.txt");
  EXPECT_EQ(bag_of_words_accuracy(read_sayings(dir_, {"a", "b"}, 0, 1), tokenizer), 1);
}

TEST_F(SayingFiles, TrainingIsTheSameEagerlyAndCompiled) {
  fill("a", "cat", 24);
  fill("b", "dog", 24);
  put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ncat\ndog\nis\nnumber\n1\n2\n");
  const Config config = tiny();
  const WordPiece tokenizer(dir_ + "/vocab.txt");
  const Sayings sayings = read_sayings(dir_, {"a", "b"}, 0, 1);
  Options o;
  o.lr = o.head_lr = 1e-2;
  std::vector<double> losses[2];
  for (const bool compiled : {false, true}) {
    kiln::data::DataLoader loader(tokens_of(sayings.train, tokenizer, 8),
                                  {.batch_size = 6, .shuffle = true, .num_workers = 2});
    Tuner tuner(o, config, 2);
    const auto step = [&](const Tensor& a, const Tensor& b, const Tensor& c) { return tuner.step(a, b, c); };
    auto f = kiln::compile(step);
    for (int epoch = 0; epoch < 4; ++epoch)
      for (const kiln::data::Example& x : loader) {
        tuner.set_share(Options::share(static_cast<int64_t>(losses[compiled].size()), 24));
        losses[compiled].push_back((compiled ? f(x[0], x[1], x[2]) : step(x[0], x[1], x[2])).item());
      }
    EXPECT_EQ(f.stats().builds.size(), compiled ? 1u : 0u);
  }
  ASSERT_EQ(losses[0].size(), 24u);
  for (size_t i = 0; i < losses[0].size(); ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 2e-5) << i;
  EXPECT_LT(losses[1].back(), 0.8 * losses[1].front());
}

TEST(BertOptions, SharesOfTheLearningRate) {
  EXPECT_DOUBLE_EQ(Options::share(0, 100), 0.1);
  EXPECT_DOUBLE_EQ(Options::share(9, 100), 1);
  EXPECT_GT(Options::share(10, 100), Options::share(11, 100));
  EXPECT_GT(Options::share(99, 100), 0);
  EXPECT_DOUBLE_EQ(Options::share(0, 1), 1);
}

}  // namespace KILN_FILE
}  // namespace bert
