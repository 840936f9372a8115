// SPDX-License-Identifier: Apache-2.0
// The parts of a matrix product that printed kernels put together: tiles in shared memory, who fills them, a
// pipeline of stages, and where the sums go at the end. Included after kiln_cuda.h by sources that need it.
#pragma once

#include "cuda_block.h"
#include "cuda_matmul_parts.h"

namespace kn::matmul {

// ---- tiles in shared memory: Outer rows of Inner neighbours ----

/// Rows lie Inner + Pad apart.
template <int Outer, int Inner, int Pad> struct Padded {
  enum : i32 { kOuter = Outer, kInner = Inner, kElements = Outer * (Inner + Pad) };
  KN_FN static i32 at(i32 outer, i32 inner) { return outer * (Inner + Pad) + inner; }
};
/// 16-bit elements: the chunks of 16 bytes of a row change places, so that the same chunk of 8 neighbouring
/// rows lies in different banks.
template <int Outer, int Inner> struct Swizzled {
  enum : i32 { kOuter = Outer, kInner = Inner, kElements = Outer * Inner };
  KN_FN static i32 at(i32 outer, i32 inner) {
    constexpr int kChunks = Inner / 8;
    constexpr int kShift = kChunks >= 8 ? 0 : kChunks == 4 ? 1 : 2, kMask = (kChunks < 8 ? kChunks : 8) - 1;
    return outer * Inner + ((inner / 8) ^ ((outer >> kShift) & kMask)) * 8 + inner % 8;
  }
};

/// body(outer, inner) for each vector of Width elements that this thread moves, by its first: along inner, or
/// AlongOuter. Neighbouring threads take neighbours along outer if OuterFast.
template <class Tile, int Width, bool AlongOuter, bool OuterFast, int Threads, class F>
KN_FN void each_vector(F body) {
  constexpr int kDown = AlongOuter ? Width : 1, kAcross = AlongOuter ? 1 : Width;
  constexpr int kOuters = Tile::kOuter / kDown, kInners = Tile::kInner / kAcross;
  constexpr int kAll = kOuters * kInners;
  KN_UNROLL
  for (i32 s = 0; s < (kAll + Threads - 1) / Threads; ++s) {
    const i32 v = s * Threads + thread();
    if (kAll % Threads != 0 && v >= kAll) continue;
    const i32 outer = OuterFast ? v % kOuters : v / kInners, inner = OuterFast ? v / kOuters : v % kInners;
    body(outer * kDown, inner * kAcross);
  }
}

/// How far the i-th element along a dim lies: by its stride, or by a function where no one stride says it.
KN_FN i64 along(i64 stride, i32 i) { return i * stride; }
template <class F> KN_FN auto along(const F& step, i32 i) -> decltype(step(i)) { return step(i); }

/// Copies a tile whose first element is `from`; what lies past `outers` or `inners` becomes zero. A copy is
/// of 4, 8 or 16 bytes. `outer` and `inner` are strides or functions, as `along` takes them.
template <class Tile, int Width, bool OuterFast, int Threads, class S, class Outer, class Inner>
KN_FN void copy_tile(Shared<S> to, const S* from, const Outer& outer, const Inner& inner, i64 outers,
                     i64 inners) {
  each_vector<Tile, Width, false, OuterFast, Threads>([&](i32 o, i32 i) KN_LAMBDA {
    copy_async<Width * int(sizeof(S))>(to + Tile::at(o, i), from + (along(outer, o) + along(inner, i)),
                                       o < outers && i < inners);
  });
}
/// Fills a tile with value(outer, inner), Width elements.
template <class Tile, int Width, bool AlongOuter, bool OuterFast, int Threads, class S, class F>
KN_FN void fill_tile(Shared<S> to, F value) {
  each_vector<Tile, Width, AlongOuter, OuterFast, Threads>([&](i32 o, i32 i) KN_LAMBDA {
    const auto x = value(o, i);
    if constexpr (AlongOuter) {
      KN_UNROLL
      for (i32 w = 0; w < Width; ++w) store<1>(to + Tile::at(o + w, i), detail::lane(x, w));
    } else {
      store<Width>(to + Tile::at(o, i), x);
    }
  });
}
/// The same of elements in memory, one by one.
template <class Tile, bool OuterFast, int Threads, class S, class Outer, class Inner>
KN_FN void load_tile(Shared<S> to, const S* from, const Outer& outer, const Inner& inner, i64 outers,
                     i64 inners) {
  using T = ValueOf<S, 1>;
  fill_tile<Tile, 1, false, OuterFast, Threads>(to, [&](i32 o, i32 i) KN_LAMBDA {
    return o < outers && i < inners ? load<1>(from + (along(outer, o) + along(inner, i))) : T(0);
  });
}

/// fill(stage, step) runs Stages - 1 steps ahead of multiply(stage); what it copies has arrived by then.
template <int Stages, class Fill, class Multiply>
KN_FN void pipeline(i64 steps, Fill fill, Multiply multiply) {
  for (i32 s = 0; s < Stages - 1; ++s) {
    if (s < steps) fill(s, i64(s));
    async_commit();
  }
  i32 stage = 0, ahead = Stages - 1;
  for (i64 step = 0; step < steps; ++step) {
    async_wait<Stages - 2>();
    barrier();  // the stage is there for all, and the one before is read by none
    if (step + Stages - 1 < steps) fill(ahead, step + Stages - 1);
    async_commit();
    multiply(stage);
    stage = stage + 1 == Stages ? 0 : stage + 1;
    ahead = ahead + 1 == Stages ? 0 : ahead + 1;
  }
}

/// Which tile of C a block computes: eight rows of tiles at a time, so that blocks that run together share
/// what they read.
struct Place {
  i64 m, n;
};
KN_FN Place place_of(i64 tile, i64 tiles_m, i64 tiles_n) {
  const i64 group = tile / (8 * tiles_n), left = tiles_m - group * 8;
  const i64 rows = left < 8 ? left : 8, rest = tile - group * 8 * tiles_n;
  return {group * 8 + rest % rows, rest / rows};
}

// ---- the end of a tile ----

/// body(row, col, value) for every vector of Width neighbours of a tile of C, neighbouring threads along its
/// rows: by way of shared memory, a slice of kSliceRows rows at a time. So `body` is there but once.
template <int TileN, int Width, class Part, class T, class F>
KN_FN void each_of_tile(const Part& part, Shared<T> room, F body) {
  constexpr int kGroup = Part::kColGroup, kLine = Part::kSliceLine, kPerRow = TileN / Width;
  KN_ROLL
  for (i32 pass = 0; pass < Part::kPasses; ++pass) {
    barrier();  // nobody reads the room any more
    KN_UNROLL
    for (i32 i = 0; i < Part::kRows; ++i) {
      if (i / Part::kPassRows != pass) continue;
      KN_UNROLL
      for (i32 j = 0; j < Part::kCols; j += kGroup) {
        Vec<T, kGroup> v;
        KN_UNROLL
        for (i32 w = 0; w < kGroup; ++w) detail::set_lane(v, w, part.at(i, j + w));
        store<kGroup>(room + (part.slice_row(i) * kLine + part.col(j)), v);
      }
    }
    barrier();
    KN_ROLL
    for (i32 v = thread(); v < Part::kSliceRows * kPerRow; v += Part::kThreads) {
      const i32 row = v / kPerRow, col = v % kPerRow * Width;
      body(Part::row_of(pass, row), col, load<Width>(room + (row * kLine + col)));
    }
  }
}

/// The sum of `parts` vectors `stride` apart, in order.
template <int W, class T> KN_FN Vec<T, W> sum_ranges(const T* p, i64 stride, i32 parts) {
  Vec<T, W> sum = load<W>(p);
  for (i32 i = 1; i < parts; ++i) sum = sum + load<W>(p + i * stride);
  return sum;
}

}  // namespace kn::matmul
