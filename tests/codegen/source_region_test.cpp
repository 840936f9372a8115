// SPDX-License-Identifier: Apache-2.0
// Matmuls that compute their operands while packing them, against the interpreter: every kind of producer on
// either side, transposed, batched, over odd sizes, with epilogues; the same bits for any number of threads,
// memory poisoned.
#include "codegen/source_region.h"

#include <gtest/gtest.h>

#include "ir/base/options.h"
#include "tests/codegen/compiled.h"
#include "tests/ir/random_graph.h"

namespace kiln {
namespace KILN_FILE {

enum class Producer { none, silu, normalized, masked, cast, strided, ratio, random };

struct Site {
  const char* dtype = "f32";
  std::vector<int64_t> batch;
  int64_t m = 1, n = 1, k = 1;
  bool a_by_cols = false, b_by_cols = false;  ///< which index of the operand is contracted: the first one?
  Producer a = Producer::none, b = Producer::none;
  bool epilogue = false;
};

/// Writes graphs of one matmul.
class Text {
 public:
  explicit Text(const Site& s) : s_(s) {}

  std::string write() {
    const size_t r = s_.batch.size();
    const std::string a = operand(s_.a, s_.m, s_.a_by_cols), b = operand(s_.b, s_.n, !s_.b_by_cols);
    std::vector<int64_t> batch, out = s_.batch;
    for (size_t i = 0; i < r; ++i) batch.push_back(static_cast<int64_t>(i));
    out.insert(out.end(), {s_.m, s_.n});
    std::string c = node(
        out,
        fmt::format("dot_general {}, {} {{batch_a=({}), batch_b=({}), contract_a=({}), contract_b=({})}}", a,
                    b, join(batch), join(batch), s_.a_by_cols ? r : r + 1, s_.b_by_cols ? r + 1 : r));
    if (s_.epilogue) {
      const std::string bias = node(out, "expand " + input({s_.n}) + shape(out));
      c = node(out, fmt::format("add {}, {}", node(out, fmt::format("add {}, {}", c, bias)), input(out)));
      c = node(out, "sigmoid " + c);
    }
    return "graph g {\n" + inputs_ + nodes_ + "  output " + c + "\n}";
  }

 private:
  using Sizes = std::vector<int64_t>;
  static std::string join(const Sizes& v) { return fmt::format("{}", fmt::join(v, ",")); }
  static std::string shape(const Sizes& v) { return " {shape=[" + join(v) + "]}"; }

  std::string input(const Sizes& sizes, const char* dtype = nullptr) {
    inputs_ += fmt::format("  %{} = input {}[{}] arg\n", next_, dtype ? dtype : s_.dtype, join(sizes));
    return fmt::format("%{}", next_++);
  }
  std::string node(const Sizes& sizes, const std::string& text, const char* dtype = nullptr) {
    nodes_ += fmt::format("  %{} = {}[{}] {}\n", next_, dtype ? dtype : s_.dtype, join(sizes), text);
    return fmt::format("%{}", next_++);
  }
  std::string constant(const Sizes& sizes, const char* value) {
    return node(sizes,
                fmt::format("constant {{value={}, dtype={}, shape=[{}]}}", value, s_.dtype, join(sizes)));
  }

  /// An operand with `free` free and k contracted elements in one of the two orders.
  std::string operand(Producer p, int64_t free, bool inner_first) {
    Sizes full = s_.batch, stats = s_.batch;
    full.insert(full.end(), {inner_first ? s_.k : free, inner_first ? free : s_.k});
    stats.insert(stats.end(), {inner_first ? 1 : free, inner_first ? free : 1});
    if (p == Producer::cast)
      return node(full, "cast " + input(full, "i32") + fmt::format(" {{dtype={}}}", s_.dtype));
    if (p == Producer::random) {
      const std::string seed = input({}, "i64"), offset = input({}, "i64");
      const std::string x =
          node(full, fmt::format("random_uniform {}, {} {{shape=[{}]}}", seed, offset, join(full)), "f32");
      return s_.dtype == std::string("f32") ? x : node(full, "cast " + x + " {dtype=f64}");
    }
    if (p == Producer::strided) {  // lies transposed in memory
      Sizes turned = full, order;
      std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
      for (size_t i = 0; i < full.size(); ++i) order.push_back(static_cast<int64_t>(i));
      std::swap(order[order.size() - 1], order[order.size() - 2]);
      const std::string x = node(turned, "neg " + input(turned));
      return node(full, fmt::format("permute {} {{dims=({})}}", x, join(order)));
    }
    const std::string x = input(full);
    switch (p) {
      case Producer::silu: return node(full, fmt::format("mul {}, {}", x, node(full, "sigmoid " + x)));
      case Producer::ratio: return node(full, fmt::format("div {}, {}", x, x));  // NaN in padding
      case Producer::masked: {
        const std::string scaled = node(full, fmt::format("mul {}, {}", x, constant(full, "1.25")));
        const std::string mask = input(full, "bool");
        return node(full, fmt::format("where {}, {}, {}", mask, scaled, constant(full, "0.")));
      }
      case Producer::normalized: {
        const auto spread = [&](const Sizes& s) { return node(full, "expand " + input(s) + shape(full)); };
        Sizes line(2, 1);
        line[inner_first ? 0 : 1] = s_.k;
        const std::string mean = spread(stats), rstd = spread(stats), g = spread(line), b = spread(line);
        const std::string d = node(full, fmt::format("sub {}, {}", x, mean));
        const std::string y = node(full, fmt::format("mul {}, {}", d, rstd));
        return node(full, fmt::format("add {}, {}", node(full, fmt::format("mul {}, {}", y, g)), b));
      }
      default: return x;
    }
  }

  const Site& s_;
  std::string inputs_, nodes_;
  int next_ = 0;
};

bool fused(Producer p) { return p != Producer::none; }

/// Fused into one launch, close to the interpreter, and the same for any number of threads.
void check(const std::vector<Site>& sites, const CpuTarget& target) {
  std::vector<Graph> graphs;
  for (const Site& s : sites) {
    graphs.push_back(parse_graph(Text(s).write()));
    verify(graphs.back());
  }
  const CompiledBatch batch = compile_batch(graphs, target, {}, 2);
  set_option("KILN_POISON", "1");
  const auto image = std::make_shared<LoadedImage>(batch.image.bytes);
  for (size_t i = 0; i < graphs.size(); ++i) {
    const Graph& g = graphs[i];
    SCOPED_TRACE(print(g));
    const FusedGraph f = fuse(g);
    // With sides of one element statistics are as large as what they are of, and need not pay.
    if (std::min({sites[i].m, sites[i].n, sites[i].k}) > 1) {
      ASSERT_EQ(f.steps.size(), 1u) << print(f, g);
      EXPECT_EQ(f.steps[0].prologue[0] >= 0, fused(sites[i].a));
      EXPECT_EQ(f.steps[0].prologue[1] >= 0, fused(sites[i].b));
    }
    const std::vector<HostTensor> inputs = testing::random_inputs(g, i + 1);
    const HostTensor want = interpret(g, inputs)[0];
    const auto loaded = testing::load(batch.plans[i], image);
    const HostTensor one = testing::execute(g, *loaded.exe, inputs, 1)[0];
    EXPECT_EQ(testing::difference(one, want, 16 * sites[i].k), "");
    for (int threads : {2, 3}) {
      const HostTensor more = testing::execute(g, *loaded.exe, inputs, threads)[0];
      EXPECT_EQ(std::memcmp(one.ref.data, more.ref.data,
                            static_cast<size_t>(one.ref.numel()) * dtype_size(one.ref.dtype)),
                0)
          << threads << " threads";
    }
  }
  set_option("KILN_POISON", "");
}

constexpr Producer kAll[] = {Producer::silu,    Producer::normalized, Producer::masked, Producer::cast,
                             Producer::strided, Producer::ratio,      Producer::random};

/// Every producer on either side and in either order, sizes and batches in turn.
std::vector<Site> all_sites() {
  constexpr int64_t kSizes[] = {3, 17, 65, 1, 64, 33, 40};
  const std::vector<std::vector<int64_t>> batches = {{}, {2}, {3, 2}};
  std::vector<Site> sites;
  size_t i = 0;
  for (Producer p : kAll)
    for (bool turned : {false, true})
      for (int where = 0; where < 3; ++where, ++i) {
        Site s;
        s.dtype = i % 3 == 2 ? "f64" : "f32";
        s.batch = batches[i % 3];
        s.m = kSizes[i % 7], s.n = kSizes[(i / 2 + 1) % 7], s.k = kSizes[(i / 3 + 2) % 7];
        s.a_by_cols = turned, s.b_by_cols = (i % 4 < 2) != turned;
        if (where != 1) s.a = p;
        if (where != 0) s.b = where == 1 ? p : kAll[(i + 3) % 7];
        s.epilogue = i % 2 == 1 && s.m > 1 && s.n > 1;
        sites.push_back(s);
      }
  return sites;
}

TEST(Prologue, EveryProducerOnEitherSide) { check(all_sites(), host_target()); }

TEST(Prologue, VectorsOfEightCompileAndAgree) { check(all_sites(), parse_target("x86-64-v3")); }

// More than one tile either way, k in chunks that do not fit together, and k split among tasks.
TEST(Prologue, TilesChunksAndSplits) {
  using P = Producer;
  check({{"f32", {}, 300, 500, 70, false, true, P::normalized, P::none, true},
         {"f32", {}, 130, 400, 90, true, false, P::silu, P::masked, false},
         {"f32", {}, 70, 90, 5000, false, false, P::normalized, P::silu, true},
         {"f64", {}, 40, 33, 4099, true, true, P::masked, P::normalized, false},
         {"f32", {2}, 17, 260, 2500, false, true, P::strided, P::random, true},
         {"f64", {5}, 129, 65, 300, true, false, P::cast, P::normalized, true}},
        host_target());
}

}  // namespace KILN_FILE
}  // namespace kiln
