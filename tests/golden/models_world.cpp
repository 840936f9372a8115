// SPDX-License-Identifier: Apache-2.0
// A rank, for models_world_test.py: `models_world ID...` joins the world of its environment, trains these
// models of models.json, eagerly and compiled, and compares with the file; rank 0 also compares the ranks
// with each other. Prints a line for each; status 1 if one differs, 3 after an error.
#include <cstring>
#include <iostream>

#include "frontend/distributed.h"
#include "tests/golden/models_ranks.h"

namespace kiln::golden {
namespace {

/// What every rank came to, on all of them.
std::vector<Trained> gather(ProcessGroup& group, const std::string& name, const Trained& mine) {
  std::string losses(mine.losses.size() * sizeof(double), 0);
  std::memcpy(losses.data(), mine.losses.data(), losses.size());
  const auto key = [&](int rank, const char* what) { return fmt::format("{}/{}/{}", name, rank, what); };
  group.store()->set(key(group.rank(), "losses"), losses);
  group.store()->set(key(group.rank(), "bits"), mine.bits);
  std::vector<Trained> all;
  for (int r = 0; r < group.size(); ++r) {
    const auto of_rank = group.store()->wait(key(r, "losses"), group.timeout());
    const auto bits = group.store()->wait(key(r, "bits"), group.timeout());
    KILN_CHECK(of_rank && bits, comm, "rank {} has not said what it came to", r);
    all.push_back({std::vector<double>(of_rank->size() / sizeof(double)), *bits});
    std::memcpy(all.back().losses.data(), of_rank->data(), of_rank->size());
  }
  return all;
}

std::string run(const Json& j, bool compiled, const GroupPtr& group) {
  Trained mine;
  const std::string d = train_rank(j, compiled, group->rank(), group->size(), group, mine);
  if (!d.empty()) return d;
  return compare_ranks(j, gather(*group, fmt::format("{}/{}", j["id"].get<std::string>(), compiled), mine));
}

int run_all(const std::vector<std::string>& ids) {
  const GroupPtr group = distributed::init_process_group({.timeout = 60});
  const Json file = load("models");
  int failures = 0;
  for (const Json& j : file["cases"]) {
    const std::string id = j["id"];
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) continue;
    for (const bool compiled : {false, true}) {
      const std::string d = run(j, compiled, group);
      failures += !d.empty();
      std::cout << fmt::format("{}, {}, rank {} of {}, {}: {}", id, compiled ? "compiled" : "eager",
                               group->rank(), group->size(), group->backend(), d.empty() ? "as PyTorch" : d)
                << std::endl;
    }
  }
  distributed::destroy_process_group();
  return failures > 0;
}

}  // namespace
}  // namespace kiln::golden

int main(int argc, char** argv) {
  try {
    return kiln::golden::run_all({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::cerr << "error: " << e.what() << std::endl;
    return 3;
  }
}
