// SPDX-License-Identifier: Apache-2.0
// The gRPC side of the served store: answers calls from a hub. No call holds a thread while it waits.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "runtime/rpc/hub.h"
#include "runtime/rpc/store.grpc.pb.h"

namespace kiln::rpc {

/// Of store.proto. Ranks of one world must agree on it.
inline constexpr int kProtocol = 1;

/// Answers the service from `hub`.
class Service final : public StoreService::CallbackService {
 public:
  explicit Service(Hub& hub) : hub_(hub) {}

  grpc::ServerWriteReactor<Event>* Join(grpc::CallbackServerContext* context, const Member* in) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const Member* in,
                                  Empty* out) override;
  grpc::ServerUnaryReactor* Set(grpc::CallbackServerContext* context, const Entry* in, Empty* out) override;
  grpc::ServerUnaryReactor* SetOnce(grpc::CallbackServerContext* context, const Entry* in,
                                    Value* out) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const Entry* in, Value* out) override;
  grpc::ServerUnaryReactor* Wait(grpc::CallbackServerContext* context, const WaitRequest* in,
                                 Value* out) override;
  grpc::ServerUnaryReactor* Add(grpc::CallbackServerContext* context, const AddRequest* in,
                                Sum* out) override;
  grpc::ServerUnaryReactor* Erase(grpc::CallbackServerContext* context, const Entry* in, Empty* out) override;
  grpc::ServerUnaryReactor* Lost(grpc::CallbackServerContext* context, const Empty* in, Ranks* out) override;

 private:
  Hub& hub_;
};

/// A running service.
class Server {
 public:
  /// Throws: comm, if the port cannot be had.
  Server(const std::string& address, int port, int size);
  /// All connections break, but those that the hub closed.
  ~Server();

  int port() const { return port_; }
  Hub& hub() { return hub_; }
  /// A channel to it that needs no socket.
  std::shared_ptr<grpc::Channel> channel(const grpc::ChannelArguments& arguments) {
    return server_->InProcessChannel(arguments);
  }

 private:
  Hub hub_;
  Service service_{hub_};
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

/// "address:port" as gRPC reads it.
std::string host_port(const std::string& address, int port);

}  // namespace kiln::rpc
