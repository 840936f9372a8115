// SPDX-License-Identifier: Apache-2.0
// One choice per kernel for all ranks, each kernel measured once, over a store. Knows neither kernels nor
// schedules: a kernel is an id, a choice is text.
//
// Ranks announce their kernels; the set of those that take part is fixed by whoever has it first. The owner
// of a kernel is hash(id) mod the ranks that announced it. What a kernel gets is decided by the first write
// of its result, once for the life of the store, and everybody takes what was written: the owner's finding,
// or the default, when its owner is lost or too slow for somebody.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/store.h"

namespace kiln {

/// Who shares, and how long for.
struct ShareOptions {
  Store* store = nullptr;
  int rank = 0;
  std::vector<int>
      ranks;           ///< that are about to build, this one included, ascending; only they are waited for
  std::string prefix;  ///< of everything in the store
  std::string round;   ///< the same for all ranks that build together, another one for their next build
  Seconds gather{5};   ///< how long announcements are waited for
  Seconds wait{60};    ///< how long results are waited for, from the call on
};

/// A kernel as this rank knows it.
struct SharedKernel {
  std::string id;     ///< the same on all ranks for the same kernel
  std::string known;  ///< this rank's finding of earlier; empty: none
};

/// What was decided about a kernel.
struct SharedChoice {
  std::string text;  ///< empty: the default, which is known to everybody
  bool own = false;  ///< this rank was its owner
};

/// Gives what was found for a kernel (its index); empty: nothing, so that it keeps its default.
using Publish = std::function<void(size_t, const std::string&)>;
/// Measures kernels (indices) and publishes each as soon as it is done.
using MeasureOwn = std::function<void(const std::vector<size_t>&, const Publish&)>;

/// The choices for `kernels`, in order: the same on all ranks for the same id. Blocks: for announcements,
/// this rank's measuring, and results; at most gather + wait apart from the measuring.
/// Throws: comm, when the store cannot be reached; what `measure` throws, after its kernels were decided.
std::vector<SharedChoice> share_choices(const ShareOptions& options, const std::vector<SharedKernel>& kernels,
                                        const MeasureOwn& measure);

}  // namespace kiln
