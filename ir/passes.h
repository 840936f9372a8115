// SPDX-License-Identifier: Apache-2.0
// Graph-to-graph passes. Each is a free function from a graph to a new one; text in, text out in tests.
#pragma once

#include "ir/graph.h"

namespace kiln {

/// Removes nodes that no output needs. Inputs stay.
Graph eliminate_dead_code(const Graph& g);
/// Merges nodes with equal op, operands and attributes (random nodes have distinct offsets, so they never
/// merge).
Graph eliminate_common_subexpressions(const Graph& g);
/// Bit-safe local rewrites to a fixed point: view of view, expand of constant, cast to the same dtype,
/// x*1, x+0 only where IEEE results are unchanged, double negation, sum over no dims, folding of constants.
Graph simplify(const Graph& g);
/// Moves the channels of convolutions innermost, and with them what is computed around convolutions: the same
/// results up to the order of sums. What goes in and out stays as it is. Other graphs come back as they are.
Graph place_channels_last(const Graph& g);
/// The pipeline: simplify, CSE, DCE until nothing changes; channels last, and again.
Graph optimize(const Graph& g);

/// With KILN_VERIFY=1 (tests): verifies `g` and that its text reads back. Called on what the frontend records
/// and after each pass; `what` says which. Throws: internal.
void check_graph(const Graph& g, const char* what);

}  // namespace kiln
