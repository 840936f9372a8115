// SPDX-License-Identifier: Apache-2.0
// kiln-following: what it costs to follow a recorded trace, in ns for each op call of a compiled callable.
// The tensors are tiny, so that the run of the plan (one kernel) is a small part, which is included.
#include <benchmark/benchmark.h>

#include "frontend/kiln.h"

namespace {

using kiln::Tensor;

constexpr int kOps = 400;

/// A chain of `kOps` ops; items are op calls.
template <typename Body>
void follow(benchmark::State& state, Body body) {
  auto step = kiln::compile(body, {.threads = 1});
  const Tensor x = kiln::ones({4}), y = kiln::ones({4});
  step(x, y);
  for (auto _ : state) benchmark::DoNotOptimize(step(x, y));
  state.counters["ns_per_op"] = benchmark::Counter(
      kOps * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void adds(benchmark::State& state) {
  follow(state, [](const Tensor& x, const Tensor& y) {
    Tensor z = x;
    for (int i = 0; i < kOps; ++i) z = z + y;
    return z;
  });
}

void scaled_by_numbers(benchmark::State& state) {
  follow(state, [](const Tensor& x, const Tensor&) {
    Tensor z = x;
    for (int i = 0; i < kOps; ++i) z = z * 0.5;
    return z;
  });
}

void shapes_and_reductions(benchmark::State& state) {
  follow(state, [](const Tensor& x, const Tensor& y) {
    Tensor z = x;
    for (int i = 0; i < kOps; i += 4) {
      const Tensor column = kiln::reshape(z, {4, 1});
      z = kiln::sum(kiln::transpose(column, 0, 1), {0}) + y;
    }
    return z;
  });
}

BENCHMARK(adds);
BENCHMARK(scaled_by_numbers);
BENCHMARK(shapes_and_reductions);

}  // namespace

BENCHMARK_MAIN();
