// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/collective_suite.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>

namespace kiln::testing {
namespace {

constexpr int kWorlds[] = {1, 2, 3, 5, 8};
/// Nothing, one, fewer than ranks, odd, and more than fits any small message.
constexpr int64_t kCounts[] = {0, 1, 3, 1021, 20'011};
constexpr DType kReducible[] = {DType::u8,   DType::i32, DType::i64, DType::f16,
                                DType::bf16, DType::f32, DType::f64};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max};

/// Memory with guard words after it.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_(bytes), all_(bytes + kGuard, std::byte{0xA5}) {}
  void* data() { return all_.data(); }
  const std::byte* bytes() const { return all_.data(); }
  bool intact() const {
    for (size_t i = bytes_; i < all_.size(); ++i)
      if (all_[i] != std::byte{0xA5}) return false;
    return true;
  }
  bool same(const Buffer& b) const {
    return bytes_ == b.bytes_ && std::memcmp(bytes(), b.bytes(), bytes_) == 0;
  }

 private:
  static constexpr size_t kGuard = 64;
  size_t bytes_;
  std::vector<std::byte> all_;
};

/// Small, different by rank and element, zero among them only for the types where a product may be.
int value_of(int rank, int64_t i) { return static_cast<int>((i * 7 + rank * 3) % 5) + 1; }

template <typename T>
void fill_typed(Buffer& b, int rank, int64_t first, int64_t count) {
  T* to = static_cast<T*>(b.data());
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      to[i] = T(static_cast<float>(value_of(rank, first + i)));
    else to[i] = static_cast<T>(value_of(rank, first + i) % (std::is_same_v<T, bool> ? 2 : 100));
  }
}

/// What rank `rank` holds of the elements from `first` on.
Buffer filled(DType dtype, int rank, int64_t count, int64_t first = 0) {
  Buffer b(static_cast<size_t>(count) * dtype_size(dtype));
  dispatch(dtype, [&](auto zero) { fill_typed<decltype(zero)>(b, rank, first, count); });
  return b;
}

double fold(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::sum: return a + b;
    case ReduceOp::product: return a * b;
    case ReduceOp::min: return std::min(a, b);
    default: return std::max(a, b);
  }
}

/// The reduction of what `size` ranks hold: all values are integers that a double is exact for.
Buffer reduced(DType dtype, ReduceOp op, int size, int64_t count, int64_t first = 0) {
  Buffer b(static_cast<size_t>(count) * dtype_size(dtype));
  dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* to = static_cast<T*>(b.data());
    for (int64_t i = 0; i < count; ++i) {
      double all = value_of(0, first + i);
      for (int r = 1; r < size; ++r) all = fold(op, all, value_of(r, first + i));
      if constexpr (std::is_integral_v<T>) to[i] = static_cast<T>(static_cast<int64_t>(all));
      else to[i] = T(static_cast<float>(all));
    }
  });
  return b;
}

/// A gradient of a rank, whose mean is not exact in any half, and now and then too large for f16.
float gradient_of(int rank, int64_t i) {
  return static_cast<float>((i * 37 + rank * 101) % 61 - 30) * (i % 7 == 0 ? 3000.f : 0.0013f);
}

/// As ProcessGroup::all_reduce_mean says it, element by element.
template <typename W>
float mean_of(int size, int64_t i) {
  float sum = 0;
  for (int r = 0; r < size; ++r)
    sum += static_cast<float>(W(static_cast<float>(W(gradient_of(r, i))) / static_cast<float>(size)));
  return static_cast<float>(W(sum));
}

template <typename T>
void check_mean(ProcessGroup& g, int64_t count, DType wire) {
  Buffer b(static_cast<size_t>(count) * sizeof(T));
  T* x = static_cast<T*>(b.data());
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<T>(gradient_of(g.rank(), i));
  g.all_reduce_mean(x, count, dtype_of<T>(), wire, {})->wait();
  EXPECT_TRUE(b.intact());
  for (int64_t i = 0; i < count; ++i) {
    const float got = static_cast<float>(x[i]);
    const float want = wire == DType::f16 ? mean_of<Half>(g.size(), i) : mean_of<BFloat16>(g.size(), i);
    ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
        << "rank " << g.rank() << " of " << g.size() << ": " << dtype_name(wire) << ", element " << i
        << " of " << count << " is " << got << ", not " << want;
  }
}

}  // namespace

TEST_P(Collectives, SaysWhoItIs) {
  const Groups groups = make(3, Seconds(7));
  for (int r = 0; r < 3; ++r) {
    const Group& g = groups[static_cast<size_t>(r)];
    EXPECT_EQ(g->rank(), r);
    EXPECT_EQ(g->size(), 3);
    EXPECT_STREQ(g->backend(), GetParam().name);
    EXPECT_EQ(g->timeout(), Seconds(7));
  }
}

TEST_P(Collectives, AllReduce) {
  for (const int size : kWorlds) {
    on_all(make(size), [&](const Group& g) {
      for (const int64_t count : kCounts) {
        for (const DType dtype : kReducible) {
          for (const ReduceOp op : kOps) {
            Buffer b = filled(dtype, g->rank(), count);
            g->all_reduce(b.data(), count, dtype, op, {})->wait();
            EXPECT_TRUE(b.same(reduced(dtype, op, size, count)) && b.intact())
                << "rank " << g->rank() << " of " << size << ": " << dtype_name(dtype) << "[" << count
                << "] by " << to_string(op);
          }
        }
      }
    });
  }
}

TEST_P(Collectives, AllReduceMean) {
  for (const int size : kWorlds) {
    on_all(make(size), [&](const Group& g) {
      for (const int64_t count : {0, 1, 3, 1021, 40'011}) {  // the last is no small message as halves, either
        for (const DType wire : {DType::bf16, DType::f16}) {
          check_mean<float>(*g, count, wire);
          check_mean<double>(*g, count, wire);
        }
      }
    });
  }
}

TEST_P(Collectives, Broadcast) {
  for (const int size : kWorlds) {
    on_all(make(size), [&](const Group& g) {
      for (const int64_t count : kCounts) {
        for (int d = 0; d < kDTypeCount; ++d) {
          const DType dtype = static_cast<DType>(d);
          const int root = d % size;
          Buffer b = filled(dtype, g->rank(), count);
          g->broadcast(b.data(), count, dtype, root, {})->wait();
          EXPECT_TRUE(b.same(filled(dtype, root, count)) && b.intact())
              << "rank " << g->rank() << " of " << size << ": " << dtype_name(dtype) << "[" << count << "]";
        }
      }
    });
  }
}

TEST_P(Collectives, AllGather) {
  for (const int size : kWorlds) {
    on_all(make(size), [&](const Group& g) {
      for (const int64_t count : kCounts) {
        for (int d = 0; d < kDTypeCount; ++d) {
          const DType dtype = static_cast<DType>(d);
          Buffer in = filled(dtype, g->rank(), count);
          const size_t bytes = static_cast<size_t>(count) * dtype_size(dtype);
          Buffer out(bytes * static_cast<size_t>(size));
          g->all_gather(in.data(), out.data(), count, dtype, {})->wait();
          for (int r = 0; r < size; ++r) {
            const Buffer expected = filled(dtype, r, count);
            EXPECT_EQ(std::memcmp(out.bytes() + static_cast<size_t>(r) * bytes, expected.bytes(), bytes), 0)
                << "rank " << g->rank() << " of " << size << ", block " << r << ": " << dtype_name(dtype)
                << "[" << count << "]";
          }
          EXPECT_TRUE(out.intact() && in.same(filled(dtype, g->rank(), count)));
        }
      }
    });
  }
}

TEST_P(Collectives, ReduceScatter) {
  for (const int size : kWorlds) {
    on_all(make(size), [&](const Group& g) {
      for (const int64_t count : kCounts) {
        for (const DType dtype : kReducible) {
          for (const ReduceOp op : kOps) {
            Buffer in = filled(dtype, g->rank(), count * size);
            Buffer out(static_cast<size_t>(count) * dtype_size(dtype));
            g->reduce_scatter(in.data(), out.data(), count, dtype, op, {})->wait();
            EXPECT_TRUE(out.same(reduced(dtype, op, size, count, g->rank() * count)) && out.intact())
                << "rank " << g->rank() << " of " << size << ": " << dtype_name(dtype) << "[" << count
                << "] by " << to_string(op);
            EXPECT_TRUE(in.same(filled(dtype, g->rank(), count * size)));
          }
        }
      }
    });
  }
}

// Several segments of several blocks.
TEST_P(Collectives, LongOnes) {
  constexpr int64_t kCount = 1'000'003;
  constexpr size_t kBytes = kCount * sizeof(float);
  on_all(make(3), [&](const Group& g) {
    const int r = g->rank();
    Buffer mine = filled(DType::f32, r, kCount);
    g->all_reduce(mine.data(), kCount, DType::f32, ReduceOp::sum, {})->wait();
    EXPECT_TRUE(mine.same(reduced(DType::f32, ReduceOp::sum, 3, kCount)) && mine.intact());

    mine = filled(DType::f32, r, kCount);
    g->broadcast(mine.data(), kCount, DType::f32, 2, {})->wait();
    EXPECT_TRUE(mine.same(filled(DType::f32, 2, kCount)) && mine.intact());

    mine = filled(DType::f32, r, kCount);
    Buffer all(3 * kBytes);
    g->all_gather(mine.data(), all.data(), kCount, DType::f32, {})->wait();
    EXPECT_TRUE(all.intact());
    for (int p = 0; p < 3; ++p)
      EXPECT_EQ(std::memcmp(all.bytes() + static_cast<size_t>(p) * kBytes,
                            filled(DType::f32, p, kCount).bytes(), kBytes),
                0);

    all = filled(DType::f32, r, 3 * kCount);
    g->reduce_scatter(all.data(), mine.data(), kCount, DType::f32, ReduceOp::sum, {})->wait();
    EXPECT_TRUE(mine.same(reduced(DType::f32, ReduceOp::sum, 3, kCount, r * kCount)) && mine.intact());
  });
}

// Blocks of out may be in: the block of the rank itself.
TEST_P(Collectives, BlocksInPlace) {
  constexpr int64_t kCount = 20'011;
  constexpr size_t kBytes = kCount * sizeof(float);
  on_all(make(3), [&](const Group& g) {
    Buffer all(3 * kBytes);
    std::byte* mine = static_cast<std::byte*>(all.data()) + static_cast<size_t>(g->rank()) * kBytes;
    std::memcpy(mine, filled(DType::f32, g->rank(), kCount).bytes(), kBytes);
    g->all_gather(mine, all.data(), kCount, DType::f32, {})->wait();
    for (int r = 0; r < 3; ++r)
      EXPECT_EQ(std::memcmp(all.bytes() + static_cast<size_t>(r) * kBytes,
                            filled(DType::f32, r, kCount).bytes(), kBytes),
                0);
    Buffer in = filled(DType::f32, g->rank(), 3 * kCount);
    mine = static_cast<std::byte*>(in.data()) + static_cast<size_t>(g->rank()) * kBytes;
    g->reduce_scatter(in.data(), mine, kCount, DType::f32, ReduceOp::sum, {})->wait();
    EXPECT_EQ(
        std::memcmp(mine, reduced(DType::f32, ReduceOp::sum, 3, kCount, g->rank() * kCount).bytes(), kBytes),
        0);
  });
}

// Where rounding depends on the order, it is the order of the ranks, for every element and on every rank.
TEST_P(Collectives, SameBitsEverywhere) {
  for (const int64_t count : {1000, 300'007}) {
    std::vector<std::vector<float>> in(5, std::vector<float>(static_cast<size_t>(count)));
    uint32_t state = 1;
    for (auto& values : in) {
      for (float& v : values) {
        state = state * 1664525u + 1013904223u;
        v = std::ldexp(static_cast<float>(state >> 8), -24) * (state & 1 ? 1e4f : 1e-3f);
      }
    }
    std::vector<float> expected = in[0];
    for (size_t r = 1; r < in.size(); ++r)
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += in[r][i];
    on_all(make(5), [&](const Group& g) {
      std::vector<float>& mine = in[static_cast<size_t>(g->rank())];
      g->all_reduce(mine.data(), count, DType::f32, ReduceOp::sum, {})->wait();
      EXPECT_EQ(std::memcmp(mine.data(), expected.data(), expected.size() * sizeof(float)), 0);
    });
  }
}

TEST_P(Collectives, RunsInTheOrderOfTheCalls) {
  constexpr int kCalls = 40;
  on_all(make(3), [&](const Group& g) {
    // Each call works on what the one before left.
    int64_t value = g->rank() + 1;
    std::vector<WorkPtr> works;
    for (int i = 0; i < kCalls; ++i)
      works.push_back(i % 2 == 0 ? g->all_reduce(&value, 1, DType::i64, ReduceOp::sum, {})
                                 : g->broadcast(&value, 1, DType::i64, i % 3, {}));
    works.back()->wait();
    for (const WorkPtr& w : works) {
      EXPECT_TRUE(w->done());
      w->wait();
    }
    int64_t expected = 6;
    for (int i = 2; i < kCalls; i += 2) expected *= 3;
    EXPECT_EQ(value, expected);
  });
}

TEST_P(Collectives, BarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  on_all(make(4), [&](const Group& g) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10 * g->rank()));
    ++arrived;
    g->barrier({})->wait();
    EXPECT_EQ(arrived.load(), 4);
  });
}

TEST_P(Collectives, FinishesWhatWasStarted) {
  std::vector<int64_t> values(2, 1);
  Groups groups = make(2);
  on_all(groups, [&](const Group& g) {
    g->all_reduce(&values[static_cast<size_t>(g->rank())], 1, DType::i64, ReduceOp::sum, {});
  });
  groups.clear();
  EXPECT_EQ(values, std::vector<int64_t>(2, 2));
}

TEST_P(Collectives, WrongArguments) {
  const Groups groups = make(2);
  float x[4] = {};
  const auto error = [&](const std::function<void(ProcessGroup&)>& f) -> std::string {
    try {
      f(*groups[0]);
    } catch (const Error& e) {
      return std::string(to_string(e.kind())) + ": " + e.what();
    }
    return "";
  };
  EXPECT_EQ(error([&](ProcessGroup& g) { g.all_reduce(x, -1, DType::f32, ReduceOp::sum, site_at(42)); }),
            "invalid: all_reduce (train.cpp:42): the count is negative; got -1");
  EXPECT_EQ(error([&](ProcessGroup& g) { g.all_gather(x, nullptr, 4, DType::f32, site_at(42)); }),
            "invalid: all_gather (train.cpp:42): no memory is given for f32[4]; got nullptr");
  EXPECT_EQ(error([&](ProcessGroup& g) { g.broadcast(x, 4, DType::f32, 2, site_at(42)); }),
            "invalid: broadcast (train.cpp:42): no such root; got 2, expected 0 to 1");
  EXPECT_EQ(error([&](ProcessGroup& g) { g.reduce_scatter(x, x, 2, DType::boolean, ReduceOp::max, {}); }),
            "invalid: reduce_scatter: bool cannot be reduced; got bool[2] "
            "(convert to u8, and take max for 'any')");
  EXPECT_EQ(error([&](ProcessGroup& g) { g.all_reduce_mean(x, 4, DType::f32, DType::f32, site_at(42)); }),
            "invalid: all_reduce_mean (train.cpp:42): means are sent as f16 or bf16; got f32");
  EXPECT_EQ(error([&](ProcessGroup& g) { g.all_reduce_mean(x, 2, DType::i64, DType::bf16, {}); }),
            "invalid: all_reduce_mean: only floating numbers have a mean; got i64[2]");
  EXPECT_EQ(error([&](ProcessGroup& g) { g.set_timeout(Seconds(0)); }),
            "invalid: set_timeout: the time must be positive; got 0 s");
  EXPECT_EQ(error([&](ProcessGroup& g) { g.extend_timeout_once(Seconds(-1)); }),
            "invalid: extend_timeout_once: the time must be positive; got -1 s");
  // None of these was a call: the group goes on.
  on_all(groups, [](const Group& g) { g->barrier({})->wait(); });
}

TEST_P(Collectives, TimeoutNamesWhoIsMissing) {
  const Groups groups = make(4);
  std::vector<std::string> later(4);
  const auto texts = errors(groups, [&](const Group& g) {
    float x = 1;
    g->all_reduce(&x, 1, DType::f32, ReduceOp::sum, site_at(41, "init"))->wait();
    if (g->rank() == 2) return;
    g->set_timeout(Seconds(0.5));
    try {
      g->all_reduce(&x, 1, DType::f32, ReduceOp::max, site_at(42))->wait();
    } catch (const Error&) {
      try {
        g->barrier(site_at(43));
      } catch (const Error& e) {
        later[static_cast<size_t>(g->rank())] = e.what();
      }
      throw;
    }
  });
  for (const int r : {0, 1, 3}) {
    const std::string& text = texts[static_cast<size_t>(r)];
    EXPECT_TRUE(
        has(text, fmt::format("rank {}: all_reduce #2 of f32[1] by max (backward, train.cpp:42): ", r)))
        << text;
    EXPECT_TRUE(has(text, "rank 2 has not started it within the timeout of 0.5 s")) << text;
    const std::string& second = later[static_cast<size_t>(r)];
    EXPECT_TRUE(has(second, "barrier #3 (backward, train.cpp:43): the group has failed before: ")) << second;
    EXPECT_TRUE(has(second, "rank 2 has not started it")) << second;
  }
  EXPECT_EQ(texts[2], "");
}

// No memory is touched, and all ranks learn both sides, whatever differs.
TEST_P(Collectives, DifferentCallsAreAnError) {
  using Call = std::function<WorkPtr(const Group&, void*)>;
  const auto reduce = [](int64_t count, DType dtype, ReduceOp op) -> Call {
    return [=](const Group& g, void* x) { return g->all_reduce(x, count, dtype, op, site_at(10)); };
  };
  const Call usual = reduce(30000, DType::f32, ReduceOp::sum);
  struct Row {
    Call call;
    const char* text;
  };
  const Row rows[] = {
      {reduce(29999, DType::f32, ReduceOp::sum), "all_reduce #1 of f32[29999] (backward, train.cpp:10)"},
      {reduce(4, DType::f32, ReduceOp::sum), "all_reduce #1 of f32[4] (backward, train.cpp:10)"},
      {reduce(30000, DType::f64, ReduceOp::sum), "all_reduce #1 of f64[30000] (backward, train.cpp:10)"},
      {reduce(30000, DType::f32, ReduceOp::min),
       "all_reduce #1 of f32[30000] by min (backward, train.cpp:10)"},
      {[](const Group& g, void* x) {
         return g->all_reduce_mean(x, 30000, DType::f32, DType::bf16, site_at(10));
       },
       "all_reduce_mean #1 of f32[30000] in bf16 (backward, train.cpp:10)"},
      {[](const Group& g, void* x) { return g->broadcast(x, 30000, DType::f32, 1, site_at(11)); },
       "broadcast #1 of f32[30000] from rank 1 (backward, train.cpp:11)"},
      {[](const Group& g, void*) { return g->barrier(site_at(12)); }, "barrier #1 (backward, train.cpp:12)"},
  };
  for (const Row& row : rows) {
    const auto texts = errors(make(3), [&](const Group& g) {
      Buffer b = filled(DType::f64, g->rank(), 30000);
      const Buffer before = b;
      try {
        (g->rank() == 1 ? row.call : usual)(g, b.data())->wait();
      } catch (const Error&) {
        EXPECT_TRUE(b.same(before));
        throw;
      }
    });
    for (const std::string& text : texts) {
      EXPECT_TRUE(has(text, std::string("rank 1 called ") + row.text)) << text;
      EXPECT_TRUE(has(text, " called all_reduce #1 of f32[30000] (backward, train.cpp:10)")) << text;
    }
  }
}

// What is sent has one size: neither side may take the other's for its own.
TEST_P(Collectives, MeansInDifferentHalvesAreAnError) {
  const auto texts = errors(make(2), [&](const Group& g) {
    std::vector<float> x(30000, 1);
    const DType wire = g->rank() == 0 ? DType::f16 : DType::bf16;
    g->all_reduce_mean(x.data(), 30000, DType::f32, wire, site_at(10))->wait();
  });
  for (const std::string& text : texts) {
    EXPECT_TRUE(has(text, "rank 0 called all_reduce_mean #1 of f32[30000] in f16 ") ||
                has(text, "where rank 0 called all_reduce_mean #1 of f32[30000] in f16 "))
        << text;
    EXPECT_TRUE(has(text, "rank 1 called all_reduce_mean #1 of f32[30000] in bf16 ")) << text;
  }
}

TEST_P(Collectives, AbortReachesAll) {
  const Groups groups = make(3);
  const auto begin = std::chrono::steady_clock::now();
  const auto texts = errors(groups, [&](const Group& g) {
    float x = 1;
    g->check();
    if (g->rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      g->abort("out of patience");
      EXPECT_THROW(g->check(), Error);
      g->barrier(site_at(9));
    }
    g->all_reduce(&x, 1, DType::f32, ReduceOp::sum, site_at(8))->wait();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  for (const int r : {0, 1}) {
    const std::string& text = texts[static_cast<size_t>(r)];
    EXPECT_TRUE(has(text, fmt::format("rank {}: all_reduce #1 of f32[1] (backward, train.cpp:8): ", r)))
        << text;
    EXPECT_TRUE(has(text, "rank 2 aborted: out of patience")) << text;
  }
  EXPECT_EQ(texts[2],
            "rank 2: barrier #1 (backward, train.cpp:9): the group has failed before: "
            "rank 2 aborted: out of patience");
  for (const std::string& text : errors(groups, [](const Group& g) { g->check(); }))
    EXPECT_TRUE(has(text, "rank 2 aborted: out of patience")) << text;
}

TEST_P(Collectives, AbortEndsWhatIsPending) {
  const Groups groups = make(2);
  float x = 1;
  const WorkPtr work = groups[0]->all_reduce(&x, 1, DType::f32, ReduceOp::sum, site_at(8));
  EXPECT_FALSE(work->done());
  groups[0]->abort("stop");
  try {
    work->wait();
    ADD_FAILURE() << "an aborted collective succeeded";
  } catch (const Error& e) {
    EXPECT_TRUE(has(e.what(), "aborted: stop")) << e.what();
  }
  EXPECT_EQ(x, 1);
}

// BEHAVIOURS C-20: somebody compiles for longer than the timeout; the others wait, once.
TEST_P(Collectives, ExtendTimeoutOnce) {
  const Groups groups = make(2, Seconds(0.4));
  const auto texts = errors(groups, [&](const Group& g) {
    float x = 1;
    for (int call = 0; call < 2; ++call) {
      if (g->rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(900));
        if (call == 1) return;
      }
      const WorkPtr work = g->all_reduce(&x, 1, DType::f32, ReduceOp::sum, site_at(8));
      // While it runs already.
      if (call == 0 && g->rank() == 0) g->extend_timeout_once(kAmple);
      work->wait();
    }
  });
  EXPECT_EQ(texts[1], "");
  EXPECT_TRUE(has(texts[0], "all_reduce #2 of f32[1]")) << texts[0];
  EXPECT_TRUE(has(texts[0], "rank 1 has not started it within the timeout of 0.4 s")) << texts[0];
}

TEST_P(Collectives, SetTimeout) {
  const Groups groups = make(2);
  float x = 1;
  groups[0]->set_timeout(Seconds(0.2));
  EXPECT_EQ(groups[0]->timeout(), Seconds(0.2));
  try {
    groups[0]->all_reduce(&x, 1, DType::f32, ReduceOp::sum, {})->wait();
    ADD_FAILURE() << "rank 1 did not take part";
  } catch (const Error& e) {
    EXPECT_TRUE(has(e.what(), "rank 1 has not started it within the timeout of 0.2 s")) << e.what();
  }
}

// One is in a job of its group, where another is in a collective: no message could tell either.
TEST_P(Collectives, OtherTurnsAreAnErrorAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const auto texts = errors(make(3), [](const Group& g) {
    g->barrier({})->wait();
    if (g->rank() != 1) return g->barrier(site_at(5))->wait();
    g->run(
         "the check",
         [&] {
           while (!g->broken()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
           throw Error(ErrorKind::comm, *g->broken());
         },
         site_at(7, ""))
        ->wait();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  for (const std::string& text : texts) {
    EXPECT_TRUE(has(text, "rank 1 in the check (train.cpp:7)") ||
                has(text, "rank 1 is in the check (train.cpp:7)"))
        << text;
    EXPECT_TRUE(has(text, "in barrier #2 (backward, train.cpp:5)")) << text;
    EXPECT_TRUE(has(text, "neither can go on")) << text;
  }
}

// Nobody is told apart who is only late, or has more on its way than others.
TEST_P(Collectives, LateRanksAndAsynchronousCallsAreNoError) {
  const Groups groups = make(3);
  const auto nap = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  for (const std::string& text : errors(groups, [&](const Group& g) {
         float x = 1, y = 1;
         if (g->rank() == 1) nap(400);
         const WorkPtr first = g->all_reduce(&x, 1, DType::f32, ReduceOp::sum, site_at(1));
         if (g->rank() == 2) nap(400);
         const WorkPtr job = g->run(
             "a nap", [&] { nap(250); }, site_at(2));
         const WorkPtr second = g->all_reduce(&y, 1, DType::f32, ReduceOp::sum, site_at(3));
         for (const WorkPtr& w : {second, job, first}) w->wait();
         EXPECT_EQ(x + y, 6);
       }))
    EXPECT_EQ(text, "");
}

// A rank whose group is gone is missed at once, not after the timeout.
TEST_P(Collectives, LeavingIsNoticed) {
  Groups groups = make(3);
  on_all(groups, [](const Group& g) { g->barrier({})->wait(); });
  groups.pop_back();
  for (const Group& g : groups) g->check();  // nobody is missed before he is needed
  const auto begin = std::chrono::steady_clock::now();
  const auto texts = errors(groups, [&](const Group& g) { g->barrier(site_at(5))->wait(); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  for (const std::string& text : texts) EXPECT_TRUE(has(text, "rank 2 left the group")) << text;
}

}  // namespace kiln::testing
