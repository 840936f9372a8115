// SPDX-License-Identifier: Apache-2.0
// A process group that passes everything on to another, and counts what was started and what is still on its
// way.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/collective.h"

namespace kiln::testing {

class WatchedGroup : public ProcessGroup {
 public:
  explicit WatchedGroup(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  std::vector<int64_t> counts;  ///< elements of each all_reduce or mean, in the order of the starts
  std::vector<WorkPtr> works;   ///< the same
  int64_t running() const {
    return std::count_if(works.begin(), works.end(), [](const WorkPtr& w) { return !w->done(); });
  }

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const char* backend() const override { return group_->backend(); }
  WorkPtr all_reduce(void* data, int64_t count, DType dtype, ReduceOp op,
                     const CollectiveSite& site) override {
    works.push_back(group_->all_reduce(data, count, dtype, op, site));
    counts.push_back(count);
    return works.back();
  }
  WorkPtr all_reduce_mean(void* data, int64_t count, DType dtype, DType wire,
                          const CollectiveSite& site) override {
    works.push_back(group_->all_reduce_mean(data, count, dtype, wire, site));
    counts.push_back(count);
    return works.back();
  }
  WorkPtr broadcast(void* data, int64_t count, DType dtype, int root, const CollectiveSite& site) override {
    return group_->broadcast(data, count, dtype, root, site);
  }
  WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                     const CollectiveSite& site) override {
    return group_->all_gather(in, out, count, dtype, site);
  }
  WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                         const CollectiveSite& site) override {
    return group_->reduce_scatter(in, out, count, dtype, op, site);
  }
  WorkPtr barrier(const CollectiveSite& site) override { return group_->barrier(site); }
  WorkPtr run(const std::string& name, std::function<void()> job, const CollectiveSite& site) override {
    return group_->run(name, std::move(job), site);
  }
  std::shared_ptr<Store> store() const override { return group_->store(); }
  void set_timeout(Seconds timeout) override { group_->set_timeout(timeout); }
  Seconds timeout() const override { return group_->timeout(); }
  void extend_timeout_once(Seconds extra) override { group_->extend_timeout_once(extra); }
  std::optional<std::string> broken() override { return group_->broken(); }
  std::optional<std::string> failure() override { return group_->failure(); }
  void abort(const std::string& why) override { group_->abort(why); }

 private:
  const std::shared_ptr<ProcessGroup> group_;
};

}  // namespace kiln::testing
