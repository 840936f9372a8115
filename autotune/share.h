// SPDX-License-Identifier: Apache-2.0
// One choice per kernel for all ranks, each kernel measured once, over a store. Knows neither kernels nor
// schedules: a kernel is an id, a choice is text.
//
// Nobody is waited for before there is something to wait for: whoever builds takes kernels that no rank has
// taken, a few at a time, until none is left. So ranks that come late, have other kernels or do not build at
// all hold nobody up, and a faster rank does more. What a kernel gets is decided by the first write of its
// result, once for the life of the store, and everybody takes what was written: a finding, or the default,
// when who took the kernel is lost, fails or is too slow for somebody.
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
  int size = 1;        ///< ranks that may build the same; they need not
  std::string prefix;  ///< of everything in the store
  Seconds wait{60};    ///< how long results of others are waited for, from the call on
};

/// A kernel as this rank knows it.
struct SharedKernel {
  std::string id;     ///< the same on all ranks for the same kernel
  std::string known;  ///< this rank's finding of earlier; empty: none
};

/// What was decided about a kernel.
struct SharedChoice {
  std::string text;  ///< empty: the default, which is known to everybody
  bool own = false;  ///< this rank took the kernel, or knew it first
};

/// Gives kernels (indices) that no other rank measures, the first of those that are left, at most `most` and
/// fewer towards the end. None: nothing is left.
using Take = std::function<std::vector<size_t>(size_t most)>;
/// Gives what was found for a kernel (its index); empty: nothing, so that it keeps its default. Whether it
/// counts.
using Publish = std::function<bool(size_t, const std::string&)>;
/// Takes kernels and publishes each as soon as it is measured, for as long as it likes: what it does not
/// take or publish keeps its default.
using Measure = std::function<void(const Take&, const Publish&)>;

/// The choices for `kernels`, in order: the same on all ranks for the same id. What matters most should come
/// first. `measure` is called only if there is something to measure. Blocks: for that, then for results of
/// other ranks, until `wait` has passed since the call.
/// Throws: comm, when the store cannot be reached; what `measure` throws, after its kernels were decided.
std::vector<SharedChoice> share_choices(const ShareOptions& options, const std::vector<SharedKernel>& kernels,
                                        const Measure& measure);

/// How many to take of `left` kernels that `size` ranks share: `most`, and fewer towards the end, so that
/// they end together.
size_t kernels_at_once(size_t left, int size, size_t most);

}  // namespace kiln
