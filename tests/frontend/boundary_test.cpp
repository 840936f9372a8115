// SPDX-License-Identifier: Apache-2.0
// Random programs whose histories run through eager code and compiled callables in turn, with hooks
// everywhere and backwards in either: the same hook calls, in the same order, with the same gradients as in
// eager code.
#include "frontend/boundary.h"

#include <cmath>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"
#include "tests/ir/testing.h"
#include "tests/random_cases.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using kiln::testing::Rng;
using Tensors = std::vector<Tensor>;

/// What happened: names of hooks and kinds of errors in order, and the numbers that came with them.
struct Story {
  std::string events;
  Floats numbers;
  void tell(const std::string& what, const Tensor& t) {
    events += what + " ";
    if (!t.defined()) events += "none ";
    else
      for (float v : values(t)) numbers.push_back(v);
  }
  void attempt(const std::function<void()>& f) {
    const std::string e = error_of(f);
    events += e.substr(0, e.find(':')) + ". ";
  }
};

class Program {
 public:
  Program(uint64_t seed, bool compiled, Backend backend) : seed_(seed) {
    for (int part = 0; part < kParts; ++part) {
      calls_.emplace_back([this, part](const Tensors& in) { return inside(part, in); });
      CompileOptions o;
      o.backend = backend;
      if (compiled)
        calls_.back() = [c = std::make_shared<Compiled<Call>>(compile(calls_.back(), o))](const Tensors& in) {
          return (*c)(in);
        };
    }
  }

  Story run(int round) {
    story_ = {};
    Rng rng{seed_};
    leaves_ = {leaf(1, round), leaf(2, round)};
    for (Tensor& t : leaves_)
      if (rng.chance(40)) hook(t, "leaf", rng);
    Tensors pool{leaves_[0] * 1.5, Tensor(leaf(3, round)).detach(), leaves_[1] - 0.25};
    for (int part = 0; part < kParts; ++part) {
      grow(pool, 2, "eager", rng);
      for (Tensor& t : calls_[static_cast<size_t>(part)]({any(pool, rng), any(pool, rng)})) pool.push_back(t);
      if (rng.chance(20)) differentiate(any(pool, rng), rng.chance(70));
      if (rng.chance(30)) hook(pool.back(), "result", rng);
    }
    grow(pool, 2, "late", rng);
    for (int i = 0; i < 2; ++i) {
      Tensor loss = any(pool, rng) * 0.5 + any(pool, rng);
      differentiate(loss + pool.back(), rng.chance(50));
    }
    for (const Tensor& t : pool) story_.tell(t.requires_grad() ? "value" : "constant", t);
    for (const Tensor& t : leaves_) story_.tell("grad", t.grad());
    return story_;
  }

 private:
  using Call = std::function<Tensors(const Tensors&)>;
  static constexpr int kParts = 3;

  static Tensor leaf(int which, int round) {
    Floats v;
    for (int i = 0; i < 3; ++i) v.push_back(static_cast<float>((which * 5 + round * 3 + i * 7) % 11 - 5) / 8);
    return vec(v, true);
  }
  static Tensor& any(Tensors& pool, Rng& rng) {
    return pool[static_cast<size_t>(rng.below(static_cast<int64_t>(pool.size())))];
  }

  void hook(Tensor t, std::string name, Rng& rng) {
    if (!t.requires_grad()) return;
    name += std::to_string(rng.below(1000));
    const int64_t kind = rng.below(3);
    t.register_hook([this, name, kind](const Tensor& g) {
      if (kind == 1) return g * 0.5;
      if (kind == 2) return g + leaves_[1] * 0.25;
      story_.tell(name, g);
      return Tensor();
    });
  }

  void grow(Tensors& pool, int count, const char* name, Rng& rng) {
    for (int i = 0; i < count; ++i) {
      const Tensor a = any(pool, rng),
                   b = rng.chance(30) ? leaves_[static_cast<size_t>(rng.below(2))] : any(pool, rng);
      switch (rng.below(8)) {
        case 0: pool.push_back(a + b); break;
        case 1: pool.push_back(a * b * 0.5); break;
        case 2: pool.push_back(sin(a) - b); break;
        case 3: pool.push_back(exp(a * 0.25) * b); break;
        case 4: pool.push_back(a.detach() + b); break;
        case 5: {
          Tensor t = a + b;  // its value is in no derivative: it may be written
          if (rng.chance(25)) hook(t, name, rng);
          t.add_(leaves_[static_cast<size_t>(rng.below(2))], 0.5);
          pool.push_back(t);
          continue;  // one hook, before or after the write
        }
        case 6: {
          Tensor t = a - b;
          t.view({3, 1}).add_(a.view({3, 1}));
          pool.push_back(t);
          break;
        }
        default: pool.push_back(a.view({3, 1}).transpose(0, 1).reshape({3}) * 2.0);
      }
      if (rng.chance(25)) hook(pool.back(), name, rng);
    }
  }

  void differentiate(const Tensor& t, bool retain) {
    story_.attempt([&] { sum(t).backward({}, retain); });
  }

  Tensors inside(int part, const Tensors& in) {
    Rng rng{seed_ * 16 + static_cast<uint64_t>(part)};
    Tensors pool = in;
    pool.push_back(leaves_[0]);
    grow(pool, 4, "inside", rng);
    if (rng.chance(20)) differentiate(any(pool, rng), true);
    if (rng.chance(15)) pool.push_back(any(pool, rng) * (sum(any(pool, rng)).item() > 0 ? 1.5 : 0.5));
    grow(pool, 2, "inside", rng);
    if (rng.chance(20)) differentiate(any(pool, rng), rng.chance(80));
    return {pool.back(), any(pool, rng) * 1.0, any(pool, rng) * 1.0};
  }

  uint64_t seed_;
  std::vector<Call> calls_;
  Tensors leaves_;
  Story story_;
};

void compare(Backend backend, uint64_t first, uint64_t count) {
  int hooks = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Program eager(seed, false, backend), compiled(seed, true, backend);
    for (int round = 0; round < 3; ++round) {
      const Story want = eager.run(round), got = compiled.run(round);
      ASSERT_EQ(got.events, want.events) << "seed " << seed << " round " << round;
      ASSERT_EQ(got.numbers.size(), want.numbers.size()) << "seed " << seed << " round " << round;
      for (size_t i = 0; i < want.numbers.size(); ++i)
        ASSERT_NEAR(got.numbers[i], want.numbers[i], 1e-4 * (1 + std::abs(want.numbers[i])))
            << "seed " << seed << " round " << round << " " << i << " " << want.events;
      hooks += want.events.find("inside") != std::string::npos;
    }
  }
  EXPECT_GT(hooks, static_cast<int>(count) / 4);
}

TEST(RandomHistories, InterpretedAsEager) { compare(Backend::reference, 0, testing::random_cases(500)); }
TEST(RandomHistories, CompiledAsEager) { compare(Backend::native, 5000, 10); }

}  // namespace KILN_FILE
}  // namespace kiln
