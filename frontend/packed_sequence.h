// SPDX-License-Identifier: Apache-2.0
// Sequences of several lengths, packed and padded. Names and arguments are those of torch.nn.utils.rnn.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "frontend/ops.h"

namespace kiln {

/// Sequences of several lengths without padding: rows of step 0 of all of them, longest first, then of step
/// 1, and so on. The lengths are host numbers: others make another trace of a compiled callable, where
/// RecurrentOptions::lengths do not. Source: torch.nn.utils.rnn.PackedSequence.
struct PackedSequence {
  Tensor data;                           ///< [sum of the lengths, ...]
  std::vector<int64_t> batch_sizes;      ///< sequences that have a step t
  std::vector<int64_t> sorted_indices;   ///< the given place of each sequence, longest first
  std::vector<int64_t> lengths() const;  ///< by given place
};
/// The sequences of x without what is beyond their lengths. Shapes: x [T, batch, ...] or [batch, T, ...] ->
/// data [sum of the lengths, ...]. Throws: invalid, unless there is a length for each sequence, in 1 to T,
/// and when enforce_sorted and the lengths increase.
PackedSequence pack_padded_sequence(const Tensor& x, const std::vector<int64_t>& lengths,
                                    bool batch_first = false, bool enforce_sorted = true,
                                    Loc loc = Loc::current());
/// The padded sequences in the order given, and their lengths. Shapes: [T, batch, ...] or [batch, T, ...],
/// T the longest or total_length. Throws: invalid, when total_length is less than the longest, and on
/// fields that are no packed sequence.
std::pair<Tensor, std::vector<int64_t>> pad_packed_sequence(const PackedSequence& x, bool batch_first = false,
                                                            double padding_value = 0,
                                                            std::optional<int64_t> total_length = {},
                                                            Loc loc = Loc::current());
/// Sequences side by side, padded at their ends. Shapes: [length, ...] each -> [T, batch, ...] or [batch,
/// T, ...]. Throws: invalid, on no sequences, and on those that differ beside the length.
Tensor pad_sequence(const std::vector<Tensor>& sequences, bool batch_first = false, double padding_value = 0,
                    Loc loc = Loc::current());
/// Sequences packed as they are. Shapes: [length, ...] each -> data [sum of the lengths, ...]. Throws:
/// invalid, as pad_sequence, on an empty one, and when enforce_sorted and the lengths increase.
PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted = true,
                             Loc loc = Loc::current());

}  // namespace kiln
