// SPDX-License-Identifier: Apache-2.0
#include "codegen/cuda_target.h"

#include <algorithm>

#include "ir/base/error.h"

namespace kiln {

namespace {

struct Limits {
  int capability;
  int sm_count;
  int threads_per_sm, blocks_per_sm;
  int shared_per_sm;  ///< KiB; a block can have one less, which the system keeps
};

// Source: CUDA C++ Programming Guide 13.0, table "Technical Specifications per Compute Capability"; numbers
// of multiprocessors from the data sheets of A100, RTX 3090, Orin, L40S, H100 SXM, B200, B300, RTX 5090,
// GB10.
constexpr Limits kLimits[] = {
    {80, 108, 2048, 32, 164},  {86, 82, 1536, 16, 100},   {87, 16, 1536, 16, 164},
    {89, 142, 1536, 24, 100},  {90, 132, 2048, 32, 228},  {100, 148, 2048, 32, 228},
    {103, 160, 2048, 32, 228}, {120, 170, 1536, 24, 100}, {121, 48, 1536, 24, 100},
};

std::string known_names() {
  std::string s;
  for (const Limits& l : kLimits) s += fmt::format("{}sm_{}", s.empty() ? "" : ", ", l.capability);
  return s;
}

}  // namespace

bool names_cuda_target(std::string_view name) { return name.starts_with("sm_") && name.size() > 3; }

CudaTarget parse_cuda_target(std::string_view name) {
  std::string_view number = names_cuda_target(name) ? name.substr(3) : std::string_view();
  // Features of one architecture alone came with 9.0; families of them with 10.0.
  const char variant = number.ends_with('a') || number.ends_with('f') ? number.back() : ' ';
  if (variant != ' ') number.remove_suffix(1);
  const auto* l = std::find_if(std::begin(kLimits), std::end(kLimits),
                               [&](const Limits& x) { return std::to_string(x.capability) == number; });
  const bool known = l != std::end(kLimits) && !(variant == 'a' && l->capability < 90) &&
                     !(variant == 'f' && l->capability < 100);
  KILN_CHECK(known, invalid,
             "cuda target: unknown architecture; got '{}', expected one of {} (from sm_90 on also with an a "
             "at the end, from sm_100 on with an f)",
             name, known_names());
  CudaTarget t;
  t.arch = name;
  t.capability = l->capability;
  t.sm_count = l->sm_count;
  t.threads_per_sm = l->threads_per_sm;
  t.blocks_per_sm = l->blocks_per_sm;
  t.shared_per_sm = int64_t{l->shared_per_sm} << 10;
  t.shared_per_block = t.shared_per_sm - 1024;
  return t;
}

}  // namespace kiln
