// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/nccl_comm.h"

#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

namespace kiln {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{1};
constexpr std::chrono::seconds kFarewell{2};  // for what is still on its way to others

Clock::time_point after(Seconds time) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::min(time, Seconds(1e8)));
}

std::string here(const std::string& prefix, int rank) { return fmt::format("{}here/{}", prefix, rank); }

}  // namespace

nccl::Type nccl_type(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8: return nccl::kUint8;
    case DType::i32: return nccl::kInt32;
    case DType::i64: return nccl::kInt64;
    case DType::f16: return nccl::kFloat16;
    case DType::bf16: return nccl::kBfloat16;
    case DType::f32: return nccl::kFloat32;
    case DType::f64: return nccl::kFloat64;
  }
  return nccl::kUint8;
}

nccl::Op nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return nccl::kSum;
    case ReduceOp::product: return nccl::kProduct;
    case ReduceOp::min: return nccl::kMin;
    case ReduceOp::max: return nccl::kMax;
  }
  return nccl::kSum;
}

NcclComm::NcclComm(const nccl::Library& library, CudaDevice& device, Store& store, const std::string& prefix,
                   int rank, int size, Seconds timeout)
    : library_(library), device_(device) {
  try {
    join(store, prefix, rank, size, timeout);
  } catch (const Error& e) {
    abort();
    throw Error(ErrorKind::comm,
                fmt::format("NCCL {} on cuda:{}: rank {} of {}: {}", nccl::version_text(library_.version),
                            device_.index(), rank, size, e.what()));
  }
}

void NcclComm::join(Store& store, const std::string& prefix, int rank, int size, Seconds timeout) {
  const Clock::time_point end = after(timeout);
  const auto too_late = [&] {
    std::vector<int> missing;
    for (int r = 0; r < size; ++r)
      if (!store.get(here(prefix, r))) missing.push_back(r);
    return Error(ErrorKind::comm,
                 missing.empty()
                     ? fmt::format("all ranks are here, but NCCL has not connected them within {} (the "
                                   "network or a firewall; NCCL_DEBUG=INFO says more)",
                                   to_string(timeout))
                     : fmt::format("waited {} for ranks that have not come: {}", to_string(timeout),
                                   fmt::join(missing, ", ")));
  };
  device_.make_current();
  store.set(here(prefix, rank), "yes");
  nccl::UniqueId id;
  if (rank == 0) {
    check(library_.get_unique_id(&id), "ncclGetUniqueId");
    store.set(prefix + "id", std::string(id.internal, sizeof id.internal));
  } else {
    const auto told = store.wait(prefix + "id", timeout);
    if (!told) throw too_late();
    KILN_CHECK(told->size() == sizeof id.internal, comm, "the identity of the group is damaged; got {} bytes",
               told->size());
    std::memcpy(id.internal, told->data(), sizeof id.internal);
  }
  nccl::Config config;
  config.blocking = 0;
  const nccl::Result r = library_.comm_init(&comm_, size, id, rank, &config);
  if (r != nccl::kInProgress) check(r, "ncclCommInitRankConfig");
  while (!settled()) {
    if (Clock::now() >= end) throw too_late();
    std::this_thread::sleep_for(kPoll);
  }
}

/// NCCL's last words are of the whole process where there is no communicator.
std::string NcclComm::words(nccl::Result result, const char* call) {
  const char* text = library_.error_string(result);
  const char* last = library_.last_error(comm_);
  const bool more = last && *last;
  return fmt::format("{}: {}{}{}", call, text ? text : "unknown error", more ? ": " : "", more ? last : "");
}

void NcclComm::check(nccl::Result result, const char* call) {
  if (result != nccl::kSuccess) throw NcclError(words(result, call));
}

void NcclComm::check_alive() const { KILN_CHECK(comm_, comm, "the communicator was ended"); }

void NcclComm::start(const Collective& c, cuda::Stream stream) {
  const std::lock_guard lock(mutex_);
  check_alive();
  device_.make_current();
  const auto count = static_cast<size_t>(c.count);
  const nccl::Type type = nccl_type(c.dtype);
  const nccl::Op op = nccl_op(c.op);
  nccl::Result r = nccl::kSuccess;
  switch (c.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::barrier: r = library_.all_reduce(c.in, c.out, count, type, op, comm_, stream); break;
    case CollectiveKind::broadcast:
      r = library_.broadcast(c.in, c.out, count, type, c.root, comm_, stream);
      break;
    case CollectiveKind::all_gather: r = library_.all_gather(c.in, c.out, count, type, comm_, stream); break;
    case CollectiveKind::reduce_scatter:
      r = library_.reduce_scatter(c.in, c.out, count, type, op, comm_, stream);
      break;
    case CollectiveKind::all_reduce_mean:
    case CollectiveKind::job: KILN_ASSERT(false, "NCCL has no {}", to_string(c.kind));
  }
  if (r != nccl::kInProgress) check(r, to_string(c.kind));
}

bool NcclComm::settled() {
  const std::lock_guard lock(mutex_);
  check_alive();
  nccl::Result state = nccl::kSuccess;
  check(library_.comm_error(comm_, &state), "ncclCommGetAsyncError");
  if (state == nccl::kInProgress) return false;
  check(state, "NCCL");
  return true;
}

void NcclComm::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (!comm_) return;
  library_.comm_abort(comm_);
  comm_ = nullptr;
}

NcclComm::~NcclComm() {
  if (!comm_) return;
  try {
    device_.make_current();
    const nccl::Result r = library_.comm_finalize(comm_);
    const Clock::time_point end = Clock::now() + kFarewell;
    bool quiet = r == nccl::kSuccess || r == nccl::kInProgress;
    while (quiet && !settled()) {
      quiet = Clock::now() < end;
      std::this_thread::sleep_for(kPoll);
    }
    if (quiet) {
      library_.comm_destroy(comm_);
      return;
    }
  } catch (const Error&) {  // it cannot end in peace
  }
  abort();
}

}  // namespace kiln
