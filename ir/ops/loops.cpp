// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/loops.h"

#include <algorithm>
#include <cstring>

namespace kiln::loops {

namespace {

/// Element conversion between a storage type and its compute type; bool becomes 0 or 1.
template <typename From, typename To>
To convert(From v) {
  if constexpr (std::is_same_v<To, bool>) return v != 0;
  else if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>) return To(float(v));
  else return To(v);
}

template <typename From, typename To>
void move(const void* src, int64_t stride, void* dst, int64_t n) {
  const From* s = static_cast<const From*>(src);
  To* d = static_cast<To*>(dst);
  if (stride == 1) {
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(d, s, static_cast<size_t>(n) * sizeof(To));
    } else {
      for (int64_t i = 0; i < n; ++i) d[i] = convert<From, To>(s[i]);
    }
  } else if (stride == 0) {
    std::fill(d, d + n, convert<From, To>(*s));
  } else {
    for (int64_t i = 0; i < n; ++i) d[i] = convert<From, To>(s[i * stride]);
  }
}

template <typename From, typename To>
Move move_of() {
  return {move<From, To>, sizeof(From), sizeof(To), std::is_same_v<From, To>};
}

}  // namespace

Move load_of(DType t) {
  return dispatch(t, [](auto zero) {
    using S = decltype(zero);
    return move_of<S, compute_t<S>>();
  });
}

Move store_of(DType t) {
  return dispatch(t, [](auto zero) {
    using S = decltype(zero);
    return move_of<compute_t<S>, S>();
  });
}

Move raw_of(DType t) {
  switch (dtype_size(t)) {
    case 1: return move_of<uint8_t, uint8_t>();
    case 2: return move_of<uint16_t, uint16_t>();
    case 4: return move_of<uint32_t, uint32_t>();
    default: return move_of<uint64_t, uint64_t>();
  }
}

Loops collapse(std::span<const int64_t> shape, std::span<const std::vector<int64_t>* const> strides) {
  Loops out;
  out.strides.resize(strides.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    bool merge = !out.shape.empty();
    for (size_t i = 0; merge && i < strides.size(); ++i)
      merge = out.strides[i].back() == (*strides[i])[d] * shape[d];
    if (merge) out.shape.back() *= shape[d];
    else out.shape.push_back(shape[d]);
    for (size_t i = 0; i < strides.size(); ++i) {
      if (merge) out.strides[i].back() = (*strides[i])[d];
      else out.strides[i].push_back((*strides[i])[d]);
    }
  }
  if (!out.shape.empty()) return out;
  out.shape.push_back(1);
  for (auto& s : out.strides) s.push_back(1);
  return out;
}

const void* read_block(const char* data, std::span<const int64_t> shape, std::span<const int64_t> strides,
                       const Move& move, int64_t first, int64_t n, void* buffer) {
  const size_t last = shape.size() - 1;
  std::array<int64_t, 16> index{};
  KILN_ASSERT(shape.size() <= index.size(), "rank {}", shape.size());
  int64_t offset = 0, rest = first;
  for (size_t d = last + 1; d-- > 0;) {
    index[d] = rest % shape[d];
    rest /= shape[d];
    offset += index[d] * strides[d];
  }
  char* to = static_cast<char*>(buffer);
  for (int64_t done = 0;;) {
    const int64_t m = std::min(n - done, shape[last] - index[last]);
    const char* from = data + offset * static_cast<int64_t>(move.from);
    if (m == n && move.same && strides[last] == 1) return from;
    move.loop(from, strides[last], to + done * static_cast<int64_t>(move.to), m);
    done += m;
    if (done == n) return buffer;
    offset -= index[last] * strides[last];
    index[last] = 0;
    for (size_t d = last; d-- > 0;) {
      offset += strides[d];
      if (++index[d] < shape[d]) break;
      offset -= index[d] * strides[d];
      index[d] = 0;
    }
  }
}

namespace {
constexpr int64_t kTile =
    32;  // a tile of the transpose: its lines of source and target stay in the first cache

/// The dim along which the source is dense, when that is not the last one and both are long enough for tiles.
size_t dense_dim(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  const size_t last = shape.size() - 1;
  if (strides[last] >= -1 && strides[last] <= 1) return last;
  for (size_t d = 0; d < last; ++d)
    if (strides[d] == 1 && shape[d] >= 8 && shape[last] >= 8) return d;
  return last;
}
/// Offsets of row r of the dims other than the two given.
std::array<int64_t, 2> row_offsets(const Loops& l, int64_t r, size_t skip1, size_t skip2) {
  std::array<int64_t, 2> at{};
  for (size_t d = l.shape.size(); d-- > 0;) {
    if (d == skip1 || d == skip2) continue;
    const int64_t i = r % l.shape[d];
    r /= l.shape[d];
    at[0] += i * l.strides[0][d];
    at[1] += i * l.strides[1][d];
  }
  return at;
}
/// Tiles over the last dim and dim q, along which the source is dense.
template <typename T>
void transpose(const T* src, T* dst, const Loops& l, size_t q) {
  const size_t last = l.shape.size() - 1;
  const int64_t n = l.shape[last], m = l.shape[q], from = l.strides[0][last];
  const int64_t to_n = l.strides[1][last], to_m = l.strides[1][q];
  const int64_t tiles = (n + kTile - 1) / kTile;
  int64_t rows = tiles;
  for (size_t d = 0; d < last; ++d) rows *= d == q ? 1 : l.shape[d];
  parallel_for(rows, std::max<int64_t>(1, 16384 / (kTile * m)), [&](int64_t begin, int64_t end) {
    // By way of a tile of its own: lines a power of two apart would evict each other.
    T tile[kTile][kTile + 1];
    for (int64_t r = begin; r < end; ++r) {
      const auto [s0, t0] = row_offsets(l, r / tiles, q, last);
      const int64_t j0 = r % tiles * kTile, j1 = std::min(n, j0 + kTile);
      for (int64_t i0 = 0; i0 < m; i0 += kTile) {
        const int64_t i1 = std::min(m, i0 + kTile);
        for (int64_t j = j0; j < j1; ++j)
          for (int64_t i = i0; i < i1; ++i) tile[i - i0][j - j0] = src[s0 + i + j * from];
        for (int64_t i = i0; i < i1; ++i)
          for (int64_t j = j0; j < j1; ++j) dst[t0 + i * to_m + j * to_n] = tile[i - i0][j - j0];
      }
    }
  });
}
template <typename T>
void copy_rows(const T* src, T* dst, const Loops& l) {
  const size_t last = l.shape.size() - 1, q = dense_dim(l.shape, l.strides[0]);
  if (q != last) return transpose(src, dst, l, q);
  const int64_t n = l.shape[last], from = l.strides[0][last], to = l.strides[1][last];
  int64_t rows = 1;
  for (size_t d = 0; d < last; ++d) rows *= l.shape[d];
  parallel_for(rows, std::max<int64_t>(1, 16384 / n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const auto [s0, t0] = row_offsets(l, r, last, last);
      if (from == 1 && to == 1) {
        std::copy_n(src + s0, n, dst + t0);
        continue;
      }
      for (int64_t i = 0; i < n; ++i) dst[t0 + i * to] = src[s0 + i * from];
    }
  });
}
}  // namespace

void copy(const char* src, char* dst, const Loops& l, size_t size) {
  switch (size) {
    case 1: return copy_rows(reinterpret_cast<const uint8_t*>(src), reinterpret_cast<uint8_t*>(dst), l);
    case 2: return copy_rows(reinterpret_cast<const uint16_t*>(src), reinterpret_cast<uint16_t*>(dst), l);
    case 4: return copy_rows(reinterpret_cast<const uint32_t*>(src), reinterpret_cast<uint32_t*>(dst), l);
    default: return copy_rows(reinterpret_cast<const uint64_t*>(src), reinterpret_cast<uint64_t*>(dst), l);
  }
}

namespace {
/// One dense block needs no loops at all: small ops are most of some models.
bool run_small(std::span<const TensorRef> in, std::span<const Move> loads, const TensorRef& out,
               const Move& store, Kernel k) {
  const void* data[kMaxIn] = {};
  bool plain = store.same;
  for (size_t i = 0; i < in.size(); ++i) {
    plain = plain && loads[i].same && is_contiguous(in[i]);
    data[i] = in[i].data;
  }
  if (plain) k(data, out.data, out.numel());
  return plain;
}
}  // namespace

void run(std::span<const TensorRef> in, std::span<const Move> loads, const TensorRef& out, const Move& store,
         Kernel k) {
  const int64_t n = out.numel();
  if (n == 0) return;
  KILN_ASSERT(in.size() <= kMaxIn, "{} inputs", in.size());
  if (n <= kBlock && run_small(in, loads, out, store, k)) return;
  std::vector<const std::vector<int64_t>*> strides;
  for (const TensorRef& t : in) strides.push_back(&t.strides);
  // Reading a transposed operand element by element costs a cache line each.
  std::array<HostTensor, kMaxIn> turned;
  std::array<const void*, kMaxIn> data{};
  for (size_t i = 0; i < in.size(); ++i) {
    data[i] = in[i].data;
    if (n < 4096 || dense_dim(out.shape, in[i].strides) == out.shape.size() - 1) continue;
    turned[i] = contiguous({in[i], nullptr});
    strides[i] = &turned[i].ref.strides;
    data[i] = turned[i].ref.data;
  }
  const Loops loops = collapse(out.shape, strides);
  parallel_for((n + kBlock - 1) / kBlock, 32, [&](int64_t begin, int64_t end) {
    alignas(64) uint64_t buffers[kMaxIn + 1][kBlock];
    const void* ptr[kMaxIn] = {};
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kBlock, m = std::min(kBlock, n - first);
      for (size_t i = 0; i < in.size(); ++i)
        ptr[i] = read_block(static_cast<const char*>(data[i]), loops.shape, loops.strides[i], loads[i], first,
                            m, buffers[i]);
      char* to = static_cast<char*>(out.data) + first * static_cast<int64_t>(store.to);
      k(ptr, store.same ? to : static_cast<void*>(buffers[kMaxIn]), m);
      if (!store.same) store.loop(buffers[kMaxIn], 1, to, m);
    }
  });
}

}  // namespace kiln::loops
