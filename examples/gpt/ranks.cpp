// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/ranks.h"

#include <sched.h>
#include <unistd.h>

#include "examples/device_name.h"
#include "frontend/distributed.h"

namespace gpt {

namespace {

/// CPUs that this process may run on, and those of the machine.
std::pair<int64_t, int64_t> cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
  const int64_t all = sysconf(_SC_NPROCESSORS_ONLN);
  return {known ? CPU_COUNT(&set) : all, all};
}

}  // namespace

Ranks::Ranks(const Options& options) {
  group_ = kiln::distributed::init_process_group({.timeout = options.timeout});
  rank_ = group_->rank();
  size_ = group_->size();
  device_ = examples::device_named(options.device, kiln::distributed::get_local_rank());
  KILN_CHECK(options.batch % size_ == 0, invalid, "--batch: {} windows cannot be shared by {} ranks equally",
             options.batch, size_);
  if (size_ == 1) group_.reset();
}

// Who leaves in an exception does not wait for the others: they are told by its end.
Ranks::~Ranks() = default;

void Ranks::leave() {
  group_.reset();
  kiln::distributed::destroy_process_group();
}

Options Ranks::options(Options o) const {
  if (size_ == 1) return o;
  const auto [mine, all] = cpus();
  if (o.threads == 0 && mine == all) o.threads = std::max<int64_t>(1, all / size_);
  if (lead()) return o;
  o.progress = false;
  o.sample = o.save_every = o.eager_steps = 0;
  o.checkpoint.clear();
  o.json.clear();
  return o;
}

Ranks::Step Ranks::after_step(double loss, bool stop) const {
  if (size_ == 1) return {loss, stop};
  double sums[2] = {loss, stop ? 1.0 : 0.0};
  group_
      ->all_reduce(sums, 2, kiln::DType::f64, kiln::ReduceOp::sum,
                   {"loss of the step", kiln::SourceLoc::current()})
      ->wait();
  return {sums[0] / size_, sums[1] > 0};
}

}  // namespace gpt
