// SPDX-License-Identifier: Apache-2.0
#include "tests/frontend/nn/divergence.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "runtime/collective.h"
#include "tests/frontend/nn/ranks.h"

namespace kiln::nn {

namespace {

using kiln::testing::numbers;

/// What a scenario throws: the user's own.
struct Oops : std::runtime_error {
  Oops() : std::runtime_error("oops") {}
};

void sleep(double s) { std::this_thread::sleep_for(Seconds(s)); }

// These end as eager training does.
std::vector<Scenario> other_work() {
  return {
      {.name = "another branch", .before = [](Trainer& t) { t.net.other_branch = true; }},
      {.name = "another shape", .rows = 3},
      {.name = "an evaluation more",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.step(x, y);
             const NoGrad guard;
             t.ddp.eval();
             t.forward(x, y).item();
             t.ddp.train();
           }},
      {.name = "eval", .before = [](Trainer& t) { t.ddp.eval(); }},
      // C-20: whoever is recording or compiling is waited for, however long that takes.
      {.name = "a slow first trace",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.sgd.zero_grad();
             const Tensor loss = t.forward(x, y);
             sleep(3);
             loss.backward();
             t.sgd.step();
           },
       .at = 0},
      {.name = "no optimizer step",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.sgd.zero_grad();
             t.forward(x, y).backward();
           }},
      {.name = "gradients not cleared",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.forward(x, y).backward();
             t.sgd.step();
           }},
  };
}

std::vector<Scenario> hooks_and_reads() {
  return {
      {.name = "a hook on a parameter",
       .before =
           [](Trainer& t) {
             t.hooks.push_back(t.net.fc1.weight.register_hook([](const Tensor& g) { return g * 2.0; }));
           }},
      {.name = "a hook that reads",
       .before =
           [](Trainer& t) {
             t.hooks.push_back(t.net.fc1.weight.register_hook(
                 [](const Tensor& g) { return g * (sum(g).item() > 0 ? 2.0 : 3.0); }));
           }},
      {.name = "a hook in the step",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.sgd.zero_grad();
             Tensor loss = t.forward(x, y);
             t.hooks.push_back(loss.register_hook([](const Tensor& g) { return g * 0.5; }));
             loss.backward();
             t.sgd.step();
           }},
      {.name = "a read before backward",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.sgd.zero_grad();
             const Tensor loss = t.forward(x, y);
             if (loss.item() < 1e9) loss.backward();
             t.sgd.step();
           }},
      {.name = "a read of a gradient",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.sgd.zero_grad();
             t.forward(x, y).backward();
             if (sum(t.net.fc2.bias.grad()).item() < 1e9) t.sgd.step();
           }},
      {.name = "a read after the step",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.step(x, y);
             if (sum(t.net.fc2.bias.detach()).item() > 1e9) t.sgd.zero_grad();
           }},
  };
}

// These end with an error on all ranks, for one of them is in a call that the other does not make.
std::vector<Scenario> exceptions() {
  return {
      {.name = "an exception before backward",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.sgd.zero_grad();
             t.forward(x, y);
             throw Oops();
           },
       .error = "rank RANK has (made|left after) 4 calls",
       .why = "4 calls, and failed in call 3: oops"},
      {.name = "an exception after backward",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.sgd.zero_grad();
             t.forward(x, y).backward();
             throw Oops();
           },
       .error = "rank RANK has (made|left after) 4 calls",
       .why = "4 calls, and failed in call 3: oops",
       .eager_goes_on = true},
      {.name = "an exception in a hook",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.sgd.zero_grad();
             Tensor loss = t.forward(x, y);
             const HookHandle h = loss.register_hook([](const Tensor&) -> Tensor { throw Oops(); });
             loss.backward();
           },
       .error = "rank RANK has (made|left after) 4 calls",
       .why = "4 calls, and failed in call 3: oops"},
      {.name = "an exception in the last step",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.sgd.zero_grad();
             t.forward(x, y);
             throw Oops();
           },
       .error = "rank RANK (has (made|left after) 4 calls|failed in call 5)",
       .why = "failed in call 5: oops",
       .at = kDivergenceSteps - 1},
  };
}

// A compiled step finds out about a bad index when it runs: no sum may have been begun by then, or the others
// would go on with what this rank made of it.
std::vector<Scenario> bad_numbers() {
  const Scenario like = {.error = "rank RANK has (made|left after) 4 calls", .skips = true};
  Scenario target = like, index = like;
  target.name = "a bad target";
  target.odd = [](Trainer& t, const Tensor& x, const Tensor&) {
    t.sgd.zero_grad();
    cross_entropy(t.ddp(x), Tensor::from_vector<int64_t>({0, 1, 2, 3, 0}, {5})).backward();
    t.sgd.step();
  };
  target.why = "4 calls, and failed in call 3: cross_entropy .*target 3 is out of range";
  index.name = "a bad index";
  index.odd = [](Trainer& t, const Tensor& x, const Tensor& y) {
    t.sgd.zero_grad();
    t.forward(index_select(x, 0, Tensor::from_vector<int64_t>({0, 1, 2, 3, 7}, {5})), y).backward();
    t.sgd.step();
  };
  index.why = "4 calls, and failed in call 3: index_select .*index 7 is out of range";
  return {target, index};
}

std::vector<Scenario> other_calls() {
  return {
      {.name = "fewer calls", .odd = {}, .error = "rank RANK has (made|left after) 2 calls", .leaves = true},
      {.name = "no backward",
       .odd = [](Trainer& t, const Tensor& x, const Tensor& y) { t.forward(x, y); },
       .error = "rank RANK has (made|left after) 4 calls"},
      {.name = "no gradients",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             const NoGrad guard;
             t.forward(x, y);
           },
       .error = "rank RANK has (made|left after) 4 calls"},
      {.name = "no_sync",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             const auto guard = t.ddp.no_sync();
             t.step(x, y);
           },
       .error = "rank RANK has (made|left after) 4 calls"},
      {.name = "a parameter without gradient",
       .before = [](Trainer& t) { t.net.without_fc1 = true; },
       .error = "no gradient came for fc1.weight, fc1.bias",
       .why = "rank RANK has left after 2 calls, and failed in call 3: DistributedDataParallel"},
      {.name = "two backwards",
       .odd =
           [](Trainer& t, const Tensor& x, const Tensor& y) {
             t.step(x, y);
             t.step(x, y);
           },
       .error = "ranks 0 and 1 are about to communicate differently in call 3: collective 2 is|call 6",
       .why = "rank RANK, none .there are 2.|there are 2. on rank ., all_reduce.* on rank RANK"},
  };
}

// What one rank waits in, and no message of the other can ever end: both are told at once.
std::vector<Scenario> other_waits() {
  const auto one = [](const std::string& name, const std::function<void(Trainer&)>& before,
                      const std::string& what, int at) {
    Scenario s{.name = name, .before = before, .at = at};
    const std::string step = at == 0 ? "the first backward" : fmt::format("call {}", at + 1);
    s.error = s.both = fmt::format(
        "(rank 0 is in {0} of DistributedDataParallel #1 .*, rank 1 in {1}|rank 0 is in {1}.*, rank 1 in {0} "
        "of "
        "DistributedDataParallel #1 .*): neither can go on",
        step, what);
    return s;
  };
  const CollectiveSite site{"", {"user.cpp", 9}};
  const auto reduce = [site](Trainer& t) {
    float x = 1;
    t.group->all_reduce(&x, 1, DType::f32, ReduceOp::sum, site)->wait();
  };
  const auto another = [](Trainer& t) {
    DivergingNet net;
    DistributedDataParallel ddp(net, t.group);
  };
  return {
      one("an all_reduce of its own", reduce, "all_reduce #[0-9]+ of f32.1. .user.cpp:9.", 2),
      one(
          "a barrier of its own", [site](Trainer& t) { t.group->barrier(site)->wait(); },
          "barrier #[0-9]+ .user.cpp:9.", 2),
      one("a wrapper of its own", another, "the constructor of DistributedDataParallel #2 .divergence.cpp.*",
          2),
      one("an all_reduce before the first step", reduce, "all_reduce #[0-9]+ of f32.1. .user.cpp:9.", 0),
  };
}

}  // namespace

DivergingNet::DivergingNet() : fc0(6, 16), fc1(16, 16), fc2(16, 3) {
  register_module("fc0", fc0);
  register_module("fc1", fc1);
  register_module("fc2", fc2);
}

Tensor DivergingNet::forward(const Tensor& x) {
  Tensor h = tanh(fc0(x));
  if (is_training()) h = h * 0.75;
  if (!without_fc1) h = fc1(h);
  return fc2(other_branch ? relu(h) : tanh(h));
}

Trainer::Trainer(int r, const std::shared_ptr<ProcessGroup>& g)
    : rank(r),
      group(g),
      ddp(net, group, {.bucket_cap_mb = 0.0005}),
      sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9}) {
  kiln::testing::fill(net, 0);
}

void Trainer::step(const Tensor& x, const Tensor& y) {
  sgd.zero_grad();
  forward(x, y).backward();
  sgd.step();
}

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = [] {
    std::vector<Scenario> out;
    for (const auto& some :
         {other_work(), hooks_and_reads(), exceptions(), bad_numbers(), other_calls(), other_waits()})
      out.insert(out.end(), some.begin(), some.end());
    return out;
  }();
  return all;
}

const Scenario& scenario(const std::string& name) {
  const auto at =
      std::find_if(scenarios().begin(), scenarios().end(), [&](const Scenario& s) { return s.name == name; });
  KILN_CHECK(at != scenarios().end(), invalid, "no such scenario: {}", name);
  return *at;
}

namespace {

/// Times what it runs.
template <typename F>
void timed(double& longest, F&& run) {
  const auto begin = std::chrono::steady_clock::now();
  const auto end = [&] {
    longest = std::max(longest, Seconds(std::chrono::steady_clock::now() - begin).count());
  };
  try {
    run();
  } catch (...) {
    end();
    throw;
  }
  end();
}

void train(const Scenario& s, bool diverges, Trainer& trainer, bool compiled, double& longest) {
  bool odd = false;
  const auto step = [&](const Tensor& x, const Tensor& y) {
    if (odd && s.odd) s.odd(trainer, x, y);
    else trainer.step(x, y);
  };
  const auto fast = compile(step);
  for (int i = 0; i < kDivergenceSteps; ++i) {
    odd = diverges && i == s.at;
    if (odd && s.leaves) return;
    if (odd && s.before) s.before(trainer);
    const int64_t rows = odd ? s.rows : 5;
    const Tensor x = numbers({rows, 6}, 1000 + 10 * i + trainer.rank), y = numbers({rows, 3}, 2000 + i);
    double ignored = 0;
    try {
      timed(i == 0 ? ignored : longest, [&] { compiled ? fast(x, y) : step(x, y); });
    } catch (const Oops&) {
    } catch (const Error& e) {
      if (!odd || !s.skips || e.kind() != ErrorKind::invalid) throw;
    }
  }
}

}  // namespace

Outcome diverge(const Scenario& s, int odd_rank, int rank, const std::shared_ptr<ProcessGroup>& group,
                bool compiled, const std::function<void()>& end) {
  Outcome out;
  try {
    Trainer trainer(rank, group);
    train(s, rank == odd_rank, trainer, compiled, out.longest);
    // As destroy_process_group would: nobody leaves before the others.
    timed(out.longest, [&] { end ? end() : group->barrier({"end", {}})->wait(); });
    for (const Tensor& p : trainer.net.parameters())
      for (float v : p.to_vector<float>()) out.parameters.push_back(v);
  } catch (const Error& e) {
    out.error = fmt::format("{}: {}", to_string(e.kind()), e.what());
  }
  return out;
}

}  // namespace kiln::nn
