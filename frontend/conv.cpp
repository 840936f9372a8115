// SPDX-License-Identifier: Apache-2.0
// A convolution is a contraction over the windows of its padded input; a transposed one adds the windows that
// a contraction gives.
#include "frontend/conv.h"

#include <numeric>

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

ConvPadding ConvPadding::same_size() {
  ConvPadding p(0);
  p.same = true;
  return p;
}

namespace {

using Ints = std::vector<int64_t>;

Ints range(int64_t from, int64_t n) {
  Ints r(static_cast<size_t>(n));
  std::iota(r.begin(), r.end(), from);
  return r;
}

Tensor dot(const Tensor& a, const Tensor& b, Ints batch_a, Ints batch_b, Ints contract_a, Ints contract_b) {
  return apply(op("dot_general"), {&a, &b},
               {std::move(batch_a), std::move(batch_b), std::move(contract_a), std::move(contract_b)});
}

/// The numbers of one convolution, per dim of space.
struct Geometry {
  int64_t n = 0;  ///< dims of space
  Sizes stride, dilation, low, high;
  int64_t groups = 1;
  bool batched = true;
};

/// x with a batch dim, and back.
Tensor with_batch(const Tensor& x, bool batched) {
  if (batched) return x;
  Sizes s = x.sizes();
  s.insert(s.begin(), 1);
  return reshape_to(x, s);
}
Tensor without_batch(const Tensor& x, bool batched) {
  return batched ? x : reshape_to(x, Sizes(x.sizes().begin() + 1, x.sizes().end()));
}
Tensor with_bias(const Tensor& y, const Tensor& bias, int64_t n) {
  if (!bias.defined()) return y;
  Sizes s(static_cast<size_t>(n + 1), 1);
  s[0] = bias.size(0);
  return add2(y, reshape_to(bias, s));
}

void check_operands(const Tensor& x, const Tensor& w, const Tensor& b, int64_t n, int64_t groups,
                    bool transposed, const char* name, Loc loc) {
  require_floating(x, name, loc);
  require_floating(w, name, loc, "weight");
  KILN_CHECK((x.dim() == n + 1 || x.dim() == n + 2) && w.dim() == n + 2, invalid,
             "{} ({}): got x {} and weight {}, expected {} (or {} without a batch) and {} dims", name,
             loc.str(), x.type_str(), w.type_str(), n + 2, n + 1, n + 2);
  KILN_CHECK(groups > 0, invalid, "{} ({}): groups is {}, expected at least 1", name, loc.str(), groups);
  const int64_t channels = x.size(-n - 1), outs = transposed ? w.size(1) * groups : w.size(0);
  const bool fits = transposed ? w.size(0) == channels && channels % groups == 0
                               : w.size(1) * groups == channels && outs % groups == 0;
  KILN_CHECK(fits && outs > 0, invalid,
             "{} ({}): channels do not fit; got x {}, weight {} and groups {}, expected weight {}", name,
             loc.str(), x.type_str(), w.type_str(), groups,
             transposed ? "[c, o / groups, ...]" : "[o, c / groups, ...]");
  KILN_CHECK(!b.defined() || b.sizes() == Sizes{outs}, invalid, "{} ({}): got bias {} for {} output channels",
             name, loc.str(), b.type_str(), outs);
}

void check_dtypes(const Tensor& x, const Tensor& w, const Tensor& b, const char* name, Loc loc) {
  KILN_CHECK(x.dtype() == w.dtype() && (!b.defined() || b.dtype() == x.dtype()), invalid,
             "{} ({}): dtypes differ; got x {}, weight {}{}", name, loc.str(), x.type_str(), w.type_str(),
             b.defined() ? ", bias " + b.type_str() : "");
}

Geometry geometry(const Tensor& x, const Tensor& w, int64_t n, const ConvOptions& o, const char* name,
                  Loc loc) {
  Geometry g{n,
             spatial(o.stride, n, 1, "stride", name, loc),
             spatial(o.dilation, n, 1, "dilation", name, loc),
             {},
             {},
             o.groups,
             x.dim() == n + 2};
  g.low = g.high = spatial(o.padding, n, 0, "padding", name, loc);
  for (int64_t i = 0; i < n; ++i) {
    const auto d = static_cast<size_t>(i);
    const int64_t size = x.size(i - n), reach = g.dilation[d] * (w.size(i - n) - 1);
    KILN_CHECK(w.size(i - n) > 0, invalid, "{} ({}): the kernel of weight {} is empty", name, loc.str(),
               w.type_str());
    if (o.padding.same) {
      KILN_CHECK(g.stride[d] == 1, invalid, "{} ({}): padding \"same\" needs stride 1, got {}", name,
                 loc.str(), g.stride[d]);
      g.low[d] = reach / 2;
      g.high[d] = reach - reach / 2;
    }
    KILN_CHECK(size + g.low[d] + g.high[d] > reach, invalid,
               "{} ({}): the kernel is larger than the input; got x {} padded by {} and {}, weight {}, "
               "dilation {}",
               name, loc.str(), x.type_str(), g.low[d], g.high[d], w.type_str(), g.dilation[d]);
  }
  return g;
}

/// x [n, c, space...] as windows [n, groups, c / groups, (out, k)...].
Tensor grouped_windows(const Tensor& x, const Tensor& w, const Geometry& g) {
  Tensor t = pad_dims(x, 2, g.low, g.high, 0);
  for (int64_t i = g.n; i-- > 0;) {
    const auto d = static_cast<size_t>(i);
    t = windows(t, 2 + i, w.size(2 + i), g.stride[d], g.dilation[d]);
  }
  Sizes s = t.sizes();
  s[1] /= g.groups;
  s.insert(s.begin() + 1, g.groups);
  return reshape_to(t, s);
}

/// Weights of one input channel each: a product and a sum, without columns.
Tensor depthwise(const Tensor& win, const Tensor& w, const Geometry& g) {
  const int64_t outs = w.size(0) / g.groups;
  Sizes ws{g.groups, outs}, xs = win.sizes();
  Sizes sum, all = xs;
  all[2] = outs;
  for (int64_t i = 0; i < g.n; ++i) {
    ws.insert(ws.end(), {1, w.size(2 + i)});
    sum.push_back(4 + 2 * i);
  }
  const Tensor products = mul2(expand_to(win, all), expand_to(reshape_to(w, ws), all));
  return reduce(op("sum"), products, sum, false);  // [n, groups, outs, out...]
}

Tensor conv_body(const Tensor& x0, const Tensor& w, const Tensor& bias, const Geometry& g) {
  const Tensor x = with_batch(x0, g.batched), win = grouped_windows(x, w, g);
  Tensor y;
  if (w.size(1) == 1 && g.groups > 1) {
    y = depthwise(win, w, g);
  } else {
    Sizes ws = w.sizes();
    ws[0] /= g.groups;
    ws.insert(ws.begin(), g.groups);
    const Tensor weight = reshape_to(w, ws);  // [groups, o, c, k...]
    Ints of_x{2};
    for (int64_t i = 0; i < g.n; ++i) of_x.push_back(4 + 2 * i);
    // [groups, o, n, out...]
    const Tensor product = dot(weight, win, {0}, {1}, range(2, g.n + 1), of_x);
    Ints order{2, 0, 1};
    for (int64_t i = 0; i < g.n; ++i) order.push_back(3 + i);
    y = permuted(product, order);
  }
  Sizes out = y.sizes();
  out[1] *= out[2];
  out.erase(out.begin() + 2);
  return without_batch(with_bias(reshape_to(y, out), bias, g.n), g.batched);
}

Ints event(const Geometry& g) {
  Ints ints{g.groups, g.batched};
  for (const Sizes* s : {&g.stride, &g.dilation, &g.low, &g.high})
    ints.insert(ints.end(), s->begin(), s->end());
  return ints;
}

Tensor conv(const char* name, int64_t n, const Tensor& x, const Tensor& w, const Tensor& b,
            const ConvOptions& o, Loc loc) {
  check_operands(x, w, b, n, o.groups, false, name, loc);
  const Geometry g = geometry(x, w, n, o, name, loc);
  const Tensor* operands[] = {&x, &w, &b};
  const Ints ints = event(g);
  return call({name, loc, operands, ints, {}},
              [&](const Tensor& x, const Tensor& w, const Tensor& b, const auto&) {
                check_dtypes(x, w, b, name, loc);
                return conv_body(x, w, b, g);
              });
}

struct Transposed : Geometry {
  Sizes padding, full;  ///< `full`: the sizes before padding is cut away
};

Tensor transposed_body(const Tensor& x0, const Tensor& w, const Tensor& bias, const Transposed& g) {
  const Tensor x = with_batch(x0, g.batched);
  Sizes xs = x.sizes(), ws = w.sizes();
  xs[1] /= g.groups;
  xs.insert(xs.begin() + 1, g.groups);
  ws[0] /= g.groups;
  ws.insert(ws.begin(), g.groups);
  // [groups, n, space..., o, k...]
  const Tensor columns = dot(reshape_to(x, xs), reshape_to(w, ws), {1}, {0}, {2}, {1});
  Ints order{1, 0, 2 + g.n};
  for (int64_t i = 0; i < g.n; ++i) order.insert(order.end(), {2 + i, 3 + g.n + i});
  Tensor y = permuted(columns, order);  // [n, groups, o, (space, k)...]
  for (int64_t i = g.n; i-- > 0;) {
    const auto d = static_cast<size_t>(i);
    y = overlap_add(y, 3 + 2 * i, g.full[d], g.stride[d], g.dilation[d]);
  }
  for (int64_t i = 0; i < g.n; ++i) {
    const auto d = static_cast<size_t>(i);
    y = cut(y, 3 + i, g.padding[d], g.full[d] - 2 * g.padding[d]);
  }
  Sizes out = y.sizes();
  out[1] *= out[2];
  out.erase(out.begin() + 2);
  return without_batch(with_bias(reshape_to(y, out), bias, g.n), g.batched);
}

Tensor conv_transpose(const char* name, int64_t n, const Tensor& x, const Tensor& w, const Tensor& b,
                      const ConvTransposeOptions& o, Loc loc) {
  check_operands(x, w, b, n, o.groups, true, name, loc);
  Transposed g;
  g.n = n;
  g.groups = o.groups;
  g.batched = x.dim() == n + 2;
  g.stride = spatial(o.stride, n, 1, "stride", name, loc);
  g.dilation = spatial(o.dilation, n, 1, "dilation", name, loc);
  g.padding = spatial(o.padding, n, 0, "padding", name, loc);
  const Sizes extra = spatial(o.output_padding, n, 0, "output_padding", name, loc);
  for (int64_t i = 0; i < n; ++i) {
    const auto d = static_cast<size_t>(i);
    KILN_CHECK(extra[d] < g.stride[d] || extra[d] < g.dilation[d], invalid,
               "{} ({}): output_padding {} must be less than the stride {} or the dilation {}", name,
               loc.str(), extra[d], g.stride[d], g.dilation[d]);
    const int64_t size = x.size(i - n), k = w.size(i - n);
    KILN_CHECK(size > 0 && k > 0, invalid, "{} ({}): got x {} and weight {} with an empty dim of space", name,
               loc.str(), x.type_str(), w.type_str());
    g.full.push_back((size - 1) * g.stride[d] + g.dilation[d] * (k - 1) + 1 + extra[d]);
    KILN_CHECK(g.full[d] - 2 * g.padding[d] > 0, invalid,
               "{} ({}): nothing is left of the output of size {} by padding {}; got x {} and weight {}",
               name, loc.str(), g.full[d], g.padding[d], x.type_str(), w.type_str());
  }
  Ints ints = event(g);
  for (const Sizes* s : {&g.padding, &g.full}) ints.insert(ints.end(), s->begin(), s->end());
  const Tensor* operands[] = {&x, &w, &b};
  return call({name, loc, operands, ints, {}},
              [&](const Tensor& x, const Tensor& w, const Tensor& b, const auto&) {
                check_dtypes(x, w, b, name, loc);
                return transposed_body(x, w, b, g);
              });
}

/// Number of windows of each dim of an image.
Sizes window_counts(const Sizes& space, const Sizes& kernel, const Sizes& dilation, const Sizes& padding,
                    const Sizes& stride, const char* name, Loc loc) {
  Sizes out;
  for (size_t d = 0; d < space.size(); ++d) {
    const int64_t span = space[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1;
    KILN_CHECK(span >= 0, invalid,
               "{} ({}): windows of [{}] with dilation {} do not fit into [{}] padded by {}", name, loc.str(),
               fmt::join(kernel, ","), dilation[d], fmt::join(space, ","), padding[d]);
    out.push_back(span / stride[d] + 1);
  }
  return out;
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions& o, Loc loc) {
  return conv("conv1d", 1, x, w, b, o, loc);
}
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions& o, Loc loc) {
  return conv("conv2d", 2, x, w, b, o, loc);
}
Tensor conv3d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions& o, Loc loc) {
  return conv("conv3d", 3, x, w, b, o, loc);
}
Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvTransposeOptions& o,
                        Loc loc) {
  return conv_transpose("conv_transpose1d", 1, x, w, b, o, loc);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvTransposeOptions& o,
                        Loc loc) {
  return conv_transpose("conv_transpose2d", 2, x, w, b, o, loc);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvTransposeOptions& o,
                        Loc loc) {
  return conv_transpose("conv_transpose3d", 3, x, w, b, o, loc);
}

Tensor unfold(const Tensor& x, const SpatialArg& kernel_size, const UnfoldOptions& o, Loc loc) {
  constexpr const char* kName = "unfold";
  require(x, kName, loc);
  KILN_CHECK(x.dim() == 3 || x.dim() == 4, invalid,
             "unfold ({}): got x {}, expected [n, c, h, w] or [c, h, w]", loc.str(), x.type_str());
  const Sizes k = spatial(kernel_size, 2, 1, "kernel_size", kName, loc),
              dilation = spatial(o.dilation, 2, 1, "dilation", kName, loc),
              padding = spatial(o.padding, 2, 0, "padding", kName, loc),
              stride = spatial(o.stride, 2, 1, "stride", kName, loc);
  window_counts({x.size(-2), x.size(-1)}, k, dilation, padding, stride, kName, loc);
  Ints ints;
  for (const Sizes* s : {&k, &dilation, &padding, &stride}) ints.insert(ints.end(), s->begin(), s->end());
  const Tensor* operands[] = {&x};
  return call({kName, loc, operands, ints, {}}, [&](const auto&) {
    const bool batched = x.dim() == 4;
    Tensor t = pad_dims(with_batch(x, batched), 2, padding, padding, 0);
    for (int64_t d : {1, 0}) {
      const auto i = static_cast<size_t>(d);
      t = windows(t, 2 + d, k[i], stride[i], dilation[i]);
    }
    t = permuted(t, {0, 1, 3, 5, 2, 4});
    const Sizes s = t.sizes();
    return without_batch(reshape_to(t, {s[0], s[1] * s[2] * s[3], s[4] * s[5]}), batched);
  });
}

Tensor fold(const Tensor& x, const SpatialArg& output_size, const SpatialArg& kernel_size,
            const UnfoldOptions& o, Loc loc) {
  constexpr const char* kName = "fold";
  require(x, kName, loc);
  KILN_CHECK(x.dim() == 2 || x.dim() == 3, invalid,
             "fold ({}): got x {}, expected [n, c * kh * kw, windows], or without n", loc.str(),
             x.type_str());
  const Sizes size = spatial(output_size, 2, 1, "output_size", kName, loc),
              k = spatial(kernel_size, 2, 1, "kernel_size", kName, loc),
              dilation = spatial(o.dilation, 2, 1, "dilation", kName, loc),
              padding = spatial(o.padding, 2, 0, "padding", kName, loc),
              stride = spatial(o.stride, 2, 1, "stride", kName, loc);
  const Sizes count = window_counts(size, k, dilation, padding, stride, kName, loc);
  KILN_CHECK(x.size(-2) % (k[0] * k[1]) == 0 && x.size(-1) == count[0] * count[1], invalid,
             "fold ({}): got x {}, expected a multiple of {} rows and {} x {} columns", loc.str(),
             x.type_str(), k[0] * k[1], count[0], count[1]);
  Ints ints;
  for (const Sizes* s : {&size, &k, &dilation, &padding, &stride})
    ints.insert(ints.end(), s->begin(), s->end());
  const Tensor* operands[] = {&x};
  return call({kName, loc, operands, ints, {}}, [&](const auto&) {
    const bool batched = x.dim() == 3;
    const Tensor c = with_batch(x, batched);
    Tensor t = permuted(reshape_to(c, {c.size(0), c.size(1) / (k[0] * k[1]), k[0], k[1], count[0], count[1]}),
                        {0, 1, 4, 2, 5, 3});
    for (int64_t d : {1, 0}) {
      const auto i = static_cast<size_t>(d);
      t = overlap_add(t, 2 + 2 * d, size[i] + 2 * padding[i], stride[i], dilation[i]);
      t = cut(t, 2 + 2 * d, padding[i], size[i]);
    }
    return without_batch(t, batched);
  });
}

Tensor unfold_dim(const Tensor& x, int64_t dim, int64_t size, int64_t step, Loc loc) {
  constexpr const char* kName = "unfold_dim";
  require(x, kName, loc);
  const int64_t d = wrap_dim(dim, x.dim(), kName, loc);
  KILN_CHECK(
      x.dim() > 0 && size >= 1 && step >= 1 && size <= x.size(d), invalid,
      "unfold_dim ({}): got size {} and step {} for dim {} of x {}, expected at least 1, and no window "
      "larger than the dim",
      loc.str(), size, step, d, x.type_str());
  return call(kName, loc, {&x}, {d, size, step}, {}, [&](const auto&) {
    const Tensor w = windows(x, d, size, step, 1);
    Ints order = range(0, d + 1);
    for (int64_t i = d + 2; i < w.dim(); ++i) order.push_back(i);
    order.push_back(d + 1);
    return permuted(w, order);
  });
}

}  // namespace kiln
