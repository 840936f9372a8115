// SPDX-License-Identifier: Apache-2.0
// Random programs of views, in-place writes, no_grad, detach and host reads do the same eagerly and compiled,
// on the call that records and on those that follow.
#include <cmath>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"
#include "tests/ir/testing.h"
#include "tests/random_cases.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using kiln::testing::Rng;

struct Inputs {
  Tensor w, x, buffer;
};

Inputs fresh(int call) {
  auto make = [call](float scale) {
    std::vector<float> v;
    for (int i = 0; i < 16; ++i) v.push_back(scale * static_cast<float>((i * 7 + call * 3) % 11 - 5) / 4);
    return Tensor::from_vector(v, {4, 4});
  };
  return {make(1).requires_grad_(), make(0.5f), make(2)};
}

/// A view of `t`: rows, columns, or all of it turned.
Tensor view_of(const Tensor& t, Rng& rng) {
  const int64_t at = rng.below(3);
  switch (rng.below(5)) {
    case 0: return slice(t, 0, at, at + 2);
    case 1: return select(t, 1, at);
    case 2: return transpose(t, 0, 1);
    case 3: return slice(t, 1, 0, 4, 2);
    default: return view(select(transpose(t, 0, 1), 0, at), {2, 2});
  }
}

Tensor like(const Tensor& source, const Tensor& target) {
  return sum(source) * 0.125 + zeros(target.sizes());
}

void write(Tensor target, const Tensor& source, Rng& rng) {
  switch (rng.below(4)) {
    case 0: target.mul_(0.5 + static_cast<double>(rng.below(3))); break;
    case 1: target.add_(like(source, target), -0.25); break;
    case 2: target.copy_(like(source, target)); break;
    default: target.fill_(static_cast<double>(rng.below(5)) - 2); break;
  }
}

std::vector<Tensor> program(const Inputs& in, uint64_t seed, bool inside) {
  Rng rng{seed};
  const bool reads = rng.chance(50);
  std::vector<Tensor> pool{in.w * 1.0, in.x * 1.0, in.x + in.w, in.buffer};
  auto any = [&]() -> Tensor {
    return pool[static_cast<size_t>(rng.below(static_cast<int64_t>(pool.size())))];
  };
  for (int i = 0; i < 12; ++i) {
    const Tensor a = any(), b = any();
    switch (rng.below(11)) {
      case 0: pool.push_back(a + b); break;
      case 1: pool.push_back(a * b * 0.25); break;
      case 2: pool.push_back(a * in.w); break;
      case 3: pool.push_back(a.detach()); break;
      case 8: pool.push_back(transpose(a, 0, 1)); break;  // a view that later writes reach, and that reaches
      case 9: {
        NoGrad guard;
        pool.push_back(rng.chance(50) ? transpose(a, 0, 1) : a + b);
        break;
      }
      case 4: write(view_of(a, rng), b, rng); break;
      case 5: write(view_of(view_of(a, rng).dim() == 2 ? a : b, rng), in.w, rng); break;
      case 6: {
        NoGrad guard;
        write(view_of(a, rng), b, rng);
        break;
      }
      default:
        if (reads && rng.chance(50)) pool.push_back(a * (sum(b).item() > 0 ? 1.5 : -0.5));
        else write(a, b, rng);
    }
  }
  Tensor loss = sum(in.w * 0.0);
  for (size_t i = 0; i < pool.size(); ++i) loss = loss + sum(pool[i] * (0.5 + 0.25 * static_cast<double>(i)));
  if (inside) loss.backward();
  pool.push_back(loss);
  return pool;
}

/// The elements of all results and of w's gradient, and which results require one; or what went wrong.
std::string outcome(const std::function<std::vector<Tensor>(const Inputs&)>& run, int call, bool inside,
                    std::vector<float>& out) {
  const Inputs in = fresh(call);
  try {
    const std::vector<Tensor> results = run(in);
    if (!inside) (results.back() + sum(in.buffer) * 0.5 + sum(results[5]) * 0.25).backward();
    for (const Tensor& t : results) {
      out.push_back(t.requires_grad());
      for (float v : values(t)) out.push_back(v);
    }
    for (float v : values(in.w.grad())) out.push_back(v);
    for (float v : values(in.buffer)) out.push_back(v);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

int compare(Backend backend, uint64_t first, uint64_t count) {
  int compared = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    CompileOptions o;
    o.backend = backend;
    o.max_builds = 200;
    const bool inside = seed % 3 != 0;
    auto body = [&](const Inputs& in) { return program(in, seed, inside); };
    auto compiled = compile(body, o);
    for (int call = 0; call < 3; ++call) {
      std::vector<float> want, got;
      if (!outcome(body, call, inside, want).empty())
        break;  // a saved value was changed: compiled code may allow that
      const std::string fault = outcome([&](const Inputs& in) { return compiled(in); }, call, inside, got);
      EXPECT_EQ(fault, "") << "seed " << seed << " call " << call;
      if (!fault.empty() || want.size() != got.size()) break;
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(got[i], want[i], 1e-4 * (1 + std::abs(want[i])))
            << "seed " << seed << " call " << call << " " << i;
      ++compared;
      if (::testing::Test::HasFailure()) return compared;
    }
  }
  return compared;
}

constexpr int kPrograms = testing::random_cases(1500);
TEST(RandomPrograms, InterpretedTracesDoAsEagerCode) {
  EXPECT_GT(compare(Backend::reference, 0, kPrograms), kPrograms);
}
TEST(RandomPrograms, CompiledTracesDoAsEagerCode) { EXPECT_GT(compare(Backend::native, 10000, 40), 40); }

}  // namespace KILN_FILE
}  // namespace kiln
