// SPDX-License-Identifier: Apache-2.0
// What `kiln explain` says of a program whatever it is for: what its graph and its plan hold. Knows neither
// targets nor times.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/job.h"
#include "ir/plan.h"
#include "runtime/bound_plan.h"

namespace kiln::cli {

/// One launch as the plan has it.
struct LaunchFacts {
  std::string name, ops, lines;
  int64_t tasks = 0;
  double bytes = 0, flops = 0;
  bool computes = true;  ///< else it starts a collective, or waits for one
};

/// A program and its plan, whose sizes are known.
class ExplainedPlan {
 public:
  /// `plan`: of `p`, named (name_plan). `p` must outlive this.
  /// Throws: unsupported, for sizes that are known only at a call.
  ExplainedPlan(const JobProgram& p, Plan plan);

  const Plan& plan() const { return plan_; }
  const BoundPlan& bound() const { return *bound_; }
  /// A size of the plan; 0 for none.
  int64_t value(DimIndex i) const { return i < 0 ? 0 : bound_->dims[static_cast<size_t>(i)]; }
  LaunchFacts facts(const Launch& l) const;

  /// Ops, inputs and outputs, what the stage ends at, regions: lines, each with its end.
  std::string graph_text() const;
  /// A line for each bucket.
  std::string collectives_text() const;
  /// The largest values that one launch leaves in memory for others, and why they are not fused.
  std::string stored_text() const;
  /// What the memory is for, and the largest buffers. `scratch`: bytes of a thread, where threads have some.
  std::string memory_text(std::optional<int64_t> scratch = {}) const;

  /// What a prediction of times leaves out: "; communication is not counted", or "".
  std::string_view not_counted() const;

  nlohmann::ordered_json graph_json() const;
  nlohmann::ordered_json collectives_json() const;
  nlohmann::ordered_json stored_json() const;
  nlohmann::ordered_json repeated_json() const;
  nlohmann::ordered_json memory_json(std::optional<int64_t> scratch = {}) const;

 private:
  struct Buffer {
    std::string name, kind;
    int64_t bytes = 0;
  };
  /// A value between launches.
  struct Stored {
    std::string name, why;
    int64_t bytes = 0;
    size_t writer = 0;
    std::vector<size_t> readers;
  };
  std::vector<Stored> stored() const;
  /// A value that several launches compute, rather than one for the others.
  struct Repeated {
    std::string name;
    int64_t bytes = 0;
    std::set<size_t> launches;
  };
  std::vector<Repeated> repeated() const;
  std::string why_stored(const PlanBuffer& b, const Stored& s) const;
  int64_t buffer_bytes(int32_t b) const { return bound_->sizes[static_cast<size_t>(b)]; }
  int64_t wire_bytes(const PlanCollective& c) const;
  void find_buffers();
  void find_peak();
  std::string name_of(const PlanBuffer& b) const;

  const JobProgram& program_;
  Plan plan_;
  std::shared_ptr<const BoundPlan> bound_;
  int64_t handed_out_ = 0;
  std::vector<Buffer> largest_;
  /// Where most of the arena is in use: the first launch there, and what is alive, the largest first.
  struct Peak {
    size_t launch = 0;
    int64_t bytes = 0;
    std::vector<Buffer> alive;
  };
  Peak peak_;
};

}  // namespace kiln::cli
