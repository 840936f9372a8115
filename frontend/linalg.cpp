// SPDX-License-Identifier: Apache-2.0
// Products with fixed ranks, and what is made of products.
#include "frontend/linalg.h"

#include <cmath>
#include <numeric>

#include "frontend/ops_detail.h"
#include "frontend/reductions.h"
#include "frontend/shapes.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

using Ints = std::vector<int64_t>;

/// Two operands of these ranks whose inner sizes, and those of the batch, are equal.
void check_product(const Tensor& a, const Tensor& b, int64_t rank_a, int64_t rank_b, const char* name,
                   Loc loc) {
  require(a, name, loc, "a");
  require(b, name, loc, "b");
  KILN_CHECK(a.dim() == rank_a && b.dim() == rank_b, invalid,
             "{} ({}): got a {} and b {}, expected {} and {} dims", name, loc.str(), a.type_str(),
             b.type_str(), rank_a, rank_b);
  KILN_CHECK(rank_a < 3 || a.size(0) == b.size(0), invalid,
             "{} ({}): batches differ; got a {} and b {}, expected {} == {}", name, loc.str(), a.type_str(),
             b.type_str(), a.size(0), b.size(0));
  const int64_t ka = a.size(-1), kb = b.size(rank_b == 1 ? 0 : -2);
  KILN_CHECK(ka == kb, invalid, "{} ({}): inner dims differ; got a {} and b {}, expected {} == {}", name,
             loc.str(), a.type_str(), b.type_str(), ka, kb);
}

/// beta * x + alpha * product(), of the given sizes.
/// `product(a, b)`.
template <typename Product>
Tensor sum_with_product(const char* name, const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta,
                        Scalar alpha, const Sizes& sizes, Loc loc, Product&& product) {
  require(x, name, loc);
  KILN_CHECK(broadcasts_to(x, sizes), invalid,
             "{} ({}): x {} does not broadcast to the product [{}] of a {} and b {}", name, loc.str(),
             x.type_str(), fmt::join(sizes, ","), a.type_str(), b.type_str());
  for (const auto& [what, s] : {std::pair{"beta", beta}, std::pair{"alpha", alpha}})
    KILN_CHECK(is_floating(x.dtype()) || s.d == std::trunc(s.d), invalid,
               "{} ({}): {} is {}, expected a whole number for x {}", name, loc.str(), what, s.d,
               x.type_str());
  // Factors of 0 and 1 are structure: the one does not read x, the other does not multiply.
  const bool none = beta.d == 0, plain = beta.d == 1, plain_product = alpha.d == 1;
  return call(name, loc, {&x, &a, &b}, {none, plain, plain_product}, {beta, alpha},
              [&](const Tensor& x, const Tensor& a, const Tensor& b, const std::vector<Tensor>& s) {
                require_one_dtype({{&x, "x"}, {&a, "a"}, {&b, "b"}}, name, loc);
                const DType t = x.dtype();
                Tensor p = product(a, b);
                if (!plain_product) p = mul2(p, cast_to(s[1], t));
                const Tensor wide = expand_to(x, sizes);
                if (plain) return add2(wide, p);
                if (!none) return add2(mul2(wide, cast_to(s[0], t)), p);
                const Tensor nowhere = constant_like(cast_to(constant_of(wide), DType::boolean), 0);
                return add2(select3(nowhere, wide, lit(p, 0)), p);
              });
}

}  // namespace

namespace {
/// matmul of operands of these ranks.
Tensor product_call(const char* name, const Tensor& a, const Tensor& b, int64_t rank_a, int64_t rank_b,
                    Loc loc) {
  check_product(a, b, rank_a, rank_b, name, loc);
  return call(name, loc, {&a, &b}, {}, {}, [&](const Tensor& a, const Tensor& b, const auto&) {
    require_one_dtype({{&a, "a"}, {&b, "b"}}, name, loc);
    return matmul(a, b, loc);
  });
}
}  // namespace

Tensor mm(const Tensor& a, const Tensor& b, Loc loc) { return product_call("mm", a, b, 2, 2, loc); }
Tensor bmm(const Tensor& a, const Tensor& b, Loc loc) { return product_call("bmm", a, b, 3, 3, loc); }
Tensor mv(const Tensor& a, const Tensor& b, Loc loc) { return product_call("mv", a, b, 2, 1, loc); }
Tensor dot(const Tensor& a, const Tensor& b, Loc loc) { return product_call("dot", a, b, 1, 1, loc); }

Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha, Loc loc) {
  check_product(a, b, 2, 2, "addmm", loc);
  return sum_with_product("addmm", x, a, b, beta, alpha, {a.size(0), b.size(1)}, loc,
                          [&](const Tensor& a, const Tensor& b) { return matmul(a, b, loc); });
}
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha, Loc loc) {
  check_product(a, b, 3, 3, "baddbmm", loc);
  return sum_with_product("baddbmm", x, a, b, beta, alpha, {a.size(0), a.size(1), b.size(2)}, loc,
                          [&](const Tensor& a, const Tensor& b) { return matmul(a, b, loc); });
}
Tensor addbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha, Loc loc) {
  check_product(a, b, 3, 3, "addbmm", loc);
  return sum_with_product(
      "addbmm", x, a, b, beta, alpha, {a.size(1), b.size(2)}, loc, [&](const Tensor& a, const Tensor& b) {
        return apply(op("dot_general"), {&a, &b}, {Ints{}, Ints{}, Ints{0, 2}, Ints{0, 1}});
      });
}
Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha, Loc loc) {
  check_product(a, b, 2, 1, "addmv", loc);
  return sum_with_product("addmv", x, a, b, beta, alpha, {a.size(0)}, loc,
                          [&](const Tensor& a, const Tensor& b) { return matmul(a, b, loc); });
}
Tensor addr(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha, Loc loc) {
  require(a, "addr", loc, "a");
  require(b, "addr", loc, "b");
  KILN_CHECK(a.dim() == 1 && b.dim() == 1, invalid, "addr ({}): got a {} and b {}, expected two vectors",
             loc.str(), a.type_str(), b.type_str());
  return sum_with_product("addr", x, a, b, beta, alpha, {a.size(0), b.size(0)}, loc,
                          [&](const Tensor& a, const Tensor& b) {
                            return mul2(reshape_to(a, {a.numel(), 1}), b);
                          });
}

Tensor tensordot(const Tensor& a, const Tensor& b, const Sizes& dims_a, const Sizes& dims_b, Loc loc) {
  require(a, "tensordot", loc, "a");
  require(b, "tensordot", loc, "b");
  KILN_CHECK(dims_a.size() == dims_b.size(), invalid, "tensordot ({}): got {} dims of a {} and {} of b {}",
             loc.str(), dims_a.size(), a.type_str(), dims_b.size(), b.type_str());
  Ints da, db;
  for (size_t i = 0; i < dims_a.size(); ++i) {
    da.push_back(wrap_dim(dims_a[i], a.dim(), "tensordot", loc));
    db.push_back(wrap_dim(dims_b[i], b.dim(), "tensordot", loc));
    KILN_CHECK(a.dim() > 0 && b.dim() > 0 && a.size(da.back()) == b.size(db.back()), invalid,
               "tensordot ({}): dims {} and {} differ; got a {} and b {}", loc.str(), dims_a[i], dims_b[i],
               a.type_str(), b.type_str());
  }
  if (!da.empty()) {
    wrap_dims(da, a.dim(), "tensordot", loc);
    wrap_dims(db, b.dim(), "tensordot", loc);
  }
  Sizes ints = da;
  ints.insert(ints.end(), db.begin(), db.end());
  const Tensor* operands[] = {&a, &b};
  return call({"tensordot", loc, operands, ints, {}}, [&](const Tensor& a, const Tensor& b, const auto&) {
    require_one_dtype({{&a, "a"}, {&b, "b"}}, "tensordot", loc);
    return apply(op("dot_general"), {&a, &b}, {Ints{}, Ints{}, da, db});
  });
}

Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims, Loc loc) {
  require(a, "tensordot", loc, "a");
  require(b, "tensordot", loc, "b");
  KILN_CHECK(dims >= 0 && dims <= a.dim() && dims <= b.dim(), invalid,
             "tensordot ({}): got {} dims of a {} and b {}, expected no more than each has", loc.str(), dims,
             a.type_str(), b.type_str());
  Sizes da(static_cast<size_t>(dims)), db(static_cast<size_t>(dims));
  std::iota(da.begin(), da.end(), a.dim() - dims);
  std::iota(db.begin(), db.end(), 0);
  return tensordot(a, b, da, db, loc);
}

Tensor kron(const Tensor& a, const Tensor& b, Loc loc) {
  require(a, "kron", loc, "a");
  require(b, "kron", loc, "b");
  return call("kron", loc, {&a, &b}, {}, {}, [&](const auto&) {
    const int64_t rank = std::max(a.dim(), b.dim());
    Sizes outer, inner, joined;
    for (int64_t d = -rank; d < 0; ++d) {
      const int64_t p = -d <= a.dim() ? a.size(d) : 1, q = -d <= b.dim() ? b.size(d) : 1;
      outer.insert(outer.end(), {p, 1});
      inner.insert(inner.end(), {1, q});
      joined.push_back(p * q);
    }
    return reshape_to(binary(op("mul"), reshape_to(a, outer), reshape_to(b, inner), loc), joined);
  });
}

Tensor cross(const Tensor& a, const Tensor& b, int64_t dim, Loc loc) {
  require(a, "cross", loc, "a");
  require(b, "cross", loc, "b");
  KILN_CHECK(a.dim() == b.dim(), invalid, "cross ({}): ranks differ; got a {} and b {}", loc.str(),
             a.type_str(), b.type_str());
  const int64_t d = wrap_dim(dim, a.dim(), "cross", loc);
  KILN_CHECK(a.size(d) == 3 && b.size(d) == 3, invalid,
             "cross ({}): got a {} and b {}, expected 3 elements in dim {}", loc.str(), a.type_str(),
             b.type_str(), d);
  return call("cross", loc, {&a, &b}, {d}, {}, [&](const Tensor& a, const Tensor& b, const auto&) {
    require_broadcast({{&a, "a"}, {&b, "b"}}, "cross", loc);
    const auto product = [&](int64_t by_a, int64_t by_b) {
      return binary(op("mul"), roll(a, {-by_a}, {d}, loc), roll(b, {-by_b}, {d}, loc), loc);
    };
    return binary(op("sub"), product(1, 2), product(2, 1), loc);
  });
}

Tensor trace(const Tensor& x, Loc loc) {
  require(x, "trace", loc);
  KILN_CHECK(x.dim() == 2, invalid, "trace ({}): got x {}, expected a matrix", loc.str(), x.type_str());
  return sum(diagonal(x, 0, 0, 1, loc), {}, false, loc);
}

Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias, Loc loc) {
  require_floating(x1, "bilinear", loc, "x1");
  require_floating(x2, "bilinear", loc, "x2");
  require_floating(weight, "bilinear", loc, "weight");
  bool fits = weight.dim() == 3 && x1.dim() >= 1 && x1.dim() == x2.dim();
  fits = fits && x1.size(-1) == weight.size(1) && x2.size(-1) == weight.size(2);
  for (int64_t d = 0; fits && d < x1.dim() - 1; ++d) fits = x1.size(d) == x2.size(d);
  KILN_CHECK(
      fits, invalid,
      "bilinear ({}): got x1 {}, x2 {} and weight {}, expected [..., i], [..., j] and [o, i, j] of one dtype",
      loc.str(), x1.type_str(), x2.type_str(), weight.type_str());
  KILN_CHECK(!bias.defined() || bias.sizes() == Sizes{weight.size(0)}, invalid,
             "bilinear ({}): got bias {} for weight {}, expected [{}]", loc.str(), bias.type_str(),
             weight.type_str(), weight.size(0));
  return call(
      "bilinear", loc, {&x1, &x2, &weight, &bias}, {}, {},
      [&](const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias, const auto&) {
        require_one_dtype({{&x1, "x1"}, {&x2, "x2"}, {&weight, "weight"}}, "bilinear", loc);
        // [..., o, j], then over j for each of the leading places.
        const Tensor mixed =
            apply(op("dot_general"), {&x1, &weight}, {Ints{}, Ints{}, Ints{x1.dim() - 1}, Ints{1}});
        Ints lead(static_cast<size_t>(x1.dim()) - 1);
        std::iota(lead.begin(), lead.end(), 0);
        const int64_t last = x1.dim();
        const Tensor y = apply(op("dot_general"), {&mixed, &x2}, {lead, lead, Ints{last}, Ints{last - 1}});
        return bias.defined() ? add2(y, bias) : y;
      });
}

Tensor cdist(const Tensor& x1, const Tensor& x2, double p, Loc loc) {
  require_floating(x1, "cdist", loc, "x1");
  require_floating(x2, "cdist", loc, "x2");
  KILN_CHECK(x1.dim() >= 2 && x2.dim() >= 2 && x1.size(-1) == x2.size(-1), invalid,
             "cdist ({}): got x1 {} and x2 {}, expected [..., n, d] and [..., m, d]", loc.str(),
             x1.type_str(), x2.type_str());
  KILN_CHECK(p >= 0, invalid, "cdist ({}): p is {}, expected none below 0", loc.str(), p);
  const Norm kind = norm_kind(p);
  return call("cdist", loc, {&x1, &x2}, {static_cast<int64_t>(kind)}, {p},
              [&](const Tensor& x1, const Tensor& x2, const std::vector<Tensor>& s) {
                const Tensor rows = unsqueeze(x1, -2, loc), columns = unsqueeze(x2, -3, loc);
                require_broadcast({{&rows, "x1"}, {&columns, "x2"}}, "cdist", loc);
                const Tensor way = binary(op("sub"), rows, columns, loc);
                // Of no numbers none is the largest: as all other distances, it is 0.
                const Norm of = way.size(-1) == 0 ? Norm::one : kind;
                return cast_to(norm_body(wide(way), of, s[0], {way.dim() - 1}, false), way.dtype());
              });
}

}  // namespace kiln
