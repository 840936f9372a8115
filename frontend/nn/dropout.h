// SPDX-License-Identifier: Apache-2.0
// Dropout as modules, active while training: each calls the function of its name.
#pragma once

#include "frontend/dispatch.h"
#include "frontend/functional.h"
#include "frontend/nn/module.h"
#include "frontend/random.h"

namespace kiln::nn {

namespace detail_dropout {

template <Tensor (*F)(const Tensor&, double, bool, Loc)>
class Of : public Module {
 public:
  explicit Of(double p = 0.5, Loc loc = Loc::current()) : p_(p) {
    KILN_CHECK(p >= 0 && p <= 1, invalid, "Dropout ({}): p is {}, expected 0 to 1", loc.str(), p);
  }
  Tensor forward(const Tensor& x) override { return F(x, p_, is_training(), detail::caller_loc()); }

 private:
  double p_;
};

}  // namespace detail_dropout

using Dropout = detail_dropout::Of<dropout>;                            ///< (p = 0.5)
using Dropout1d = detail_dropout::Of<dropout1d>;                        ///< (p = 0.5), of channels
using Dropout2d = detail_dropout::Of<dropout2d>;                        ///< (p = 0.5), of channels
using Dropout3d = detail_dropout::Of<dropout3d>;                        ///< (p = 0.5), of channels
using AlphaDropout = detail_dropout::Of<alpha_dropout>;                 ///< (p = 0.5)
using FeatureAlphaDropout = detail_dropout::Of<feature_alpha_dropout>;  ///< (p = 0.5), of channels

}  // namespace kiln::nn
