// SPDX-License-Identifier: Apache-2.0
#include "frontend/distributed.h"

#include <functional>
#include <mutex>
#include <utility>

#include "frontend/communication.h"
#include "frontend/context.h"
#include "frontend/device.h"
#include "frontend/dispatch.h"
#include "frontend/late.h"
#include "frontend/state.h"
#include "runtime/world.h"

namespace kiln::distributed {

namespace {

using detail::DeviceTensor;

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
  /// The group for the memory of `t`, or the one for that of the CPU, if it has no other.
  ProcessGroup& group(const Tensor& t) const {
    const auto gpus = t.is_cuda() ? in->group()->device_group(t.device().index) : nullptr;
    return gpus ? *gpus : *in->group();
  }
  CollectiveSite site() const { return {"", loc}; }

  void check(const Tensor& t) const {
    detail::checked(t, name, loc);
    detail::materialise(*t.impl(), name, loc);
    detail::settle(t.device());  // what this rank has not computed must not reach others
    KILN_CHECK(t.is_contiguous(), invalid, "{}: {} is strided; expected a contiguous tensor (contiguous())",
               place(), t.type_str());
  }
  Device side(const Tensor& t) const { return detail::side_of(group(t), t.device()); }
  /// The tensor's memory where the group can use it: its own, or a copy.
  DeviceTensor memory(const Tensor& t) const {
    check(t);
    if (t.device() == side(t)) return detail::memory_of(*t.impl());
    return detail::memory_of(*detail::transferred(*t.impl(), side(t)));
  }
  /// Memory for a tensor like `one` of every rank, and the part of rank `r`.
  DeviceTensor blocks(const Tensor& one) const {
    return detail::make_device_tensor(side(one), one.dtype(), {in->group()->size() * one.numel()});
  }
  /// The same of one that is written to.
  DeviceTensor target(const Tensor& t) const {
    DeviceTensor out = memory(t);
    detail::let_write(*t.impl()->storage);
    ++t.impl()->storage->version;
    return out;
  }
  static DeviceTensor block(const DeviceTensor& all, size_t r, const Tensor& one) {
    DeviceTensor part = all;
    const int64_t first = static_cast<int64_t>(r) * one.numel();
    part.ref = {one.dtype(), static_cast<char*>(all.ref.data) + first * int64_t(dtype_size(one.dtype())),
                one.sizes(), contiguous_strides(one.sizes())};
    return part;
  }
  /// Throws: invalid, unless there is a tensor for every rank, all of them like `one`.
  void check_list(const char* what, const std::vector<Tensor>& list, const Tensor& one) const {
    const auto size = static_cast<size_t>(in->group()->size());
    KILN_CHECK(list.size() == size, invalid,
               "{}: {} has the wrong number of tensors; got {}, expected {}, one for each rank", place(),
               what, list.size(), size);
    for (size_t r = 0; r < list.size(); ++r) {
      check(list[r]);
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

/// The result goes into the tensor, unless it is there already.
void give(const DeviceTensor& from, const Tensor& to) {
  const DeviceTensor own = detail::memory_of(*to.impl());
  if (own.ref.data != from.ref.data) copy_elements(from, own);
}

/// Whether tensors on a GPU are sent by NCCL.
bool takes_nccl(const std::string& backend, Loc loc) {
  const bool nccl = backend.empty() || backend == "nccl" || backend == "cpu:gloo,cuda:nccl";
  KILN_CHECK(nccl || backend == "gloo", invalid,
             "init_process_group ({}): no such backend; got '{}', expected 'gloo', 'nccl' or "
             "'cpu:gloo,cuda:nccl'",
             loc.str(), backend);
  return nccl;
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
  const bool nccl = takes_nccl(options.backend, loc);
  try {
    auto world = std::make_shared<World>(rendezvous_from_environment(),
                                         WorldOptions{Seconds(options.timeout), options.interface, nccl});
    if (options.backend == "nccl") world->device_group(device_of_rank(world->place()));
    h.world = std::move(world);
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
  const DeviceTensor memory = call.target(tensor);
  auto work = call.group(tensor).all_reduce(memory.ref.data, tensor.numel(), tensor.dtype(), op, call.site());
  return call.end(std::move(work), async_op, {tensor}, [memory, tensor] { give(memory, tensor); });
}

WorkPtr broadcast(const Tensor& tensor, int src, bool async_op, Loc loc) {
  const Call call("broadcast", loc);
  const DeviceTensor memory = call.target(tensor);
  auto work = call.group(tensor).broadcast(memory.ref.data, tensor.numel(), tensor.dtype(), src, call.site());
  return call.end(std::move(work), async_op, {tensor}, [memory, tensor] { give(memory, tensor); });
}

WorkPtr all_gather(const std::vector<Tensor>& tensor_list, const Tensor& tensor, bool async_op, Loc loc) {
  const Call call("all_gather", loc);
  const DeviceTensor in = call.memory(tensor);
  call.check_list("tensor_list", tensor_list, tensor);
  const DeviceTensor all = call.blocks(tensor);
  auto work =
      call.group(tensor).all_gather(in.ref.data, all.ref.data, tensor.numel(), tensor.dtype(), call.site());
  for (const Tensor& t : tensor_list) {
    detail::let_write(*t.impl()->storage);
    ++t.impl()->storage->version;
  }
  auto kept = tensor_list;
  kept.push_back(tensor);
  return call.end(std::move(work), async_op, std::move(kept), [in, all, tensor_list] {
    for (size_t r = 0; r < tensor_list.size(); ++r) give(Call::block(all, r, tensor_list[r]), tensor_list[r]);
  });
}

WorkPtr reduce_scatter(const Tensor& output, const std::vector<Tensor>& input_list, ReduceOp op,
                       bool async_op, Loc loc) {
  const Call call("reduce_scatter", loc);
  const DeviceTensor out = call.target(output);
  call.check_list("input_list", input_list, output);
  const DeviceTensor all = call.blocks(output);
  for (size_t r = 0; r < input_list.size(); ++r)
    copy_elements(detail::memory_of(*input_list[r].impl()), Call::block(all, r, output));
  auto work = call.group(output).reduce_scatter(all.ref.data, out.ref.data, output.numel(), output.dtype(),
                                                op, call.site());
  return call.end(std::move(work), async_op, {output}, [all, out, output] { give(out, output); });
}

WorkPtr barrier(bool async_op, Loc loc) {
  const Call call("barrier", loc);
  return call.end(call.in->group()->barrier(call.site()), async_op, {});
}

}  // namespace kiln::distributed

std::shared_ptr<kiln::ProcessGroup> kiln::detail::process_group() {
  auto& h = distributed::holder();
  const std::lock_guard lock(h.mutex);
  return h.world ? h.world->group() : nullptr;
}
