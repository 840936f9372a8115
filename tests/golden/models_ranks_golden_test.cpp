// SPDX-License-Identifier: Apache-2.0
// models.json among ranks: each trains on its rows of the batch, and all end where PyTorch's one process ends
// with the same bits.
#include "tests/golden/eval.h"
#include "tests/golden/models_ranks.h"
#include "tests/golden/run.h"

namespace kiln::golden {
namespace {

std::string run(const Json& j, bool compiled, int world, bool gloo) {
  std::vector<Trained> trained(static_cast<size_t>(world));
  const std::string d = first_difference(
      on_ranks(world, gloo ? Between::gloo : Between::threads, [&](int rank, const GroupPtr& group) {
        return train_rank(j, compiled, rank, world, group, trained[static_cast<size_t>(rank)]);
      }));
  return d.empty() ? compare_ranks(j, trained) : d;
}

}  // namespace
}  // namespace kiln::golden

int main(int argc, char** argv) {
  using namespace kiln::golden;
  return golden_main("models", argc, argv, [](const Json&, const Json& j, bool compiled) -> std::string {
    const std::string id = j["id"];
    // One with a batch that four ranks share and one with tied weights; the others are the same again.
    if (id != "mlp" && id != "gpt-tiny") throw Exempt("run by one process in models_golden_test");
    for (const int world : {1, 2, 4}) {
      const std::string d = run(j, compiled, world, false);
      if (!d.empty()) return fmt::format("{} ranks: {}", world, d);
    }
    const std::string d = compiled ? run(j, compiled, 2, true) : "";
    if (!d.empty()) return "2 ranks, gloo: " + d;
    return "";
  });
}
