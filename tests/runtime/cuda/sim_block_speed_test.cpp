// SPDX-License-Identifier: Apache-2.0
// What the simulated device costs. Prints the numbers; fails where work of some 100k elements or some
// thousand launches would no longer be practical.
#include <chrono>
#include <cstdio>

#include "tests/runtime/cuda/sim_testing.h"

namespace kiln::cuda {
namespace KILN_FILE {

using testing::both;
using testing::in;
using testing::out;

class SimSpeed : public testing::SimTest {
 protected:
  template <class F>
  double ns(double count, const char* what, F&& body) {
    const auto from = std::chrono::steady_clock::now();
    body();
    const double each =
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - from).count() / count;
    std::printf("%-40s %8.1f ns\n", what, each);
    return each;
  }
  double elements(const char* what, const char* body, int64_t per_element) {
    constexpr int64_t kCount = 1 << 20;
    const Address x = filled(kCount, 1), y = filled(kCount, 1);
    ok(d.context_synchronize());
    const Function f = kernel(body, 256);
    const auto once = [&] {
      ok(run(f, {.blocks = 256,
                 .buffers = {in(x, kCount * 4, "x"), out(y, kCount * 4, "y")},
                 .shared_bytes = 4096}));
    };
    once();
    return ns(static_cast<double>(kCount * per_element), what, once);
  }
};

TEST_F(SimSpeed, Accesses) {
  EXPECT_LT(elements("access of 4 bytes",
                     "for (i64 i = block() * 4096 + thread(); i < (block() + 1) * 4096; i += 256)"
                     "  store<1>((f32*)buffers[1] + i, load<1>((const f32*)buffers[0] + i));",
                     2),
            500);
  EXPECT_LT(elements("access of 16 bytes, per element",
                     "for (i64 i = block() * 4096 + 4 * thread(); i < (block() + 1) * 4096; i += 1024)"
                     "  store<4>((f32*)buffers[1] + i, load<4>((const f32*)buffers[0] + i));",
                     2),
            500);
  EXPECT_LT(elements("access of shared memory",
                     "for (int i = 0; i < 16; ++i) {"
                     "  store<1>(shared<f32>(4 * thread()), 1.0f);"
                     "  if (load<1>(shared<f32>(4 * thread())) != 1.0f) kn_sim->fault(\"lost\"); }",
                     2),
            500);
}

TEST_F(SimSpeed, Meetings) {
  EXPECT_LT(elements("barrier, per thread", "for (int i = 0; i < 16; ++i) barrier();", 1), 500);
  EXPECT_LT(elements("shuffle, per thread",
                     "f32 x = 1; for (int i = 0; i < 16; ++i) x = shuffle_xor(x, 1);"
                     "if (x != 1.0f) kn_sim->fault(\"lost\");",
                     1),
            500);
  EXPECT_LT(elements("thread that does nothing", "", 1) * 16, 2000);
}

TEST_F(SimSpeed, Launches) {
  const Function f =
      kernel("store<1>((f32*)buffers[1] + thread(), load<1>((const f32*)buffers[0] + thread()));");
  const Address x = filled(1000, 1), y = allocate(4000);
  const auto many = [&](unsigned buffers, int times) {
    testing::LaunchCase c;
    c.buffers = {in(x, 128, "x"), out(y, 128, "y")};
    for (unsigned i = 2; i < buffers; ++i) c.buffers.push_back(in(x + 16 * i, 16, "z"));
    for (int i = 0; i < times; ++i) ok(launch(f, c));
    ok(d.context_synchronize());
  };
  EXPECT_LT(ns(5000, "launch of 32 threads, 2 buffers", [&] { many(2, 5000); }), 200000);
  EXPECT_LT(ns(5000, "launch of 32 threads, 12 buffers", [&] { many(12, 5000); }), 400000);
}

}  // namespace KILN_FILE
}  // namespace kiln::cuda
