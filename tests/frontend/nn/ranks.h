// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of this process, and a model that they train.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "frontend/kiln.h"
#include "runtime/collective.h"

namespace kiln::testing {

struct Net : nn::Module {
  explicit Net(int64_t hidden = 16) : fc0(6, hidden), fc1(hidden, hidden), fc2(hidden, 3) {
    register_module("fc0", fc0);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(tanh(fc1(tanh(fc0(x))))); }
  nn::Linear fc0, fc1, fc2;
};

/// Numbers that depend on nothing but their place.
inline Tensor numbers(const Sizes& sizes, int64_t salt) {
  int64_t n = 1;
  for (int64_t d : sizes) n *= d;
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>((static_cast<int64_t>(i) * 37 + salt * 101) % 61) / 61.f - 0.5f;
  return Tensor::from_vector(v, sizes);
}
inline void fill(nn::Module& m, int64_t salt) {
  NoGrad guard;
  for (auto& [name, p] : m.named_parameters()) Tensor(p).copy_(numbers(p.sizes(), ++salt));
}

using OnRank = std::function<std::string(int, std::shared_ptr<ProcessGroup>)>;

/// body(rank, group) on a thread per rank; what it returned or threw.
inline std::vector<std::string> on_groups(const std::vector<std::shared_ptr<ProcessGroup>>& groups,
                                          const OnRank& body) {
  const int n = static_cast<int>(groups.size());
  std::vector<std::string> out(groups.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      try {
        out[static_cast<size_t>(r)] = body(r, groups[static_cast<size_t>(r)]);
      } catch (const Error& e) {
        out[static_cast<size_t>(r)] = fmt::format("{}: {}", to_string(e.kind()), e.what());
      }
    });
  for (std::thread& t : threads) t.join();
  return out;
}

inline std::vector<std::string> on_ranks(int n, const OnRank& body, double timeout = 30) {
  return on_groups(make_local_groups(n, Seconds(timeout)), body);
}

}  // namespace kiln::testing
