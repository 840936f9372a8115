// SPDX-License-Identifier: Apache-2.0
// One rank's end of the served store. Throws kiln::Error; library.cpp keeps it from leaving the library.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/rpc/store.grpc.pb.h"
#include "runtime/store.h"

namespace kiln::rpc {

using Clock = std::chrono::system_clock;

/// The moment `timeout` from now, or one far away; gRPC's clock.
Clock::time_point deadline_in(Seconds timeout);

/// The stream that says that this rank is there, read by a thread of its own until it ends.
class Membership {
 public:
  enum class State : uint8_t {
    joining,
    there,
    refused,  ///< text() says why
    closed,   ///< the store ended in peace
    broken    ///< text() says how
  };
  Membership(StoreService::StubInterface& service, const Member& member);
  ~Membership();

  /// The state as soon as it is another than joining, or at `deadline`.
  State entered(Clock::time_point deadline);
  State state();
  std::string text();
  /// How a broken one ended.
  std::string how();

 private:
  void read();

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderInterface<Event>> stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::joining;
  std::string text_;
  bool told_ = false;  ///< by rank 0, in words of its own
  std::thread thread_;
};

/// Threads: any number at once.
class Client {
 public:
  /// `direct`: the channel leads to a server of this process and connects to nothing. `where` is for
  /// messages. Blocks until it has joined. Throws: comm, when refused or after `timeout`.
  Client(std::shared_ptr<grpc::Channel> channel, bool direct, std::string where, int rank, int size,
         Seconds timeout);

  void set(const std::string& key, const std::string& value);
  std::string set_once(const std::string& key, const std::string& value);
  std::optional<std::string> get(const std::string& key);
  std::optional<std::string> wait(const std::string& key, const std::string& known, Seconds timeout);
  int64_t add(const std::string& key, int64_t n);
  void erase(const std::string& key);
  std::vector<int> lost();
  /// Does nothing if the store is gone.
  void leave();
  /// Ends the connection. No call but this one may follow.
  void disconnect() { membership_.reset(); }

 private:
  void join(Seconds timeout);
  void check_there();
  void check(const grpc::Status& status);
  [[noreturn]] void throw_gone(const std::string& how);
  std::optional<std::string> news(const std::string& key, const std::string& known);

  const bool direct_;
  std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<StoreService::StubInterface> service_;
  const std::string where_;
  Member member_;
  std::unique_ptr<Membership> membership_;
};

/// A channel to a store at another process.
std::shared_ptr<grpc::Channel> make_channel(const std::string& address, int port);
/// The settings of every channel.
grpc::ChannelArguments channel_arguments();

}  // namespace kiln::rpc
