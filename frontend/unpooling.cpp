// SPDX-License-Identifier: Apache-2.0
#include "frontend/unpooling.h"

#include "frontend/index_detail.h"
#include "frontend/pooling.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

using Ints = std::vector<int64_t>;

/// The space of the result. Throws: invalid, when `given` is none that a pool makes x's space of.
Sizes unpooled_space(const char* name, int64_t n, const Tensor& x, const SpatialArg& kernel_size,
                     const MaxUnpoolOptions& o, const Sizes& given, Loc loc) {
  const Sizes kernel = spatial(kernel_size, n, 1, "kernel_size", name, loc);
  const Sizes stride = o.stride ? spatial(*o.stride, n, 1, "stride", name, loc) : kernel;
  const Sizes padding = spatial(o.padding, n, 0, "padding", name, loc);
  KILN_CHECK(given.empty() || given.size() == static_cast<size_t>(n), invalid,
             "{} ({}): output_size has {} numbers, expected {}", name, loc.str(), given.size(), n);
  Sizes space;
  for (int64_t i = 0; i < n; ++i) {
    const auto d = static_cast<size_t>(i);
    const int64_t usual = (x.size(i - n) - 1) * stride[d] - 2 * padding[d] + kernel[d];
    const int64_t size = given.empty() ? usual : given[d];
    KILN_CHECK(size > 0 && size > usual - stride[d] && size < usual + stride[d], invalid,
               "{} ({}): output_size {} in dim {} of space, expected more than {} and less than {}", name,
               loc.str(), size, i, std::max<int64_t>(0, usual - stride[d]), usual + stride[d]);
    space.push_back(size);
  }
  return space;
}

Tensor max_unpool(const char* name, int64_t n, const Tensor& x, const Tensor& indices,
                  const SpatialArg& kernel_size, const MaxUnpoolOptions& o, const Sizes& given, Loc loc) {
  require_floating(x, name, loc);
  require_index(indices, name, loc, "indices");
  KILN_CHECK((x.dim() == n + 1 || x.dim() == n + 2) && indices.sizes() == x.sizes(), invalid,
             "{} ({}): got x {} and indices {}, expected one shape of {} or {} dims", name, loc.str(),
             x.type_str(), indices.type_str(), n + 1, n + 2);
  const Sizes space = unpooled_space(name, n, x, kernel_size, o, given, loc);
  const Tensor* operands[] = {&x, &indices};
  return call({name, loc, operands, space, {}}, [&](const auto&) {
    int64_t planes = 1, from = 1, to = 1;
    for (int64_t d = 0; d < x.dim(); ++d) (d < x.dim() - n ? planes : from) *= x.size(d);
    for (int64_t s : space) to *= s;
    Sizes sizes(x.sizes().begin(), x.sizes().end() - n);
    sizes.insert(sizes.end(), space.begin(), space.end());
    const Tensor lines = reshape_to(x, {planes, from}), at = reshape_to(indices, {planes, from});
    check_indices(at, to, name, loc, "indices");
    const Tensor empty =
        apply(op("constant"), std::initializer_list<const Tensor*>{}, {0.0, x.dtype(), Shape{planes, to}});
    return reshape_to(apply(op("scatter"), {&empty, &at, &lines}, {int64_t{1}}), sizes);
  });
}

template <typename Pool>
Tensor lp_pool(const char* name, int64_t n, const Tensor& x, double norm_type, const SpatialArg& kernel_size,
               const LPPoolOptions& o, Loc loc, Pool&& avg_pool) {
  require_floating(x, name, loc);
  KILN_CHECK(x.dim() == n + 1 || x.dim() == n + 2, invalid, "{} ({}): got x {}, expected {} or {} dims", name,
             loc.str(), x.type_str(), n + 1, n + 2);
  KILN_CHECK(norm_type != 0, invalid, "{} ({}): norm_type is 0", name, loc.str());
  int64_t elements = 1;
  const Sizes kernel = spatial(kernel_size, n, 1, "kernel_size", name, loc);
  for (int64_t k : kernel) elements *= k;
  const Tensor powers = pow(TensorArg(x, loc), TensorArg(norm_type, loc));
  const Tensor means = avg_pool(powers, kernel, {.stride = o.stride, .ceil_mode = o.ceil_mode}, loc);
  return call(name, loc, {&means}, {elements}, {1 / norm_type}, [&](const std::vector<Tensor>& s) {
    const Tensor zero = lit(means, 0), none = binary(op("eq"), means, zero);
    const Tensor sum = mul2(select3(none, lit(means, 1), means), lit(means, static_cast<double>(elements)));
    return select3(none, zero, binary(op("pow"), sum, cast_to(s[0], sum.dtype())));
  });
}

}  // namespace

Tensor max_unpool1d(const Tensor& x, const Tensor& indices, const SpatialArg& k, const MaxUnpoolOptions& o,
                    const Sizes& output_size, Loc loc) {
  return max_unpool("max_unpool1d", 1, x, indices, k, o, output_size, loc);
}
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const SpatialArg& k, const MaxUnpoolOptions& o,
                    const Sizes& output_size, Loc loc) {
  return max_unpool("max_unpool2d", 2, x, indices, k, o, output_size, loc);
}
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, const SpatialArg& k, const MaxUnpoolOptions& o,
                    const Sizes& output_size, Loc loc) {
  return max_unpool("max_unpool3d", 3, x, indices, k, o, output_size, loc);
}

Tensor lp_pool1d(const Tensor& x, double norm_type, const SpatialArg& k, const LPPoolOptions& o, Loc loc) {
  return lp_pool("lp_pool1d", 1, x, norm_type, k, o, loc, avg_pool1d);
}
Tensor lp_pool2d(const Tensor& x, double norm_type, const SpatialArg& k, const LPPoolOptions& o, Loc loc) {
  return lp_pool("lp_pool2d", 2, x, norm_type, k, o, loc, avg_pool2d);
}
Tensor lp_pool3d(const Tensor& x, double norm_type, const SpatialArg& k, const LPPoolOptions& o, Loc loc) {
  return lp_pool("lp_pool3d", 3, x, norm_type, k, o, loc, avg_pool3d);
}

}  // namespace kiln
