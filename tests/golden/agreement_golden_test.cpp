// SPDX-License-Identifier: Apache-2.0
// agreement.json: what PyTorch notes of tensors, and what it makes of several notes.
#include <gtest/gtest.h>

#include "ir/shape_profile.h"
#include "tests/golden/support.h"

namespace kiln::golden {
namespace KILN_FILE {

using Kind = ProfileInt::Kind;

Json json(const ProfileInt& x) {
  if (x.kind == Kind::unset) return "unset";
  if (x.kind == Kind::dynamic) return "dynamic";
  if (x.kind == Kind::contiguous_of) return {{"contiguous_of_dim", x.value}};
  return x.value;
}

Json json(const ProfileDims& x) {
  if (x.kind != Kind::value) return x.kind == Kind::unset ? "unset" : "dynamic";
  Json out = Json::array();
  for (const ProfileInt& n : x.dims) out.push_back(json(n));
  return out;
}

/// An entry as the file writes it.
Json json(const ShapeProfile& p) {
  Json out = {{"scalar", json(p.scalar)}, {"size", json(p.size)}, {"stride", json(p.stride)}};
  if (p.excluded_scalar) out["excluded_scalar"] = *p.excluded_scalar;
  if (p.excluded_sizes) {
    out["excluded_sizes"] = Json::array();
    for (const auto& n : *p.excluded_sizes) out["excluded_sizes"].push_back(n ? Json(*n) : Json());
  }
  if (p.size.kind != Kind::value) return out;
  out["is_size_dynamic"] = out["is_stride_dynamic"] = Json::array();
  for (size_t i = 0; i < p.size.dims.size(); ++i) {
    out["is_size_dynamic"].push_back(p.is_size_dynamic(i));
    out["is_stride_dynamic"].push_back(p.is_stride_dynamic(i));
  }
  if (p.stride.kind == Kind::unset) out["is_stride_dynamic"] = Json();
  return out;
}

ProfileInt number_of(const Json& j) {
  if (j.is_number()) return {Kind::value, j.get<int64_t>()};
  if (j.is_object()) return {Kind::contiguous_of, j["contiguous_of_dim"].get<int64_t>()};
  return {j == "unset" ? Kind::unset : Kind::dynamic, 0};
}

ProfileDims dims_of(const Json& j) {
  if (!j.is_array()) return {j == "unset" ? Kind::unset : Kind::dynamic, {}};
  ProfileDims out{Kind::value, {}};
  for (const Json& n : j) out.dims.push_back(number_of(n));
  return out;
}

ShapeProfile profile_of(const Json& j) {
  ShapeProfile p;
  p.scalar = number_of(j["scalar"]);
  p.size = dims_of(j["size"]);
  p.stride = dims_of(j["stride"]);
  return p;
}

// C-07: entries of tensors.
TEST(AgreementGolden, Profiles) {
  int seen = 0;
  const Json file = load("agreement");
  for (const Json& one : file["cases"]) {
    if (one["kind"] != "profile") continue;
    ++seen;
    EXPECT_EQ(json(ShapeProfile::of_tensor(one["size"].get<std::vector<int64_t>>(),
                                           one["stride"].get<std::vector<int64_t>>())),
              one["entry"])
        << one["id"];
  }
  EXPECT_EQ(seen, 15);
}

// C-07, C-08: joins, and what they exclude.
TEST(AgreementGolden, Joins) {
  int seen = 0;
  const Json file = load("agreement");
  for (const Json& one : file["cases"]) {
    if (one["kind"] != "join") continue;
    ++seen;
    ShapeProfile p = profile_of(one["profiles"][0]);
    for (size_t k = 0; k < one["after_each_join"].size(); ++k) {
      p.join(profile_of(one["profiles"][k + 1]));
      EXPECT_EQ(json(p), one["after_each_join"][k]) << one["id"] << ", join " << k;
    }
  }
  EXPECT_EQ(seen, 36);
}

// C-07: the order of ranks matters for what is excluded alone.
TEST(AgreementGolden, JoinsCommute) {
  const Json file = load("agreement");
  for (const Json& one : file["cases"]) {
    if (one["kind"] != "join") continue;
    ShapeProfile forward, backward;
    for (size_t k = 0; k < one["profiles"].size(); ++k) {
      forward.join(profile_of(one["profiles"][k]));
      backward.join(profile_of(one["profiles"][one["profiles"].size() - 1 - k]));
    }
    EXPECT_EQ(json(forward)["size"], json(backward)["size"]) << one["id"];
    EXPECT_EQ(json(forward)["stride"], json(backward)["stride"]) << one["id"];
    EXPECT_EQ(json(forward)["scalar"], json(backward)["scalar"]) << one["id"];
  }
}

}  // namespace KILN_FILE
}  // namespace kiln::golden
