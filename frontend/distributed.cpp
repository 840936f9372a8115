// SPDX-License-Identifier: Apache-2.0
#include "frontend/distributed.h"

#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

#include "frontend/communication.h"
#include "frontend/context.h"
#include "frontend/dispatch.h"
#include "frontend/state.h"
#include "runtime/world.h"

namespace kiln::distributed {

namespace {

/// The process's world. Never destroyed, since its threads may outlive main().
struct Holder {
  std::mutex mutex;
  std::shared_ptr<World> world;
};
Holder& holder() {
  static Holder* const h = new Holder();
  return *h;
}

std::shared_ptr<World> world(const char* what, Loc loc) {
  Holder& h = holder();
  const std::lock_guard lock(h.mutex);
  KILN_CHECK(h.world, invalid, "{} ({}): there is no process group (call init_process_group first)", what,
             loc.str());
  return h.world;
}

/// A collective with the tensors that it uses, and what is left to do with its result.
class TensorWork final : public Work {
 public:
  TensorWork(WorkPtr work, std::vector<Tensor> kept, std::function<void()> finish)
      : work_(std::move(work)), kept_(std::move(kept)), finish_(std::move(finish)) {}
  ~TensorWork() override {
    try {
      work_->wait();  // it writes to the tensors
    } catch (const Error&) {
      // Nobody asked for the result; the group has failed, and its next collective says so.
    }
  }
  void wait() override {
    work_->wait();
    const std::lock_guard lock(mutex_);
    if (finish_) std::exchange(finish_, {})();
    kept_.clear();
  }
  bool done() const override { return work_->done(); }
  Times times() const override { return work_->times(); }

 private:
  const WorkPtr work_;
  std::mutex mutex_;
  std::vector<Tensor> kept_;
  std::function<void()> finish_;
};

/// One collective while it is called.
struct Call {
  const char* name;
  Loc loc;
  std::shared_ptr<World> in;

  Call(const char* n, Loc l) : name(n), loc(l), in(world(n, l)) {
    KILN_CHECK(!detail::state().open && !detail::tracing(), unsupported,
               "{} ({}): a collective inside a compiled callable; gradients are reduced by "
               "nn::DistributedDataParallel, and others are to be called outside",
               name, loc.str());
  }
  std::string place() const { return fmt::format("{} ({})", name, loc.str()); }
  ProcessGroup& group() const { return *in->group(); }
  CollectiveSite site() const { return {"", loc}; }

  /// The tensor's memory.
  void* data(const Tensor& t) const {
    detail::checked(t, name, loc);
    detail::materialise(*t.impl(), name, loc);
    KILN_CHECK(t.is_contiguous(), invalid, "{}: {} is strided; expected a contiguous tensor (contiguous())",
               place(), t.type_str());
    return t.impl()->ref().data;
  }
  /// The same of one that is written to.
  void* target(const Tensor& t) const {
    void* const out = data(t);
    ++t.impl()->storage->version;
    return out;
  }
  /// Throws: invalid, unless there is a tensor for every rank, all of them like `one`.
  void check_list(const char* what, const std::vector<Tensor>& list, const Tensor& one) const {
    KILN_CHECK(list.size() == static_cast<size_t>(group().size()), invalid,
               "{}: {} has the wrong number of tensors; got {}, expected {}, one for each rank", place(),
               what, list.size(), group().size());
    for (size_t r = 0; r < list.size(); ++r) {
      data(list[r]);
      KILN_CHECK(list[r].sizes() == one.sizes() && list[r].dtype() == one.dtype(), invalid,
                 "{}: {}[{}] does not fit; got {}, expected {}", place(), what, r, list[r].type_str(),
                 one.type_str());
    }
  }
  WorkPtr end(WorkPtr work, bool async_op, std::vector<Tensor> kept,
              std::function<void()> finish = {}) const {
    auto out = std::make_shared<TensorWork>(std::move(work), std::move(kept), std::move(finish));
    if (async_op) return out;
    out->wait();
    return nullptr;
  }
};

size_t bytes_of(const Tensor& t) { return static_cast<size_t>(t.numel()) * dtype_size(t.dtype()); }

/// Empty tensors may have no memory at all.
void copy(void* to, const void* from, size_t size) {
  if (size > 0) std::memcpy(to, from, size);
}

/// Memory for a tensor like `one` of every rank.
std::shared_ptr<std::vector<char>> blocks(size_t ranks, const Tensor& one) {
  return std::make_shared<std::vector<char>>(ranks * bytes_of(one));
}

}  // namespace

std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options, Loc loc) {
  KILN_CHECK(options.timeout > 0, invalid,
             "init_process_group ({}): bad timeout; got {:g} s, expected more than 0", loc.str(),
             options.timeout);
  Holder& h = holder();
  const std::lock_guard lock(h.mutex);
  KILN_CHECK(!h.world, invalid,
             "init_process_group ({}): there is a process group already, {} (call "
             "destroy_process_group before another)",
             loc.str(), h.world->place().str());
  const std::string place = fmt::format("init_process_group ({})", loc.str());
  try {
    h.world = std::make_shared<World>(rendezvous_from_environment(),
                                      WorldOptions{Seconds(options.timeout), options.interface});
  } catch (const Error& e) {
    throw e.in(place);
  }
  const Rendezvous& own = h.world->place();
  if (Timeline* const trace = detail::context().timeline())
    trace->name_process(fmt::format("rank {} of {}", own.rank, own.world_size), own.rank);
  return h.world->group();
}

bool is_initialized() {
  Holder& h = holder();
  const std::lock_guard lock(h.mutex);
  return h.world != nullptr;
}

void destroy_process_group(Loc loc) {
  const auto leaving = world("destroy_process_group", loc);
  {
    Holder& h = holder();
    const std::lock_guard lock(h.mutex);
    h.world.reset();
  }
  leaving->leave(loc);
}

int get_rank(Loc loc) { return world("get_rank", loc)->place().rank; }
int get_world_size(Loc loc) { return world("get_world_size", loc)->place().world_size; }
int get_local_rank(Loc loc) { return world("get_local_rank", loc)->place().local_rank; }

WorkPtr all_reduce(const Tensor& tensor, ReduceOp op, bool async_op, Loc loc) {
  const Call call("all_reduce", loc);
  void* const data = call.target(tensor);
  return call.end(call.group().all_reduce(data, tensor.numel(), tensor.dtype(), op, call.site()), async_op,
                  {tensor});
}

WorkPtr broadcast(const Tensor& tensor, int src, bool async_op, Loc loc) {
  const Call call("broadcast", loc);
  void* const data = call.target(tensor);
  return call.end(call.group().broadcast(data, tensor.numel(), tensor.dtype(), src, call.site()), async_op,
                  {tensor});
}

WorkPtr all_gather(const std::vector<Tensor>& tensor_list, const Tensor& tensor, bool async_op, Loc loc) {
  const Call call("all_gather", loc);
  const void* const in = call.data(tensor);
  call.check_list("tensor_list", tensor_list, tensor);
  const auto all = blocks(tensor_list.size(), tensor);
  auto work = call.group().all_gather(in, all->data(), tensor.numel(), tensor.dtype(), call.site());
  std::vector<void*> targets;
  for (const Tensor& t : tensor_list) targets.push_back(call.target(t));
  auto kept = tensor_list;
  kept.push_back(tensor);
  return call.end(std::move(work), async_op, std::move(kept), [all, targets, size = bytes_of(tensor)] {
    for (size_t r = 0; r < targets.size(); ++r) copy(targets[r], all->data() + r * size, size);
  });
}

WorkPtr reduce_scatter(const Tensor& output, const std::vector<Tensor>& input_list, ReduceOp op,
                       bool async_op, Loc loc) {
  const Call call("reduce_scatter", loc);
  void* const out = call.target(output);
  call.check_list("input_list", input_list, output);
  const size_t size = bytes_of(output);
  const auto all = blocks(input_list.size(), output);
  for (size_t r = 0; r < input_list.size(); ++r) copy(all->data() + r * size, call.data(input_list[r]), size);
  auto work = call.group().reduce_scatter(all->data(), out, output.numel(), output.dtype(), op, call.site());
  return call.end(std::move(work), async_op, {output}, [all] {});
}

WorkPtr barrier(bool async_op, Loc loc) {
  const Call call("barrier", loc);
  return call.end(call.group().barrier(call.site()), async_op, {});
}

}  // namespace kiln::distributed

std::shared_ptr<kiln::ProcessGroup> kiln::detail::process_group() {
  auto& h = distributed::holder();
  const std::lock_guard lock(h.mutex);
  return h.world ? h.world->group() : nullptr;
}
