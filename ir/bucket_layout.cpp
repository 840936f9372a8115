// SPDX-License-Identifier: Apache-2.0
#include "ir/bucket_layout.h"

namespace kiln {

BucketLayout bucket_layout(std::span<const Type> pieces) {
  constexpr int64_t kAlign = 64;  // bytes; vectors of kernels and lines of the cache are no larger
  BucketLayout out;
  for (const Type& t : pieces) {
    const Dim line(kAlign / static_cast<int64_t>(dtype_size(t.dtype)));
    out.offsets.push_back(out.total);
    out.total = out.total + ceildiv(numel(t.shape), line) * line;
  }
  return out;
}

}  // namespace kiln
