// SPDX-License-Identifier: Apache-2.0
// kiln-matmul: times single products of f32 matrices, one line of JSON each: compiled, by the kernels that
// Kiln generates, or eager, by BLIS. matmul_sweep.py compares them with others.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "benchmarks/models.h"
#include "benchmarks/timing.h"
#include "frontend/kiln.h"
#include "ir/base/options.h"
#include "ir/base/text.h"

namespace kiln::bench {

namespace {

/// "MxNxK:HOW[:WITH]": M rows and N columns, sums of K terms. How the operands lie: nn, nt (as of a linear
/// layer) or tn (as of its weight gradient). With: gelu (a bias before it) or residual (a bias and a sum).
struct Product {
  int64_t m = 0, n = 0, k = 0;
  std::string how, with;

  explicit Product(const std::string& text) {
    const std::vector<std::string> parts = split(text, ':');
    const std::vector<std::string> sizes = split(parts[0], 'x');
    bool good = sizes.size() == 3 && (parts.size() == 2 || parts.size() == 3);
    int64_t* const to[] = {&m, &n, &k};
    for (size_t i = 0; good && i < 3; ++i) {
      const char* end = sizes[i].data() + sizes[i].size();
      good = std::from_chars(sizes[i].data(), end, *to[i]).ptr == end && *to[i] > 0;
    }
    if (good) how = parts[1], with = parts.size() == 3 ? parts[2] : "";
    KILN_CHECK(good && (how == "nn" || how == "nt" || how == "tn") &&
                   (with.empty() || with == "gelu" || with == "residual"),
               invalid, "kiln-matmul: got product '{}', expected MxNxK:nn|nt|tn[:gelu|residual]", text);
  }
};

class Operands {
 public:
  explicit Operands(const Product& p)
      : p_(p),
        a_(real("a", p.how == "tn" ? Sizes{p.k, p.m} : Sizes{p.m, p.k})),
        b_(real("b", p.how == "nt" ? Sizes{p.n, p.k} : Sizes{p.k, p.n})),
        bias_(real("bias", {p.n})),
        residual_(real("residual", {p.m, p.n})) {}

  Tensor run() const {
    const Tensor a = p_.how == "tn" ? a_.transpose(0, 1) : a_, b = p_.how == "nt" ? b_.transpose(0, 1) : b_;
    const Tensor c = matmul(a, b);
    if (p_.with.empty()) return c;
    return p_.with == "gelu" ? gelu(c + bias_) : c + bias_ + residual_;
  }

 private:
  static Tensor real(const std::string& name, const Sizes& sizes) {
    return bench::real("bench/product/" + name, sizes, -1, 1);
  }
  const Product p_;
  Tensor a_, b_, bias_, residual_;
};

void time_product(const std::string& text, bool compiled, int threads, double secs) {
  const Product p(text);
  const Operands operands(p);
  auto step = compile([&] { return operands.run(); }, {.name = "product", .threads = threads});
  Tensor c;
  const Measurement m = measure(
      [&] {
        c = compiled ? step() : operands.run();
        return 0.0;
      },
      secs);
  fmt::print("{{\"product\":\"{}\",\"low_ms\":{:.6f},\"norm\":{:.6f}}}\n", text, m.low_ms(), bench::norm(c));
  std::fflush(stdout);
}

}  // namespace

}  // namespace kiln::bench

int main(int argc, char** argv) {
  CLI::App app("Times products of f32 matrices: MxNxK:nn|nt|tn[:gelu|residual]", "kiln-matmul");
  std::vector<std::string> products;
  std::string mode = "compiled", tune;
  double secs = 0.5;
  int threads = 2;
  app.add_option("product", products, "what to time")->required();
  app.add_option("--mode", mode, "compiled, or eager: by BLIS")
      ->check(CLI::IsMember({"eager", "compiled"}))
      ->capture_default_str();
  app.add_option("--secs", secs, "seconds for each")->check(CLI::Range(0.0, 60.0))->capture_default_str();
  app.add_option("--tune", tune, "measure schedules first; without it, as KILN_TUNE says")
      ->check(CLI::IsMember({"off", "fast", "max"}));
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    kiln::set_option("KILN_NUM_THREADS", std::to_string(threads));
    if (!tune.empty()) kiln::set_option("KILN_TUNE", tune);
    for (const std::string& p : products) kiln::bench::time_product(p, mode == "compiled", threads, secs);
  } catch (const kiln::Error& e) {
    fmt::print(stderr, "kiln-matmul: {}\n", e.what());
    return 1;
  }
}
