// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel with odd models and batches: as one process that sums the ranks' losses over their
// number, eager and compiled; or one error on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "frontend/serialize.h"
#include "tests/frontend/nn/ranks.h"

namespace kiln::nn {
namespace KILN_FILE {

using ::kiln::testing::fill;
using ::kiln::testing::Net;
using ::kiln::testing::numbers;
using ::kiln::testing::on_ranks;
using ::testing::Each;
using ::testing::HasSubstr;
using Tensors = std::vector<Tensor>;

/// A function of parameters and buffers as a module.
struct Model : Module {
  using Body = std::function<Tensor(const Tensor& x, const Tensors& p, const Tensors& b)>;
  Model(Tensors p, Body f, Tensors b = {})
      : parameters(std::move(p)), buffers(std::move(b)), body(std::move(f)) {
    for (size_t i = 0; i < parameters.size(); ++i)
      register_parameter("p" + std::to_string(i), parameters[i].requires_grad_());
    for (size_t i = 0; i < buffers.size(); ++i) register_buffer("b" + std::to_string(i), buffers[i]);
  }
  Tensor forward(const Tensor& x) override { return body(x, parameters, buffers); }
  Tensors parameters, buffers;
  Body body;
};

Tensor as(DType t, const Tensor& x) { return x.to(t).clone(); }

struct Case {
  const char* name;
  std::function<std::unique_ptr<Module>()> model;
  std::function<Tensor(int step, int rank)> batch = [](int s, int r) { return numbers({5, 6}, 10 * s + r); };
  double clip = 0;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

enum class Mode : uint8_t { eager, native, reference, forward, split };
constexpr int kRanks = 3, kSteps = 3;

/// Steps on the batches of `ranks`; the parameters and gradients at the end.
std::vector<std::vector<double>> train(Module& holder, const Case& c, Mode mode,
                                       const CompileOptions& options,
                                       const std::function<Tensor(const Tensor&)>& model,
                                       const std::vector<int>& ranks) {
  Tensors trained;
  for (const Tensor& p : holder.parameters())
    if (p.requires_grad()) trained.push_back(p);
  optim::SGD sgd(trained, {.lr = 0.1, .momentum = 0.9});
  const auto step = [&](const Tensors& batches) {
    sgd.zero_grad();
    Tensor loss;
    for (const Tensor& x : batches) {
      const Tensor part = sum(square(model(x))) * (0.1 / static_cast<double>(ranks.size()));
      loss = loss.defined() ? loss + part : part;
    }
    loss.backward();
    if (c.clip > 0) optim::clip_grad_norm_(trained, c.clip);
    sgd.step();
  };
  const auto fast = compile(step, options);
  for (int s = 0; s < kSteps; ++s) {
    Tensors batches;
    for (int r : ranks) batches.push_back(c.batch(s, r));
    if (mode == Mode::native || mode == Mode::reference) fast(batches);
    else step(batches);
  }
  if (mode == Mode::native) {
    EXPECT_EQ(fast.stats().builds.size(), 1u);
  }
  std::vector<std::vector<double>> out;
  for (const Tensor& p : trained)
    for (const Tensor& t : {p.detach(), p.grad()}) out.push_back(as(DType::f64, t).to_vector<double>());
  return out;
}

std::string difference(const std::vector<std::vector<double>>& got,
                       const std::vector<std::vector<double>>& want) {
  for (size_t p = 0; p < want.size(); ++p)
    for (size_t i = 0; i < want[p].size(); ++i) {
      const double a = got[p][i], b = want[p][i];
      const bool same = std::isnan(b) ? std::isnan(a) : a == b || std::abs(a - b) <= 2e-6 * (1 + std::abs(b));
      if (!same)
        return fmt::format("{} of parameter {}, element {}: {} for {}", p % 2 ? "gradient" : "value", p / 2,
                           i, a, b);
    }
  return "ok";
}

class Odd : public ::testing::TestWithParam<std::tuple<Case, Mode>> {};

TEST_P(Odd, TrainsLikeOneProcess) {
  const auto& [c, mode] = GetParam();
  const auto alone = c.model();
  fill(*alone, 1);
  std::vector<int> all;
  for (int r = 0; r < kRanks; ++r) all.push_back(r);
  const auto want = train(
      *alone, c, Mode::eager, {}, [&](const Tensor& x) { return (*alone)(x); }, all);
  const auto got = on_ranks(kRanks, [&, &c = c, mode = mode](int r, auto group) -> std::string {
    const auto model = c.model();
    fill(*model, 1 + 50 * r);
    DistributedDataParallel ddp(*model, group, {.bucket_cap_mb = 0.0001});
    CompileOptions options;
    if (mode == Mode::reference) options.backend = Backend::reference;
    if (mode == Mode::split) options.split = SplitOptions{.cap = 100, .first = 100};
    const auto forward = compile([&](const Tensor& x) { return ddp(x); }, options);
    const bool apart = mode == Mode::forward || mode == Mode::split;
    const auto run = [&](const Tensor& x) { return apart ? forward(x) : ddp(x); };
    return difference(train(*model, c, mode, options, run, {r}), want);
  });
  EXPECT_THAT(got, Each("ok"));
}

std::function<std::unique_ptr<Module>()> model(
    Model::Body body, const std::function<Tensors()>& parameters,
    const std::function<Tensors()>& buffers = [] { return Tensors(); }) {
  return [=] { return std::make_unique<Model>(parameters(), body, buffers()); };
}
std::unique_ptr<Module> net() { return std::make_unique<Net>(); }

const Case kCases[] = {
    {"NaNOnOneRank", net,
     [](int s, int r) {
       const Tensor x = numbers({5, 6}, 10 * s + r);
       if (r == 1 && s == 1) x.data_ptr<float>()[3] = std::nanf("");
       return x;
     }},
    {"InfOnOneRank",
     model([](const Tensor& x, const Tensors& p, const Tensors&) { return x * p[0] + p[1]; },
           [] {
             return Tensors{numbers({6}, 1), numbers({6}, 2)};
           }),
     [](int s, int r) {
       const Tensor x = numbers({5, 6}, 10 * s + r);
       if (r == 0 && s == 2) x.data_ptr<float>()[2] = INFINITY;
       return x;
     }},
    {"NoRowsOnOneRank", net,
     [](int s, int r) {
       return numbers({r == 1 ? 0 : 5, 6}, 10 * s + r);
     }},
    {"NoRowsOnAll", net,
     [](int, int) {
       return numbers({0, 6}, 1);
     }},
    {"RowsDiffer", net,
     [](int s, int r) {
       return numbers({2 + 3 * r, 6}, 10 * s + r);
     }},
    {"f64",
     [] {
       auto m = net();
       m->to(DType::f64);
       return m;
     },
     [](int s, int r) {
       return as(DType::f64, numbers({5, 6}, 10 * s + r));
     }},
    {"MixedTypes",
     model([](const Tensor& x, const Tensors& p,
              const Tensors&) { return matmul(tanh(matmul(x, p[0])).to(DType::f64), p[1]) * p[2] + p[3]; },
           [] {
             return Tensors{numbers({6, 4}, 1), as(DType::f64, numbers({4, 3}, 2)), numbers({3}, 3),
                            as(DType::f64, numbers({3}, 4))};
           })},
    {"NothingInAParameter", model([](const Tensor& x, const Tensors& p,
                                     const Tensors&) { return matmul(matmul(x, p[0]), p[1]) + p[2]; },
                                  [] {
                                    return Tensors{numbers({6, 0}, 1), numbers({0, 3}, 2), numbers({3}, 3)};
                                  })},
    {"NothingInAnyParameter",
     model([](const Tensor& x, const Tensors& p, const Tensors&) { return matmul(matmul(x, p[0]), p[1]); },
           [] {
             return Tensors{numbers({6, 0}, 1), numbers({0, 3}, 2)};
           })},
    {"Scalars", model([](const Tensor& x, const Tensors& p, const Tensors&) { return x * p[0] + p[1]; },
                      [] {
                        return Tensors{numbers({}, 1), numbers({}, 2)};
                      })},
    {"BuffersOfIntegersAndBools",
     model([](const Tensor& x, const Tensors& p,
              const Tensors& b) { return where(b[1], x * p[0], b[0].to(DType::f32)); },
           [] { return Tensors{numbers({6}, 1)}; },
           [] {
             return Tensors{arange(6), as(DType::boolean, numbers({6}, 2)),
                            Tensor::from_vector<int32_t>({}, {0}), Tensor::from_vector<uint8_t>({3}, {})};
           })},
    {"AFrozenLayer",
     [] {
       auto m = std::make_unique<Net>();
       m->fc1.requires_grad_(false);
       return m;
     }},
    {"UsedTwice", model([](const Tensor& x, const Tensors& p,
                           const Tensors&) { return matmul(tanh(matmul(x, p[0])), p[0]); },
                        [] {
                          return Tensors{numbers({6, 6}, 1)};
                        })},
    {"OneGradientForTwo",
     model([](const Tensor& x, const Tensors& p, const Tensors&) { return x + p[0] + p[1]; },
           [] {
             return Tensors{numbers({6}, 1), numbers({6}, 2)};
           })},
    {"Strided", model([](const Tensor& x, const Tensors& p, const Tensors&) { return matmul(x, p[0]); },
                      [] {
                        return Tensors{numbers({4, 6}, 1).transpose(0, 1).detach()};
                      })},
    {.name = "Clipped", .model = net, .clip = 0.01},
};

std::string name_of(const ::testing::TestParamInfo<Odd::ParamType>& info) {
  const char* const modes[] = {"eager", "native", "reference", "forward", "split"};
  return fmt::format("{}_{}", std::get<0>(info.param).name, modes[static_cast<int>(std::get<1>(info.param))]);
}
INSTANTIATE_TEST_SUITE_P(Cases, Odd,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values(Mode::eager, Mode::native, Mode::reference,
                                                              Mode::forward, Mode::split)),
                         name_of);

/// Sums that nobody reads are agreed on and waited for: no rank runs ahead.
TEST(OddSteps, GradientsMayBeDropped) {
  const auto got = on_ranks(2, [](int r, auto group) -> std::string {
    Net net;
    DistributedDataParallel ddp(net, group);
    const auto step = compile([&](const Tensor& x) {
      sum(ddp(x)).backward();
      ddp.zero_grad();
    });
    for (int s = 0; s < 20; ++s) step(numbers({5, 6}, s + r));
    return "ok";
  });
  EXPECT_THAT(got, Each("ok"));
}

// --- ranks whose models differ, or fail: all of them raise, and none waits for the timeout ---

using Wrap = std::function<void(int rank, const std::shared_ptr<ProcessGroup>& group)>;
std::vector<std::string> wrapped(const Wrap& wrap) {
  return on_ranks(
      2, [&](int r, auto group) -> std::string { return wrap(r, group), "ok"; }, 600);
}
std::unique_ptr<Model> with_buffers(const Tensors& buffers) {
  return std::make_unique<Model>(
      Tensors{numbers({6}, 1)}, [](const Tensor& x, const Tensors& p, const Tensors&) { return x * p[0]; },
      buffers);
}

TEST(OddRanks, FrozenOnOneRankOnly) {
  EXPECT_THAT(wrapped([](int r, const auto& group) {
                Net net;
                if (r == 0) net.fc1.requires_grad_(false);
                const DistributedDataParallel ddp(net, group);
              }),
              Each(HasSubstr("names or sizes of params[2] differ: rank ")));
}

TEST(OddRanks, NothingToTrainOnOneRank) {
  const auto got = wrapped([](int r, const auto& group) {
    Net net;
    if (r == 0) net.requires_grad_(false);
    const DistributedDataParallel ddp(net, group);
  });
  EXPECT_THAT(got, Each(HasSubstr("not needed, for no parameter requires a gradient")));
  EXPECT_THAT(got[1], HasSubstr("rank 0 has failed: "));
}

TEST(OddRanks, ACapIsWrongOnOneRank) {
  EXPECT_THAT(wrapped([](int r, const auto& group) {
                Net net;
                const DistributedDataParallel ddp(net, group, {.bucket_cap_mb = r - 1.0});
              }),
              Each(HasSubstr("expected one above 0")));
}

TEST(OddRanks, BuffersDiffer) {
  EXPECT_THAT(wrapped([](int r, const auto& group) {
                const auto m = with_buffers({numbers({r + 3}, 1)});
                const DistributedDataParallel ddp(*m, group);
              }),
              Each(HasSubstr("the models differ: rank ")));
  const auto got = wrapped([](int r, const auto& group) {
    const auto m = with_buffers(r == 0 ? Tensors{arange(3)} : Tensors{});
    const DistributedDataParallel ddp(*m, group);
  });
  EXPECT_THAT(got[0], HasSubstr("the models differ: rank 0 has buffer b0 i64[3], rank 1 has nothing"));
  EXPECT_THAT(got[1], HasSubstr("the models differ: rank 1 has nothing, rank 0 has buffer b0 i64[3]"));
}

TEST(OddRanks, OneSendsItsModelTheOtherDoesNotExpectIt) {
  EXPECT_THAT(wrapped([](int r, const auto& group) {
                Net net;
                const DistributedDataParallel ddp(net, group, {.init_sync = r == 0});
              }),
              Each(HasSubstr("the models differ: rank ")));
}

/// What loading says in its first line; "" if it loads.
std::string refused(Module& m, const NamedTensors& state) {
  try {
    m.load_state_dict(state, true, Loc("train.cpp", 42));
    return "";
  } catch (const Error& e) {
    const std::string text = e.what();
    return text.substr(0, text.find('\n'));
  }
}

TEST(DistributedDataParallelState, NamesWithAndWithoutModuleAreToldApart) {
  Net trained, other;
  fill(trained, 3);
  DistributedDataParallel ddp(trained, make_local_groups(1, Seconds(30))[0]);
  const std::string path = ::testing::TempDir() + fmt::format("kiln-ddp-state-{}.safetensors", getpid());
  save_file(ddp.state_dict(), path);
  NamedTensors from_file = load_file(path);
  unlink(path.c_str());
  const std::string strip =
      "load_state_dict (train.cpp:42): the state does not fit the module: before the module's names it has "
      "'module.', as the state_dict() of DistributedDataParallel does; strip that first (name.substr(7))";
  EXPECT_EQ(refused(other, ddp.state_dict()), strip);
  EXPECT_EQ(refused(other, from_file), strip);
  for (auto& [name, t] : from_file) name = name.substr(7);
  EXPECT_EQ(refused(other, from_file), "");
  EXPECT_EQ(other.fc1.weight.to_vector<float>(), trained.fc1.weight.to_vector<float>());

  fill(other, 5);
  NamedTensors plain = other.state_dict();
  EXPECT_EQ(refused(ddp, plain),
            "load_state_dict (train.cpp:42): the state does not fit the module: the module's names have "
            "'module.' before its own, being those of DistributedDataParallel; add that first ('module.' + "
            "name)");
  for (auto& [name, t] : plain) name = "module." + name;
  EXPECT_EQ(refused(ddp, plain), "");
  EXPECT_EQ(trained.fc1.weight.to_vector<float>(), other.fc1.weight.to_vector<float>());
}

}  // namespace KILN_FILE
}  // namespace kiln::nn
