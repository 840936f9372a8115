// SPDX-License-Identifier: Apache-2.0
// One rank's NCCL communicator: how ranks find each other through the store, and the library's errors in
// words. Never blocks in the library: what takes long is asked for again and again.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/collective_queue.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/nccl.h"
#include "runtime/store.h"

namespace kiln {

/// What NCCL says; it may be another rank's failure that it has noticed.
class NcclError : public Error {
 public:
  explicit NcclError(const std::string& text) : Error(ErrorKind::comm, text) {}
};

/// Threads: any; each call is short.
class NcclComm {
 public:
  /// Blocks: until all ranks of the group are here. Keys begin with `prefix`. Throws: comm, naming the ranks
  /// that did not come within `timeout`, or with what NCCL says.
  NcclComm(const nccl::Library& library, CudaDevice& device, Store& store, const std::string& prefix,
           int rank, int size, Seconds timeout);
  /// In peace if nothing runs: the others get what is still on its way to them. Else see abort().
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// Asks for `c`, which has elements, on the stream. It is there once settled() is true.
  /// Throws: NcclError.
  void start(const Collective& c, cuda::Stream stream);
  /// False while the library is still at work on the last call. Throws: comm, when something has failed
  /// since.
  bool settled();
  /// Ends what runs on the device, at once, whatever it has done; nothing can be started any more.
  void abort() noexcept;

 private:
  void check(nccl::Result result, const char* call);
  std::string words(nccl::Result result, const char* call);
  void join(Store& store, const std::string& prefix, int rank, int size, Seconds timeout);
  void check_alive() const;

  const nccl::Library& library_;
  CudaDevice& device_;
  std::mutex mutex_;
  nccl::Comm comm_ = nullptr;  ///< null after abort()
};

/// What NCCL calls it. bool travels as bytes.
nccl::Type nccl_type(DType dtype);
nccl::Op nccl_op(ReduceOp op);

}  // namespace kiln
