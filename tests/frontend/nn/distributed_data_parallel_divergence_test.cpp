// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads, one of which does something else than the other: they end as without compile(), or
// all with an error that says what differs, and nobody waits for longer than the timeout. BEHAVIOURS C-10,
// C-19, C-20.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <thread>

#include "runtime/collective.h"
#include "tests/frontend/nn/divergence.h"

namespace kiln::nn {
namespace KILN_FILE {

using ::testing::AnyOf;
using ::testing::ContainsRegex;

constexpr double kTimeout = 2, kLong = 60;
// What a wait may take beyond the timeout on a busy machine, and where somebody compiles meanwhile.
constexpr double kSlack = 6;

std::vector<Outcome> on_threads(const Scenario& s, int odd_rank, bool compiled, double timeout) {
  const auto groups = make_local_groups(2, Seconds(timeout));
  std::vector<Outcome> out(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      out[static_cast<size_t>(r)] = diverge(s, odd_rank, r, groups[static_cast<size_t>(r)], compiled);
    });
  for (std::thread& t : threads) t.join();
  return out;
}

void expect_errors(const std::vector<Outcome>& ranks, const std::string& text, int odd_rank) {
  const std::string pattern = std::regex_replace(text, std::regex("RANK"), std::to_string(odd_rank));
  for (const Outcome& o : ranks) {
    EXPECT_THAT(o.error, ContainsRegex("^(comm|invalid): "));
    EXPECT_LT(o.longest, kTimeout + kSlack);
  }
  EXPECT_THAT((std::vector{ranks[0].error, ranks[1].error}), ::testing::Contains(ContainsRegex(pattern)));
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.error, "");
  EXPECT_EQ(b.error, "");
  EXPECT_THAT(a.parameters, ::testing::Pointwise(::testing::FloatNear(2e-6f), b.parameters));
}

class Divergence : public ::testing::TestWithParam<std::tuple<size_t, int>> {};

TEST_P(Divergence, EndsAsWithoutCompileOrInErrorsOnAllRanks) {
  const auto [index, odd_rank] = GetParam();
  const Scenario& s = scenarios()[index];
  SCOPED_TRACE(s.name);
  const bool as_eager = s.error.empty();
  std::vector<Outcome> eager, compiled;
  std::thread beside([&, odd = odd_rank] { eager = on_threads(s, odd, false, as_eager ? kLong : kTimeout); });
  compiled = on_threads(s, odd_rank, true, kTimeout);
  beside.join();
  if (as_eager) {
    for (size_t r = 0; r < 2; ++r) expect_same(compiled[r], eager[r]);
    return;
  }
  for (const Outcome& o : compiled) EXPECT_THAT(o.error, ContainsRegex(s.both));
  expect_errors(compiled, s.error, odd_rank);
  expect_errors(compiled, s.why, odd_rank);
  if (!s.eager_goes_on) expect_errors(eager, s.error, odd_rank);
}

INSTANTIATE_TEST_SUITE_P(All, Divergence,
                         ::testing::Combine(::testing::Range(size_t{0}, scenarios().size()),
                                            ::testing::Values(0, 1)));

}  // namespace KILN_FILE
}  // namespace kiln::nn
