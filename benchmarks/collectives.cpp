// SPDX-License-Identifier: Apache-2.0
// kiln-collectives: how long an all_reduce takes, from the call to the end of wait(), for each backend,
// number of ranks and size. Ranks are threads of this process; over Gloo they talk through TCP on loopback
// all the same. Results are checked.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <future>
#include <string>
#include <vector>

#include "runtime/collective.h"

namespace {

using namespace kiln;  // NOLINT

using Groups = std::vector<std::shared_ptr<ProcessGroup>>;
constexpr Seconds kTimeout{60};

Groups gloo_groups(int size) {
  const std::shared_ptr<Store> store = make_local_store();
  std::vector<std::future<std::shared_ptr<ProcessGroup>>> making;
  for (int rank = 0; rank < size; ++rank)
    making.push_back(std::async(std::launch::async, make_gloo_group, store, std::to_string(size), rank, size,
                                std::string(), kTimeout));
  Groups groups;
  for (auto& group : making) groups.push_back(group.get());
  return groups;
}

/// `iterations` of them on one rank; whether the result is right.
template <typename Iterations>
bool reduce(ProcessGroup& group, int64_t count, Iterations&& iterations) {
  std::vector<float> data(static_cast<size_t>(count), static_cast<float>(group.rank()));
  for ([[maybe_unused]] auto _ : iterations)
    group.all_reduce(data.data(), count, DType::f32, ReduceOp::max, {})->wait();
  const float expected = static_cast<float>(group.size() - 1);
  return std::all_of(data.begin(), data.end(), [&](float x) { return x == expected; });
}

/// Rank 0 is timed; the others are threads that do the same.
void all_reduce(benchmark::State& state, const Groups& groups) {
  const int64_t count = state.range(0) / static_cast<int64_t>(sizeof(float));
  const std::vector<int> as_many(static_cast<size_t>(state.max_iterations));
  std::vector<std::future<bool>> others;
  for (size_t r = 1; r < groups.size(); ++r)
    others.push_back(std::async(std::launch::async, [&, r] { return reduce(*groups[r], count, as_many); }));
  bool right = reduce(*groups[0], count, state);
  for (auto& other : others) right = other.get() && right;
  if (!right) state.SkipWithError("the result is wrong");
}

void add(const char* backend, const Groups& groups) {
  const std::string name = fmt::format("all_reduce/{}/{}_ranks", backend, groups.size());
  benchmark::RegisterBenchmark(name.c_str(), [groups](benchmark::State& state) { all_reduce(state, groups); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond)
      ->ArgsProduct({{4, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 64 << 20}});
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const int size : {2, 4}) {
    add("local", make_local_groups(size, kTimeout));
    try {
      add("gloo", gloo_groups(size));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::unsupported) throw;
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks();  // the groups end before what they stand on
  benchmark::Shutdown();
}
