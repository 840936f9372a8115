// SPDX-License-Identifier: Apache-2.0
#include "runtime/rpc/server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "runtime/rpc/keepalive.h"

namespace kiln::rpc {

namespace {

grpc::Status status_of(const Error& e) {
  const bool invalid = e.kind() == ErrorKind::invalid;
  return {invalid ? grpc::StatusCode::INVALID_ARGUMENT : grpc::StatusCode::ABORTED, e.what()};
}

grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context,
                                 const grpc::Status& status = grpc::Status::OK) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// Stays until its connection ends, or the store does.
class JoinReactor final : public grpc::ServerWriteReactor<Event>, public Presence {
 public:
  JoinReactor(Hub& hub, int rank) : hub_(hub), rank_(rank) {}

  void enter(const std::shared_ptr<JoinReactor>& self, const Member& in) {
    self_ = self;
    try {
      KILN_CHECK(in.protocol() == kProtocol, comm,
                 "rank {} speaks version {} of the store, rank 0 version {}", in.rank(), in.protocol(),
                 kProtocol);
      hub_.join(in.rank(), in.size(), self);
    } catch (const Error& e) {
      hub_.set(kRefused, e.what());
      Finish({grpc::StatusCode::FAILED_PRECONDITION, e.what()});
      return;
    }
    StartWrite(&event_);
  }

  void close(const std::string& fault) override {
    end(fault.empty() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::ABORTED, fault));
  }
  void OnWriteDone(bool) override {
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      if (!ending_) return;
    }
    Finish(status_);
  }
  void OnCancel() override {
    hub_.part(rank_, this);
    end(grpc::Status::CANCELLED);
  }
  void OnDone() override { self_.reset(); }

 private:
  // A call is finished once, and not while it writes.
  void end(const grpc::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(ending_, true)) return;
      status_ = status;
      if (writing_) return;
    }
    Finish(status);
  }

  Hub& hub_;
  const int rank_;
  const Event event_;
  std::mutex mutex_;
  bool writing_ = true, ending_ = false;
  grpc::Status status_;
  std::shared_ptr<JoinReactor> self_;  // until gRPC is done with it
};

class WaitReactor final : public grpc::ServerUnaryReactor, public Waiter {
 public:
  WaitReactor(Hub& hub, std::string key, Value& out) : hub_(hub), key_(std::move(key)), out_(out) {}

  void found(const std::string& value) override {
    out_.set_value(value);
    Finish(grpc::Status::OK);
  }
  void failed(const std::string& why) override { Finish({grpc::StatusCode::ABORTED, why}); }
  void OnCancel() override {
    if (hub_.forget(key_, this)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  Hub& hub_;
  const std::string key_;
  Value& out_;
};

}  // namespace

grpc::ServerWriteReactor<Event>* Service::Join(grpc::CallbackServerContext*, const Member* in) {
  const auto reactor = std::make_shared<JoinReactor>(hub_, in->rank());
  reactor->enter(reactor, *in);
  return reactor.get();
}

grpc::ServerUnaryReactor* Service::Leave(grpc::CallbackServerContext* context, const Member* in, Empty*) {
  hub_.leave(in->rank());
  return answer(context);
}

grpc::ServerUnaryReactor* Service::Set(grpc::CallbackServerContext* context, const Entry* in, Empty*) {
  hub_.set(in->key(), in->value());
  return answer(context);
}

grpc::ServerUnaryReactor* Service::SetOnce(grpc::CallbackServerContext* context, const Entry* in,
                                           Value* out) {
  out->set_value(hub_.set_once(in->key(), in->value()));
  return answer(context);
}

grpc::ServerUnaryReactor* Service::Get(grpc::CallbackServerContext* context, const Entry* in, Value* out) {
  if (auto value = hub_.get(in->key())) out->set_value(std::move(*value));
  return answer(context);
}

grpc::ServerUnaryReactor* Service::Wait(grpc::CallbackServerContext* context, const WaitRequest* in,
                                        Value* out) {
  if (!in->now()) {
    auto* reactor = new WaitReactor(hub_, in->key(), *out);
    hub_.wait(in->key(), in->known(), reactor);
    return reactor;
  }
  try {
    if (auto value = hub_.news(in->key(), in->known())) out->set_value(std::move(*value));
  } catch (const Error& e) {
    return answer(context, status_of(e));
  }
  return answer(context);
}

grpc::ServerUnaryReactor* Service::Add(grpc::CallbackServerContext* context, const AddRequest* in, Sum* out) {
  try {
    out->set_number(hub_.add(in->key(), in->number()));
  } catch (const Error& e) {
    return answer(context, status_of(e));
  }
  return answer(context);
}

grpc::ServerUnaryReactor* Service::Erase(grpc::CallbackServerContext* context, const Entry* in, Empty*) {
  hub_.erase(in->key());
  return answer(context);
}

grpc::ServerUnaryReactor* Service::Lost(grpc::CallbackServerContext* context, const Empty*, Ranks* out) {
  for (const int rank : hub_.lost()) out->add_rank(rank);
  return answer(context);
}

std::string host_port(const std::string& address, int port) {
  if (address.empty()) return fmt::format("[::]:{}", port);
  const bool bare6 = address.find(':') != std::string::npos && address.front() != '[';
  return fmt::format("{}{}{}:{}", bare6 ? "[" : "", address, bare6 ? "]" : "", port);
}

namespace {

// Where a port cannot be had, gRPC would print why and say nothing.
void check_bind(const std::string& address, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const std::string service = std::to_string(port);
  const int fault = getaddrinfo(address.empty() ? nullptr : address.c_str(), service.c_str(), &hints, &found);
  KILN_CHECK(fault == 0, comm, "serve_store: no address '{}': {}", address, gai_strerror(fault));
  bool bound = false;
  int why = EADDRNOTAVAIL;
  for (const addrinfo* a = found; a && !bound && why != EADDRINUSE; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bound = bind(fd, a->ai_addr, a->ai_addrlen) == 0;
    if (!bound) why = errno;
    close(fd);
  }
  freeaddrinfo(found);
  KILN_CHECK(bound, comm,
             "serve_store: cannot listen on port {} of {}: {} (choose another, by MASTER_PORT; or "
             "does another rank 0 run?)",
             port, address.empty() ? "this host" : address, std::strerror(why));
}

}  // namespace

Server::Server(const std::string& address, int port, int size) : hub_(size) {
  check_bind(address, port);
  grpc::ServerBuilder builder;
  // Otherwise a second server gets the same port and half of the connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  for (const auto& [name, value] : kKeepalive) builder.AddChannelArgument(name, value);
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort(host_port(address, port), grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(&service_);
  server_ = builder.BuildAndStart();
  KILN_CHECK(server_ && port_ > 0, comm,
             "serve_store: cannot listen on port {} of {} (another program may have taken it just now)", port,
             address.empty() ? "this host" : address);
}

Server::~Server() {
  // What the hub ended has time to say so; then the rest is cancelled. Returns when all of it is done.
  const auto grace = std::chrono::milliseconds(hub_.closed() ? 500 : 0);
  server_->Shutdown(std::chrono::system_clock::now() + grace);
}

}  // namespace kiln::rpc
