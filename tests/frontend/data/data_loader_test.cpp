// SPDX-License-Identifier: Apache-2.0
#include "frontend/data/data_loader.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "frontend/compile.h"
#include "frontend/serialize.h"
#include "tests/frontend/testing.h"

namespace kiln::data {
namespace KILN_FILE {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::IsEmpty;
using testing::values;
using Rows = std::vector<std::vector<float>>;

DatasetPtr numbers(int64_t n) {
  return std::make_shared<TensorDataset>(std::vector{arange(n).to(DType::f32)});
}

/// The first field of every batch of an epoch.
Rows epoch_of(DataLoader& loader) {
  Rows out;
  for (const Example& batch : loader) out.push_back(values(batch[0]));
  return out;
}

/// Example i is i; sleeps so that batches are made out of order, and counts.
class Slow : public Dataset {
 public:
  explicit Slow(int64_t n) : n_(n) {}
  int64_t size() const override { return n_; }
  Example get(int64_t i) const override {
    ++made;
    std::this_thread::sleep_for(std::chrono::microseconds(200 * (i * 7 % 5)));
    if (i == bad) throw std::out_of_range("example " + std::to_string(i));
    return {full({}, static_cast<float>(i))};
  }
  mutable std::atomic<int> made{0};
  int64_t bad = -1;

 private:
  int64_t n_;
};

TEST(DataLoader, BatchesInOrder) {
  DataLoader loader(numbers(5), {.batch_size = 2});
  EXPECT_EQ(loader.size(), 3);
  EXPECT_EQ(epoch_of(loader), (Rows{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(epoch_of(loader), (Rows{{0, 1}, {2, 3}, {4}}));
  DataLoader whole(numbers(5), {.batch_size = 2, .drop_last = true});
  EXPECT_EQ(whole.size(), 2);
  EXPECT_EQ(epoch_of(whole), (Rows{{0, 1}, {2, 3}}));
  DataLoader none(numbers(0), {.batch_size = 2, .num_workers = 2});
  EXPECT_THAT(epoch_of(none), IsEmpty());
}

TEST(DataLoader, FieldsAreStacked) {
  const auto data =
      std::make_shared<TensorDataset>(std::vector{arange(6).view({3, 2}).to(DType::f32), arange(3)});
  DataLoader loader(data, {.batch_size = 2});
  const auto first = loader.begin();
  EXPECT_EQ((*first)[0].sizes(), (Sizes{2, 2}));
  EXPECT_EQ((*first)[1].sizes(), (Sizes{2}));
  EXPECT_EQ((*first)[1].dtype(), DType::i64);
}

TEST(DataLoader, ShufflesBySeedAndEpoch) {
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 3};
  DataLoader a(numbers(20), options), b(numbers(20), options);
  const Rows first = epoch_of(a), second = epoch_of(a);
  EXPECT_NE(first, second);
  EXPECT_EQ(epoch_of(b), first);
  EXPECT_EQ(epoch_of(b), second);
  b.set_epoch(0);
  EXPECT_EQ(epoch_of(b), first);
  EXPECT_EQ(b.epoch(), 1);
  DataLoader other(numbers(20), {.batch_size = 4, .shuffle = true, .seed = 4});
  EXPECT_NE(epoch_of(other), first);
}

TEST(DataLoader, WorkersGiveTheSameBatches) {
  DataLoader alone(std::make_shared<Slow>(37), {.batch_size = 3, .shuffle = true});
  const Rows first = epoch_of(alone), second = epoch_of(alone);
  for (const int workers : {1, 2, 5, 20}) {
    DataLoader loader(std::make_shared<Slow>(37), {.batch_size = 3, .shuffle = true, .num_workers = workers});
    EXPECT_EQ(epoch_of(loader), first) << workers;
    EXPECT_EQ(epoch_of(loader), second) << workers;
  }
}

TEST(DataLoader, WorkersAreAsFarAheadAsTheyMay) {
  const auto data = std::make_shared<Slow>(1000);
  DataLoader loader(data, {.num_workers = 2, .prefetch_factor = 3});
  auto at = loader.begin();
  const auto settled = [&](int n) {
    for (int i = 0; i < 5000 && data->made < n; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return data->made.load();
  };
  EXPECT_EQ(settled(7), 7);  // the one that was given, and six ahead
  ++at;
  EXPECT_EQ(settled(8), 8);
}

TEST(DataLoader, StopsCleanly) {
  const auto data = std::make_shared<Slow>(1000);
  {
    DataLoader loader(data, {.num_workers = 3});
    auto at = loader.begin();
    ++at;
  }
  const int made = data->made;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(data->made, made);
  EXPECT_EQ(data.use_count(), 1);
}

TEST(DataLoader, ErrorsOfWorkersAreThrownOnceAtTheirBatch) {
  for (const int workers : {0, 1, 4}) {
    const auto data = std::make_shared<Slow>(40);
    data->bad = 11;
    DataLoader loader(data, {.batch_size = 2, .num_workers = workers});
    Rows seen;
    int thrown = 0;
    for (auto at = loader.begin(); at != loader.end();) {
      seen.push_back(values((*at)[0]));
      try {
        ++at;
      } catch (const std::out_of_range& e) {
        EXPECT_STREQ(e.what(), "example 11");
        ++thrown;
        EXPECT_NO_THROW(++at);
      }
    }
    EXPECT_EQ(thrown, 1) << workers;
    EXPECT_EQ(seen, (Rows{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}})) << workers;
    data->bad = -1;
    EXPECT_EQ(epoch_of(loader).size(), 20u) << workers;
  }
}

TEST(DataLoader, AnErrorOfTheFirstBatchComesFromBegin) {
  const auto data = std::make_shared<Slow>(4);
  data->bad = 0;
  DataLoader loader(data, {.num_workers = 2});
  EXPECT_THROW(loader.begin(), std::out_of_range);
}

TEST(DataLoader, ResumesInTheMiddleOfAnEpoch) {
  const auto path = std::filesystem::temp_directory_path() / ("kiln-loader-" + std::to_string(getpid()));
  const DataLoaderOptions options{.batch_size = 3, .shuffle = true, .seed = 9, .num_workers = 2};
  for (const size_t stop : {1u, 4u, 7u}) {
    DataLoader a(numbers(20), options), b(numbers(20), options);
    epoch_of(a);
    Rows all, rest;
    for (const Example& batch : a) {
      all.push_back(values(batch[0]));
      if (all.size() == stop) save_file(a.state_dict(), path);
    }
    ASSERT_EQ(all.size(), 7u);
    const Rows third = epoch_of(a);
    b.load_state_dict(load_file(path));
    EXPECT_EQ(b.epoch(), 1);
    rest = epoch_of(b);
    EXPECT_EQ(rest, Rows(all.begin() + static_cast<ptrdiff_t>(stop), all.end())) << stop;
    EXPECT_EQ(b.epoch(), 2);
    EXPECT_EQ(epoch_of(b), third);
  }
  std::filesystem::remove(path);
}

TEST(DataLoader, AnEpochThatIsLeftEarlyCounts) {
  DataLoader a(numbers(9), {.shuffle = true}), b(numbers(9), {.shuffle = true});
  for (const Example& batch : a) {
    EXPECT_EQ(batch.size(), 1u);
    break;
  }
  epoch_of(b);
  EXPECT_EQ(epoch_of(a), epoch_of(b));
}

TEST(DataLoader, AnOlderIteratorSaysThatItsEpochIsOver) {
  DataLoader loader(numbers(9), {.num_workers = 1});
  auto old = loader.begin();
  auto now = loader.begin();
  EXPECT_ERROR(++old, "invalid: DataLoader: this epoch was ended, since another has been begun");
  EXPECT_THAT(values((*now)[0]), ElementsAre(0));
}

TEST(DataLoader, StatesOfOtherLoaders) {
  DataLoader a(numbers(9), {.batch_size = 2}), b(numbers(8), {.batch_size = 3, .shuffle = true});
  EXPECT_ERROR(b.load_state_dict(a.state_dict()),
               "invalid: DataLoader::load_state_dict (@): the state is of another loader\n"
               "  batch_size: got 2, expected 3\n  shuffle: got 0, expected 1\n  size: got 9, expected 8");
  NamedTensors cut = a.state_dict();
  cut.erase(cut.begin());
  EXPECT_ERROR(a.load_state_dict(cut),
               "invalid: DataLoader::load_state_dict (@): the state is of another loader\n"
               "  missing: batch_size");
  EXPECT_ERROR(a.load_state_dict({{"epoch", full({}, 1.0)}}),
               "invalid: DataLoader::load_state_dict (@): 'epoch' is f32[], expected i64[]");
}

TEST(DataLoader, RanksTakeTheirShares) {
  DataLoader first(numbers(5), {.batch_size = 2, .num_replicas = 2, .rank = 0});
  DataLoader second(numbers(5), {.batch_size = 2, .num_replicas = 2, .rank = 1});
  EXPECT_EQ(epoch_of(first), (Rows{{0, 2}, {4}}));
  EXPECT_EQ(epoch_of(second), (Rows{{1, 3}, {0}}));
  EXPECT_EQ(second.size(), 2);
}

TEST(DataLoader, SamplersAndCollates) {
  const auto sampler = [](int64_t epoch) { return std::vector<int64_t>{4, 1, epoch}; };
  const auto sum_all = [](const std::vector<Example>& examples) {
    return Example{sum(stack_fields(examples)[0])};
  };
  DataLoader loader(numbers(5), {.batch_size = 2, .collate = sum_all, .sampler = sampler});
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(epoch_of(loader), (Rows{{5}, {0}}));
  EXPECT_EQ(epoch_of(loader), (Rows{{5}, {1}}));
  loader.set_epoch(5);
  EXPECT_ERROR(loader.begin(), "invalid: DataLoader: the sampler gave example 5; the dataset has 5");
}

TEST(DataLoader, ExamplesAreNotDifferentiated) {
  const auto data = std::make_shared<TensorDataset>(std::vector{testing::vec({1, 2}, true)});
  DataLoader loader(data, {.num_workers = 1});
  for (const Example& batch : loader) EXPECT_FALSE(batch[0].requires_grad());
}

TEST(DataLoader, FieldsThatDoNotFit) {
  class Ragged : public Dataset {
    int64_t size() const override { return 2; }
    Example get(int64_t i) const override { return Example(static_cast<size_t>(i + 1), full({}, 1.0)); }
  };
  DataLoader loader(std::make_shared<Ragged>(), {.batch_size = 2, .num_workers = 1});
  EXPECT_ERROR(loader.begin(),
               "invalid: DataLoader: examples of a batch have 1 and 2 fields; all need the same");
}

TEST(DataLoader, OptionsOutOfRange) {
  const DatasetPtr d = numbers(3);
  EXPECT_ERROR(DataLoader(nullptr), "invalid: DataLoader (@): no dataset");
  EXPECT_ERROR(DataLoader(d, {.batch_size = 0}),
               "invalid: DataLoader (@): batch_size must be positive; got 0");
  EXPECT_ERROR(DataLoader(d, {.num_workers = -1}),
               "invalid: DataLoader (@): num_workers must be from 0 to 1024; got -1");
  EXPECT_ERROR(DataLoader(d, {.prefetch_factor = 0}),
               "invalid: DataLoader (@): prefetch_factor must be positive; got 0");
  EXPECT_ERROR(DataLoader(d, {.num_replicas = 2, .rank = 2}),
               "invalid: DataLoader (@): rank 2 of 2 replicas is out of range");
  EXPECT_ERROR(DataLoader(d, {.shuffle = true, .sampler = [](int64_t) { return std::vector<int64_t>(); }}),
               "invalid: DataLoader (@): a sampler excludes shuffle and num_replicas (it makes the order)");
  EXPECT_ERROR(DataLoader(d).set_epoch(-1),
               "invalid: set_epoch: got -1, expected a number >= 0 that has a next one");
}

TEST(DataLoader, NotInsideACompiledCallable) {
  DataLoader loader(numbers(3));
  auto f = compile([&] { return (*loader.begin())[0]; });
  EXPECT_ERROR(f(),
               "unsupported: DataLoader: batches cannot be made inside a compiled callable (pass them as "
               "arguments)");
}

TEST(DataLoader, FeedsACompiledStep) {
  DataLoader loader(numbers(64), {.batch_size = 8, .shuffle = true, .num_workers = 2});
  auto f = compile([](const Tensor& x) { return sum(x * 2.0); });
  double total = 0;
  for (const Example& batch : loader) total += f(batch[0]).item();
  EXPECT_EQ(total, 64 * 63);
  EXPECT_EQ(f.stats().builds.size(), 1u);
}

TEST(DataLoader, ABatchOfAllThereCanBe) {
  for (const int workers : {0, 2}) {
    DataLoader loader(numbers(3), {.batch_size = INT64_MAX, .num_workers = workers});
    EXPECT_EQ(loader.size(), 1);
    int batches = 0;
    for (const Example& batch : loader) {
      EXPECT_EQ(batch[0].numel(), 3);
      ++batches;
    }
    EXPECT_EQ(batches, 1);
  }
  EXPECT_EQ(DataLoader(numbers(3), {.batch_size = INT64_MAX, .drop_last = true}).size(), 0);
  DataLoader share(numbers(3), {.num_replicas = INT64_MAX, .rank = INT64_MAX - 1});
  EXPECT_EQ(share.size(), 1);
  for (const Example& batch : share) EXPECT_EQ(batch[0].numel(), 1);
}

TEST(DataLoader, PlacesThatNoEpochHas) {
  DataLoader loader(numbers(5), {.batch_size = 2});
  const auto with = [&](const char* name, int64_t value) {
    NamedTensors state = loader.state_dict();
    for (auto& [n, t] : state)
      if (n == name) t = full({}, value, {DType::i64});
    loader.load_state_dict(state);
  };
  const auto bad = [](int64_t epoch, int64_t given) {
    return fmt::format("invalid: DataLoader::load_state_dict (@): bad place; got epoch {}, batch {}", epoch,
                       given);
  };
  const auto ends = [](const std::string& text, const std::string& end) {
    EXPECT_EQ(text.substr(text.find("): ") + 1), end.substr(end.find("): ") + 1));
  };
  ends(error_of([&] { with("given", int64_t{1} << 60); }), bad(0, int64_t{1} << 60));
  ends(error_of([&] { with("given", 4); }), bad(0, 4));
  ends(error_of([&] { with("epoch", INT64_MAX); }), bad(INT64_MAX, 0));
  with("given", 3);  // the end of an epoch
}

TEST(DataLoader, ADatasetOfNegativeSize) {
  struct Negative : Dataset {
    int64_t size() const override { return -2; }
    Example get(int64_t) const override { return {}; }
  };
  DataLoader loader(std::make_shared<Negative>(), {.shuffle = true});
  EXPECT_ERROR(loader.begin(), "invalid: DataLoader: the dataset says that it has -2 examples");
  EXPECT_ERROR(loader.size(), "invalid: DataLoader: the dataset says that it has -2 examples");
}

TEST(DataLoader, RaggedExamplesAreNamed) {
  EXPECT_ERROR(
      stack_fields({{zeros({2}), zeros({3})}, {zeros({2}), zeros({4})}}),
      "invalid: DataLoader: field 1 of example 1 of a batch is f32[4], of example 0 f32[3]; all need "
      "the same (pad them in the dataset, or in a `collate`)");
}

}  // namespace KILN_FILE
}  // namespace kiln::data
