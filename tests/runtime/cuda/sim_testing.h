// SPDX-License-Identifier: Apache-2.0
// A fresh simulated device for each test, and short words for what tests do with it.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "codegen/compile_sim.h"
#include "ir/base/error.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/sim.h"

namespace kiln::cuda::testing {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// What a launch is made of besides its kernel.
struct LaunchCase {
  unsigned blocks = 1;
  std::vector<DeclaredAccess> buffers;  ///< in order, and as they are declared
  std::vector<int64_t> dims;
  unsigned shared_bytes = 0;
  Stream stream = nullptr;
  bool declared = true;
};

inline DeclaredAccess in(Address a, uint64_t bytes, const char* name) {
  return {a, bytes, true, false, name};
}
inline DeclaredAccess out(Address a, uint64_t bytes, const char* name) {
  return {a, bytes, false, true, name};
}
inline DeclaredAccess both(Address a, uint64_t bytes, const char* name) {
  return {a, bytes, true, true, name};
}

class SimTest : public ::testing::Test {
 protected:
  explicit SimTest(const sim::Config& config = {}) { begin(config); }
  ~SimTest() override { sim::reset({}); }

  void begin(const sim::Config& config) {
    sim::reset(config);
    set_sim_compile([](const CudaModule& m) {
      DiskCache cache;
      return compile_sim(m, &cache);
    });
    ok(d.init(0));
    ok(d.context_retain(&context, 0));
    ok(d.context_set(context));
  }
  void ok(Result r) { ASSERT_EQ(r, kSuccess) << d.fault(); }
  /// The call fails so, and says so.
  void refused(Result r, Result code, const std::string& text) {
    EXPECT_EQ(r, code) << d.fault();
    EXPECT_EQ(d.fault(), text);
  }

  /// A kernel of `threads` threads named k, of that body.
  Function kernel(const std::string& body, int threads = 32, int buffers = 2, int dims = 0) {
    CudaModule source;
    source.name = "k.cu";
    source.source = "#include \"kiln_cuda.h\"\nusing namespace kn;\nKILN_CUDA_KERNEL(k, " +
                    std::to_string(threads) + ", " + std::to_string(buffers) + ", " + std::to_string(dims) +
                    ") {\n" + body + "\n}\n";
    source.kernels = {{"k", threads, buffers, dims}};
    Module module = nullptr;
    Function f = nullptr;
    ok(d.load_source(&module, source));
    ok(d.module_function(&f, module, "k"));
    threads_[f] = threads;
    return f;
  }
  Result launch(Function f, const LaunchCase& c, int threads = 0) {
    std::vector<uint64_t> block;
    for (const DeclaredAccess& b : c.buffers) block.push_back(b.address);
    if (c.buffers.empty()) block.push_back(0);
    for (const int64_t n : c.dims) block.push_back(static_cast<uint64_t>(n));
    if (c.dims.empty()) block.push_back(0);
    block.push_back(0);
    void* parameters[] = {block.data()};
    if (c.declared) ok(d.declare(c.buffers.data(), c.buffers.size()));
    const auto t = static_cast<unsigned>(threads ? threads : threads_[f]);
    return d.launch(f, c.blocks, 1, 1, t, 1, 1, c.shared_bytes, c.stream, parameters, nullptr);
  }
  /// Launches and waits: what the driver answers.
  Result run(Function f, const LaunchCase& c) {
    const Result r = launch(f, c);
    return r ? r : d.context_synchronize();
  }
  /// Launches, and says what went wrong; "" if nothing.
  std::string fault_of(Function f, const LaunchCase& c, Result code = kLaunchFailed) {
    const Result r = run(f, c);
    EXPECT_EQ(r, d.fault().empty() ? kSuccess : code);
    return d.fault();
  }

  Address allocate(uint64_t bytes) {
    Address a = 0;
    ok(d.allocate(&a, bytes));
    return a;
  }
  Address filled(uint64_t floats, float value) {
    const Address a = allocate(floats * 4);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    ok(d.set_words(a, bits, floats, nullptr));
    return a;
  }
  std::vector<float> read(Address a, size_t floats) {
    std::vector<float> v(floats);
    ok(d.copy_to_host(v.data(), a, floats * 4, nullptr));
    return v;
  }
  Stream stream() {
    Stream s = nullptr;
    ok(d.stream_create(&s, kStreamNonBlocking, 0));
    return s;
  }
  Event event() {
    Event e = nullptr;
    ok(d.event_create(&e, 0));
    return e;
  }
  void* pinned(size_t bytes) {
    void* p = nullptr;
    ok(d.host_allocate(&p, bytes, 0));
    return p;
  }

  const Driver& d = simulated_driver();
  Context context = nullptr;

 private:
  std::map<Function, int> threads_;
};

}  // namespace kiln::cuda::testing
