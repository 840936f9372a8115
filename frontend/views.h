// SPDX-License-Identifier: Apache-2.0
// What a view shows of its base, and what a write through it makes of the base, as ops. Recorded paths and
// the eager tape share these, so that gradients through views agree.
#pragma once

#include "frontend/impl.h"

namespace kiln::detail {

/// Whether two elements lie in one place of memory.
bool shares_elements(const TensorImpl& t);

/// The contents of a view, given its base's.
Value forward_view(Builder& b, Value base, const ViewChain::Steps& steps);
/// The contents of the base after the elements that the steps show are replaced by `update`.
/// Throws: unsupported, when elements of the view overlap.
Value backward_view(Builder& b, Value base, const ViewChain::Steps& steps, Value update);

}  // namespace kiln::detail
