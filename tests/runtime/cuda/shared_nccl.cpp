// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/cuda/shared_nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "tests/runtime/cuda/nccl_calls.h"

namespace kiln {

namespace testing {
namespace {

constexpr size_t kRanks = 2, kRoom = 1 << 20;

/// The file. Of each rank, the number of the last collective whose operand is there, and of the last that
/// has ended; operands number 2k and 2k + 1 have a place each.
struct Board {
  std::atomic<size_t> joined;
  std::atomic<uint64_t> given[kRanks], taken[kRanks];
  std::byte operands[kRanks][2][kRoom];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<size_t>::is_always_lock_free);

struct Rank {
  Board* board = nullptr;
  std::string path;
  size_t rank = 0, size = 0;
  std::atomic<bool> aborted = false;
  uint64_t calls = 0;  ///< that have run

  /// What a kernel does that waits for its peers. False after an abort.
  bool await(const std::atomic<uint64_t>* counts, uint64_t n) const {
    while (!std::all_of(counts, counts + size, [&](const auto& c) { return c.load() >= n; })) {
      if (aborted) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }
};

struct Task {
  std::shared_ptr<Rank> rank;
  NcclCall call;
  std::byte *from, *to;
};

std::atomic<bool> stop = false;

/// On the device, also in graphs.
void exchange(void* data) {
  const Task& t = *static_cast<Task*>(data);
  Rank& me = *t.rank;
  Board& b = *me.board;
  const uint64_t n = ++me.calls;
  if (stop) {
    std::puts("in a collective");
    std::fflush(stdout);
    while (true) pause();
  }
  if (n > 2 && !me.await(b.taken, n - 2)) return;
  std::memcpy(b.operands[me.rank][n % 2], t.from, in_bytes(t.call, me.rank, me.size));
  b.given[me.rank] = n;
  if (!me.await(b.given, n)) return;
  std::vector<const std::byte*> operands;
  for (size_t r = 0; r < me.size; ++r) operands.push_back(b.operands[r][n % 2]);
  run_call(t.call, me.rank, operands, t.to);
  b.taken[me.rank] = n;
}

}  // namespace
}  // namespace testing

struct nccl::CommObject {
  std::shared_ptr<testing::Rank> rank;
};

namespace testing {
namespace {

const cuda::Driver& driver() { return cuda::simulated_driver(); }

nccl::Result get_unique_id(nccl::UniqueId* id) {
  std::string path = std::filesystem::temp_directory_path() / "nccl-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0 || ftruncate(file, sizeof(Board)) != 0 || path.size() >= sizeof id->internal)
    return nccl::kSystemError;
  close(file);
  std::memcpy(id->internal, path.c_str(), path.size() + 1);
  return nccl::kSuccess;
}

nccl::Result comm_init(nccl::Comm* comm, int size, nccl::UniqueId id, int rank, nccl::Config*) {
  const int file = open(id.internal, O_RDWR | O_CLOEXEC);
  if (file < 0 || static_cast<size_t>(size) > kRanks) return nccl::kSystemError;
  void* const p = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (p == MAP_FAILED) return nccl::kSystemError;
  auto r = std::make_shared<Rank>();
  r->board = static_cast<Board*>(p);  // zeros, as its first members want it
  r->path = id.internal;
  r->rank = static_cast<size_t>(rank);
  r->size = static_cast<size_t>(size);
  ++r->board->joined;
  *comm = new nccl::CommObject{std::move(r)};
  return nccl::kInProgress;
}

nccl::Result comm_error(nccl::Comm comm, nccl::Result* error) {
  Rank& r = *comm->rank;
  *error = r.board->joined < r.size ? nccl::kInProgress : nccl::kSuccess;
  if (*error == nccl::kSuccess && r.rank == 0) unlink(r.path.c_str());
  return nccl::kSuccess;
}

nccl::Result start(nccl::Comm comm, const NcclCall& call) {
  Rank& r = *comm->rank;
  const size_t in = in_bytes(call, r.rank, r.size), out = out_bytes(call, r.size);
  if (in > kRoom) return nccl::kInvalidArgument;
  auto* const task = new Task{comm->rank, call, nullptr, nullptr};  // a graph may run it again
  const auto memory = [](std::byte*& p, size_t bytes) {
    return driver().host_allocate(reinterpret_cast<void**>(&p), std::max<size_t>(bytes, 1),
                                  cuda::kHostAllocPortable);
  };
  const auto address = [](const void* p) { return reinterpret_cast<cuda::Address>(p); };
  if (memory(task->from, in) || memory(task->to, out)) return nccl::kUnhandledCudaError;
  if (in > 0 && driver().copy_to_host(task->from, address(call.in), in, call.stream))
    return nccl::kUnhandledCudaError;
  if (driver().host_function(call.stream, exchange, task) ||
      driver().copy_to_device(address(call.out), task->to, out, call.stream))
    return nccl::kUnhandledCudaError;
  return nccl::kSuccess;
}

nccl::Library make_library() {
  nccl::Library l;
  l.version = 22809;
  l.path = "shared_nccl";
  l.get_version = [](int* version) {
    *version = 22809;
    return nccl::kSuccess;
  };
  l.get_unique_id = get_unique_id;
  l.comm_init = comm_init;
  l.comm_error = comm_error;
  l.comm_finalize = [](nccl::Comm) { return nccl::kSuccess; };
  l.comm_destroy = [](nccl::Comm comm) {
    delete comm;
    return nccl::kSuccess;
  };
  l.comm_abort = [](nccl::Comm comm) {
    comm->rank->aborted = true;
    delete comm;
    return nccl::kSuccess;
  };
  l.error_string = [](nccl::Result) { return "some error"; };
  l.last_error = [](nccl::Comm) { return ""; };
  set_calls<start>(l);
  return l;
}

}  // namespace

const nccl::Library& shared_nccl() {
  static const nccl::Library library = make_library();
  return library;
}

void stop_shared_nccl() { stop = true; }

}  // namespace testing
}  // namespace kiln
