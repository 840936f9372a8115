// SPDX-License-Identifier: Apache-2.0
// A convolutional net for small images, and its training as one compiled step.
#pragma once

#include "examples/digits/images.h"
#include "examples/digits/options.h"

namespace digits {

/// Two convolutions with batch norm, a pool after each, and a linear layer over what they leave.
class Net : public kiln::nn::Module {
 public:
  Net(int64_t width, double dropout);
  using Module::forward;
  /// Shapes: [n, 1, 8, 8] -> logits [n, 10].
  kiln::Tensor forward(const kiln::Tensor& x) override;

 private:
  kiln::nn::Conv2d conv1_, conv2_;
  kiln::nn::BatchNorm2d norm1_, norm2_;
  kiln::nn::Dropout dropout_;
  kiln::nn::Linear head_;
};

struct Figures {
  double loss = 0;      ///< mean of the last epoch
  double accuracy = 0;  ///< on the test images, after the last epoch
  double seconds = 0;   ///< of training, compiling included
};
/// Trains and tests, and prints a line for each epoch.
Figures train(const Options& options, const Images& images);

}  // namespace digits
