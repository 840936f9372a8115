// SPDX-License-Identifier: Apache-2.0
#include "frontend/packed_sequence.h"

#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Ints = std::vector<int64_t>;

TEST(PackedSequence, RowsStandStepByStepLongestFirst) {
  // Sequences 1 2, 3 4 5, 6 as columns.
  const Tensor x = mat({1, 3, 6, 2, 4, 0, 0, 5, 0}, {3, 3}, true);
  const PackedSequence p = pack_padded_sequence(x, {2, 3, 1}, false, false);
  EXPECT_EQ(values(p.data), (Floats{3, 1, 6, 4, 2, 5}));
  EXPECT_EQ(p.batch_sizes, (Ints{3, 2, 1}));
  EXPECT_EQ(p.sorted_indices, (Ints{1, 0, 2}));
  EXPECT_EQ(p.lengths(), (Ints{2, 3, 1}));
  const auto [padded, lengths] = pad_packed_sequence(p, false, -1);
  EXPECT_EQ(values(padded), (Floats{1, 3, 6, 2, 4, -1, -1, 5, -1}));
  EXPECT_EQ(lengths, (Ints{2, 3, 1}));
  EXPECT_EQ(values(pad_packed_sequence(p, true, 0, 4).first), (Floats{1, 2, 0, 0, 3, 4, 5, 0, 6, 0, 0, 0}));
  sum(padded * 2.0).backward();
  EXPECT_EQ(values(x.grad()), (Floats{2, 2, 2, 2, 2, 0, 0, 2, 0}));
}

TEST(PackedSequence, BatchFirstAndWiderSteps) {
  const Tensor x = mat({1, 2, 3, 4, 5, 6, 0, 0}, {2, 2, 2});
  const PackedSequence p = pack_padded_sequence(x, {2, 1}, true);
  EXPECT_EQ(values(p.data), (Floats{1, 2, 5, 6, 3, 4}));
  EXPECT_EQ(values(pad_packed_sequence(p, true).first), values(x));
}

TEST(PackedSequence, SequencesArePaddedOrPackedSideBySide) {
  const Tensor a = vec({1, 2, 3}), b = vec({4});
  EXPECT_EQ(values(pad_sequence({a, b}, true, 9)), (Floats{1, 2, 3, 4, 9, 9}));
  EXPECT_EQ(pad_sequence({a, b}).sizes(), (Sizes{3, 2}));
  const PackedSequence p = pack_sequence({a, b});
  EXPECT_EQ(values(p.data), (Floats{1, 4, 2, 3}));
  EXPECT_EQ(p.batch_sizes, (Ints{2, 1, 1}));
}

TEST(PackedSequence, Mistakes) {
  const Tensor x = zeros({3, 2});
  EXPECT_ERROR(pack_padded_sequence(x, {1, 2}),
               "invalid: pack_padded_sequence (@): the lengths [1,2] increase (sort the sequences, or pass "
               "enforce_sorted = false)");
  EXPECT_ERROR(pack_padded_sequence(x, {4, 1}),
               "invalid: pack_padded_sequence (@): a length of 4, expected 1 to 3 for x f32[3,2]");
  EXPECT_ERROR(pack_padded_sequence(x, {2, 0}),
               "invalid: pack_padded_sequence (@): a length of 0, expected 1 to 3 for x f32[3,2]");
  EXPECT_ERROR(pack_padded_sequence(x, {2}),
               "invalid: pack_padded_sequence (@): got 1 lengths for the batch of x f32[3,2], expected one "
               "for each sequence, at least one");
  PackedSequence p = pack_padded_sequence(x, {3, 1});
  EXPECT_ERROR(pad_packed_sequence(p, false, 0, 2),
               "invalid: pad_packed_sequence (@): total_length is 2, but the longest sequence has 3 steps");
  p.batch_sizes = {1, 2, 1};
  EXPECT_ERROR(pad_packed_sequence(p),
               "invalid: pad_packed_sequence (@): no packed sequence: data f32[4], batch_sizes [1,2,1], 2 "
               "sorted_indices");
  EXPECT_ERROR(pad_sequence({}), "invalid: pad_sequence (@): no sequences");
  EXPECT_ERROR(pad_sequence({zeros({2, 3}), zeros({2, 4})}),
               "invalid: pad_sequence (@): got sequences[1] f32[2,4] beside sequences[0] f32[2,3], expected "
               "[length, ...] of "
               "one dtype and width");
}

TEST(PackedSequences, IndicesThatAreNoOrder) {
  const auto packed = [](std::vector<int64_t> sizes, std::vector<int64_t> indices) {
    return PackedSequence{vec({1, 2, 3}), std::move(sizes), std::move(indices)};
  };
  for (const auto& indices : {std::vector<int64_t>{0, 1000000}, {0, 2}, {-1, 0}, {1, 1}}) {
    const std::string why = fmt::format("no packed sequence: sorted_indices [{}] are no order of 2 sequences",
                                        fmt::join(indices, ","));
    EXPECT_ERROR(pad_packed_sequence(packed({2, 1}, indices)), "invalid: pad_packed_sequence (@): " + why);
    EXPECT_ERROR(packed({2, 1}, indices).lengths(), "invalid: PackedSequence::lengths: " + why);
  }
  EXPECT_ERROR(packed({3, 1}, {0, 1}).lengths(),
               "invalid: PackedSequence::lengths: no packed sequence: batch_sizes [3,1] of 2 sorted_indices");
  EXPECT_EQ(packed({2, 1}, {1, 0}).lengths(), (std::vector<int64_t>{1, 2}));
}

}  // namespace KILN_FILE
}  // namespace kiln
