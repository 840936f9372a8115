// SPDX-License-Identifier: Apache-2.0
// Activations as modules, with torch.nn's constructor arguments: each calls the function of its name.
#pragma once

#include "frontend/activation.h"
#include "frontend/dispatch.h"
#include "frontend/functional.h"
#include "frontend/nn/module.h"

namespace kiln::nn {

namespace detail_activation {

/// Of a function of x alone.
template <auto F>
class Plain : public Module {
 public:
  Tensor forward(const Tensor& x) override { return F(x, detail::caller_loc()); }
};
/// Of a function with one number, A / B unless it is given.
template <auto F, int64_t A, int64_t B = 1>
class WithNumber : public Module {
 public:
  explicit WithNumber(double number = static_cast<double>(A) / B) : number_(number) {}
  Tensor forward(const Tensor& x) override { return F(x, number_, detail::caller_loc()); }

 private:
  double number_;
};
/// Of a function with two numbers, A and B unless they are given.
template <auto F, int64_t A, int64_t B>
class WithNumbers : public Module {
 public:
  explicit WithNumbers(double first = A, double second = B) : first_(first), second_(second) {}
  Tensor forward(const Tensor& x) override { return F(x, first_, second_, detail::caller_loc()); }

 private:
  double first_, second_;
};
/// Of a function along one dim.
template <Tensor (*F)(const Tensor&, int64_t, Loc)>
class AlongDim : public Module {
 public:
  explicit AlongDim(int64_t dim) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return F(x, dim_, detail::caller_loc()); }

 private:
  int64_t dim_;
};

}  // namespace detail_activation

using ReLU = detail_activation::Plain<relu>;
using ReLU6 = detail_activation::Plain<relu6>;
using SELU = detail_activation::Plain<selu>;
using SiLU = detail_activation::Plain<silu>;
using Mish = detail_activation::Plain<mish>;
using Sigmoid = detail_activation::Plain<static_cast<Tensor (*)(const Tensor&, Loc)>(sigmoid)>;
using LogSigmoid = detail_activation::Plain<logsigmoid>;
using Hardsigmoid = detail_activation::Plain<hardsigmoid>;
using Hardswish = detail_activation::Plain<hardswish>;
using Softsign = detail_activation::Plain<softsign>;
using Tanh = detail_activation::Plain<static_cast<Tensor (*)(const Tensor&, Loc)>(tanh)>;
using Tanhshrink = detail_activation::Plain<tanhshrink>;
using LeakyReLU = detail_activation::WithNumber<leaky_relu, 1, 100>;  ///< (negative_slope = 0.01)
using ELU = detail_activation::WithNumber<elu, 1>;                    ///< (alpha = 1)
using CELU = detail_activation::WithNumber<celu, 1>;                  ///< (alpha = 1)
using Hardshrink = detail_activation::WithNumber<hardshrink, 1, 2>;   ///< (lambda = 0.5)
using Softshrink = detail_activation::WithNumber<softshrink, 1, 2>;   ///< (lambda = 0.5)
using Hardtanh = detail_activation::WithNumbers<hardtanh, -1, 1>;     ///< (min_val = -1, max_val = 1)
using Softplus = detail_activation::WithNumbers<softplus, 1, 20>;     ///< (beta = 1, threshold = 20)
using Softmax = detail_activation::AlongDim<softmax>;                 ///< (dim)
using Softmin = detail_activation::AlongDim<softmin>;                 ///< (dim)
using LogSoftmax = detail_activation::AlongDim<log_softmax>;          ///< (dim)

/// Source: torch.nn.GELU.
class GELU : public Module {
 public:
  explicit GELU(GeluApproximate approximate = GeluApproximate::none) : approximate_(approximate) {}
  Tensor forward(const Tensor& x) override { return gelu(x, approximate_, detail::caller_loc()); }

 private:
  GeluApproximate approximate_;
};

/// See kiln::glu. Source: torch.nn.GLU.
class GLU : public Module {
 public:
  explicit GLU(int64_t dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return glu(x, dim_, detail::caller_loc()); }

 private:
  int64_t dim_;
};

/// x where x > threshold, else value. Source: torch.nn.Threshold.
class Threshold : public Module {
 public:
  Threshold(double threshold, double value) : threshold_(threshold), value_(value) {}
  Tensor forward(const Tensor& x) override {
    return kiln::threshold(x, threshold_, value_, detail::caller_loc());
  }

 private:
  double threshold_, value_;
};

/// Slopes are drawn while training. See kiln::rrelu. Source: torch.nn.RReLU.
class RReLU : public Module {
 public:
  explicit RReLU(double lower = 1.0 / 8, double upper = 1.0 / 3) : lower_(lower), upper_(upper) {}
  Tensor forward(const Tensor& x) override {
    return rrelu(x, lower_, upper_, is_training(), detail::caller_loc());
  }

 private:
  double lower_, upper_;
};

/// A slope of each channel, or one of all, that is learned. See kiln::prelu. Source: torch.nn.PReLU.
class PReLU : public Module {
 public:
  explicit PReLU(int64_t num_parameters = 1, double init = 0.25) : weight(full({num_parameters}, init)) {
    register_parameter("weight", weight);
  }
  Tensor forward(const Tensor& x) override { return prelu(x, weight, detail::caller_loc()); }
  Tensor weight;  ///< [num_parameters]
};

/// softmax over the channels of each place. Shapes: [n, c, h, w] or [c, h, w]. Source: torch.nn.Softmax2d.
class Softmax2d : public Module {
 public:
  Tensor forward(const Tensor& x) override {
    const Loc loc = detail::caller_loc();
    KILN_CHECK(x.defined() && (x.dim() == 3 || x.dim() == 4), invalid,
               "Softmax2d ({}): got x {}, expected [n, c, h, w] or [c, h, w]", loc.str(), x.type_str());
    return softmax(x, -3, loc);
  }
};

}  // namespace kiln::nn
