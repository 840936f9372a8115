// SPDX-License-Identifier: Apache-2.0
#include "frontend/dlpack.h"

#include <gmock/gmock.h>

#include <cstddef>

#include "frontend/compile.h"
#include "frontend/cuda.h"
#include "frontend/dlpack_abi.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

// What other libraries were compiled with.
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20);
static_assert(offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, flags) == 24);
static_assert(offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

/// Memory of another library: a 2 x 3 matrix of f32, whose deleter counts.
template <typename Managed>
struct Foreign {
  Foreign() {
    managed.dl_tensor = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) managed.version = {1, 0};
  }
  float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
  int deleted = 0;
  Managed managed{};
};
using Old = Foreign<DLManagedTensor>;
using New = Foreign<DLManagedTensorVersioned>;

TEST(Dlpack, ForeignMemoryIsViewedAndReleasedOnce) {
  Old f;
  {
    Tensor row;
    {
      Tensor t = from_dlpack(&f.managed);
      EXPECT_EQ(t.type_str(), "f32[2,3]");
      EXPECT_EQ(t.data_ptr<float>(), f.data);
      t.mul_(2.0);
      row = select(t, 0, 1);
    }
    EXPECT_EQ(f.deleted, 0);
    EXPECT_EQ(f.data[4], 8);
    f.data[3] = -1;
    EXPECT_EQ(values(row), (Floats{-1, 8, 10}));
  }
  EXPECT_EQ(f.deleted, 1);
}

TEST(Dlpack, StridesOffsetsAndScalars) {
  New f;
  f.strides[0] = 1;
  f.strides[1] = 2;
  f.managed.dl_tensor.byte_offset = 4;
  EXPECT_EQ(values(from_dlpack(&f.managed)), (Floats{1, 3, 5, 2, 4, 6}));
  f.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ(values(from_dlpack(&f.managed)), (Floats{1, 2, 3, 4, 5, 6}));
  f.strides[0] = 0;
  f.managed.dl_tensor.strides = f.strides;
  EXPECT_EQ(values(from_dlpack(&f.managed)), (Floats{1, 3, 5, 1, 3, 5}));
  f.managed.dl_tensor.ndim = 0;
  f.managed.dl_tensor.shape = f.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ(from_dlpack(&f.managed).item(), 1);
  f.managed.dl_tensor.ndim = 2;
  f.managed.dl_tensor.shape = f.shape;
  f.managed.dl_tensor.data = nullptr;
  f.shape[0] = 0;
  EXPECT_EQ(from_dlpack(&f.managed).sizes(), (Sizes{0, 3}));
  EXPECT_EQ(f.deleted, 5);
}

TEST(Dlpack, WithoutADeleter) {
  Old f;
  f.managed.deleter = nullptr;
  EXPECT_EQ(from_dlpack(&f.managed).numel(), 6);
}

TEST(Dlpack, ACopyReleasesAtOnce) {
  New f;
  f.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  EXPECT_ERROR(from_dlpack(&f.managed),
               "unsupported: from_dlpack (@): the memory is read-only, and tensors can be written (pass "
               "copy=true)");
  EXPECT_EQ(f.deleted, 0);
  Tensor t = from_dlpack(&f.managed, true);
  EXPECT_EQ(f.deleted, 1);
  t.zero_();
  EXPECT_EQ(f.data[5], 5);
}

TEST(Dlpack, ErrorsLeaveTheCapsuleToTheCaller) {
  New f;
  DLTensor& t = f.managed.dl_tensor;
  const DLTensor good = t;
  EXPECT_ERROR(from_dlpack(static_cast<DLManagedTensor*>(nullptr)),
               "invalid: from_dlpack (@): the capsule is null");
  const std::string types = "; expected bool, uint8, int32, int64, float16, bfloat16, float32 or float64";
  t.dtype = {kDLInt, 16, 1};
  EXPECT_ERROR(from_dlpack(&f.managed), "unsupported: from_dlpack (@): elements are int16" + types);
  t.dtype = {kDLFloat, 32, 4};
  EXPECT_ERROR(from_dlpack(&f.managed), "unsupported: from_dlpack (@): elements are float32 x 4" + types);
  t.dtype = {kDLComplex, 64, 1};
  EXPECT_ERROR(from_dlpack(&f.managed), "unsupported: from_dlpack (@): elements are complex64" + types);
  t.dtype = {11, 8, 1};
  EXPECT_ERROR(from_dlpack(&f.managed), "unsupported: from_dlpack (@): elements are code 11, 8" + types);
  t = good;
  t.device.device_type = static_cast<DLDeviceType>(10);
  EXPECT_ERROR(
      from_dlpack(&f.managed),
      "unsupported: from_dlpack (@): memory of DLPack's device type 10; expected 1 (CPU), 2 (CUDA) or "
      "3 (CUDA's memory of the host)");
  t = good;
  f.strides[1] = -1;
  EXPECT_ERROR(from_dlpack(&f.managed),
               "unsupported: from_dlpack (@): negative strides [3,-1] (copy it in row-major order first)");
  f.strides[1] = 1;
  t.byte_offset = 2;
  EXPECT_EQ(error_of([&] { from_dlpack(&f.managed, false, Loc("a.cpp", 1)); }).substr(0, 68),
            "invalid: from_blob (a.cpp:1): the data is not aligned for f32; got 0");
  t = good;
  t.shape = nullptr;
  EXPECT_ERROR(from_dlpack(&f.managed),
               "invalid: from_dlpack (@): got 2 dims without sizes, expected 0 to 64, and their sizes");
  t = good;
  f.managed.version.major = 2;
  EXPECT_ERROR(from_dlpack(&f.managed),
               "unsupported: from_dlpack (@): the capsule is of DLPack 2.0; expected 1.x");
  EXPECT_EQ(f.deleted, 0);
}

TEST(Dlpack, ExportSharesMemoryAndKeepsIt) {
  DLManagedTensorVersioned* m = nullptr;
  float* data = nullptr;
  {
    Tensor t = mat({1, 2, 3, 4, 5, 6}, {2, 3});
    const Tensor view = slice(transpose(t, 0, 1), 0, 1, 3);
    m = to_dlpack_versioned(view);
    t.mul_(10.0);
    data = t.cpu().data_ptr<float>();
    EXPECT_EQ(m->dl_tensor.ndim, 2);
    EXPECT_EQ(m->flags, 0u);
    EXPECT_EQ(m->version.major, 1u);
  }
  EXPECT_EQ(m->dl_tensor.shape[0], 2);
  EXPECT_EQ(m->dl_tensor.strides[0], 1);
  EXPECT_EQ(m->dl_tensor.strides[1], 3);
  const Tensor back = from_dlpack(m);
  EXPECT_EQ(values(back), (Floats{20, 50, 30, 60}));
  if (!back.is_cuda()) {
    EXPECT_EQ(back.data_ptr<float>(), data + 1);
  }
}

TEST(Dlpack, EveryDTypeGoesThereAndBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const Tensor t = arange(4).to(static_cast<DType>(i));
    const Tensor back = from_dlpack(to_dlpack(t));
    EXPECT_EQ(back.type_str(), t.type_str());
    EXPECT_EQ(doubles(back), doubles(t));
  }
  EXPECT_EQ(from_dlpack(to_dlpack(zeros({0, 3}))).sizes(), (Sizes{0, 3}));
  EXPECT_EQ(from_dlpack(to_dlpack(full({}, 2.0))).item(), 2);
}

TEST(Dlpack, WhatCannotBeExported) {
  EXPECT_ERROR(
      to_dlpack(vec({1}, true)),
      "invalid: to_dlpack (@): f32[1] requires grad, which other libraries do not see (detach() it)");
  const Tensor p = vec({1}, true);
  EXPECT_EQ(from_dlpack(to_dlpack(p.detach())).numel(), 1);
  EXPECT_EQ(error_of([] { to_dlpack(Tensor()); }).substr(0, 8), "invalid:");
}

TEST(Dlpack, ValuesOfACompiledCallableAreReadyWhenExported) {
  std::vector<Tensor> seen;
  auto f = compile([&](const Tensor& x) {
    const Tensor y = x * 2.0;
    seen.push_back(from_dlpack(to_dlpack(y)));
    return y + 1.0;
  });
  for (int i = 0; i < 3; ++i) {
    const float v = static_cast<float>(i);
    EXPECT_EQ(values(f(vec({v, 1}))), (Floats{2 * v + 1, 3}));
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(values(seen[i]), (Floats{2 * static_cast<float>(i), 2}));
}

TEST(Dlpack, ForeignMemoryIsTrainedInPlace) {
  Old f;
  {
    Tensor w = from_dlpack(&f.managed);
    w.requires_grad_();
    auto step = compile([&](const Tensor& x) {
      w.set_grad({});
      sum(w * x).backward();
      const NoGrad guard;
      w.add_(w.grad(), -1.0);
    });
    const Tensor x = ones({2, 3}, {.device = Device::cpu()});
    for (int i = 0; i < 3; ++i) step(x);
  }
  EXPECT_EQ(f.data[0], -3);
  EXPECT_EQ(f.data[5], 2);
  EXPECT_EQ(f.deleted, 1);
}

}  // namespace KILN_FILE
}  // namespace kiln
