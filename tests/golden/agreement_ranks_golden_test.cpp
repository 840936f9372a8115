// SPDX-License-Identifier: Apache-2.0
// agreement.json, what two ranks do that compile: each scenario among threads of one world, with the right
// values and as many builds as PyTorch has compiles, after every call. C-10, C-12 to C-19.
#include <gtest/gtest.h>

#include <variant>

#include "frontend/kiln.h"
#include "tests/golden/ranks.h"

namespace kiln::golden {
namespace KILN_FILE {

using Builds = std::vector<size_t>;

/// Calls `f` compiled on each rank's arguments, in order, and compares with the same calls without compile().
/// Returns the builds after each call by rank, as the file has them.
template <typename F, typename Arg>
Json builds_of(const F& f, const std::vector<std::vector<Arg>>& of_ranks) {
  std::vector<Builds> builds(of_ranks.size());
  const auto rank_main = [&](int rank, const GroupPtr& group) -> std::string {
    const auto fast = compile([&](const Arg& a) { return f(rank, a); });
    for (const Arg& a : of_ranks[static_cast<size_t>(rank)]) {
      const Tensor got = fast(a), expected = f(rank, a);
      if (got.to_vector<float>() != expected.to_vector<float>())
        return fmt::format("got {}, expected {}", got.item(), expected.item());
      builds[static_cast<size_t>(rank)].push_back(fast.stats().builds.size());
    }
    group->barrier({"end", {}})->wait();  // nobody is stranded
    return "";
  };
  EXPECT_EQ(first_difference(on_ranks(static_cast<int>(of_ranks.size()), Between::threads, rank_main)), "");
  return builds;
}

Tensor total(int, const Tensor& x) { return sum(x); }

/// Looks at both shapes, as the scenario in the file does.
Tensor both(int, const std::pair<Tensor, Tensor>& xy) {
  if (xy.first.size(0) < 0 || xy.second.size(0) < 0) return Tensor();
  return sum(xy.first) + sum(xy.second);
}
using Pair = std::pair<Tensor, Tensor>;
Pair pair(int64_t a, int64_t b) { return {ones({a}), ones({b})}; }

using Either = std::variant<Tensor, float>;
Tensor tensor_or_number(int, const Either& x) {
  if (const Tensor* t = std::get_if<Tensor>(&x)) return sum(*t);
  return full({}, std::get<float>(x));
}

std::map<std::string, std::function<Json()>> scenarios() {
  return {
      {"speculation_divergence",
       [] {
         return builds_of(both, std::vector<std::vector<Pair>>{{pair(4, 4)}, {pair(3, 4)}});
       }},
      {"dim_mismatch",
       [] {
         return builds_of(total, std::vector<std::vector<Tensor>>{{ones({4, 2})}, {ones({3})}});
       }},
      {"missing_source",
       [] {
         const auto f = [](int rank, const std::vector<Tensor>& xs) {
           return sum(xs[static_cast<size_t>(rank)]);
         };
         const std::vector<Tensor> xs = {ones({10}), ones({10})};
         return builds_of(f, std::vector<std::vector<std::vector<Tensor>>>{{xs}, {xs}});
       }},
      {"scalar_missing_source",
       [] {
         const auto f = [](int rank, const std::vector<float>& xs) {
           return full({}, xs[static_cast<size_t>(rank)]);
         };
         const std::vector<float> xs = {10, 11};
         return builds_of(f, std::vector<std::vector<std::vector<float>>>{{xs}, {xs}});
       }},
      {"type_mismatch",
       [] {
         return builds_of(tensor_or_number, std::vector<std::vector<Either>>{{ones({10})}, {12.f}});
       }},
      {"type_mismatch_swapped",
       [] {
         return builds_of(tensor_or_number,
                          std::vector<std::vector<Either>>{{ones({10}), 14.f}, {12.f, ones({20})}});
       }},
      // C-19 without a collective of the guards: only the rank that missed builds, and the other does not
      // wait.
      {"guard_collective_off",
       [] {
         return builds_of(
             total, std::vector<std::vector<Tensor>>{{ones({10}), ones({10})}, {ones({10}), ones({12})}});
       }},
  };
}

/// Why the others' builds are not compared yet.
const std::map<std::string, std::string>& not_covered() {
  static const std::map<std::string, std::string> all = {
      {"break_with_empty_graph", "C-14: sizes become dynamic; printing is no break here"},
      {"dynamic_scalar", "C-12: sizes become dynamic"},
      {"dynamic_tensor", "C-11: sizes become dynamic"},
      {"dynamic_tensor_without_collectives", "C-11: sizes become dynamic"},
      {"guard_collective", "C-19: there is no collective of guards; a miss is the missing rank's alone"},
      {"type_mismatch_second_call", "C-18: sizes become dynamic"},
  };
  return all;
}

TEST(AgreementRanksGolden, Scenarios) {
  const auto known = scenarios();
  size_t seen = 0;
  const Json file = load("agreement");
  for (const Json& one : file["cases"]) {
    if (one["kind"] != "collective") continue;
    const std::string id = one["id"];
    SCOPED_TRACE(id);
    const auto at = known.find(id);
    EXPECT_NE(at == known.end(), not_covered().count(id) == 0);
    if (at == known.end()) continue;
    ++seen;
    EXPECT_EQ(at->second(), one["compiles_after_call"]["by_rank"]);
  }
  EXPECT_EQ(seen, known.size());
}

/// The sizes of those that are not covered: right values on all ranks, nobody waits for another.
TEST(AgreementRanksGolden, OtherSizesOnEachRankEndAlike) {
  const auto of = [](const std::vector<int64_t>& sizes) {
    std::vector<Tensor> out;
    for (const int64_t n : sizes) out.push_back(ones({n, 10}));
    return out;
  };
  EXPECT_EQ(builds_of(total, std::vector<std::vector<Tensor>>{of({5, 8, 6}), of({6, 6, 3})}),
            (Json{{1, 2, 3}, {1, 1, 2}}));
  EXPECT_EQ(builds_of(total, std::vector<std::vector<Tensor>>{of({10, 10}), of({10, 12})}),
            (Json{{1, 1}, {1, 2}}));
}

}  // namespace KILN_FILE
}  // namespace kiln::golden
