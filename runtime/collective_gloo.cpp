// SPDX-License-Identifier: Apache-2.0
// The only file that sees Gloo. Its TCP transport carries the messages of a mesh; the collectives are ours,
// because Gloo's end the process when ranks disagree on a size (its thread throws), reduce in the order of a
// ring, and do not say which rank is missing.
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/loop.h>
#include <gloo/transport/unbound_buffer.h>
#include <net/if.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "runtime/collective_mesh.h"
#include "runtime/host_address.h"
#include "runtime/signal_mask.h"

namespace kiln {

namespace {

using Clock = CollectiveControl::Clock;
using Milliseconds = std::chrono::milliseconds;
using Wire = gloo::transport::UnboundBuffer;

constexpr Milliseconds kForever{int64_t{10} * 365 * 24 * 3600 * 1000};
constexpr Milliseconds kFarewell{200};                  // for the last words of a mesh
constexpr std::chrono::seconds kNotice{1};              // until the watching thread has seen what another has
constexpr std::string_view kFailedPrefix = "failed: ";  // before what a rank could not join for
// Channels of the mesh itself; those of its user are small numbers.
constexpr uint64_t kBye = 1u << 16, kNever = kBye + 1;

Milliseconds until(Clock::time_point deadline) {
  return std::max(Milliseconds(0), std::chrono::ceil<Milliseconds>(deadline - Clock::now()));
}

/// What Gloo says, without the line of its source that it begins with.
std::string plain(const std::exception& e) {
  const std::string text = e.what();
  const size_t place = text.find("] ");
  return text.starts_with("[") && place != std::string::npos ? text.substr(place + 2) : text;
}

/// Runs jobs on the thread of a Gloo device. A thread that sends holds its connection's lock; if a packet of
/// that connection wakes Gloo's thread there, that one asks for the lock without waiting for it, again and
/// again, and where both have one CPU to share, the sender goes on milliseconds later. Gloo's own thread
/// never meets itself. Threads: any.
class LoopJobs final : public gloo::transport::tcp::Handler {
 public:
  explicit LoopJobs(std::shared_ptr<gloo::transport::tcp::Device> device)
      : device_(std::move(device)), signal_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (signal_ < 0) throw Error(ErrorKind::device, fmt::format("eventfd: {}", std::strerror(errno)));
    device_->registerDescriptor(signal_, EPOLLIN, this);
  }
  ~LoopJobs() override {
    device_->unregisterDescriptor(signal_, this);
    ::close(signal_);
  }
  LoopJobs(const LoopJobs&) = delete;
  LoopJobs& operator=(const LoopJobs&) = delete;

  /// Blocks: until it has run. Throws what it throws.
  void run(std::function<void()> job) {
    std::packaged_task<void()> task(std::move(job));
    std::future<void> done = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(task));
    }
    eventfd_write(signal_, 1);
    done.get();
  }

 private:
  void handleEvents(int) override {
    eventfd_t count = 0;
    eventfd_read(signal_, &count);
    std::vector<std::packaged_task<void()>> jobs;
    {
      const std::lock_guard lock(mutex_);
      jobs.swap(jobs_);
    }
    for (auto& job : jobs) job();
  }

  const std::shared_ptr<gloo::transport::tcp::Device> device_;
  const int signal_;
  std::mutex mutex_;
  std::vector<std::packaged_task<void()>> jobs_;
};

class GlooMesh final : public Mesh {
 public:
  /// Listens; connect() makes it a mesh.
  GlooMesh(int rank, int size, const gloo::transport::tcp::attr& where, Seconds timeout)
      : rank_(rank), size_(size), departed_(static_cast<size_t>(size)) {
    const SignalsBlocked blocked;  // Gloo starts a thread, which writes to sockets that may be closed
    device_ = gloo::transport::tcp::CreateDevice(where);
    jobs_.emplace(std::dynamic_pointer_cast<gloo::transport::tcp::Device>(device_));
    wires_ = device_->createContext(rank, size);
    wires_->setTimeout(std::chrono::ceil<Milliseconds>(timeout / 5));  // Gloo waits 5 times that for a peer
    for (const int p : others()) addresses_.push_back(wires_->createPair(p)->address().bytes());
  }

  ~GlooMesh() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      if (watched_) watched_->abortWaitRecv();
    }
    changed_.notify_all();
    if (watcher_.joinable()) watcher_.join();
  }

  /// Where `peer` finds this rank.
  std::string address_for(int peer) const {
    const auto& a = addresses_[static_cast<size_t>(peer < rank_ ? peer : peer - 1)];
    return {a.begin(), a.end()};
  }
  void connect(int peer, const std::string& address) {
    wires_->getPair(peer)->connect(std::vector<char>(address.begin(), address.end()));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<MeshBuffer> buffer(void* data, size_t bytes, uint64_t channel) override;

  void watch(std::function<void(const Departure&)> tell) override {
    byes_.resize(static_cast<size_t>(size_));
    for (const int p : others()) {
      byes_[static_cast<size_t>(p)] = wires_->createUnboundBuffer(&bye_in_, 1);
      guarded(p, [&] { byes_[static_cast<size_t>(p)]->recv(p, kBye, 0, 1); });
    }
    const SignalsBlocked blocked;
    watcher_ = std::thread([this, tell = std::move(tell)] {
      keep_watch(tell);
      if (!closed_) say_goodbye();
    });
  }

  std::vector<Departure> departures() override {
    const std::lock_guard lock(mutex_);
    std::vector<Departure> all;
    for (const auto& d : departed_)
      if (d) all.push_back(*d);
    return all;
  }

  void interrupt() override {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
    if (waiting_) abort_(*waiting_);
  }

  void close() override {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      closed_ = true;
    }
    for (const int p : others()) wires_->getPair(p)->close();
  }

  /// Throws: MeshBroken, once the watching thread knows why.
  [[noreturn]] void broken(int peer, const std::string& why) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kNotice, [&] { return closed_ || departed_[static_cast<size_t>(peer)]; });
    throw MeshBroken(peer, why);
  }

  template <typename Op>
  void guarded(int peer, const Op& op) {
    try {
      jobs_->run(op);
    } catch (const std::exception& e) {
      broken(peer, plain(e));
    }
  }

  /// A wait of `wire` that interrupt() ends by `abort`; false then.
  template <typename Wait>
  bool interruptible(int peer, Wire& wire, void (*abort)(Wire&), Clock::time_point deadline,
                     const Wait& wait) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(interrupted_, false)) return false;
      waiting_ = &wire;
      abort_ = abort;
    }
    bool done = false;
    const auto rest = [&] {
      const std::lock_guard lock(mutex_);
      waiting_ = nullptr;
      if (!done) interrupted_ = false;
    };
    try {
      try {
        done = wait(until(deadline));
      } catch (const std::exception&) {
        // A wait under way sees the end of a connection before the message that came just ahead of it.
        done = wait(Milliseconds(0));
      }
    } catch (const std::exception& e) {
      rest();
      if (Clock::now() >= deadline) throw MeshBroken(peer, plain(e));
      broken(peer, plain(e));
    }
    rest();
    return done;
  }

 private:
  std::vector<int> others() const {
    std::vector<int> all;
    for (int p = 0; p < size_; ++p)
      if (p != rank_) all.push_back(p);
    return all;
  }

  /// Gloo tells a broken connection to whoever has a receive pending there, so there is always one: of a
  /// message that nobody sends. The same call finds out which connection it was.
  void keep_watch(const std::function<void(const Departure&)>& tell) {
    while (true) {
      const auto wire = wires_->createUnboundBuffer(&never_, 1);
      for (const int p : others()) {
        if (departed_[static_cast<size_t>(p)]) continue;  // written by this thread alone
        try {
          wire->recv(p, kNever, 0, 1);
        } catch (const std::exception& e) {
          tell(note(p, plain(e)));
        }
      }
      {
        const std::lock_guard lock(mutex_);
        if (stopping_) return;
        watched_ = wire.get();
      }
      try {
        wire->waitRecv(nullptr, kForever);
      } catch (const std::exception&) {  // the next round finds out who
      }
      const std::lock_guard lock(mutex_);
      watched_ = nullptr;
      if (stopping_) return;
    }
  }

  Departure note(int peer, const std::string& why) {
    Departure d{peer, false, why};
    try {
      // The connection is broken: what has not come by now is an exception, not a wait.
      d.in_peace = !closed_ && byes_[static_cast<size_t>(peer)]->waitRecv(nullptr, Milliseconds(0));
    } catch (const std::exception&) {
    }
    {
      const std::lock_guard lock(mutex_);
      departed_[static_cast<size_t>(peer)] = d;
    }
    changed_.notify_all();
    return d;
  }

  void say_goodbye() {
    const auto wire = wires_->createUnboundBuffer(&bye_out_, 1);
    int sent = 0;
    for (const int p : others()) {
      try {
        wire->send(p, kBye, 0, 1);
        ++sent;
      } catch (const std::exception&) {  // he is gone already
      }
    }
    try {
      for (int i = 0; i < sent; ++i) wire->waitSend(nullptr, kFarewell);
    } catch (const std::exception&) {  // he does not listen
    }
  }

  const int rank_, size_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::optional<LoopJobs> jobs_;
  std::shared_ptr<gloo::transport::Context> wires_;
  std::vector<std::vector<char>> addresses_;

  std::mutex mutex_;
  std::condition_variable changed_;
  Wire* waiting_ = nullptr;  ///< of the thread that waits
  void (*abort_)(Wire&) = nullptr;
  bool interrupted_ = false, stopping_ = false;
  std::atomic<bool> closed_{false};
  std::vector<std::optional<Departure>> departed_;

  char bye_in_ = 0, bye_out_ = 1, never_ = 0;
  std::vector<std::unique_ptr<Wire>> byes_;
  Wire* watched_ = nullptr;
  std::thread watcher_;
};

class GlooBuffer final : public MeshBuffer {
 public:
  GlooBuffer(GlooMesh& mesh, std::unique_ptr<Wire> wire, uint64_t channel)
      : mesh_(mesh), wire_(std::move(wire)), channel_(channel) {}

  void send(int peer, size_t offset, size_t bytes) override {
    mesh_.guarded(peer, [&] { wire_->send(peer, channel_, offset, bytes); });
  }
  void receive(int peer, size_t offset, size_t bytes) override {
    mesh_.guarded(peer, [&] { wire_->recv(peer, channel_, offset, bytes); });
  }
  bool await_sent(int peer, TimePoint deadline) override {
    return mesh_.interruptible(
        peer, *wire_, [](Wire& w) { w.abortWaitSend(); }, deadline,
        [&](Milliseconds time) { return wire_->waitSend(nullptr, time); });
  }
  bool await_received(int peer, TimePoint deadline) override {
    return mesh_.interruptible(
        peer, *wire_, [](Wire& w) { w.abortWaitRecv(); }, deadline,
        [&](Milliseconds time) { return wire_->waitRecv(nullptr, time); });
  }

 private:
  GlooMesh& mesh_;
  const std::unique_ptr<Wire> wire_;
  const uint64_t channel_;
};

std::unique_ptr<MeshBuffer> GlooMesh::buffer(void* data, size_t bytes, uint64_t channel) {
  return std::make_unique<GlooBuffer>(*this, wires_->createUnboundBuffer(data, bytes), channel);
}

/// Makes the mesh of one rank; says who is missing.
class Rendezvous {
 public:
  Rendezvous(Store& store, std::string prefix, int rank, int size, Seconds timeout)
      : store_(store),
        prefix_(std::move(prefix)),
        rank_(rank),
        size_(size),
        timeout_(timeout),
        deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout)) {}

  std::unique_ptr<GlooMesh> meet(const std::string& interface) {
    try {
      return join(interface);
    } catch (const Error& e) {
      tell(e.what());
      throw;
    }
  }

  Seconds left() const { return std::max(Seconds(0.001), Seconds(deadline_ - Clock::now())); }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> f, Args&&... args) const {
    std::vector<int> lost;
    try {
      lost = store_.lost();
    } catch (const std::exception&) {  // what failed is worth more than this
    }
    throw Error(ErrorKind::comm, fmt::format("rank {}: gloo group '{}': {}{}", rank_, prefix_,
                                             fmt::format(f, std::forward<Args>(args)...),
                                             lost.empty() ? "" : "; lost: " + rank_list(lost)));
  }

 private:
  std::string key(const char* what, int rank) const { return prefix_ + what + "/" + std::to_string(rank); }

  std::unique_ptr<GlooMesh> join(const std::string& interface) {
    const HostPlace here = HostPlace::here();
    store_.set(key("arrived", rank_), here.str());
    std::vector<HostPlace> places;
    for (const std::string& text : collect("arrived", "")) places.push_back(HostPlace::parse(text));
    auto mesh = listen(device(interface, here, places));
    for (int p = 0; p < size_; ++p)
      if (p != rank_) store_.set(key("address", rank_) + "/" + std::to_string(p), mesh->address_for(p));
    const std::vector<std::string> addresses = collect("address", "/" + std::to_string(rank_));
    for (int p = 0; p < size_; ++p) {
      if (p == rank_) continue;
      try {
        mesh->connect(p, addresses[static_cast<size_t>(p)]);
      } catch (const std::exception& e) {
        fail("no connection to rank {}: {}", p, plain(e));
      }
    }
    return mesh;
  }

  /// Whoever waits for this rank learns why it does not come.
  void tell(const std::string& why) {
    try {
      const std::string text = std::string(kFailedPrefix) + why;
      store_.set(key("arrived", rank_), text);
      for (int p = 0; p < size_; ++p)
        if (p != rank_) store_.set(key("address", rank_) + "/" + std::to_string(p), text);
    } catch (const std::exception&) {  // they find out without a reason
    }
  }

  /// Throws: what a rank has told, if one has: it may be the one that is lost by now.
  void check_told() {
    for (int p = 0; p < size_; ++p) {
      std::string told;
      try {
        told = store_.get(key("arrived", p)).value_or("");
      } catch (const Error&) {  // the store is gone
        return;
      }
      if (told.starts_with(kFailedPrefix)) fail("rank {} failed: {}", p, told.substr(kFailedPrefix.size()));
    }
  }

  /// What every rank has set under that key.
  std::vector<std::string> collect(const char* what, const std::string& tail) {
    std::vector<std::string> all(static_cast<size_t>(size_));
    std::vector<int> missing;
    for (int p = 0; p < size_; ++p) {
      if (p == rank_ && !tail.empty()) continue;
      std::optional<std::string> value;
      try {
        value = store_.wait(key(what, p) + tail, left());
      } catch (const Error& e) {
        check_told();
        fail("{}", e.what());
      }
      if (value && value->starts_with(kFailedPrefix)) check_told();
      if (value) all[static_cast<size_t>(p)] = *value;
      else missing.push_back(p);
    }
    if (!missing.empty())
      fail("{} of {} did not arrive within {} (were all started, and do they reach the store?)",
           rank_list(missing), size_, to_string(timeout_));
    return all;
  }

  std::unique_ptr<GlooMesh> listen(const gloo::transport::tcp::attr& where) const {
    try {
      return std::make_unique<GlooMesh>(rank_, size_, where, left());
    } catch (const std::exception& e) {
      fail("cannot listen on {}: {}", where.iface.empty() ? where.hostname : where.iface, plain(e));
    }
  }

  gloo::transport::tcp::attr device(const std::string& interface, const HostPlace& here,
                                    const std::vector<HostPlace>& places) const {
    gloo::transport::tcp::attr where;
    if (is_address(interface)) {
      KILN_CHECK(is_own_address(interface), invalid,
                 "gloo group '{}': {} is no address of this host; it has {}", prefix_, interface,
                 fmt::join(here.addresses, ", "));
      where.hostname = interface;
    } else if (!interface.empty()) {
      KILN_CHECK(if_nametoindex(interface.c_str()) != 0, invalid,
                 "gloo group '{}': no network interface '{}'; this host has {} (an address works too)",
                 prefix_, interface, fmt::join(interface_names(), ", "));
      where.iface = interface;
    } else {
      where.hostname = "127.0.0.1";
      for (const HostPlace& there : places) {
        if (there.id == here.id) continue;
        where.hostname = route(here, there);
        if (!where.hostname.empty()) break;
      }
      if (where.hostname.empty())
        fail("no route to the other hosts; name a network interface ({})",
             fmt::join(interface_names(), ", "));
    }
    return where;
  }

  Store& store_;
  const std::string prefix_;
  const int rank_, size_;
  const Seconds timeout_;
  const Clock::time_point deadline_;
};

std::unique_ptr<CollectiveEngine> make_gloo_engine(std::shared_ptr<Store> store, const std::string& prefix,
                                                   int rank, int size, const std::string& interface,
                                                   Seconds timeout) {
  Rendezvous rendezvous(*store, prefix, rank, size, timeout);
  std::unique_ptr<Mesh> mesh = rendezvous.meet(interface);
  const CollectiveControl control(rendezvous.left());
  try {
    return make_mesh_engine("gloo", std::move(mesh), std::move(store), prefix, control);
  } catch (const MeshBroken& e) {
    rendezvous.fail("rank {} is gone: {}", e.peer, e.what());
  } catch (const Error& e) {
    rendezvous.fail("{}", e.what());
  }
}

}  // namespace

std::shared_ptr<ProcessGroup> make_gloo_group(std::shared_ptr<Store> store, const std::string& prefix,
                                              int rank, int size, const std::string& interface,
                                              Seconds timeout) {
  KILN_CHECK(size >= 1 && rank >= 0 && rank < size, invalid,
             "make_gloo_group: no such rank; got {} of {}, expected 0 to size - 1", rank, size);
  KILN_CHECK(timeout.count() > 0, invalid, "make_gloo_group: the timeout must be positive; got {}",
             to_string(timeout));
  // On a thread that no signal reaches: a peer that is gone again by now would end the process by SIGPIPE.
  // This thread, which waits for it, can still be interrupted.
  const auto start = [&] {
    const SignalsBlocked blocked;
    return std::async(std::launch::async,
                      [&] { return make_gloo_engine(store, prefix + "/", rank, size, interface, timeout); });
  };
  auto engine = start().get();
  return make_queued_group(rank, size, timeout, std::move(store), prefix + "/", std::move(engine));
}

}  // namespace kiln
