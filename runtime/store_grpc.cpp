// SPDX-License-Identifier: Apache-2.0
// The side of libkiln_rpc.so that lives in Kiln: finds and opens it, turns calls into plain data and back.
// Must not include gRPC.
#include "runtime/store_grpc.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ir/base/dynlib.h"
#include "ir/base/error.h"
#include "ir/base/log.h"
#include "ir/base/options.h"
#include "runtime/rpc/rpc_abi.h"

namespace kiln {

namespace {

#ifdef KILN_HAS_GRPC
constexpr bool kHasGrpc = true;
#else
constexpr bool kHasGrpc = false;
#endif

// ---- the library ----

struct OpenedRpc {
  DynLib library;
  const rpc::Api* api = nullptr;
};

OpenedRpc open_rpc() {
  KILN_CHECK(kHasGrpc, unsupported,
             "store: this Kiln is built without gRPC, which ranks in processes of their own need (install "
             "libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler, configure with "
             "-DKILN_GRPC=ON and build "
             "again; ranks that are threads need none)");
  static const char anchor = 0;
  std::string path, tried;
  std::optional<DynLib> library = open_library("KILN_RPC_LIBRARY", "libkiln_rpc.so", &anchor, path, tried);
  if (!library)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("store: libkiln_rpc.so cannot be opened; tried{}\n(build the target kiln_rpc, or set "
                    "KILN_RPC_LIBRARY to its path)",
                    tried));
  const auto get = reinterpret_cast<rpc::GetApiFn>(library->symbol(rpc::kEntryPoint));
  const rpc::Api* api = get ? get() : nullptr;
  KILN_CHECK(api && api->abi_version == rpc::kAbiVersion, unsupported,
             "store: {} belongs to another build of Kiln; got version {}, expected {} (rebuild it, or unset "
             "KILN_RPC_LIBRARY)",
             path, api ? api->abi_version : 0, rpc::kAbiVersion);
  log(LogLevel::debug, "opened {}", path);
  return {std::move(*library), api};
}

const rpc::Api& rpc_api() {
  // A failed attempt is not remembered: the switch may be set right and the call made again.
  static const OpenedRpc opened = open_rpc();
  return *opened.api;
}

rpc::Bytes bytes_of(const std::string& s) { return {s.data(), s.size()}; }

// ---- the store ----

struct Answer {
  bool found = false;
  std::string bytes;
  int64_t number = 0;
};

// What a call of the library made, or the error that it says.
Answer take(const rpc::Api& api, rpc::Outcome outcome, rpc::Output& out) {
  Answer answer{outcome == rpc::kDone, out.owner ? std::string(out.bytes.data, out.bytes.size) : "",
                out.number};
  api.release(&out);
  if (outcome == rpc::kInvalid) throw Error(ErrorKind::invalid, answer.bytes);
  if (outcome == rpc::kUnsupported) throw Error(ErrorKind::unsupported, answer.bytes);
  if (outcome == rpc::kComm) throw Error(ErrorKind::comm, answer.bytes);
  return answer;
}

class GrpcStore final : public Store {
 public:
  GrpcStore(const rpc::Api& api, rpc::Handle* handle) : api_(api), handle_(handle) {}
  ~GrpcStore() override { api_.close(handle_); }

  void set(const std::string& key, const std::string& value) override {
    call({.kind = rpc::kSet, .key = bytes_of(key), .value = bytes_of(value)});
  }
  std::string set_once(const std::string& key, const std::string& value) override {
    return call({.kind = rpc::kSetOnce, .key = bytes_of(key), .value = bytes_of(value)}).bytes;
  }
  std::optional<std::string> get(const std::string& key) override {
    return value_of(call({.kind = rpc::kGet, .key = bytes_of(key)}));
  }
  std::optional<std::string> wait(const std::string& key, Seconds timeout,
                                  const std::string& known) override {
    return value_of(call(
        {.kind = rpc::kWait, .key = bytes_of(key), .value = bytes_of(known), .seconds = timeout.count()}));
  }
  int64_t add(const std::string& key, int64_t n) override {
    return call({.kind = rpc::kAdd, .key = bytes_of(key), .number = n}).number;
  }
  void erase(const std::string& key) override { call({.kind = rpc::kErase, .key = bytes_of(key)}); }
  std::vector<int> lost() override {
    const std::string bytes = call({.kind = rpc::kLost}).bytes;
    std::vector<int32_t> ranks(bytes.size() / sizeof(int32_t));
    if (!ranks.empty()) std::memcpy(ranks.data(), bytes.data(), bytes.size());
    return {ranks.begin(), ranks.end()};
  }
  void leave() override { call({.kind = rpc::kLeave}); }

 private:
  Answer call(const rpc::Call& call) {
    rpc::Output out{};
    const rpc::Outcome outcome = api_.call(handle_, &call, &out);
    return take(api_, outcome, out);
  }
  static std::optional<std::string> value_of(Answer&& answer) {
    if (!answer.found) return std::nullopt;
    return std::move(answer.bytes);
  }

  const rpc::Api& api_;
  rpc::Handle* const handle_;
};

void check_place(const char* what, int port, int lowest_port, int rank, int size) {
  KILN_CHECK(port >= lowest_port && port <= 65535, invalid, "{}: no such port; got {}, expected {} to 65535",
             what, port, lowest_port);
  KILN_CHECK(size > 0 && rank >= 0 && rank < size, invalid,
             "{}: no such rank; got rank {} of {}, expected 0 <= rank < size", what, rank, size);
}

}  // namespace

ServedStore serve_store(int port, int size, const std::string& bind) {
  check_place("serve_store", port, 0, 0, size);
  const rpc::Api& api = rpc_api();
  const rpc::Place place = {bytes_of(bind), port, 0, size, 0};
  rpc::Handle* handle = nullptr;
  rpc::Output out{};
  const rpc::Outcome outcome = api.serve(&place, &handle, &out);
  const Answer answer = take(api, outcome, out);
  return {std::make_shared<GrpcStore>(api, handle), static_cast<int>(answer.number)};
}

std::shared_ptr<Store> connect_store(const std::string& address, int port, int rank, int size,
                                     Seconds timeout) {
  check_place("connect_store", port, 1, rank, size);
  KILN_CHECK(!address.empty(), invalid, "connect_store: no address; got '', expected a name or a number");
  const rpc::Api& api = rpc_api();
  const rpc::Place place = {bytes_of(address), port, rank, size, timeout.count()};
  rpc::Handle* handle = nullptr;
  rpc::Output out{};
  const rpc::Outcome outcome = api.connect(&place, &handle, &out);
  take(api, outcome, out);
  return std::make_shared<GrpcStore>(api, handle);
}

}  // namespace kiln
