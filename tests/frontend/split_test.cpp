// SPDX-License-Identifier: Apache-2.0
// CompileOptions::split: partitions give what the whole gives, and the backward gives bucket after bucket.
#include "frontend/split.h"

#include <thread>

#include "frontend/compile.h"
#include "frontend/functional.h"
#include "frontend/nn/distributed_data_parallel.h"
#include "frontend/nn/layers.h"
#include "frontend/optim/sgd.h"
#include "runtime/collective.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

constexpr int64_t kLayer = (16 * 16 + 16) * 4;  // bytes of a Linear(16, 16)

/// Four layers with ReLUs between.
struct Net : nn::Sequential {
  Net() {
    manual_seed(1);
    for (int i = 0; i < 4; ++i) {
      emplace_back<nn::Linear>(16, 16);
      emplace_back<nn::ReLU>();
    }
  }
};

std::vector<Floats> grads_of(const nn::Module& net) {
  std::vector<Floats> out;
  for (const Tensor& p : net.parameters()) out.push_back(values(p.grad()));
  return out;
}

class Split : public ::testing::TestWithParam<Backend> {
 protected:
  static CompileOptions options(int64_t cap = kLayer) {
    CompileOptions o;
    o.backend = GetParam();
    o.split = SplitOptions{.cap = cap, .first = cap, .ignored = {}};
    return o;
  }
};

TEST_P(Split, B32_B55_PartitionsGiveWhatTheWholeGives) {
  Net whole, cut;
  const Tensor x = rand({3, 16});
  CompileOptions plain = options();
  plain.split.reset();
  auto f = compile(whole, plain);
  auto g = compile(cut, options());
  for (int call = 0; call < 3; ++call) {
    const Tensor a = f(x), b = g(x);
    EXPECT_EQ(values(a), values(b));
    sum(a * a).backward();
    sum(b * b).backward();
  }
  EXPECT_EQ(grads_of(whole), grads_of(cut));
  ASSERT_EQ(g.stats().builds.size(), 1u);
  const Build build = g.stats().builds[0];
  ASSERT_EQ(build.buckets.size(), 1u);
  EXPECT_EQ(build.buckets[0].buckets.size(), 4u);
  EXPECT_EQ(build.breaks.size(), 4u) << "B-47: one reason for each partition";
  EXPECT_TRUE(f.stats().builds[0].buckets.empty());
}

TEST_P(Split, B25_D53_OneBucketIsCompiledUnsplit) {
  Net net;
  auto f = compile(net, options(1 << 20));
  f(rand({3, 16}));
  const Build build = f.stats().builds[0];
  EXPECT_EQ(build.buckets[0].buckets.size(), 1u);
  EXPECT_TRUE(build.breaks.empty());
}

TEST_P(Split, B01_GradientsComeBucketByBucket) {
  Net net;
  auto f = compile(net, options(2 * kLayer));
  const Tensor y = f(rand({3, 16}));
  std::vector<std::string> order;
  for (const auto& [name, p] : net.named_parameters())
    Tensor(p).register_hook([&order, name = name](const Tensor& g) {
      order.push_back(name);
      return g;
    });
  sum(y).backward();
  ASSERT_EQ(order.size(), 8u);
  const auto bucket = [](const std::string& name) { return (name[0] - '0') / 4; };
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(bucket(order[i]), i < 4 ? 1 : 0) << order[i];
}

TEST_P(Split, B52_TheBackwardOfAPartitionRunsWhenThatBehindItIsDone) {
  // The gradient of the last layer comes before the backward of the first partition has read x.
  for (const bool cut : {false, true}) {
    Net net;
    CompileOptions o = options(2 * kLayer);
    if (!cut) o.split.reset();
    auto f = compile(net, o);
    Tensor x = rand({3, 16});
    const Tensor y = f(x);
    net.parameters()[6].register_hook([&](const Tensor& g) {
      NoGrad guard;
      x.add_(ones({3, 16}));
      return g;
    });
    if (cut) EXPECT_THROW(sum(y).backward(), Error);
    else EXPECT_NO_THROW(sum(y).backward());
  }
}

TEST_P(Split, AStepWithBackwardAndUpdateInside) {
  Net whole, cut;
  const Tensor x = rand({3, 16});
  optim::SGD a(whole.parameters(), {.lr = 0.1}), b(cut.parameters(), {.lr = 0.1});
  const auto step = [&](Net& net, optim::SGD& optimizer) {
    optimizer.zero_grad();
    const Tensor y = net(x);
    const Tensor loss = mean(y * y);
    loss.backward();
    optimizer.step();
    return loss;
  };
  CompileOptions plain = options();
  plain.split.reset();
  auto f = compile([&] { return step(whole, a); }, plain);
  auto g = compile([&] { return step(cut, b); }, options());
  for (int call = 0; call < 3; ++call) EXPECT_EQ(values(f()), values(g()));
  for (size_t i = 0; i < whole.parameters().size(); ++i)
    EXPECT_EQ(values(whole.parameters()[i]), values(cut.parameters()[i]));
  EXPECT_EQ(g.stats().builds[0].buckets.at(0).buckets.size(), 4u);
}

TEST_P(Split, WritesInPlaceWaitForTheLastPartition) {
  // A counter that the first partition writes and the last reads: as it was, then as it is.
  struct Counting : nn::Module {
    Counting() : a(16, 16), b(16, 16), seen(zeros({16})) {
      register_module("a", a);
      register_module("b", b);
      register_buffer("seen", seen);
    }
    using Module::forward;
    Tensor forward(const Tensor& x) override {
      const Tensor before = seen * 1.0;
      const Tensor y = a(x + before);
      {
        NoGrad guard;
        seen.add_(ones({16}));
      }
      return b(y) + seen;
    }
    nn::Linear a, b;
    Tensor seen;
  };
  manual_seed(2);
  Counting whole;
  manual_seed(2);
  Counting cut;
  const Tensor x = rand({3, 16});
  auto g = compile(cut, options());
  for (int call = 0; call < 3; ++call) {
    const Tensor expected = whole(x), got = g(x);
    for (size_t i = 0; i < values(got).size(); ++i) EXPECT_NEAR(values(got)[i], values(expected)[i], 1e-5);
    EXPECT_EQ(values(cut.seen), values(whole.seen));
  }
  EXPECT_EQ(g.stats().builds[0].buckets.at(0).buckets.size(), 2u);
}

TEST_P(Split, AGuardStopsAllPartitions) {
  struct Lookup : nn::Module {
    Lookup() : table(8, 16), b(16, 16), calls(zeros({1})) {
      register_module("table", table);
      register_module("b", b);
      register_buffer("calls", calls);
    }
    using Module::forward;
    Tensor forward(const Tensor& ids) override {
      const Tensor y = b(table(ids));
      NoGrad guard;
      calls.add_(ones({1}));
      return y;
    }
    nn::Embedding table;
    nn::Linear b;
    Tensor calls;
  };
  Lookup net;
  auto f = compile(net, options(64));
  f(Tensor::from_vector<int64_t>({1, 2}, {2}));
  EXPECT_NE(error_of([&] { f(Tensor::from_vector<int64_t>({1, 8}, {2})); }), "no error");
  EXPECT_EQ(values(net.calls), (Floats{1}));
  f(Tensor::from_vector<int64_t>({7, 0}, {2}));
  EXPECT_EQ(values(net.calls), (Floats{2}));
  EXPECT_EQ(f.stats().builds[0].buckets.at(0).buckets.size(), 2u);
}

TEST_P(Split, HostReadsEndTheForwardThatIsCut) {
  Net net;
  auto f = compile(
      [&](const Tensor& x) {
        const Tensor y = net[0](x);
        if (sum(y).item() > 1e9) return y;
        return net[4](net[2](y));
      },
      options());
  const Tensor x = rand({3, 16});
  const Tensor y = f(x);
  sum(y).backward();
  const std::vector<Floats> got = {values(net.parameters()[0].grad()), values(net.parameters()[4].grad())};
  net.zero_grad();
  sum(net[4](net[2](net[0](x)))).backward();
  for (size_t k : {0u, 1u}) {
    const Floats expected = values(net.parameters()[4 * k].grad());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[k][i], expected[i], 1e-5);
  }
  const std::vector<BucketTable> tables = f.stats().builds[0].buckets;
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].buckets.size(), 1u);
  EXPECT_EQ(tables[1].buckets.size(), 2u);
}

TEST(SplitCache, B53_EqualPartitionsShareTheirKernels) {
  Net net;
  CompileOptions o;
  o.split = SplitOptions{.cap = kLayer, .first = kLayer, .ignored = {}};
  auto f = compile(net, o);
  f(rand({5, 16}));
  EXPECT_LE(f.stats().builds[0].compiled, 2)
      << "the first layer reads x, all others read a partition's result";
  auto again = compile(net, o);
  again(rand({5, 16}));
  EXPECT_TRUE(again.stats().builds[0].from_cache);
}

/// Two steps of one of two ranks, compiled with the wrapper's caps or whole; the table, or what was thrown.
std::string train_rank(int rank, Net& net, std::shared_ptr<ProcessGroup> group, Backend backend, bool cut) {
  nn::DistributedDataParallel ddp(net, std::move(group),
                                  {.bucket_cap_mb = 2.0 * kLayer / (1 << 20), .ignore = {"4.bias"}});
  optim::SGD sgd(ddp.parameters(), {.lr = 0.1});
  CompileOptions o;
  o.backend = backend;
  if (cut) o.split = ddp.split_options();
  if (cut) o.split->first = o.split->cap;
  auto f = compile(
      [&](const Tensor& x) {
        sgd.zero_grad();
        const Tensor y = ddp(x);
        mean(y * y).backward();
        sgd.step();
      },
      o);
  for (int step = 1; step < 3; ++step) f(ones({3, 16}) * (0.25 * step * (rank + 1)));
  std::string table;
  const std::vector<BucketTable> tables = f.stats().builds.at(0).buckets;
  for (const BucketTable& t : tables)
    for (const BucketTable::Bucket& b : t.buckets)
      table += fmt::format("; {}: {}", b.bytes, fmt::join(b.params, " "));
  return table;
}

/// The parameters at the end, and the table of rank 0.
std::pair<std::vector<Floats>, std::string> train_two_ranks(Backend backend, bool cut) {
  const auto groups = make_local_groups(2, Seconds(30));
  Net nets[2];
  std::string tables[2];
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      tables[r] = error_of([&, r] {
                    tables[r] = train_rank(r, nets[r], groups[static_cast<size_t>(r)], backend, cut);
                  }) +
                  tables[r];
    });
  for (std::thread& t : threads) t.join();
  std::vector<Floats> params;
  for (const Tensor& p : nets[0].parameters()) params.push_back(values(p));
  EXPECT_EQ(tables[0], tables[1]);
  return {params, tables[0]};
}

TEST_P(Split, B04_B21_AWrapperGivesItsCapAndWhatItIgnores) {
  const auto [whole, none] = train_two_ranks(GetParam(), false);
  const auto [cut, table] = train_two_ranks(GetParam(), true);
  EXPECT_EQ(whole, cut);
  EXPECT_EQ(none, "no error");
  EXPECT_EQ(table,
            "no error; 1088: module.0.weight module.0.bias; "
            "3200: module.6.weight module.6.bias module.4.weight module.2.weight module.2.bias");
}

TEST(SplitOptionsTest, B06_TheFirstCapIsNotTheLarger) {
  Net net;
  CompileOptions o;
  o.split = SplitOptions{.cap = 100, .first = kFirstBucketBytes, .ignored = {}};
  auto f = compile(net, o);
  EXPECT_THROW(f(rand({3, 16})), Error);
}

INSTANTIATE_TEST_SUITE_P(Backends, Split, ::testing::Values(Backend::native, Backend::reference),
                         [](const auto& p) {
                           return std::string(p.param == Backend::native ? "native" : "reference");
                         });

}  // namespace KILN_FILE
}  // namespace kiln
