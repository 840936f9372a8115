// SPDX-License-Identifier: Apache-2.0
// Uses a header of each layer that is meant for users, and code of the libraries behind them.
#include <iostream>

#include "frontend/version.h"
#include "ir/base/dim.h"
#include "ir/base/dtype.h"

int main() {
  const kiln::Dim tokens = kiln::Dim::symbol("B") * 128;
  std::cout << "kiln " << kiln::version() << " " << kiln::dtype_name(kiln::DType::f32) << " " << tokens.str();
  return 0;
}
