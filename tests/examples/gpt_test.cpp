// SPDX-License-Identifier: Apache-2.0
// The parts of the GPT example that need no tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "examples/device_name.h"
#include "examples/gpt/bigram.h"
#include "examples/gpt/checkpoint.h"
#include "examples/gpt/corpus.h"
#include "examples/gpt/options.h"
#include "examples/gpt/progress.h"
#include "examples/gpt/sample.h"
#include "examples/gpt/stop.h"
#include "examples/gpt/summary.h"
#include "ir/base/error.h"

namespace gpt {
namespace KILN_FILE {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const kiln::Error& e) {
    return e.what();
  }
  return "no error";
}

class GptFiles : public ::testing::Test {
 protected:
  GptFiles() : dir_(fs::temp_directory_path() / ("kiln-gpt-" + std::to_string(getpid()))) {
    fs::create_directories(dir_);
  }
  ~GptFiles() override { fs::remove_all(dir_); }
  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return (dir_ / name).string();
  }
  fs::path dir_;
};

TEST_F(GptFiles, FolderIsReadInByteOrder) {
  put("b", "2");
  put("A", "1");
  put("a.dat", "no");
  put("\xc3\xa4", "3");
  EXPECT_EQ(read_text(dir_.string()), "123");
  EXPECT_EQ(read_text(put("text.txt", std::string("a\0b", 3))), std::string("a\0b", 3));
}

TEST_F(GptFiles, UnreadableData) {
  const std::string missing = (dir_ / "no").string();
  EXPECT_EQ(error_of([&] { read_text(missing); }), "data " + missing + ": there is no such file or folder");
  EXPECT_EQ(error_of([&] { read_text(dir_.string()); }),
            "data " + dir_.string() + ": the folder has no file without a dot in its name");
  EXPECT_EQ(error_of([] { make_corpus("0123456789012345678", 1); }),
            "data: the text is too short; got 19 bytes, expected at least 20 (its last tenth must "
            "hold a window of 1 and one more)");
}

TEST(GptCorpus, AlphabetAndSplit) {
  const std::string text =
      "abcabcabcabcabcabcabcabc\xff\x01"
      "baba";  // 30 bytes
  const Corpus c = make_corpus(text, 2);
  EXPECT_EQ(c.alphabet, (std::vector<uint8_t>{1, 'a', 'b', 'c', 0xff}));
  EXPECT_EQ(c.train.size(), 27u);
  EXPECT_EQ(c.valid, (std::vector<uint8_t>{1, 2, 1}));
  const int64_t tokens[] = {4, 1, 0};
  EXPECT_EQ(c.decode(tokens),
            "\xff"
            "a\x01");
  EXPECT_NE(c.digest, make_corpus(text + "x", 2).digest);
}

TEST(GptCorpus, BatchesAreWindowsAndResume) {
  std::vector<uint8_t> tokens(100);
  for (size_t i = 0; i < 100; ++i) tokens[i] = static_cast<uint8_t>(i);
  std::vector<int64_t> x(20), y(20), x2(20), y2(20);
  Batches all(7, 0);
  all.next(tokens, 5, x, y);
  for (size_t r = 0; r < 4; ++r)
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(x[5 * r + i], x[5 * r] + static_cast<int64_t>(i));
      EXPECT_EQ(y[5 * r + i], x[5 * r + i] + 1);
    }
  const uint64_t drawn = all.drawn();
  all.next(tokens, 5, x, y);
  Batches resumed(7, drawn);
  resumed.next(tokens, 5, x2, y2);
  EXPECT_EQ(x, x2);
  EXPECT_EQ(y, y2);
  Batches other(8, drawn);
  other.next(tokens, 5, x2, y2);
  EXPECT_NE(x, x2);
}

TEST(GptCorpus, EveryWindowCanBeDrawn) {
  const std::vector<uint8_t> tokens{0, 1, 2, 3};
  std::vector<int64_t> x(600), y(600);
  Batches(1, 0).next(tokens, 3, x, y);
  EXPECT_EQ(*std::max_element(y.begin(), y.end()), 3);
  std::vector<int64_t> one(300), next(300);
  Batches(1, 0).next(tokens, 1, one, next);
  for (const int64_t start : {0, 1, 2}) EXPECT_THAT(one, ::testing::Contains(start));
}

TEST(GptBigram, WorkedExample) {
  const std::vector<uint8_t> train{0, 1, 0, 1, 0, 0}, valid{0, 1, 1};
  // After 0: 0 once, 1 twice -> (1+1)/5, (2+1)/5; after 1: 0 twice -> 3/4, 1/4.
  EXPECT_NEAR(bigram_loss(train, valid, 2), -(std::log(3.0 / 5) + std::log(1.0 / 4)) / 2, 1e-12);
}

TEST(GptBigram, Fortunes) {
  ASSERT_TRUE(fs::exists(kFortunes)) << "the package fortunes is not installed: run scripts/setup.sh";
  const Corpus c = make_corpus(read_text(kFortunes), 64);
  EXPECT_EQ(c.vocab(), 114);
  EXPECT_EQ(c.train.size() + c.valid.size(), 2576674u);
  EXPECT_NEAR(bigram_loss(c.train, c.valid, c.vocab()), 2.61, 0.005);
}

Parsed parse(std::vector<const char*> argv) {
  argv.insert(argv.begin(), "gpt");
  return parse_options(static_cast<int>(argv.size()), argv.data());
}

TEST(GptOptions, FlagsAndDefaults) {
  const Parsed p = parse({"--layers", "2", "--lr", "0.1", "--no-progress", "--eager", "--json", "out.json"});
  ASSERT_EQ(p.exit_code, -1);
  EXPECT_EQ(p.options.layers, 2);
  EXPECT_EQ(p.options.data, kFortunes);
  EXPECT_FALSE(p.options.progress);
  EXPECT_TRUE(p.options.eager);
  EXPECT_TRUE(parse({}).options.progress);
}

TEST(GptOptions, BadValuesAreNamed) {
  const auto text = [](std::vector<const char*> argv) {
    ::testing::internal::CaptureStderr();
    const Parsed p = parse(std::move(argv));
    EXPECT_GT(p.exit_code, 0);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(text({"--bogus"}), HasSubstr("--bogus"));
  EXPECT_THAT(text({"--layers", "0"}), HasSubstr("--layers"));
  EXPECT_THAT(text({"--layers", "two"}), HasSubstr("--layers"));
  EXPECT_THAT(text({"--lr", "-1"}), HasSubstr("--lr"));
  EXPECT_THAT(text({"--lr", "nan"}), HasSubstr("--lr"));
  EXPECT_THAT(text({"--dropout", "1"}), HasSubstr("--dropout"));
  EXPECT_THAT(text({"--heads", "3"}), HasSubstr("--heads: must divide --dim; got 3 and 128"));
  EXPECT_THAT(text({"--save-every", "5"}), HasSubstr("--save-every: needs --checkpoint FILE"));
  EXPECT_THAT(text({"--layers"}), HasSubstr("--layers"));
  EXPECT_THAT(text({"--device", "tpu"}), HasSubstr("--device: got tpu, expected cpu, cuda or cuda:N\n"));
}

TEST(GptOptions, Devices) {
  EXPECT_EQ(parse({}).options.device, "cpu");
  EXPECT_EQ(parse({"--device", "cuda:1"}).options.device, "cuda:1");
  EXPECT_EQ(examples::device_named("cpu", 3), kiln::Device::cpu());
  EXPECT_EQ(examples::device_named("cuda"), kiln::Device::cuda(0));
  EXPECT_EQ(examples::device_named("cuda", 3), kiln::Device::cuda(3));
  EXPECT_EQ(examples::device_named("cuda:1", 3), kiln::Device::cuda(1));
  for (const char* bad : {"", "CPU", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "cuda1"})
    EXPECT_EQ(error_of([&] { examples::device_named(bad); }),
              std::string("--device: got ") + bad + ", expected cpu, cuda or cuda:N");
}

TEST(GptOptions, LearningRate) {
  Options o;
  o.lr = 1;
  o.warmup = 10;
  o.steps = 110;
  EXPECT_DOUBLE_EQ(o.lr_at(0), 0.1);
  EXPECT_DOUBLE_EQ(o.lr_at(9), 1);
  EXPECT_DOUBLE_EQ(o.lr_at(10), 1);
  EXPECT_NEAR(o.lr_at(60), 0.55, 1e-12);
  EXPECT_NEAR(o.lr_at(110), 0.1, 1e-12);
  EXPECT_NEAR(o.lr_at(500), 0.1, 1e-12);
  o.warmup = 0;
  o.steps = 1;
  EXPECT_DOUBLE_EQ(o.lr_at(0), 1);
}

TEST(GptProgress, BarFitsItsWidth) {
  const Status s{50, 100, 2.5, 12345, 75};
  EXPECT_EQ(line_text(s), "step 50/100  loss 2.5000  12345 tokens/s  1:15 left");
  const std::string bar = bar_text(s, 80);
  EXPECT_THAT(bar, HasSubstr("50/100 ["));
  EXPECT_EQ(std::count(bar.begin(), bar.end(), '#'), std::count(bar.begin(), bar.end(), '.') - 1);
  for (int w = 0; w < 120; ++w) EXPECT_LE(bar_text(s, w).size(), static_cast<size_t>(w));
  EXPECT_THAT(bar_text({100, 100, 1, 1, 0}, 60), HasSubstr("#]"));
}

TEST(GptProgress, LinesAreFew) {
  ::testing::internal::CaptureStdout();
  Progress p(Progress::Kind::lines, 0, 1000, 64);
  for (int64_t i = 1; i <= 1000; ++i) p.update(i, 1.0);
  p.finish();
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 21);
}

TEST(GptSummary, JsonHasExactlyTheFields) {
  Summary s;
  s.val_loss_last = 2.25;
  s.eager_step_ms = std::numeric_limits<double>::quiet_NaN();
  s.losses = {4.5, 4.25};
  const auto j = nlohmann::json::parse(to_json(s));
  std::vector<std::string> names;
  for (const auto& [k, v] : j.items()) names.push_back(k);
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre("val_loss_first", "val_loss_last", "val_bigram", "steps",
                                              "compile_s", "warm", "step_ms", "eager_step_ms", "tokens_per_s",
                                              "arena_mb", "kernels", "builds", "losses", "eager_losses"));
  EXPECT_EQ(j["val_loss_last"], 2.25);
  EXPECT_TRUE(j["eager_step_ms"].is_null());
  EXPECT_EQ(j["losses"].size(), 2u);
  EXPECT_EQ(median({3, 1, 2, 10}), 2.5);
  EXPECT_EQ(median({}), 0);
}

TEST_F(GptFiles, CheckpointRoundTrip) {
  const std::string path = (dir_ / "a.ckpt").string();
  const kiln::NamedTensors arrays{{"model.w", kiln::ones({2})}};
  const TrainState s{12, ~uint64_t{0}, 192, 5, 77, "abc"};
  const Options o;
  save_checkpoint(path, arrays, s, o);
  const Checkpoint c = open_checkpoint(path, o, "abc");
  EXPECT_EQ(c.state.step, 12);
  EXPECT_EQ(c.state.batch_seed, ~uint64_t{0});
  EXPECT_EQ(c.state.batches_drawn, 192u);
  EXPECT_EQ(c.state.generator_offset, 77u);
  EXPECT_EQ(c.file.find("model.w")->bytes, 8u);
  EXPECT_EQ(error_of([&] { open_checkpoint(path, o, "abd"); }),
            "checkpoint " + path + ": made with another text (name it with --data)");
  Options wider;
  wider.dim = 256;
  EXPECT_EQ(error_of([&] { open_checkpoint(path, wider, "abc"); }),
            "checkpoint " + path + ": made with another --dim; got 128, expected 256");
  kiln::save_file(arrays, path, {{"format", "pt"}});
  EXPECT_EQ(error_of([&] { open_checkpoint(path, o, "abc"); }),
            "checkpoint " + path + ": not a checkpoint of this program");
}

TEST(GptSample, PickFollowsTheWeights) {
  const std::vector<float> logits{0, std::log(3.0f), -1000};
  EXPECT_EQ(pick(logits, 0, 1), 1u);
  EXPECT_EQ(pick(logits, 1, 0), 0u);
  EXPECT_EQ(pick(logits, 1, ~uint64_t{0}), 1u);
  int ones = 0;
  for (uint64_t i = 0; i < 4000; ++i) ones += pick(logits, 1, splitmix64(i)) == 1;
  EXPECT_NEAR(ones, 3000, 150);
}

TEST(GptSample, WritesFromAWindowOfFullLength) {
  const Corpus c = make_corpus(std::string(100, 'a') + std::string(100, 'b'), 4);
  Options o;
  o.seq = 4;
  o.sample = 3;
  o.temperature = 0;
  std::vector<kiln::Sizes> asked;
  const auto logits = [&](const kiln::Tensor& ids) {
    asked.push_back(ids.sizes());
    return kiln::Tensor::from_vector<float>({9, 9, 9, 9, 9, 9, 9, 0}, {1, 4, 2});  // only the last row counts
  };
  EXPECT_EQ(sample(logits, c, o), "aaa");
  EXPECT_EQ(asked, (std::vector<kiln::Sizes>{{1, 4}, {1, 4}, {1, 4}}));
}

TEST(GptStop, FirstSignalIsRemembered) {
  EXPECT_EQ(stop_signal(), 0);
  catch_stop_signals();
  std::raise(SIGTERM);
  EXPECT_EQ(stop_signal(), SIGTERM);
}

}  // namespace KILN_FILE
}  // namespace gpt
