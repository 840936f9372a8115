// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/convert_parameters.h"

#include "frontend/ops.h"

namespace kiln::nn {

namespace {
int64_t elements(const std::vector<Tensor>& parameters, const char* name, Loc loc) {
  int64_t n = 0;
  for (const Tensor& p : parameters) {
    KILN_CHECK(p.defined() && p.dtype() == parameters[0].dtype() && p.device() == parameters[0].device(),
               invalid, "{} ({}): got parameters {} and {}, expected one dtype and device", name, loc.str(),
               parameters[0].type_str(), p.type_str());
    n += p.numel();
  }
  return n;
}
}  // namespace

Tensor parameters_to_vector(const std::vector<Tensor>& parameters, Loc loc) {
  KILN_CHECK(!parameters.empty(), invalid, "parameters_to_vector ({}): there are no parameters", loc.str());
  elements(parameters, "parameters_to_vector", loc);
  std::vector<Tensor> flat;
  for (const Tensor& p : parameters) flat.push_back(reshape(p, {p.numel()}, loc));
  return cat(flat, 0, loc);
}

void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters, Loc loc) {
  const int64_t n = elements(parameters, "vector_to_parameters", loc);
  KILN_CHECK(vector.defined() && vector.dim() == 1 && vector.numel() == n, invalid,
             "vector_to_parameters ({}): got {} for parameters of {} elements", loc.str(), vector.type_str(),
             n);
  const NoGrad guard;
  int64_t at = 0;
  for (Tensor p : parameters) {
    p.copy_(reshape(slice(vector, 0, at, at + p.numel(), 1, loc), p.sizes(), loc), loc);
    at += p.numel();
  }
}

}  // namespace kiln::nn
