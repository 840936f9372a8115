// SPDX-License-Identifier: Apache-2.0
// Clipping gradients in place, by their joint norm or by value. Limits are run-time numbers.
#pragma once

#include <vector>

#include "frontend/tensor.h"

namespace kiln::optim {

/// The norm of the norms of `tensors`, 0-d; 0 if there are none. Any order: 2, 1, infinity, -infinity, 0, p.
/// Throws: invalid, with `error_if_nonfinite`, when it is not finite: inside a compiled callable from its
/// next run point, before that has written to any tensor. Source: torch.nn.utils.get_total_norm.
Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type = 2,
                      bool error_if_nonfinite = false, Loc loc = Loc::current());

/// Scales the gradients of `params` so that their joint norm is at most `max_norm`, which `total_norm` is
/// now. Source: torch.nn.utils.clip_grads_with_norm_.
void clip_grads_with_norm_(const std::vector<Tensor>& params, double max_norm, const Tensor& total_norm,
                           Loc loc = Loc::current());

/// Both in one: returns the norm before. A norm that is not finite scales to NaN or 0, as in PyTorch.
/// Throws: as get_total_norm. Source: torch.nn.utils.clip_grad_norm_.
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type = 2,
                       bool error_if_nonfinite = false, Loc loc = Loc::current());

/// Limits each element of the gradients to [-clip_value, clip_value]; NaN stays.
/// Source: torch.nn.utils.clip_grad_value_.
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value, Loc loc = Loc::current());

}  // namespace kiln::optim
