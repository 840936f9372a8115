// SPDX-License-Identifier: Apache-2.0
// Runs graphs compiled and interpreted on the same inputs, for tests of code generation.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "codegen/program.h"
#include "ir/interpret.h"
#include "runtime/executor.h"
#include "runtime/image.h"

namespace kiln::testing {

/// Largest difference allowed to a value of about `scale` after a reduction of `length` terms.
inline double tolerance(DType t, int64_t length) {
  const double unit = t == DType::f64 ? 0x1p-52 : t == DType::f32 ? 0x1p-23 : 0;
  return 64 * unit * std::sqrt(static_cast<double>(std::max<int64_t>(length, 1)));
}

inline std::vector<int64_t> values(const Shape& s) {
  std::vector<int64_t> v;
  for (const Dim& d : s) v.push_back(d.value());
  return v;
}

inline HostTensor copy_of(const HostTensor& t) {
  HostTensor c = make_host_tensor(t.ref.dtype, t.ref.shape);
  copy_elements(t.ref, c.ref);
  return c;
}

/// A plan with its kernels mapped.
struct Loaded {
  std::shared_ptr<LoadedImage> image;
  std::unique_ptr<Executable> exe;
};
inline Loaded load(const Plan& plan, std::shared_ptr<LoadedImage> image) {
  Loaded l{image, nullptr};
  l.exe = std::make_unique<Executable>(
      plan, [image](const PlanKernel& k) { return image->kernel(k.symbol); }, image);
  return l;
}
inline Loaded load(const CompiledProgram& p) {
  std::shared_ptr<LoadedImage> image;
  if (!p.image.bytes.empty()) image = std::make_shared<LoadedImage>(p.image.bytes);
  return load(p.plan, image);
}

/// One output per graph output; inputs are copied first, so that updates in place do not reach the caller's.
inline std::vector<HostTensor> execute(const Graph& g, const Executable& exe,
                                       const std::vector<HostTensor>& inputs, int threads) {
  std::vector<HostTensor> own, out;
  std::vector<void*> externals, outputs;
  std::vector<uint64_t> scalars;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    own.push_back(copy_of(inputs[i]));
    if (g.inputs[i].kind == InputKind::scalar) {
      uint64_t bits = 0;
      std::memcpy(&bits, own.back().ref.data, dtype_size(own.back().ref.dtype));
      scalars.push_back(bits);
    } else {
      externals.push_back(own.back().ref.data);
    }
  }
  for (const GraphOutput& o : g.outputs) {
    if (o.alias_input >= 0) {
      out.push_back(own[o.alias_input]);
      continue;
    }
    out.push_back(make_host_tensor(g.type(o.value).dtype, values(g.type(o.value).shape)));
    outputs.push_back(out.back().ref.data);
  }
  exe.run(
      {.externals = externals, .outputs = outputs, .scalars = scalars, .symbols = {}, .threads = threads});
  return out;
}

/// "" if close, else what differs first. `others` are results as right as `want`: four times the largest
/// distance of one of them from `want` is allowed on top.
inline std::string difference(const HostTensor& got, const HostTensor& want, int64_t length,
                              const std::vector<HostTensor>& others = {}) {
  const int64_t n = want.ref.numel();
  const HostTensor a = copy_of(got), b = copy_of(want);
  std::vector<HostTensor> more;
  for (const HostTensor& t : others) more.push_back(copy_of(t));
  double scale = 0;
  std::string out;
  dispatch(want.ref.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_arithmetic_v<T>) {
      const auto at = [](const HostTensor& t, int64_t i) {
        return static_cast<double>(static_cast<const T*>(t.ref.data)[i]);
      };
      for (int64_t i = 0; i < n; ++i)
        if (std::isfinite(at(b, i))) scale = std::max(scale, std::abs(at(b, i)));
      const double limit = tolerance(want.ref.dtype, length) * std::max(scale, 1.0);
      for (int64_t i = 0; i < n && out.empty(); ++i) {
        const double p = at(a, i), q = at(b, i);
        double apart = 0;
        bool any = false;
        for (const HostTensor& t : more) {
          const double r = at(t, i);
          any |= std::isnan(q) != std::isnan(r) || (q != r && std::isinf(q - r));
          if (std::abs(q - r) > apart) apart = std::abs(q - r);
        }
        const bool same =
            any || p == q || (std::isnan(p) && std::isnan(q)) || std::abs(p - q) <= limit + 4 * apart;
        if (!same)
          out = fmt::format("element {} of {}: got {}, expected {} (limit {:.3g})", i, n, p, q,
                            limit + 4 * apart);
      }
    }
  });
  return out;
}

}  // namespace kiln::testing
