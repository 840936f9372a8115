// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's functions for the simulated device: products as the library's documentation says, on the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ir/base/dtype.h"
#include "runtime/cuda/cublaslt.h"

namespace kiln::testing_cublaslt {

using namespace cuda;

struct FakeDesc {
  int compute, scale, transposed[2] = {0, 0};
};
struct FakeLayout {
  int type;
  uint64_t rows, cols;
  int64_t stride;
  int32_t batch = 1;
  int64_t batch_stride = 0;
  /// Elements that one matrix spans.
  int64_t reach() const { return (static_cast<int64_t>(cols) - 1) * stride + static_cast<int64_t>(rows); }
  int64_t all() const { return (batch - 1) * batch_stride + reach(); }
};
template <typename To, typename From>
To* as(From* p) {
  return reinterpret_cast<To*>(p);
}

struct State {
  CudaDevice* device = nullptr;
  int refuse = 0;            ///< status of the next choice
  int choices = 0;           ///< made so far
  int compute = 0;           ///< of the last product
  uint32_t aligned[3] = {};  ///< what the next choice may rely on, of a, b and d
};
inline State state;

/// d = op(a) op(b), column by column.
template <typename T>
void product(const FakeDesc& desc, const FakeLayout& la, const FakeLayout& lb, const FakeLayout& ld,
             const void* a, const void* b, void* d) {
  const auto fetch = [](const void* from, const FakeLayout& l) {
    std::vector<T> out(static_cast<size_t>(l.all()));
    state.device->copy_to_host(out.data(), reinterpret_cast<Address>(from), out.size() * sizeof(T));
    return out;
  };
  constexpr bool kHalf = sizeof(T) == 2;
  const auto number = [](T v) {
    if constexpr (kHalf) return static_cast<double>(static_cast<float>(v));
    else return static_cast<double>(v);
  };
  const auto rounded = [](double v) {
    if constexpr (kHalf) return T(static_cast<float>(v));
    else return static_cast<T>(v);
  };
  const std::vector<T> x = fetch(a, la), y = fetch(b, lb);
  const auto k = desc.transposed[0] ? la.rows : la.cols;
  EXPECT_EQ(k, desc.transposed[1] ? lb.cols : lb.rows);
  EXPECT_EQ(ld.rows, desc.transposed[0] ? la.cols : la.rows);
  EXPECT_EQ(ld.cols, desc.transposed[1] ? lb.rows : lb.cols);
  std::vector<T> out(static_cast<size_t>(ld.reach()));
  for (int32_t i = 0; i < ld.batch; ++i) {
    for (uint64_t c = 0; c < ld.cols; ++c)
      for (uint64_t r = 0; r < ld.rows; ++r) {
        double sum = 0;
        for (uint64_t j = 0; j < k; ++j) {
          const auto at = [&](const FakeLayout& l, bool t, uint64_t row, uint64_t col) {
            const auto p = static_cast<int64_t>(t ? col : row), q = static_cast<int64_t>(t ? row : col);
            return static_cast<size_t>(i * l.batch_stride + q * l.stride + p);
          };
          sum += number(x[at(la, desc.transposed[0], r, j)]) * number(y[at(lb, desc.transposed[1], j, c)]);
        }
        out[c * static_cast<size_t>(ld.stride) + r] = rounded(sum);
      }
    state.device->copy_to_device(
        reinterpret_cast<Address>(d) + static_cast<Address>(i * ld.batch_stride) * sizeof(T), out.data(),
        out.size() * sizeof(T));
  }
}

inline LtStatus fake_matmul(LtHandle, LtDesc desc, const void* alpha, const void* a, LtLayout la,
                            const void* b, LtLayout lb, const void* beta, const void*, LtLayout, void* d,
                            LtLayout ld, const LtAlgorithm* algorithm, void*, size_t, Stream) {
  const FakeDesc& f = *as<FakeDesc>(desc);
  state.compute = f.compute;
  EXPECT_EQ(algorithm->data[0], 42u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % algorithm->data[1], 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % algorithm->data[2], 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(d) % algorithm->data[3], 0u);
  if (f.scale == kLtR64F) {
    EXPECT_EQ(*static_cast<const double*>(alpha), 1.0);
    EXPECT_EQ(*static_cast<const double*>(beta), 0.0);
    product<double>(f, *as<FakeLayout>(la), *as<FakeLayout>(lb), *as<FakeLayout>(ld), a, b, d);
  } else {
    EXPECT_EQ(*static_cast<const float*>(alpha), 1.0f);
    EXPECT_EQ(*static_cast<const float*>(beta), 0.0f);
    const auto run = [&]<typename T>(T) {
      product<T>(f, *as<FakeLayout>(la), *as<FakeLayout>(lb), *as<FakeLayout>(ld), a, b, d);
    };
    switch (as<FakeLayout>(la)->type) {
      case kLtR16F: run(Half{}); break;
      case kLtR16BF: run(BFloat16{}); break;
      default: run(float{});
    }
  }
  return 0;
}

inline LtStatus fake_choose(LtHandle, LtDesc, LtLayout, LtLayout, LtLayout, LtLayout, LtWish, int,
                            LtChoice* choices, int* count) {
  ++state.choices;
  if (state.refuse) return state.refuse;
  choices[0] = {{{42, state.aligned[0], state.aligned[1], state.aligned[2]}}, 0, 0, 1, {}};
  *count = 1;
  return 0;
}

inline CublasLt fake_table() {
  CublasLt t;
  t.create = [](LtHandle* h) { return *h = as<LtContextObject>(&state), 0; };
  t.destroy = [](LtHandle) { return 0; };
  t.desc_create = [](LtDesc* d, int compute, int scale) {
    return *d = as<LtDescObject>(new FakeDesc{compute, scale}), 0;
  };
  t.desc_destroy = [](LtDesc d) { return delete as<FakeDesc>(d), 0; };
  t.desc_set = [](LtDesc d, int what, const void* value, size_t) {
    as<FakeDesc>(d)->transposed[what - kLtTransA] = *static_cast<const int*>(value);
    return 0;
  };
  t.layout_create = [](LtLayout* l, int type, uint64_t rows, uint64_t cols, int64_t stride) {
    if (stride < static_cast<int64_t>(rows)) return 7;
    return *l = as<LtLayoutObject>(new FakeLayout{type, rows, cols, stride}), 0;
  };
  t.layout_destroy = [](LtLayout l) { return delete as<FakeLayout>(l), 0; };
  t.layout_set = [](LtLayout l, int what, const void* value, size_t bytes) {
    if (what == kLtBatchCount) std::memcpy(&as<FakeLayout>(l)->batch, value, bytes);
    else std::memcpy(&as<FakeLayout>(l)->batch_stride, value, bytes);
    return 0;
  };
  t.wish_create = [](LtWish* w) {
    std::fill_n(state.aligned, 3, 256);  // the library's own default
    return *w = as<LtWishObject>(&state), 0;
  };
  t.wish_destroy = [](LtWish) { return 0; };
  t.wish_set = [](LtWish, int what, const void* value, size_t bytes) {
    if (what != kLtMaxWorkspace) std::memcpy(&state.aligned[std::min(what - kLtAlignA, 2)], value, bytes);
    return 0;
  };
  t.choose = fake_choose;
  t.matmul = fake_matmul;
  return t;
}

}  // namespace kiln::testing_cublaslt
