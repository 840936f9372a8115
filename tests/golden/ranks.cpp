// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/ranks.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "tests/golden/run.h"
#include "tests/runtime/cuda/fake_nccl.h"

namespace kiln::golden {

namespace {

/// What `rank` is expected to have; null: nothing.
const Json& of_rank(const Json& e, int rank) {
  static const Json nothing;
  if (!e.is_object() || !e.contains("by_rank")) return e;
  size_t at = static_cast<size_t>(rank);
  if (e.contains("ranks")) {
    const auto ranks = e["ranks"].get<std::vector<int>>();
    const auto it = std::find(ranks.begin(), ranks.end(), rank);
    if (it == ranks.end()) return nothing;
    at = static_cast<size_t>(it - ranks.begin());
  }
  return e["by_rank"][at];
}

/// Sums over more than two ranks may be added in another order: 1e-5.
double slack(const Json& e, int world, double half) {
  const double relative = std::max(half, world > 2 ? 1e-5 : 0);
  if (relative == 0 || !e.contains("values")) return 0;
  double most = 0;
  for (const Json& v : e["values"]) most = std::max(most, std::abs(number(v)));
  return relative * most;
}

std::string bits_of(const Values& v) {
  return {reinterpret_cast<const char*>(v.data.data()), v.data.size() * sizeof(double)};
}

}  // namespace

std::vector<std::string> on_ranks(int world, Between between,
                                  const std::function<std::string(int, GroupPtr)>& body, Seconds timeout) {
  const auto n = static_cast<size_t>(world);
  const std::shared_ptr<Store> store = make_local_store();
  std::vector<GroupPtr> groups(n);
  if (between == Between::threads) groups = make_local_groups(world, timeout);
  if (between == Between::gpus) groups = testing::make_groups_with_gpus(world, timeout);
  std::vector<std::string> out(n);
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      const auto i = static_cast<size_t>(r);
      try {
        if (between == Between::gloo)
          groups[i] = make_gloo_group(store, "ranks", r, world, "127.0.0.1", timeout);
        out[i] = body(r, groups[i]);
      } catch (const Error& e) {
        out[i] = fmt::format("{}: {}", to_string(e.kind()), e.what());
      } catch (const std::exception& e) {
        out[i] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return out;
}

std::string first_difference(const std::vector<std::string>& of_ranks) {
  for (size_t r = 0; r < of_ranks.size(); ++r)
    if (!of_ranks[r].empty()) return fmt::format("rank {}: {}", r, of_ranks[r]);
  return "";
}

RankResults::RankResults(const Json& one, double half)
    : one_(one), world_(one["world"].get<int>()), half_(half) {}

void RankResults::put(int rank, const std::string& name, const Tensor& t) {
  const auto found = one_["numbers"].find(name);
  if (found == one_["numbers"].end()) throw std::runtime_error("nothing is expected of " + name);
  const Json& e = of_rank(*found, rank);
  const Values got = t.defined() ? values_of(t) : Values{};
  {
    std::lock_guard lock(mutex_);
    bits_[name][rank] = bits_of(got);
  }
  if (e.is_null() != !t.defined())
    throw std::runtime_error(name + (t.defined() ? " is there, expected none" : " is not there"));
  const std::string d = e.is_null() ? "" : compare(e, got, slack(e, world_, half_));
  if (!d.empty()) throw std::runtime_error(name + ": " + d);
}

void RankResults::fact(int rank, const std::string& name, const Json& value) {
  const auto found = one_["facts"].find(name);
  if (found == one_["facts"].end()) throw std::runtime_error("nothing is expected of " + name);
  {
    std::lock_guard lock(mutex_);
    facts_[name].insert(rank);
  }
  const Json& e = of_rank(*found, rank);
  if (e != value)
    throw std::runtime_error(fmt::format("{}: got {}, expected {}", name, value.dump(), e.dump()));
}

std::string RankResults::missing(const std::function<bool(const std::string&)>& facts_left) const {
  for (const auto& [name, e] : one_["numbers"].items()) {
    const auto at = bits_.find(name);
    const size_t expected = e.is_object() && e.contains("ranks") ? e["ranks"].size() : size_t(world_);
    if (at == bits_.end() || at->second.size() != expected) return "not compared on all ranks: " + name;
    if (e.is_object() && e.contains("by_rank")) continue;
    for (const auto& [rank, bits] : at->second)
      if (bits != at->second.begin()->second) return fmt::format("{}: rank {} has other bits", name, rank);
  }
  const Json facts = one_.value("facts", Json::object());
  for (const auto& [name, e] : facts.items())
    if (!facts_left(name) && !facts_.contains(name)) return "not compared: " + name;
  return "";
}

}  // namespace kiln::golden
