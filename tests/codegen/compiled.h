// SPDX-License-Identifier: Apache-2.0
// Runs graphs compiled and interpreted on the same inputs, for tests of code generation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "codegen/program.h"
#include "ir/interpret.h"
#include "runtime/executor.h"
#include "runtime/image.h"

namespace kiln::testing {

/// Largest difference allowed to a value of about `scale` after a reduction of `length` terms.
/// Halves: four units of rounding, since kernels round what they store and not every result on the way.
inline double tolerance(DType t, int64_t length) {
  if (t == DType::bf16) return 0x1p-6;
  if (t == DType::f16) return 0x1p-9;
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

/// An input where a call finds it: laid out as asked, with marks in every byte that no element takes.
class PlacedInput {
 public:
  PlacedInput(const HostTensor& from, const ExternalLayout* layout) {
    const std::vector<int64_t>& shape = from.ref.shape;
    std::vector<int64_t> strides = contiguous_strides(shape);
    int64_t offset = 0, last = 0;
    if (layout) {
      strides = values(layout->strides);
      offset = layout->offset.value();
    }
    for (size_t d = 0; d < shape.size(); ++d) last += std::max<int64_t>(shape[d] - 1, 0) * strides[d];
    const size_t size = dtype_size(from.ref.dtype);
    bytes_.assign(static_cast<size_t>(offset + last + 1) * size + 64, kMark);
    view_ = {from.ref.dtype, bytes_.data() + static_cast<size_t>(offset) * size, shape, strides};
    copy_elements(from.ref, view_);
  }
  void* data() { return bytes_.data(); }
  size_t bytes() const { return bytes_.size(); }
  /// What the call left there.
  HostTensor now() const {
    HostTensor t = make_host_tensor(view_.dtype, view_.shape);
    copy_elements(view_, t.ref);
    return t;
  }
  bool marks_hold() {
    const HostTensor elements = now();
    HostTensor marks = make_host_tensor(view_.dtype, view_.shape);
    std::memset(marks.ref.data, kMark, static_cast<size_t>(marks.ref.numel()) * dtype_size(view_.dtype));
    copy_elements(marks.ref, view_);
    const bool hold = std::all_of(bytes_.begin(), bytes_.end(), [](uint8_t b) { return b == kMark; });
    copy_elements(elements.ref, view_);
    return hold;
  }

 private:
  static constexpr uint8_t kMark = 0xA5;
  std::vector<uint8_t> bytes_;
  TensorRef view_;
};

/// One output per graph output; inputs are copied first, so that updates in place do not reach the caller's.
/// `layouts`: as of compile_program.
inline std::vector<HostTensor> execute(const Graph& g, const Executable& exe,
                                       const std::vector<HostTensor>& inputs, int threads,
                                       const std::vector<ExternalLayout>& layouts = {},
                                       std::span<ProcessGroup* const> groups = {},
                                       Timeline* timeline = nullptr, std::span<const int64_t> symbols = {}) {
  std::map<std::string, int64_t, std::less<>> sizes;
  for (size_t i = 0; i < symbols.size(); ++i) sizes[exe.plan().symbols[i]] = symbols[i];
  std::deque<PlacedInput> own;
  std::vector<HostTensor> out(g.outputs.size());
  std::vector<void*> externals, outputs;
  std::vector<uint64_t> scalars;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    const bool scalar = g.inputs[i].kind == InputKind::scalar;
    own.emplace_back(inputs[i], scalar || layouts.empty() ? nullptr : &layouts[externals.size()]);
    if (scalar) {
      uint64_t bits = 0;
      std::memcpy(&bits, own.back().data(), dtype_size(inputs[i].ref.dtype));
      scalars.push_back(bits);
    } else {
      externals.push_back(own.back().data());
    }
  }
  for (size_t k = 0; k < out.size(); ++k) {
    const GraphOutput& o = g.outputs[k];
    if (o.alias_input >= 0) continue;
    std::vector<int64_t> shape;
    for (const Dim& d : g.type(o.value).shape) shape.push_back(d.eval(sizes));
    out[k] = make_host_tensor(g.type(o.value).dtype, shape);
    outputs.push_back(out[k].ref.data);
  }
  exe.run({.externals = externals,
           .outputs = outputs,
           .scalars = scalars,
           .symbols = symbols,
           .threads = threads,
           .timeline = timeline,
           .groups = groups});
  for (size_t k = 0; k < out.size(); ++k)
    if (g.outputs[k].alias_input >= 0) out[k] = own[static_cast<size_t>(g.outputs[k].alias_input)].now();
  for (size_t i = 0; i < own.size(); ++i)
    KILN_ASSERT(own[i].marks_hold(), "a kernel wrote between the elements of input {}", i);
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
    {
      const auto at = [](const HostTensor& t, int64_t i) {
        const T x = static_cast<const T*>(t.ref.data)[i];
        if constexpr (std::is_arithmetic_v<T>) return static_cast<double>(x);
        else return static_cast<double>(static_cast<float>(x));
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
