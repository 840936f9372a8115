// SPDX-License-Identifier: Apache-2.0
// buckets.json and assignment.json: PyTorch's assignment of parameters to gradient buckets.
#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "ir/buckets.h"
#include "tests/golden/support.h"

namespace kiln::golden {
namespace KILN_FILE {

DType dtype_of_name(const std::string& name) {
  if (name == "float64") return DType::f64;
  if (name == "float16") return DType::f16;
  if (name == "bfloat16") return DType::bf16;
  if (name != "float32") throw std::runtime_error("a dtype that no case had: " + name);
  return DType::f32;
}

std::vector<BucketParam> params_of(const Json& j) {
  std::vector<BucketParam> params;
  for (const Json& p : j["params"]) {
    BucketParam b;
    b.dtype = dtype_of_name(p["dtype"]);
    b.bytes = static_cast<int64_t>(dtype_size(b.dtype));
    for (int64_t n : p["shape"]) b.bytes *= n;
    const size_t i = params.size();
    const size_t index = j["tensor_indices"].empty() ? i : j["tensor_indices"][i].get<size_t>();
    b.sparse = !j["expect_sparse"].empty() && j["expect_sparse"][index].get<bool>();
    params.push_back(b);
  }
  return params;
}

void check_case(const Json& j) {
  SCOPED_TRACE(j["id"].get<std::string>());
  const std::vector<BucketParam> params = params_of(j);
  const auto limits = j["limits"].get<std::vector<int64_t>>();
  const auto indices = j["tensor_indices"].get<std::vector<size_t>>();
  if (j.contains("error")) {
    EXPECT_THROW(assign_buckets(params, limits, indices), Error);
    return;
  }
  const Buckets got = assign_buckets(params, limits, indices);
  EXPECT_EQ(got.params, j["buckets"].get<std::vector<std::vector<size_t>>>());
  EXPECT_EQ(got.limits, j["bucket_limits"].get<std::vector<int64_t>>());
}

int check_all(const std::string& family) {
  int cases = 0;
  const Json file = load(family);
  for (const Json& j : file["cases"])
    if (j["kind"] == "assignment") check_case(j), ++cases;
  return cases;
}

// R-40..R-46.
TEST(BucketsGolden, Assignment) { EXPECT_EQ(check_all("buckets"), 32); }

// R-40..R-46, with several dtypes, sparse gradients and orders of readiness.
TEST(BucketsGolden, AssignmentUnderDDP) { EXPECT_EQ(check_all("assignment"), 11); }

}  // namespace KILN_FILE
}  // namespace kiln::golden
