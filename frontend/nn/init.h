// SPDX-License-Identifier: Apache-2.0
// Values to start from, written into tensors without being recorded for backward. Names, arguments and
// formulas are those of torch.nn.init; each gives its tensor back.
#pragma once

#include <cstdint>
#include <utility>

#include "frontend/tensor.h"

namespace kiln::nn::init {

/// Uniform in [a, b).
Tensor uniform_(Tensor t, double a = 0, double b = 1, Loc loc = Loc::current());
Tensor normal_(Tensor t, double mean = 0, double std = 1, Loc loc = Loc::current());
/// Normal, as if drawn again until it lies in [a, b].
Tensor trunc_normal_(Tensor t, double mean = 0, double std = 1, double a = -2, double b = 2,
                     Loc loc = Loc::current());
Tensor constant_(Tensor t, double value, Loc loc = Loc::current());
Tensor zeros_(Tensor t, Loc loc = Loc::current());
Tensor ones_(Tensor t, Loc loc = Loc::current());
/// The identity. Throws: invalid, unless t is a matrix.
Tensor eye_(Tensor t, Loc loc = Loc::current());
/// The weight of a convolution that hands its channels on, in each of `groups`. Shapes: t [out, in,
/// kernel...].
Tensor dirac_(Tensor t, int64_t groups = 1, Loc loc = Loc::current());

enum class FanMode : uint8_t { fan_in, fan_out };
/// linear stands for the convolutions, too.
enum class Nonlinearity : uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };
/// The factor by which a nonlinearity makes its input's standard deviation smaller; `slope` is that of
/// leaky_relu.
double calculate_gain(Nonlinearity nonlinearity, double slope = 0.01);
/// Inputs and outputs of each element: sizes 1 and 0 times the elements of a kernel.
/// Throws: invalid, on fewer than 2 dims.
std::pair<int64_t, int64_t> calculate_fan_in_and_fan_out(const Tensor& t, Loc loc = Loc::current());

/// Variance 2 gain^2 / (fan in + fan out). Source: Glorot & Bengio 2010.
Tensor xavier_uniform_(Tensor t, double gain = 1, Loc loc = Loc::current());
Tensor xavier_normal_(Tensor t, double gain = 1, Loc loc = Loc::current());
/// Variance gain(nonlinearity, a)^2 / fan. Source: He et al. 2015.
Tensor kaiming_uniform_(Tensor t, double a = 0, FanMode mode = FanMode::fan_in,
                        Nonlinearity nonlinearity = Nonlinearity::leaky_relu, Loc loc = Loc::current());
Tensor kaiming_normal_(Tensor t, double a = 0, FanMode mode = FanMode::fan_in,
                       Nonlinearity nonlinearity = Nonlinearity::leaky_relu, Loc loc = Loc::current());
/// Rows of t, as [size 0, the rest], are orthogonal and of length `gain`, or its columns where they are
/// fewer. Host work, cubic in the smaller size. Source: Saxe et al. 2013; Householder 1958.
Tensor orthogonal_(Tensor t, double gain = 1, Loc loc = Loc::current());
/// Normal, but that ceil(sparsity * rows) elements of every column are 0. Throws: invalid, unless t is a
/// matrix.
Tensor sparse_(Tensor t, double sparsity, double std = 0.01, Loc loc = Loc::current());

}  // namespace kiln::nn::init
