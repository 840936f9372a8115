// SPDX-License-Identifier: Apache-2.0
// Compiles of several sources at once.
#pragma once

#include <cstddef>
#include <functional>

namespace kiln {

/// Calls work(i) for each i < count, in order of their starts, on this thread and up to threads - 1 others.
/// All are called whatever some throw; then the first error, by i, is thrown.
void in_team(size_t count, int threads, const std::function<void(size_t)>& work);

}  // namespace kiln
