// SPDX-License-Identifier: Apache-2.0
#include "frontend/packed_sequence.h"

#include <algorithm>
#include <numeric>

#include "frontend/ops_detail.h"

namespace kiln {

using detail::require;

namespace {

using Ints = std::vector<int64_t>;

Tensor index_of(const Ints& places, const Tensor& like, Loc loc) {
  return Tensor::from_vector(places, {static_cast<int64_t>(places.size())}, loc).to(like.device(), loc);
}
/// The first two dims of x as one.
Tensor rows_of(const Tensor& x, Loc loc) { return flatten(x, 0, 1, loc); }

/// Where rows of step 0, 1, ... begin in packed data.
Ints beginnings(const Ints& batch_sizes) {
  Ints at(batch_sizes.size());
  std::exclusive_scan(batch_sizes.begin(), batch_sizes.end(), at.begin(), int64_t{0});
  return at;
}

/// Throws: invalid, unless sorted_indices has each sequence once and no step has more than there are.
void check_indices(const PackedSequence& x, const std::string& who) {
  std::vector<bool> seen(x.sorted_indices.size());
  for (const int64_t i : x.sorted_indices) {
    KILN_CHECK(i >= 0 && i < static_cast<int64_t>(seen.size()) && !seen[static_cast<size_t>(i)], invalid,
               "{}: no packed sequence: sorted_indices [{}] are no order of {} sequences", who,
               fmt::join(x.sorted_indices, ","), seen.size());
    seen[static_cast<size_t>(i)] = true;
  }
  for (const int64_t n : x.batch_sizes)
    KILN_CHECK(n >= 0 && n <= static_cast<int64_t>(seen.size()), invalid,
               "{}: no packed sequence: batch_sizes [{}] of {} sorted_indices", who,
               fmt::join(x.batch_sizes, ","), seen.size());
}

void check_packed(const PackedSequence& x, const char* name, Loc loc) {
  const int64_t rows = std::accumulate(x.batch_sizes.begin(), x.batch_sizes.end(), int64_t{0});
  const bool falling = std::is_sorted(x.batch_sizes.rbegin(), x.batch_sizes.rend());
  check_indices(x, fmt::format("{} ({})", name, loc.str()));
  KILN_CHECK(x.data.defined() && x.data.dim() >= 1 && x.data.size(0) == rows && !x.batch_sizes.empty() &&
                 falling && x.batch_sizes.back() > 0 &&
                 static_cast<int64_t>(x.sorted_indices.size()) == x.batch_sizes[0],
             invalid, "{} ({}): no packed sequence: data {}, batch_sizes [{}], {} sorted_indices", name,
             loc.str(), x.data.type_str(), fmt::join(x.batch_sizes, ","), x.sorted_indices.size());
}

}  // namespace

std::vector<int64_t> PackedSequence::lengths() const {
  check_indices(*this, "PackedSequence::lengths");
  Ints out(sorted_indices.size());
  for (const int64_t n : batch_sizes)
    for (int64_t i = 0; i < n; ++i) ++out[static_cast<size_t>(sorted_indices[static_cast<size_t>(i)])];
  return out;
}

PackedSequence pack_padded_sequence(const Tensor& x, const std::vector<int64_t>& lengths, bool batch_first,
                                    bool enforce_sorted, Loc loc) {
  constexpr const char* kName = "pack_padded_sequence";
  require(x, kName, loc);
  KILN_CHECK(x.dim() >= 2, invalid, "{} ({}): got x {}, expected {}", kName, loc.str(), x.type_str(),
             batch_first ? "[batch, T, ...]" : "[T, batch, ...]");
  const int64_t steps = x.size(batch_first ? 1 : 0), batch = x.size(batch_first ? 0 : 1);
  KILN_CHECK(static_cast<int64_t>(lengths.size()) == batch && batch > 0, invalid,
             "{} ({}): got {} lengths for the batch of x {}, expected one for each sequence, at least one",
             kName, loc.str(), lengths.size(), x.type_str());
  for (const int64_t l : lengths)
    KILN_CHECK(l >= 1 && l <= steps, invalid, "{} ({}): a length of {}, expected 1 to {} for x {}", kName,
               loc.str(), l, steps, x.type_str());
  KILN_CHECK(!enforce_sorted || std::is_sorted(lengths.rbegin(), lengths.rend()), invalid,
             "{} ({}): the lengths [{}] increase (sort the sequences, or pass enforce_sorted = false)", kName,
             loc.str(), fmt::join(lengths, ","));
  PackedSequence out;
  out.sorted_indices.resize(lengths.size());
  std::iota(out.sorted_indices.begin(), out.sorted_indices.end(), 0);
  const auto length = [&](int64_t i) { return lengths[static_cast<size_t>(i)]; };
  std::stable_sort(out.sorted_indices.begin(), out.sorted_indices.end(),
                   [&](int64_t a, int64_t b) { return length(a) > length(b); });
  Ints places;
  for (int64_t t = 0; t < length(out.sorted_indices[0]); ++t) {
    const size_t before = places.size();
    for (const int64_t b : out.sorted_indices)
      if (length(b) > t) places.push_back(batch_first ? b * steps + t : t * batch + b);
    out.batch_sizes.push_back(static_cast<int64_t>(places.size() - before));
  }
  out.data = index_select(rows_of(x, loc), 0, index_of(places, x, loc), loc);
  return out;
}

std::pair<Tensor, std::vector<int64_t>> pad_packed_sequence(const PackedSequence& x, bool batch_first,
                                                            double padding_value,
                                                            std::optional<int64_t> total_length, Loc loc) {
  constexpr const char* kName = "pad_packed_sequence";
  check_packed(x, kName, loc);
  const auto longest = static_cast<int64_t>(x.batch_sizes.size());
  const int64_t steps = total_length.value_or(longest);
  KILN_CHECK(steps >= longest, invalid, "{} ({}): total_length is {}, but the longest sequence has {} steps",
             kName, loc.str(), steps, longest);
  const Ints at = beginnings(x.batch_sizes);
  const int64_t batch = x.batch_sizes[0];
  // Where there is nothing, row 0 is read and then covered.
  Ints places(static_cast<size_t>(steps * batch));
  std::vector<uint8_t> filled(places.size());
  for (size_t t = 0; t < x.batch_sizes.size(); ++t)
    for (int64_t i = 0; i < x.batch_sizes[t]; ++i) {
      const int64_t b = x.sorted_indices[static_cast<size_t>(i)];
      const auto step = static_cast<int64_t>(t);
      const auto to = static_cast<size_t>(batch_first ? b * steps + step : step * batch + b);
      places[to] = at[t] + i;
      filled[to] = 1;
    }
  const Tensor rows = index_select(x.data, 0, index_of(places, x.data, loc), loc);
  Sizes column(static_cast<size_t>(rows.dim()), 1);
  column[0] = rows.size(0);
  const Tensor is_filled =
      Tensor::from_vector(filled, column, loc).to(x.data.device(), loc).to(DType::boolean, loc);
  Sizes sizes = rows.sizes();
  sizes[0] = batch_first ? batch : steps;
  sizes.insert(sizes.begin() + 1, batch_first ? steps : batch);
  const Tensor padding = full({}, padding_value, {.dtype = rows.dtype(), .device = rows.device()}, loc);
  return {reshape(where(is_filled, {rows, loc}, {padding, loc}), sizes, loc), x.lengths()};
}

namespace {
/// Lengths of sequences that fit together.
Ints lengths_of(const std::vector<Tensor>& sequences, const char* name, Loc loc) {
  KILN_CHECK(!sequences.empty(), invalid, "{} ({}): no sequences", name, loc.str());
  Ints lengths;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Tensor& s = sequences[i];
    if (!s.defined()) require(s, name, loc, fmt::format("sequences[{}]", i).c_str());
    KILN_CHECK(
        s.dim() >= 1 && s.dim() == sequences[0].dim() && s.dtype() == sequences[0].dtype() &&
            std::equal(s.sizes().begin() + 1, s.sizes().end(), sequences[0].sizes().begin() + 1),
        invalid,
        "{} ({}): got sequences[{}] {} beside sequences[0] {}, expected [length, ...] of one dtype and "
        "width",
        name, loc.str(), i, s.type_str(), sequences[0].type_str());
    lengths.push_back(s.size(0));
  }
  return lengths;
}
}  // namespace

PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted, Loc loc) {
  const Ints lengths = lengths_of(sequences, "pack_sequence", loc);
  return pack_padded_sequence(pad_sequence(sequences, false, 0, loc), lengths, false, enforce_sorted, loc);
}

Tensor pad_sequence(const std::vector<Tensor>& sequences, bool batch_first, double padding_value, Loc loc) {
  const Ints lengths = lengths_of(sequences, "pad_sequence", loc);
  const int64_t steps = *std::max_element(lengths.begin(), lengths.end());
  std::vector<Tensor> padded;
  for (const Tensor& s : sequences) {
    Sizes rest = s.sizes();
    rest[0] = steps - s.size(0);
    padded.push_back(
        rest[0] == 0
            ? s
            : cat({s, full(rest, padding_value, {.dtype = s.dtype(), .device = s.device()}, loc)}, 0, loc));
  }
  return stack(padded, batch_first ? 0 : 1, loc);
}

}  // namespace kiln
