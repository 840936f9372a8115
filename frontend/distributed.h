// SPDX-License-Identifier: Apache-2.0
// The process's world and collectives on tensors, by the names of torch.distributed. Ranks find each other by
// the environment that a launcher sets (docs/DISTRIBUTED.md); models use nn::DistributedDataParallel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frontend/tensor.h"
#include "runtime/collective.h"

namespace kiln::distributed {

struct InitOptions {
  double timeout = 300;        ///< seconds, of joining and of every collective
  std::string interface = {};  ///< network interface or address of the collectives; empty: found by itself
  /// By what tensors are sent. "gloo": all of them by Gloo; those on a GPU go through the host.
  /// "cpu:gloo,cuda:nccl", which is also the default: those on a GPU by NCCL, once there are any. "nccl": the
  /// same, and this process takes GPU number get_local_rank(), at once.
  std::string backend = {};
};

/// Joins the world that the environment names; a world of one, where it names none. What it returns is the
/// group that the functions below use.
/// Blocks: until all ranks are here. Throws: invalid, when called twice, or when the environment is wrong;
/// comm, naming the ranks that did not come, or saying what else is wrong with the rendezvous; unsupported,
/// where several ranks need a library that Kiln was built without, or NCCL where there is none; device,
/// naming LOCAL_RANK, where "nccl" has no GPU for it.
std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {}, Loc loc = Loc::current());
bool is_initialized();
/// Leaves the world, together with the other ranks: those that are in a step or collective instead fail, and
/// name this line. A process that ends without this counts as lost, and the ranks that wait for it fail.
/// Blocks: until all leave or one is lost. Throws: invalid, without a group.
void destroy_process_group(Loc loc = Loc::current());

/// Throws: invalid, without a group.
int get_rank(Loc loc = Loc::current());
int get_world_size(Loc loc = Loc::current());
/// This process's number among the ranks of its machine. Throws: invalid, without a group.
int get_local_rank(Loc loc = Loc::current());

// Collectives. Every rank calls the same in the same order. They return nothing, or with `async_op` the work
// to wait for; tensors must be left alone until it is done, and are kept alive. Tensors on a GPU are used in
// the order in which it is given work, and the host does not wait for them. No gradient flows through them.
// Throws: invalid (no group; undefined, strided or ill-fitting tensors; bad root); unsupported, inside a
// compiled callable, whose gradients DistributedDataParallel reduces; comm, when the ranks' calls differ, a
// rank is lost, or the timeout has passed.

/// In place: every rank ends with the reduction over all ranks.
WorkPtr all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum, bool async_op = false,
                   Loc loc = Loc::current());
/// In place: every rank ends with what rank `src` has.
WorkPtr broadcast(const Tensor& tensor, int src, bool async_op = false, Loc loc = Loc::current());
/// `tensor_list[r]` becomes rank r's `tensor`. Shapes: all alike.
WorkPtr all_gather(const std::vector<Tensor>& tensor_list, const Tensor& tensor, bool async_op = false,
                   Loc loc = Loc::current());
/// `output` becomes the reduction of all ranks' `input_list[rank]`. Shapes: all alike.
WorkPtr reduce_scatter(const Tensor& output, const std::vector<Tensor>& input_list,
                       ReduceOp op = ReduceOp::sum, bool async_op = false, Loc loc = Loc::current());
WorkPtr barrier(bool async_op = false, Loc loc = Loc::current());

}  // namespace kiln::distributed
