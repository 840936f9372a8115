// SPDX-License-Identifier: Apache-2.0
#include "runtime/rpc/client.h"

#include <algorithm>
#include <utility>

#include "ir/base/error.h"
#include "runtime/rpc/keepalive.h"
#include "runtime/rpc/server.h"
#include "runtime/signal_mask.h"
#include "runtime/store_values.h"

namespace kiln::rpc {

namespace {

// What any call but wait() may take. A silent host is noticed sooner, so it bounds only a store that is
// stopped.
constexpr Seconds kAnswer{60};

class Context : public grpc::ClientContext {
 public:
  explicit Context(Seconds timeout) { set_deadline(deadline_in(timeout)); }
};

}  // namespace

Clock::time_point deadline_in(Seconds timeout) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(bounded(timeout));
}

grpc::ChannelArguments channel_arguments() {
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : kKeepalive) arguments.SetInt(name, value);
  arguments.SetMaxReceiveMessageSize(-1);
  // One connection for each rank, also for ranks of one process: it is how a rank is known to be there.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Ranks reach each other directly, whatever http_proxy says.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 500);
  return arguments;
}

std::shared_ptr<grpc::Channel> make_channel(const std::string& address, int port) {
  return grpc::CreateCustomChannel("dns:///" + host_port(address, port), grpc::InsecureChannelCredentials(),
                                   channel_arguments());
}

// ---- membership ----

Membership::Membership(StoreService::StubInterface& service, const Member& member)
    : stream_(service.Join(&context_, member)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { read(); });
}

Membership::~Membership() {
  context_.TryCancel();
  thread_.join();
}

void Membership::read() {
  Event event;
  while (stream_->Read(&event)) {
    const std::lock_guard lock(mutex_);
    state_ = State::there;
    changed_.notify_all();
  }
  const grpc::Status status = stream_->Finish();
  const std::lock_guard lock(mutex_);
  state_ = status.ok()                                                    ? State::closed
           : status.error_code() == grpc::StatusCode::FAILED_PRECONDITION ? State::refused
                                                                          : State::broken;
  text_ = status.error_message();
  told_ = status.error_code() == grpc::StatusCode::ABORTED;
  changed_.notify_all();
}

Membership::State Membership::entered(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return state_ != State::joining; });
  return state_;
}

Membership::State Membership::state() {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::string Membership::text() {
  const std::lock_guard lock(mutex_);
  return text_;
}

std::string Membership::how() {
  const std::lock_guard lock(mutex_);
  if (told_) return text_ + " (its own output says why)";
  return fmt::format("its process ended or the connection broke ({})", text_);
}

// ---- client ----

Client::Client(std::shared_ptr<grpc::Channel> channel, bool direct, std::string where, int rank, int size,
               Seconds timeout)
    : direct_(direct),
      channel_(std::move(channel)),
      service_(StoreService::NewStub(channel_)),
      where_(std::move(where)) {
  member_.set_protocol(kProtocol);
  member_.set_rank(rank);
  member_.set_size(size);
  join(timeout);
}

// Tries again until the time is over: rank 0 may come later, and a name may be known later.
void Client::join(Seconds timeout) {
  const Clock::time_point deadline = deadline_in(timeout);
  std::string why = "no answer";
  do {
    const bool ready = direct_ || channel_->WaitForConnected(deadline);
    if (!ready && channel_->GetState(false) != GRPC_CHANNEL_TRANSIENT_FAILURE) break;
    auto membership = std::make_unique<Membership>(*service_, member_);
    // Without a connection the call fails by itself, saying why.
    const auto state = membership->entered(ready ? deadline : deadline_in(Seconds(0.2)));
    if (state == Membership::State::there) {
      membership_ = std::move(membership);
      return;
    }
    KILN_CHECK(state != Membership::State::refused, comm, "connect_store: the store at {} refuses: {}",
               where_, membership->text());
    if (state == Membership::State::broken) why = membership->text();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (Clock::now() < deadline);
  throw Error(
      ErrorKind::comm,
      fmt::format("connect_store: rank {} of {} cannot reach the store of rank 0 at {} within {:.3g} s: {} "
                  "(does rank 0 run, are address and port those it serves, and does a firewall let this "
                  "host through?)",
                  member_.rank(), member_.size(), where_, timeout.count(), why));
}

void Client::throw_gone(const std::string& how) {
  throw Error(ErrorKind::comm, fmt::format("store: rank 0, which serves it at {}, {}", where_, how));
}

void Client::check_there() {
  const auto state = membership_->state();
  if (state == Membership::State::closed) throw_gone("has left");
  if (state == Membership::State::broken) throw_gone("is lost: " + membership_->how());
}

void Client::check(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK: return;
    case grpc::StatusCode::INVALID_ARGUMENT: throw Error(ErrorKind::invalid, status.error_message());
    case grpc::StatusCode::ABORTED: throw Error(ErrorKind::comm, status.error_message());
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      throw_gone(fmt::format("has not answered for {} s", kAnswer.count()));
    default: break;
  }
  // A store that closes in peace says so on the stream, which may end a moment later than this call.
  for (int i = 0; i < 20 && membership_->state() == Membership::State::there; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  check_there();
  throw_gone("does not answer: " + status.error_message());
}

void Client::set(const std::string& key, const std::string& value) {
  check_there();
  Context context(kAnswer);
  Entry in;
  Empty out;
  in.set_key(key);
  in.set_value(value);
  check(service_->Set(&context, in, &out));
}

std::string Client::set_once(const std::string& key, const std::string& value) {
  check_there();
  Context context(kAnswer);
  Entry in;
  Value out;
  in.set_key(key);
  in.set_value(value);
  check(service_->SetOnce(&context, in, &out));
  return std::move(*out.mutable_value());
}

std::optional<std::string> Client::get(const std::string& key) {
  check_there();
  Context context(kAnswer);
  Entry in;
  Value out;
  in.set_key(key);
  check(service_->Get(&context, in, &out));
  if (!out.has_value()) return std::nullopt;
  return std::move(*out.mutable_value());
}

// What wait() finds without waiting.
std::optional<std::string> Client::news(const std::string& key, const std::string& known) {
  Context context(kAnswer);
  WaitRequest in;
  Value out;
  in.set_key(key);
  in.set_known(known);
  in.set_now(true);
  check(service_->Wait(&context, in, &out));
  if (!out.has_value()) return std::nullopt;
  return std::move(*out.mutable_value());
}

std::optional<std::string> Client::wait(const std::string& key, const std::string& known, Seconds timeout) {
  check_there();
  if (timeout > Seconds(0)) {
    Context context(timeout);
    WaitRequest in;
    Value out;
    in.set_key(key);
    in.set_known(known);
    const grpc::Status status = service_->Wait(&context, in, &out);
    if (status.ok()) return std::move(*out.mutable_value());
    if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) check(status);
  }
  // Time may have run out before the question arrived, or while the answer came.
  return news(key, known);
}

int64_t Client::add(const std::string& key, int64_t n) {
  check_there();
  Context context(kAnswer);
  AddRequest in;
  Sum out;
  in.set_key(key);
  in.set_number(n);
  check(service_->Add(&context, in, &out));
  return out.number();
}

void Client::erase(const std::string& key) {
  check_there();
  Context context(kAnswer);
  Entry in;
  Empty out;
  in.set_key(key);
  check(service_->Erase(&context, in, &out));
}

std::vector<int> Client::lost() {
  Context context(kAnswer);
  const Empty in;
  Ranks out;
  if (service_->Lost(&context, in, &out).ok()) return {out.rank().begin(), out.rank().end()};
  if (membership_->state() == Membership::State::closed) return {};
  return {0};
}

void Client::leave() {
  Context context(kAnswer);
  Empty out;
  service_->Leave(&context, member_, &out);
}

}  // namespace kiln::rpc
