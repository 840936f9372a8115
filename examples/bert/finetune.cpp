// SPDX-License-Identifier: Apache-2.0
#include "examples/bert/finetune.h"

#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "examples/bert/bag_of_words.h"

namespace bert {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Weights follow the seed alone, whatever was drawn before.
const Options& seeded(const Options& options) {
  kiln::manual_seed(options.seed);
  return options;
}

kiln::optim::AdamWOptions adamw(const Options& o) { return {.lr = o.lr, .weight_decay = o.weight_decay}; }

/// The share of examples whose file has the highest logit.
template <typename Logits>
double accuracy(Classifier& model, kiln::data::DataLoader& loader, Logits&& logits) {
  model.eval();
  size_t right = 0, all = 0;
  for (const kiln::data::Example& batch : loader) {
    const std::vector<int64_t> got =
                                   kiln::argmax(logits(batch[0], batch[1]), 1).template to_vector<int64_t>(),
                               expected = batch[2].to_vector<int64_t>();
    for (size_t i = 0; i < got.size(); ++i) right += got[i] == expected[i];
    all += got.size();
  }
  model.train();
  return static_cast<double>(right) / static_cast<double>(all);
}

struct Figures {
  std::vector<double> losses, accuracies;  ///< of each epoch
  double step_ms = 0, bag_of_words = 0;
};

template <typename Step, typename Logits>
void run(Tuner& tuner, const Options& o, kiln::data::DataLoader& train, kiln::data::DataLoader& test,
         Step&& step, Logits&& logits, Figures& figures) {
  const int64_t steps = o.epochs * train.size();
  int64_t done = 0;
  double seconds = 0;
  for (int64_t epoch = 0; epoch < o.epochs; ++epoch) {
    double sum = 0;
    for (const kiln::data::Example& batch : train) {
      tuner.set_share(Options::share(done, steps));
      const auto begin = Clock::now();
      const double loss = step(batch[0], batch[1], batch[2]).item();
      // The first step compiles, and the first that follows it warms up.
      if (++done > 2) seconds += seconds_since(begin);
      KILN_CHECK(std::isfinite(loss), invalid, "step {}: the loss is {} (try a lower --lr)", done, loss);
      sum += loss;
      if (done % 25 == 0) fmt::print("step {}/{}: loss {:.4f}\n", done, steps, loss);
    }
    figures.losses.push_back(sum / static_cast<double>(train.size()));
    figures.accuracies.push_back(accuracy(tuner.model(), test, logits));
    fmt::print("epoch {}: loss {:.4f}, accuracy on the test {:.1f} %\n", epoch + 1, figures.losses.back(),
               100 * figures.accuracies.back());
    std::fflush(stdout);
  }
  figures.step_ms = done > 2 ? 1e3 * seconds / static_cast<double>(done - 2) : 0;
}

void run(Tuner& tuner, const Options& o, const Sayings& sayings, const WordPiece& tokenizer,
         Figures& figures) {
  kiln::data::DataLoader train(
      tokens_of(sayings.train, tokenizer, o.max_length),
      {.batch_size = o.batch, .shuffle = true, .seed = o.seed, .drop_last = true, .num_workers = 1});
  kiln::data::DataLoader test(tokens_of(sayings.test, tokenizer, o.max_length), {.batch_size = o.batch});
  const auto step = [&](const Tensor& ids, const Tensor& mask, const Tensor& files) {
    return tuner.step(ids, mask, files);
  };
  const auto logits = [&](const Tensor& ids, const Tensor& mask) {
    const kiln::NoGrad guard;
    return tuner.model()(ids, mask);
  };
  const int threads = static_cast<int>(o.threads);
  if (o.eager) run(tuner, o, train, test, step, logits, figures);
  else
    run(tuner, o, train, test, kiln::compile(step, {.name = "step", .threads = threads}),
        kiln::compile(logits, {.name = "logits", .threads = threads}), figures);
}

void write_json(const std::string& path, const Figures& f) {
  const nlohmann::json j = {{"losses", f.losses},
                            {"accuracies", f.accuracies},
                            {"bag_of_words", f.bag_of_words},
                            {"step_ms", f.step_ms}};
  kiln::write_file_atomically(path, j.dump(2) + "\n");
}

}  // namespace

kiln::data::DatasetPtr tokens_of(const std::vector<Saying>& sayings, const WordPiece& tokenizer,
                                 int64_t max_length) {
  std::vector<std::string> texts;
  std::vector<int64_t> files;
  for (const Saying& s : sayings) {
    texts.push_back(s.text);
    files.push_back(s.file);
  }
  const auto length = static_cast<size_t>(max_length);
  const Encoding e = tokenizer.encode(texts, length, length);
  return std::make_shared<kiln::data::TensorDataset>(std::vector{
      Tensor::from_vector(e.input_ids, {e.texts, e.length}),
      Tensor::from_vector(e.attention_mask, {e.texts, e.length}), Tensor::from_vector(files, {e.texts})});
}

Tuner::Tuner(const Options& options, const Config& config, int64_t classes)
    : options_(seeded(options)),
      model_(config, classes),
      body_(model_.bert().parameters(), adamw(options)),
      head_(model_.head().parameters(), adamw(options)) {}

void Tuner::set_share(double share) {
  body_.lr = options_.lr * share;
  head_.lr = options_.head_lr * share;
}

Tensor Tuner::step(const Tensor& ids, const Tensor& mask, const Tensor& files) {
  body_.zero_grad();
  head_.zero_grad();
  const Tensor loss = kiln::cross_entropy(model_(ids, mask), files);
  loss.backward();
  body_.step();
  head_.step();
  return loss;
}

void finetune(const Options& o) {
  const WordPiece tokenizer(o.model + "/vocab.txt");
  const Sayings sayings = read_sayings(o.fortunes, o.files, o.per_file, o.seed);
  fmt::print("{} sayings of {} files to train on, {} to test\n", sayings.train.size(), o.files.size(),
             sayings.test.size());
  Figures figures;
  figures.bag_of_words = bag_of_words_accuracy(sayings, tokenizer);
  fmt::print("logistic regression on bags of words: accuracy {:.1f} %\n", 100 * figures.bag_of_words);
  std::fflush(stdout);
  if (o.epochs > 0) {
    Tuner tuner(o, read_config(o.model + "/config.json"), static_cast<int64_t>(o.files.size()));
    load_pretrained(tuner.model().bert(), o.model);
    run(tuner, o, sayings, tokenizer, figures);
    fmt::print("{}: accuracy {:.1f} %, {:+.1f} points; {:.0f} ms a step of {} sayings\n", o.model,
               100 * figures.accuracies.back(), 100 * (figures.accuracies.back() - figures.bag_of_words),
               figures.step_ms, o.batch);
  }
  if (!o.json.empty()) write_json(o.json, figures);
}

}  // namespace bert
