// SPDX-License-Identifier: Apache-2.0
// A rank, for gpt_world_test.py: `gpt_world small|tiny` takes the gradients of the example's model on this
// rank's part of a batch, compiled, and prints a hash of their bits. Rank 0 also takes them of the whole
// batch by itself, and prints how far apart they are. An error is one line on stderr and status 3.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "examples/gpt/model.h"
#include "frontend/kiln.h"
#include "frontend/nn/distributed_data_parallel.h"
#include "ir/base/hash.h"

namespace {

using kiln::Tensor;
namespace distributed = kiln::distributed;

constexpr int64_t kVocab = 96, kRows = 8;  // of each rank

/// The size of gpt-small of the benchmarks, or one for all days.
gpt::Options size_of(const std::string& name) {
  gpt::Options o;
  const bool small = name == "small";
  o.layers = small ? 6 : 2;
  o.dim = small ? 384 : 64;
  o.heads = small ? 6 : 4;
  o.seq = small ? 128 : 32;
  return o;
}

Tensor tokens(int64_t rows, int64_t seq, int64_t salt) {
  std::vector<int64_t> v(static_cast<size_t>(rows * seq));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<int64_t>(kiln::hash128(std::to_string(salt) + "/" + std::to_string(i)).lo % kVocab);
  return Tensor::from_vector(v, {rows, seq});
}

/// Of the second of two calls, in the order of the parameters.
std::vector<std::vector<float>> gradients(kiln::nn::Module& net, kiln::nn::Module& model, const Tensor& x,
                                          const Tensor& y) {
  const auto step = kiln::compile([&](const Tensor& in, const Tensor& target) {
    model.zero_grad();
    const Tensor loss = net(in, target);
    loss.backward();
    return loss;
  });
  for (int i = 0; i < 2; ++i) step(x, y);
  std::vector<std::vector<float>> out;
  for (const Tensor& p : model.parameters()) out.push_back(p.grad().to_vector<float>());
  return out;
}

/// The largest difference, over the largest gradient of all; and of the worst parameter, over the largest of
/// its own.
struct Distance {
  double of_all = 0, of_one = 0;
};
Distance distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  Distance out;
  double difference = 0, largest = 0;
  for (size_t p = 0; p < a.size(); ++p) {
    double d = 0, own = 0;
    for (size_t i = 0; i < a[p].size(); ++i) {
      const double x = std::abs(static_cast<double>(a[p][i]) - b[p][i]);
      d = std::max(d, std::isfinite(x) ? x : INFINITY);
      own = std::max(own, std::abs(static_cast<double>(b[p][i])));
    }
    out.of_one = std::max(out.of_one, d / own);
    difference = std::max(difference, d);
    largest = std::max(largest, own);
  }
  out.of_all = difference / largest;
  return out;
}

void run(const std::string& size) {
  const auto group = distributed::init_process_group({.timeout = 120});
  const int rank = group->rank(), world = group->size();
  const gpt::Options options = size_of(size);
  const Tensor x = tokens(kRows * world, options.seq, 1), y = tokens(kRows * world, options.seq, 2);
  kiln::manual_seed(1);
  gpt::Gpt model(options, kVocab);
  kiln::nn::DistributedDataParallel ddp(model, group);
  const auto mine = gradients(ddp, model, kiln::narrow(x, 0, kRows * rank, kRows).clone(),
                              kiln::narrow(y, 0, kRows * rank, kRows).clone());
  std::string bits;
  for (const auto& g : mine) bits.append(reinterpret_cast<const char*>(g.data()), g.size() * sizeof(float));
  std::printf("rank %d of %d: %zu bytes of gradients, hash %s, %lld reductions\n", rank, world, bits.size(),
              kiln::hash128(bits).hex().c_str(), static_cast<long long>(ddp.reductions()));
  if (rank == 0) {
    kiln::manual_seed(1);
    gpt::Gpt alone(options, kVocab);
    const Distance d = distance(mine, gradients(alone, alone, x, y));
    std::printf("distance %.3g of one %.3g\n", d.of_all, d.of_one);
  }
  std::fflush(stdout);
  distributed::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "small");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 3;
  }
  return 0;
}
