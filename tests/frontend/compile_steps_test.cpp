// SPDX-License-Identifier: Apache-2.0
// What holds of whole training steps, whatever the model: bits that no thread count changes, no more memory
// than eager steps take, and kernels that another model has had compiled already.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>

#include "frontend/kiln.h"
#include "ir/host_memory.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

/// A model, its data and its optimizer.
struct Training {
  virtual ~Training() = default;
  virtual Tensor loss() = 0;
  virtual nn::Module& model() = 0;
  Tensor step() {
    optimizer->zero_grad();
    const Tensor l = loss();
    l.backward();
    optimizer->step();
    return l.detach();
  }
  std::unique_ptr<optim::Optimizer> optimizer;
};

/// Two transformer layers over embedded tokens, and a head.
struct Language final : Training {
  struct Net : nn::Module {
    Net() {
      register_module("tokens", tokens);
      nn::TransformerLayerOptions o;
      o.dim_feedforward = 256;
      o.batch_first = true;
      for (int i = 0; i < 2; ++i) layers.emplace_back<nn::TransformerEncoderLayer>(64, 4, o);
      register_module("layers", layers);
      register_module("head", head);
    }
    nn::Embedding tokens{200, 64};
    nn::ModuleList layers;
    nn::Linear head{64, 200};
  };
  Language() {
    optimizer = std::make_unique<optim::AdamW>(net.parameters(), optim::AdamWOptions{.lr = 1e-3});
  }
  Tensor loss() override {
    Tensor h = net.tokens(ids_in);
    for (size_t i = 0; i < net.layers.size(); ++i) h = net.layers[i](h);
    return cross_entropy(net.head(h).reshape({-1, 200}), ids_out);
  }
  nn::Module& model() override { return net; }
  Net net;
  Tensor ids_in = remainder(arange(8 * 96) * 7, 200).reshape({8, 96}),
         ids_out = remainder(arange(8 * 96) * 5, 200);
};

/// Two convolutions with batch norm, of which the second is strided, and a head.
struct Images final : Training {
  struct Net : nn::Module {
    Net() {
      register_module("a", a);
      register_module("b", b);
      register_module("na", na);
      register_module("nb", nb);
      register_module("head", head);
    }
    nn::Conv2d a{3, 24, 3, {.padding = 1}}, b{24, 40, 3, {.stride = 2, .padding = 1}};
    nn::BatchNorm2d na{24}, nb{40};
    nn::Linear head{40, 10};
  };
  Images() {
    optimizer = std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  }
  Tensor loss() override {
    const Tensor h = relu(net.nb(net.b(relu(net.na(net.a(x))))));
    return cross_entropy(net.head(mean(h, {2, 3})), target);
  }
  nn::Module& model() override { return net; }
  Net net;
  Tensor x = sin(arange(16 * 3 * 32 * 32).to(DType::f32) * 0.37).reshape({16, 3, 32, 32});
  Tensor target = remainder(arange(16), 10);
};

/// Rows of a table, and layers on top, trained by plain SGD.
struct Table final : Training {
  struct Net : nn::Module {
    Net() {
      register_module("table", table);
      register_module("one", one);
      register_module("two", two);
    }
    nn::EmbeddingBag table{3000, 32};
    nn::Linear one{32, 512}, two{512, 1};
  };
  Table() { optimizer = std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 0.1}); }
  Tensor loss() override {
    const Tensor y = net.two(relu(net.one(net.table(rows))));
    return binary_cross_entropy_with_logits(y, target);
  }
  nn::Module& model() override { return net; }
  Net net;
  Tensor rows = remainder(arange(512 * 8) * 31, 3000).reshape({512, 8});
  Tensor target = remainder(arange(512), 2).to(DType::f32).reshape({512, 1});
};

struct Kind {
  const char* name;
  std::function<std::unique_ptr<Training>()> make;
};
const Kind kKinds[] = {{"language", [] { return std::make_unique<Language>(); }},
                       {"images", [] { return std::make_unique<Images>(); }},
                       {"table", [] { return std::make_unique<Table>(); }}};

/// Losses and all parameters and buffers after three steps.
std::vector<double> after_steps(const Kind& kind, const CompileOptions& o) {
  manual_seed(3);
  const std::unique_ptr<Training> t = kind.make();
  auto step = compile([&] { return t->step(); }, o);
  std::vector<double> all;
  for (int i = 0; i < 3; ++i) all.push_back(step().item());
  for (const auto& [name, value] : t->model().state_dict()) {
    const std::vector<double> v = doubles(value);
    all.insert(all.end(), v.begin(), v.end());
  }
  return all;
}

TEST(Step, NoThreadCountChangesABit) {
  for (const Kind& kind : kKinds) {
    std::vector<double> one;
    for (const int threads : {1, 2, 3, 8}) {
      CompileOptions o;
      o.threads = threads;
      const std::vector<double> all = after_steps(kind, o);
      if (threads == 1) one = all;
      EXPECT_EQ(all, one) << kind.name << " with " << threads << " threads";
    }
  }
}

TEST(Step, CompiledTakesNoMoreMemoryThanEager) {
  for (const Kind& kind : kKinds) {
    const std::unique_ptr<Training> t = kind.make();
    t->step();  // gradients and the optimizer's state are there from now on
    const auto peak_of = [](auto&& step) {
      reset_host_memory_peak();
      step();
      return host_memory_stats().peak;
    };
    const size_t eager = peak_of([&] { t->step(); });
    auto step = compile([&] { return t->step(); });
    step();
    const size_t compiled = peak_of([&] { step(); });
    const auto arena = static_cast<size_t>(step.stats().builds.back().arena_bytes);
    EXPECT_GT(arena, 0u) << kind.name;
    EXPECT_LE(compiled + arena, eager) << kind.name << ", of which the arena " << arena;
  }
}

/// `n` layers of one width and one of `last` columns, trained for one step. Rows and width are sizes that
/// hardly any run before has left in the cache.
Build built(int n, int64_t last) {
  static const int64_t now = std::chrono::system_clock::now().time_since_epoch().count() / 1000;
  const int64_t rows = 64 + now % 509, width = 128 + now / 509 % 251;
  nn::ModuleList layers;
  for (int i = 0; i < n; ++i) layers.emplace_back<nn::Linear>(width, width);
  nn::Linear head(width, last);
  std::vector<Tensor> params = layers.parameters();
  for (const Tensor& p : head.parameters()) params.push_back(p);
  optim::SGD sgd(params, {.lr = 0.1});
  const Tensor x = sin(arange(rows * width).to(DType::f32)).reshape({rows, width});
  auto step = compile([&] {
    sgd.zero_grad();
    Tensor h = x;
    for (size_t i = 0; i < layers.size(); ++i) h = gelu(layers[i](h));
    const Tensor l = mean(square(head(h)));
    l.backward();
    sgd.step();
    return l.detach();
  });
  step();
  return step.stats().builds.at(0);
}

TEST(Step, ASecondModelCompilesOnlyWhatIsNew) {
  const Build first = built(3, 37), same = built(3, 37), deeper = built(7, 37), other = built(3, 51);
  EXPECT_GT(first.compiled, 0);
  EXPECT_EQ(same.compiled, 0);
  EXPECT_EQ(deeper.compiled, 0) << "more of the layers that the first has";
  EXPECT_FALSE(deeper.from_cache);
  EXPECT_GT(other.compiled, 0) << "the head";
  EXPECT_LT(other.compiled, other.kernels) << "the layers are those of the first";
  EXPECT_GT(first.kernels, 4);
}

}  // namespace KILN_FILE
}  // namespace kiln
