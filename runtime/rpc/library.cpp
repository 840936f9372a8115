// SPDX-License-Identifier: Apache-2.0
// The entry point of libkiln_rpc.so: plain data in and out, no exception leaves. Also sees to it that what is
// still open when the process exits is closed before gRPC's own statics are gone.
#include <grpc/grpc.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <set>
#include <string_view>
#include <utility>

#include "ir/base/error.h"
#include "runtime/rpc/client.h"
#include "runtime/rpc/rpc_abi.h"
#include "runtime/rpc/server.h"
#include "runtime/signal_mask.h"

namespace kiln::rpc {

struct Handle {
  std::unique_ptr<Server> server;  // of rank 0
  std::unique_ptr<Client> client;
  int rank = 0;
  bool left = false;

  std::mutex mutex;
  std::condition_variable idle;
  int calls = 0;  ///< that threads are in
  bool ended = false;
};

namespace {

// How long rank 0 stays for the sake of others that have not left yet.
constexpr Seconds kLinger{5};

// How long an exit waits for other threads' calls. Those that wait for a key may take longer: then the
// connection stays, and breaks with the process.
constexpr Seconds kCallsEnd{1};

/// A thread's stay in a handle's client.
class Visit {
 public:
  explicit Visit(Handle& handle) : handle_(handle) {
    const std::lock_guard lock(handle_.mutex);
    KILN_CHECK(!handle_.ended, comm, "store: the process is ending");
    ++handle_.calls;
  }
  ~Visit() {
    const std::lock_guard lock(handle_.mutex);
    if (--handle_.calls == 0) handle_.idle.notify_all();
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  Handle& handle_;
};

void close_connections(Handle& handle) {
  {
    std::unique_lock lock(handle.mutex);
    if (std::exchange(handle.ended, true)) return;
    if (!handle.idle.wait_for(lock, kCallsEnd, [&] { return handle.calls == 0; })) {
      handle.client.release();
      handle.server.release();
      return;
    }
  }
  handle.client->disconnect();
  if (handle.server) handle.server->hub().close(handle.left);
  handle.client.reset();
  handle.server.reset();
}

// The handles that are open. Never destroyed: a store may be closed by the last static of the program.
struct Open {
  std::mutex mutex;
  std::set<Handle*> handles;
  const pid_t process = getpid();
};
Open& open_handles() {
  static auto* open = new Open;
  return *open;
}

// A forked child has gRPC's memory but not its threads: whatever it does with it may wait for ever.
void check_process() {
  const pid_t process = open_handles().process;
  KILN_CHECK(
      process == getpid(), unsupported,
      "store: used in a forked child; got process {}, expected {}, which joined first (fork before that, or "
      "exec a program that joins)",
      getpid(), process);
}

void close_at_exit() {
  Open& open = open_handles();
  if (open.process != getpid()) return;
  const std::lock_guard lock(open.mutex);
  for (Handle* handle : open.handles) close_connections(*handle);
}

void start_grpc() {
  check_process();
  // Never shut down: gRPC would do it in a thread that an exit overtakes. Its threads inherit the signal
  // mask.
  static const bool started = [] {
    const SignalsBlocked blocked;
    grpc_init();
    return true;
  }();
  (void)started;
}

Handle* keep(std::unique_ptr<Handle> handle) {
  Open& open = open_handles();
  const std::lock_guard lock(open.mutex);
  // After the first connection: handlers run in reverse, so before those of the statics made for it.
  static const int registered = std::atexit(close_at_exit);
  (void)registered;
  open.handles.insert(handle.get());
  return handle.release();
}

std::string string_of(const Bytes& b) { return {b.data, b.size}; }

void give(Output* out, std::string bytes) {
  auto* owner = new std::string(std::move(bytes));
  out->owner = owner;
  out->bytes = {owner->data(), owner->size()};
}

Outcome give(Output* out, std::optional<std::string> value) {
  if (!value) return kNothing;
  give(out, std::move(*value));
  return kDone;
}

template <typename F>
Outcome guarded(Output* out, F&& f) {
  *out = {};
  try {
    return f();
  } catch (const Error& e) {
    give(out, std::string(e.what()));
    return e.kind() == ErrorKind::invalid       ? kInvalid
           : e.kind() == ErrorKind::unsupported ? kUnsupported
                                                : kComm;
  } catch (const std::exception& e) {
    give(out, fmt::format("store: {}", e.what()));
    return kComm;
  }
}

Outcome serve(const Place* place, Handle** handle, Output* out) {
  return guarded(out, [&] {
    start_grpc();
    auto made = std::make_unique<Handle>();
    {
      const SignalsBlocked blocked;
      made->server = std::make_unique<Server>(string_of(place->address), place->port, place->size);
    }
    out->number = made->server->port();
    made->rank = place->rank;
    made->client =
        std::make_unique<Client>(made->server->channel(channel_arguments()), true,
                                 fmt::format("port {}", out->number), place->rank, place->size, Seconds(10));
    *handle = keep(std::move(made));
    return kDone;
  });
}

Outcome connect(const Place* place, Handle** handle, Output* out) {
  return guarded(out, [&] {
    start_grpc();
    const std::string address = string_of(place->address);
    std::shared_ptr<grpc::Channel> channel;
    {
      const SignalsBlocked blocked;
      channel = make_channel(address, place->port);
    }
    auto made = std::make_unique<Handle>();
    made->rank = place->rank;
    made->client = std::make_unique<Client>(std::move(channel), false, host_port(address, place->port),
                                            place->rank, place->size, Seconds(place->seconds));
    *handle = keep(std::move(made));
    return kDone;
  });
}

void leave(Handle& handle) {
  handle.client->leave();
  handle.left = true;
  if (handle.server) handle.server->hub().wait_for_others(handle.rank, kLinger);
}

std::string bytes_of(const std::vector<int>& ranks) {
  std::string bytes;
  for (const int32_t rank : ranks) bytes.append(reinterpret_cast<const char*>(&rank), sizeof rank);
  return bytes;
}

Outcome call(Handle* handle, const Call* call, Output* out) {
  return guarded(out, [&]() -> Outcome {
    check_process();
    const Visit visit(*handle);
    Client& client = *handle->client;
    const std::string key = string_of(call->key);
    switch (call->kind) {
      case kSet: client.set(key, string_of(call->value)); break;
      case kSetOnce: give(out, client.set_once(key, string_of(call->value))); break;
      case kGet: return give(out, client.get(key));
      case kWait: return give(out, client.wait(key, string_of(call->value), Seconds(call->seconds)));
      case kAdd: out->number = client.add(key, call->number); break;
      case kErase: client.erase(key); break;
      case kLost: give(out, bytes_of(client.lost())); break;
      case kLeave: leave(*handle); break;
    }
    return kDone;
  });
}

void close(Handle* handle) {
  Open& open = open_handles();
  if (open.process != getpid()) return;
  {
    const std::lock_guard lock(open.mutex);
    open.handles.erase(handle);
  }
  close_connections(*handle);
  delete handle;
}

void release(Output* out) {
  delete static_cast<std::string*>(out->owner);
  *out = {};
}

constexpr Api kApi = {kAbiVersion, serve, connect, call, close, release};

}  // namespace
}  // namespace kiln::rpc

extern "C" __attribute__((visibility("default"))) const kiln::rpc::Api* kiln_rpc_api() {
  return &kiln::rpc::kApi;
}
