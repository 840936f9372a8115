// SPDX-License-Identifier: Apache-2.0
#include "ir/buckets.h"

#include <algorithm>
#include <map>

#include "ir/base/error.h"

namespace kiln {
namespace {

struct Bucket {
  std::vector<size_t> params;
  int64_t limit = 0;
  size_t last = 0;  // place of its last parameter in the order of gradients
};

struct Open {
  Bucket bucket;
  int64_t bytes = 0;
  size_t closed = 0;  // buckets of this key before it
};

void check_arguments(std::span<const BucketParam> params, std::span<const int64_t> limits,
                     std::span<const size_t> indices) {
  KILN_CHECK(!params.empty(), invalid, "assign_buckets: no parameters; expected at least one");
  KILN_CHECK(!limits.empty(), invalid, "assign_buckets: no limits; expected at least one");
  for (int64_t limit : limits)
    KILN_CHECK(limit >= 0, invalid, "assign_buckets: got a limit of {} bytes, expected 0 or more", limit);
  for (const BucketParam& p : params)
    KILN_CHECK(p.bytes >= 0, invalid, "assign_buckets: got a parameter of {} bytes, expected 0 or more",
               p.bytes);
  if (indices.empty()) return;
  KILN_CHECK(indices.size() == params.size(), invalid,
             "assign_buckets: got {} indices for {} parameters, expected one each", indices.size(),
             params.size());
  std::vector<bool> seen(params.size());
  for (size_t i : indices) {
    KILN_CHECK(i < seen.size() && !seen[i], invalid,
               "assign_buckets: index {} is {}; expected each of 0..{} once", i,
               i < seen.size() ? "given twice" : "out of range", seen.size() - 1);
    seen[i] = true;
  }
}

}  // namespace

Buckets assign_buckets(std::span<const BucketParam> params, std::span<const int64_t> limits,
                       std::span<const size_t> indices) {
  check_arguments(params, limits, indices);
  std::vector<Bucket> done;
  std::map<std::pair<DType, int>, Open> open;
  for (size_t i = 0; i < params.size(); ++i) {
    const size_t index = indices.empty() ? i : indices[i];
    if (params[i].sparse) {
      done.push_back({{index}, 0, i});
      continue;
    }
    Open& o = open[{params[i].dtype, params[i].device}];
    o.bucket.params.push_back(index);
    o.bucket.limit = limits[std::min(o.closed, limits.size() - 1)];
    o.bucket.last = i;
    o.bytes += params[i].bytes;
    if (o.bytes < o.bucket.limit) continue;
    done.push_back(std::move(o.bucket));
    o = {{}, 0, o.closed + 1};
  }
  for (auto& [key, o] : open)
    if (!o.bucket.params.empty()) done.push_back(std::move(o.bucket));
  const auto place = [&](const Bucket& b) {
    return indices.empty() ? *std::min_element(b.params.begin(), b.params.end()) : b.last;
  };
  std::sort(done.begin(), done.end(), [&](const Bucket& a, const Bucket& b) { return place(a) < place(b); });
  Buckets out;
  for (Bucket& b : done) {
    out.params.push_back(std::move(b.params));
    out.limits.push_back(b.limit);
  }
  return out;
}

std::vector<int64_t> bucket_limits(const BucketCaps& caps) {
  std::vector<int64_t> limits = caps.list;
  if (limits.empty()) {
    if (caps.first < caps.others) limits.push_back(caps.first);
    limits.push_back(caps.others);
  }
  for (int64_t limit : limits)
    KILN_CHECK(limit > 0, invalid, "bucket_limits: got a cap of {} bytes, expected more than 0", limit);
  return limits;
}

Buckets initial_buckets(std::span<const BucketParam> params, const BucketCaps& caps, bool rebuilt) {
  std::vector<int64_t> limits = bucket_limits(caps);
  if (rebuilt && caps.list.empty()) limits = {kNoBucketLimit};
  Buckets out = assign_buckets(params, limits);
  std::reverse(out.params.begin(), out.params.end());
  std::reverse(out.limits.begin(), out.limits.end());
  return out;
}

Buckets rebuild_buckets(std::span<const BucketParam> params, const BucketCaps& caps,
                        std::span<const size_t> ready, bool small_last) {
  KILN_CHECK(ready.size() == params.size(), invalid,
             "rebuild_buckets: {} of {} gradients got ready, expected all", ready.size(), params.size());
  std::vector<size_t> order(ready.begin(), ready.end());
  if (small_last) std::reverse(order.begin(), order.end());
  std::vector<BucketParam> in_order;
  for (size_t i : order) {
    KILN_CHECK(i < params.size(), invalid, "rebuild_buckets: index {} is out of range; expected 0..{}", i,
               params.size() - 1);
    in_order.push_back(params[i]);
  }
  Buckets out = assign_buckets(in_order, bucket_limits(caps), order);
  if (!small_last) return out;
  std::reverse(out.params.begin(), out.params.end());
  std::reverse(out.limits.begin(), out.limits.end());
  return out;
}

void check_buckets(std::span<const BucketParam> params, std::span<const std::vector<size_t>> buckets) {
  std::vector<bool> seen(params.size());
  for (size_t b = 0; b < buckets.size(); ++b) {
    KILN_CHECK(!buckets[b].empty(), invalid, "buckets: bucket {} is empty; expected a parameter", b);
    for (size_t i : buckets[b]) {
      KILN_CHECK(i < params.size() && !seen[i], invalid,
                 "buckets: bucket {} holds parameter {}, which is {}; expected each of {} parameters once", b,
                 i, i < params.size() ? "in a bucket already" : "out of range", params.size());
      seen[i] = true;
      const BucketParam &p = params[i], &first = params[buckets[b][0]];
      KILN_CHECK(p.dtype == first.dtype, invalid,
                 "buckets: bucket {} mixes dtypes; got {} of parameter {}, expected {} as of parameter {}", b,
                 dtype_name(p.dtype), i, dtype_name(first.dtype), buckets[b][0]);
      KILN_CHECK(p.device == first.device, invalid,
                 "buckets: bucket {} mixes devices; got {} of parameter {}, expected {} as of parameter {}",
                 b, p.device, i, first.device, buckets[b][0]);
      KILN_CHECK(!p.sparse || buckets[b].size() == 1, invalid,
                 "buckets: bucket {} holds parameter {}, whose gradient is sparse, with {} others; expected "
                 "it alone",
                 b, i, buckets[b].size() - 1);
    }
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  KILN_CHECK(missing == seen.end(), invalid, "buckets: parameter {} is in no bucket; expected each in one",
             missing - seen.begin());
}

}  // namespace kiln
