// SPDX-License-Identifier: Apache-2.0
#include "ir/rounding.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

namespace kiln {

HostTensor rounding_terms(const Node& n, std::span<const HostTensor> operands, const HostTensor& result) {
  constexpr std::string_view kSums[] = {"add",    "sub",       "sum",        "dot_general",
                                        "cumsum", "index_add", "scatter_add"};
  if (!is_floating(result.ref.dtype) ||
      std::find(std::begin(kSums), std::end(kSums), def(n.op).name) == std::end(kSums))
    return result;
  std::vector<HostTensor> magnitudes(operands.begin(), operands.end());
  for (HostTensor& t : magnitudes)
    if (is_floating(t.ref.dtype)) t = evaluate(op("abs"), {&t, 1}, {});
  return evaluate(n.op == op("sub") ? op("add") : n.op, magnitudes, n.attrs);
}

}  // namespace kiln
