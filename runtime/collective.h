// SPDX-License-Identifier: Apache-2.0
// Process groups: collectives among ranks over memory of the host or of a GPU, asynchronous and with
// timeouts. An implementation moves bytes and adds numbers; it knows nothing of buckets, plans or agreement.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/device.h"
#include "ir/base/dtype.h"
#include "ir/base/error.h"
#include "runtime/store.h"

namespace kiln {

enum class ReduceOp : uint8_t { sum, product, min, max };
/// "sum", ...
const char* to_string(ReduceOp op);

/// What an error says of a collective: "all_reduce #12 of f32[25088] (backward, train.cpp:42)".
struct CollectiveSite {
  std::string phase;    ///< "backward", "init", ...; may be empty
  SourceLoc loc;        ///< the user's line
  bool agreed = false;  ///< the ranks have compared it already (agreement.h)
};

/// A collective that was started. Threads: any.
class Work {
 public:
  virtual ~Work() = default;
  /// Blocks until the collective is done on this rank. Throws: comm, naming rank, peer, collective, phase and
  /// line, when it failed or its timeout has passed; every later collective of the group then fails at once.
  virtual void wait() = 0;
  virtual bool done() const = 0;
  /// When the group's thread began and ended it, as timeline_now() counts. Of a work that is done.
  struct Times {
    int64_t begin_ns = 0, end_ns = 0;
  };
  virtual Times times() const = 0;
};
using WorkPtr = std::shared_ptr<Work>;

/// Ranks 0..size-1 that call the same collectives in the same order; where they do not, that is an error on
/// all of them, which names both calls. Memory must stay valid until the work is done; the results are the
/// same bits on all ranks, reduced in the order of the ranks. Collectives run in the order of the calls, on a
/// thread of the group; its destructor waits for those that were started. Throws: invalid, for a bad root or
/// a dtype that cannot be reduced (bool); comm, when the group has failed before. Units: counts are elements.
/// Threads: one at a time.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "gloo", "local", "nccl".
  virtual const char* backend() const = 0;
  /// Where the memory of its collectives lies. For a GPU see runtime/collective_nccl.h, which says what
  /// wait() and the order of sums then are.
  virtual Device device() const { return Device::cpu(); }

  /// In place: every rank ends with the reduction over all ranks.
  virtual WorkPtr all_reduce(void* data, int64_t count, DType dtype, ReduceOp op,
                             const CollectiveSite& site) = 0;
  /// In place: every rank ends with the mean over all ranks, sent and added up in `wire`, f16 or bf16.
  /// Elements are cast to it, divided there by size(), summed with one rounding, and cast back: what
  /// PyTorch's compress hooks do, but for the sum of more than two, which they round at every step. Throws:
  /// invalid, unless `dtype` is a floating one. Source:
  /// torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook.
  virtual WorkPtr all_reduce_mean(void* data, int64_t count, DType dtype, DType wire,
                                  const CollectiveSite& site) = 0;
  virtual WorkPtr broadcast(void* data, int64_t count, DType dtype, int root, const CollectiveSite& site) = 0;
  /// `out` holds size() blocks of `count` elements, in rank order.
  virtual WorkPtr all_gather(const void* in, void* out, int64_t count, DType dtype,
                             const CollectiveSite& site) = 0;
  /// `in` holds size() blocks of `count` elements; `out` is the reduction of everybody's block number rank().
  virtual WorkPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype, ReduceOp op,
                                 const CollectiveSite& site) = 0;
  virtual WorkPtr barrier(const CollectiveSite& site) = 0;
  /// Runs `job` on the group's thread, in its turn among the collectives. All ranks run the same in the same
  /// turn, by one `name` ("call 3 of ..."): a job may wait for the others', and asks broken() meanwhile. If
  /// it throws, the group has failed, and with what it threw.
  virtual WorkPtr run(const std::string& name, std::function<void()> job, const CollectiveSite& site) = 0;

  /// Why a collective could not succeed any more, if so: the group has failed, another rank is in something
  /// else, or one is gone (not one that left). Says what is known here, and waits for nobody. Threads: any.
  virtual std::optional<std::string> broken() = 0;
  /// Why another rank may have gone, if that is known: this group has failed, or the two differ.
  virtual std::optional<std::string> failure() = 0;
  /// Throws: comm, naming this rank, when broken() has a reason. Threads: any.
  void check();

  /// The control channel of the same ranks.
  virtual std::shared_ptr<Store> store() const = 0;

  /// How the group of the same ranks for the memory of GPU `index` is made, or found again.
  using DeviceGroups = std::function<std::shared_ptr<ProcessGroup>(int index)>;
  void set_device_groups(DeviceGroups make) { device_groups_ = std::move(make); }
  /// That group; null where there are none: what is on a GPU goes through the host's memory then. All ranks
  /// ask together, each for its GPU. Blocks and throws as whoever makes it.
  std::shared_ptr<ProcessGroup> device_group(int index) {
    return device_groups_ ? device_groups_(index) : nullptr;
  }

  /// How long a collective may take from its start, or from the end of the one before it.
  virtual void set_timeout(Seconds timeout) = 0;
  virtual Seconds timeout() const = 0;
  /// Adds `extra` to the timeout of collectives until one of them is done (somebody is still compiling).
  virtual void extend_timeout_once(Seconds extra) = 0;
  /// Fails what is pending and whatever comes later, here and, through the store, on all ranks.
  virtual void abort(const std::string& why) = 0;

 private:
  DeviceGroups device_groups_;
};

/// The sum over all ranks, in place; or, if `wire` is another dtype than `dtype`, the mean that is sent so.
WorkPtr all_reduce_as(ProcessGroup& group, void* data, int64_t count, DType dtype, DType wire,
                      const CollectiveSite& site);

/// A world of `size` threads of this process: element r is rank r's group, all sharing memory and one store.
std::vector<std::shared_ptr<ProcessGroup>> make_local_groups(int size, Seconds timeout);

/// Gloo over TCP. `prefix` keeps groups apart in the store, and is never used twice; `interface` is a network
/// interface ("eth0"), an address, or empty: loopback when all ranks are on this host, else the address from
/// which this host reaches the others.
/// Throws: comm, naming the ranks that did not arrive within `timeout`; unsupported, without KILN_GLOO.
std::shared_ptr<ProcessGroup> make_gloo_group(std::shared_ptr<Store> store, const std::string& prefix,
                                              int rank, int size, const std::string& interface,
                                              Seconds timeout);

}  // namespace kiln
