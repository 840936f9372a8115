// SPDX-License-Identifier: Apache-2.0
// Graph-to-graph passes. Each is a free function from a graph to a new one; text in, text out in tests.
#pragma once

#include <optional>

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
/// results up to the order of sums. What goes in and out stays as it is. None: there is no convolution.
std::optional<Graph> place_channels_last(const Graph& g);
/// A plain SGD step by a gradient of few rows updates these rows in place. None: there is none.
std::optional<Graph> update_rows(const Graph& g);
/// The pipeline: simplify, CSE, DCE until nothing changes; the two above, and again if they found anything.
Graph optimize(const Graph& g);

/// With KILN_VERIFY=1 (tests): verifies `g` and that its text reads back. Called on what the frontend records
/// and after each pass; `what` says which. Throws: internal.
void check_graph(const Graph& g, const char* what);

}  // namespace kiln
