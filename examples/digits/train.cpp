// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/train.h"

#include <chrono>
#include <cmath>
#include <numbers>

#include "examples/device_name.h"

namespace digits {

namespace data = kiln::data;
namespace nn = kiln::nn;
using kiln::Tensor;

Net::Net(int64_t width, double dropout)
    : conv1_(1, width, 3, {.padding = 1, .bias = false}),
      conv2_(width, 2 * width, 3, {.padding = 1, .bias = false}),
      norm1_(width),
      norm2_(2 * width),
      dropout_(dropout),
      head_(2 * width * 2 * 2, 10) {
  register_module("conv1", conv1_);
  register_module("norm1", norm1_);
  register_module("conv2", conv2_);
  register_module("norm2", norm2_);
  register_module("dropout", dropout_);
  register_module("head", head_);
}

Tensor Net::forward(const Tensor& x) {
  const Tensor a = kiln::max_pool2d(kiln::relu(norm1_(conv1_(x))), 2);
  const Tensor b = kiln::max_pool2d(kiln::relu(norm2_(conv2_(a))), 2);
  return head_(dropout_(kiln::flatten(b, 1)));
}

namespace {

/// Up to the highest rate within a tenth of the steps, and down to zero along a cosine.
double rate(const Options& o, int64_t step, int64_t steps) {
  const double rise = std::max(1.0, static_cast<double>(steps) / 10), at = static_cast<double>(step + 1);
  if (at <= rise) return o.lr * at / rise;
  return o.lr * 0.5 *
         (1 + std::cos(std::numbers::pi * (at - rise) / (static_cast<double>(steps) - rise + 1)));
}

/// The share of images whose digit has the highest logit.
template <typename Logits>
double accuracy(data::DataLoader& loader, const Logits& logits, kiln::Device device) {
  size_t right = 0, all = 0;
  for (const data::Example& batch : loader) {
    const auto got = kiln::argmax(logits(batch[0].to(device)), 1).template to_vector<int64_t>();
    const auto expected = batch[1].to_vector<int64_t>();
    for (size_t i = 0; i < got.size(); ++i) right += got[i] == expected[i];
    all += got.size();
  }
  return static_cast<double>(right) / static_cast<double>(all);
}

template <typename Step, typename Logits>
Figures run(const Options& o, Net& net, kiln::optim::AdamW& optimizer, data::DataLoader& train,
            data::DataLoader& test, Step&& step, Logits&& logits) {
  const kiln::Device device = examples::device_named(o.device);
  const auto begin = std::chrono::steady_clock::now();
  Figures f;
  int64_t done = 0;
  for (int64_t epoch = 0; epoch < o.epochs; ++epoch) {
    double sum = 0;
    net.train();
    for (const data::Example& batch : train) {
      optimizer.lr = rate(o, done++, o.epochs * train.size());
      sum += step(batch[0].to(device), batch[1].to(device)).item();
    }
    net.eval();
    f.loss = sum / static_cast<double>(train.size());
    f.accuracy = accuracy(test, logits, device);
    fmt::print("epoch {:2}: loss {:.4f}, accuracy on the test {:.1f} %\n", epoch + 1, f.loss,
               100 * f.accuracy);
    std::fflush(stdout);
  }
  f.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return f;
}

}  // namespace

Figures train(const Options& o, const Images& images) {
  kiln::manual_seed(o.seed);
  Net net(o.width, o.dropout);
  net.to(examples::device_named(o.device));
  kiln::optim::AdamW optimizer(net.parameters(), {.lr = o.lr, .weight_decay = o.weight_decay});
  const auto all = std::make_shared<data::TensorDataset>(std::vector<Tensor>{images.pixels, images.classes});
  const auto kept = static_cast<int64_t>(std::lround(o.test_share * static_cast<double>(all->size())));
  const auto parts = data::random_split(all, {all->size() - kept, kept}, o.seed);
  data::DataLoader training(parts[0],
                            {.batch_size = o.batch, .shuffle = true, .seed = o.seed, .drop_last = true});
  data::DataLoader test(parts[1], {.batch_size = o.batch});
  KILN_CHECK(training.size() > 0 && kept > 0, invalid,
             "digits: {} images are too few for batches of {} and a test share of {}", all->size(), o.batch,
             o.test_share);
  const auto step = [&](const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor loss = kiln::cross_entropy(net(x), y);
    loss.backward();
    optimizer.step();
    return loss;
  };
  const auto logits = [&](const Tensor& x) {
    kiln::NoGrad guard;
    return net(x);
  };
  if (o.eager) return run(o, net, optimizer, training, test, step, logits);
  return run(o, net, optimizer, training, test, kiln::compile(step), kiln::compile(logits));
}

}  // namespace digits
