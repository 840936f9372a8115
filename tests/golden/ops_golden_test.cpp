// SPDX-License-Identifier: Apache-2.0
// ops.json, eagerly and compiled.
#include "tests/golden/ops_case.h"
#include "tests/golden/run.h"

int main(int argc, char** argv) {
  using kiln::golden::Json;
  return kiln::golden::golden_main("ops", argc, argv, [](const Json&, const Json& j, bool compiled) {
    return compiled ? kiln::golden::run_ops_compiled(j) : kiln::golden::run_ops_eagerly(j);
  });
}
