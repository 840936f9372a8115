// SPDX-License-Identifier: Apache-2.0
// Every collective begins with a greeting from each rank to each: what it was called with, and the operands
// if they are small. So ranks that call different things find out before any memory is touched, every rank
// knows who has not come, and small collectives take one message. The rest is mesh_segments.cpp.
#include "runtime/collective_mesh.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/mesh_segments.h"
#include "runtime/reduce.h"

namespace kiln {

namespace {

constexpr size_t kSmall = 32768;    // bytes to each rank that travel with the greeting
constexpr uint64_t kGreetings = 1;  // channel
constexpr Seconds kAnswerTime{1};   // for silent ranks to be heard of

struct Greeting {
  uint64_t number;
  int64_t count;
  int32_t root;
  uint8_t kind, dtype, op, given;
  char text[232];  ///< describe(), cut
};
static_assert(sizeof(Greeting) == 256);
constexpr size_t kLetter = sizeof(Greeting) + kSmall;

Greeting greet(const Collective& c) {
  Greeting g{c.number,
             c.count,
             c.root,
             static_cast<uint8_t>(c.kind),
             static_cast<uint8_t>(c.dtype),
             static_cast<uint8_t>(c.op),
             static_cast<uint8_t>(c.given),
             ""};
  const std::string text = describe(c);
  std::memcpy(g.text, text.data(), std::min(text.size(), sizeof g.text - 1));
  return g;
}

bool fits(const Greeting& g, const Collective& c) {
  Collective other = c;
  other.number = g.number;
  other.count = g.count;
  other.root = g.root;
  other.kind = static_cast<CollectiveKind>(g.kind);
  other.dtype = static_cast<DType>(g.dtype);
  other.op = static_cast<ReduceOp>(g.op);
  other.given = static_cast<DType>(g.given);
  return same_call(other, c);
}

std::byte* bytes_of(void* p) { return static_cast<std::byte*>(p); }
const std::byte* bytes_of(const void* p) { return static_cast<const std::byte*>(p); }

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

class MeshEngine final : public CollectiveEngine, MeshWaits {
 public:
  MeshEngine(const char* backend, std::unique_ptr<Mesh> mesh, std::shared_ptr<Store> store,
             std::string prefix)
      : backend_(backend),
        rank_(mesh->rank()),
        size_(mesh->size()),
        store_(std::move(store)),
        prefix_(std::move(prefix)),
        mesh_(std::move(mesh)),
        segments_(*mesh_, *this) {
    const size_t size = static_cast<size_t>(size_);
    letters_in_.resize(2 * size * kLetter);
    letters_out_.resize(size * kLetter);
    mail_out_ = mesh_->buffer(letters_out_.data(), letters_out_.size(), kGreetings);
    for (int p = 0; p < size_; ++p)
      mail_in_.push_back(p == rank_ ? nullptr : mesh_->buffer(letter_from(p, 0), 2 * kLetter, kGreetings));
    for (const int p : peers()) mail_in_[index(p)]->receive(p, 0, kLetter);
    mesh_->watch([this, mesh = mesh_.get()](const Departure& d) { notice(d, *mesh); });
  }
  ~MeshEngine() override {
    // What the messages of the mesh come from and go to ends before it, and so does its use of this.
    mail_in_.clear();
    mail_out_.reset();
    mesh_.reset();
  }

  const char* backend() const override { return backend_; }
  void interrupt() override { mesh_->interrupt(); }

  std::optional<std::string> broken() override {
    for (const Departure& d : mesh_->departures())
      if (!d.in_peace) return gone(d);
    return std::nullopt;
  }

  void run(const Collective& c, const CollectiveControl& control) override {
    control_ = &control;
    arrived_.assign(static_cast<size_t>(size_), false);
    try {
      check_stopped();
      const bool small = payload(c) <= static_cast<int64_t>(kSmall);
      exchange_greetings(c, small ? payload(c) : 0);
      if (small) finish_small(c);
      else segments_.run(c);
    } catch (const MeshBroken& broken) {
      throw Error(ErrorKind::comm, explain(c, broken));
    }
  }

  void give_up(const std::string& why) override {
    try {
      store_->set_once(prefix_ + "failure", why);
    } catch (const std::exception&) {  // the others see the connections break
    }
    mesh_->close();
  }

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }
  int64_t payload(const Collective& c) const { return c.count * static_cast<int64_t>(dtype_size(c.dtype)); }
  /// All other ranks, each rank beginning with another.
  std::vector<int> peers() const {
    std::vector<int> all;
    for (int i = 1; i < size_; ++i) all.push_back((rank_ + i) % size_);
    return all;
  }
  /// Where that letter lies: greetings number 2k and 2k + 1 have a place each.
  std::byte* letter_from(int peer, uint64_t number) {
    return letters_in_.data() + (2 * index(peer) + number % 2) * kLetter;
  }
  std::byte* payload_from(int peer, const Collective& c) {
    return letter_from(peer, c.number) + sizeof(Greeting);
  }

  // ---- waiting ----

  void check_stopped() const {
    if (const auto why = control_->stopped()) throw Error(ErrorKind::comm, *why);
  }
  void received(MeshBuffer& buffer, int peer) override {
    while (!buffer.await_received(peer, control_->deadline())) {
      check_stopped();
      for (const Departure& d : mesh_->departures())
        if (d.rank == peer) return take_received(buffer, peer);
    }
  }
  /// Of a peer that departed, perhaps after its last message: what it sent is here, and no more comes.
  void take_received(MeshBuffer& buffer, int peer) {
    while (!buffer.await_received(peer, CollectiveControl::Clock::now())) check_stopped();
  }
  void sent(MeshBuffer& buffer, int peer) override {
    while (!buffer.await_sent(peer, control_->deadline())) check_stopped();
  }
  /// The greeting of `peer`; whoever departs meanwhile ends the wait, for a peer may be hours late.
  void await_greeting(int peer) {
    MeshBuffer& mail = *mail_in_[index(peer)];
    while (!arrived_[index(peer)] &&
           !(arrived_[index(peer)] = mail.await_received(peer, control_->deadline()))) {
      check_stopped();
      for (const Departure& d : mesh_->departures()) {
        if (arrived_[index(d.rank)]) continue;
        take_received(*mail_in_[index(d.rank)], d.rank);
        arrived_[index(d.rank)] = true;
      }
    }
  }

  // ---- greetings ----

  void exchange_greetings(const Collective& c, int64_t payload) {
    const Greeting greeting = greet(c);
    if (c.kind == CollectiveKind::broadcast && c.root != rank_) payload = 0;
    for (const int p : peers()) {
      // Room for the next letter before this one is sent: its sender need not ask.
      mail_in_[index(p)]->receive(p, (c.number + 1) % 2 * kLetter, kLetter);
      std::byte* letter = letters_out_.data() + index(p) * kLetter;
      std::memcpy(letter, &greeting, sizeof greeting);
      const int64_t from = c.kind == CollectiveKind::reduce_scatter ? p * payload : 0;
      copy_bytes(letter + sizeof greeting, bytes_of(c.in) + from, payload);
      mail_out_->send(p, index(p) * kLetter, sizeof greeting + static_cast<size_t>(payload));
    }
    for (const int p : peers()) {
      await_greeting(p);
      Greeting other;
      std::memcpy(&other, letter_from(p, c.number), sizeof other);
      other.text[sizeof other.text - 1] = 0;
      if (!fits(other, c)) throw Error(ErrorKind::comm, mismatch(p, other.text, rank_, describe(c)));
    }
    for (const int p : peers()) sent(*mail_out_, p);
  }

  void finish_small(const Collective& c) {
    const int64_t bytes = payload(c);
    switch (c.kind) {
      case CollectiveKind::all_reduce:
      case CollectiveKind::all_reduce_mean:
      case CollectiveKind::reduce_scatter: {
        const int64_t own = c.kind == CollectiveKind::reduce_scatter ? rank_ * bytes : 0;
        std::vector<const void*> parts(static_cast<size_t>(size_));
        for (int r = 0; r < size_; ++r) parts[index(r)] = payload_from(r, c);
        parts[index(rank_)] = bytes_of(c.in) + own;
        reduce_parts(parts, c.out, c.count, c.dtype, c.op);
        break;
      }
      case CollectiveKind::broadcast:
        if (c.root != rank_) copy_bytes(c.out, payload_from(c.root, c), bytes);
        break;
      case CollectiveKind::all_gather:
        copy_bytes(bytes_of(c.out) + rank_ * bytes, c.in, bytes);
        for (const int p : peers()) copy_bytes(bytes_of(c.out) + p * bytes, payload_from(p, c), bytes);
        break;
      case CollectiveKind::barrier:
      case CollectiveKind::job: break;
    }
  }

  // ---- what went wrong ----

  std::string explain(const Collective& c, const MeshBroken& broken) {
    if (const auto why = control_->stopped()) return *why;
    if (CollectiveControl::Clock::now() >= control_->deadline()) return explain_timeout(c, broken.peer);
    Departure d{broken.peer, false, broken.what()};
    for (const Departure& known : mesh_->departures())
      if (known.rank == broken.peer) d = known;
    if (d.in_peace) return fmt::format("rank {} left the group before it", d.rank);
    return gone(d);
  }

  /// Why a rank is gone that did not leave.
  std::string gone(const Departure& d) {
    const std::string told = reason_of_others(CollectiveControl::kReasonTime);
    if (!told.empty()) return told;
    return fmt::format("rank {} is gone: {} (its process ended, or the network did)", d.rank, d.why);
  }

  /// What a rank that gave up has left in the store, "" if nothing within `time`.
  std::string reason_of_others(Seconds time) {
    try {
      return store_->wait(prefix_ + "failure", time, "").value_or("");
    } catch (const std::exception&) {  // no store, or it knows that somebody is lost: then nobody told
      return "";
    }
  }

  std::string explain_timeout(const Collective& c, int peer) {
    std::vector<int> missing;
    for (const int p : peers())
      if (!arrived_[index(p)] && !has_arrived(p)) missing.push_back(p);
    std::sort(missing.begin(), missing.end());
    const Seconds limit = control_->limit();
    std::string why = !missing.empty() ? not_started(missing, limit)
                                       : fmt::format("nothing came from rank {} within the timeout of {}",
                                                     peer, to_string(limit));
    // First what is known, so that nobody waits for the rest.
    give_up(gave_up(rank_, c, why));
    const std::vector<int> silent = silent_ranks();
    if (!silent.empty())
      why += fmt::format("; {} {} not answer: stopped, dead or cut off", rank_list(silent),
                         silent.size() == 1 ? "does" : "do");
    else why += "; all processes answer";
    return why;
  }

  /// True if the greeting of `peer` is here, though nobody has waited for it.
  bool has_arrived(int peer) {
    try {
      for (int tries = 0; tries < 2; ++tries)  // the first may be interrupted
        if (mail_in_[index(peer)]->await_received(peer, CollectiveControl::Clock::now())) return true;
    } catch (const MeshBroken&) {
    }
    return false;
  }

  /// Ranks whose process does not notice that the connections to this one broke.
  std::vector<int> silent_ranks() {
    const auto end = CollectiveControl::Clock::now() +
                     std::chrono::duration_cast<CollectiveControl::Clock::duration>(kAnswerTime);
    std::vector<int> silent;
    for (int p = 0; p < size_; ++p) {
      if (p == rank_) continue;
      const Seconds left = end - CollectiveControl::Clock::now();
      try {
        const std::string key = prefix_ + "alive/" + std::to_string(p);
        if (!store_->get(key) && !store_->wait(key, std::max(left, Seconds(0.01)), "")) silent.push_back(p);
      } catch (const std::exception&) {
        silent.push_back(p);
      }
    }
    return silent;
  }

  /// On the mesh's thread: whoever gave up may want to know who is alive.
  void notice(const Departure& d, Mesh& mesh) {
    if (!d.in_peace) {
      try {
        store_->set(prefix_ + "alive/" + std::to_string(rank_), "1");
      } catch (const std::exception&) {  // without a store nobody asks
      }
    }
    mesh.interrupt();
  }

  const char* const backend_;
  const int rank_, size_;
  const std::shared_ptr<Store> store_;
  const std::string prefix_;
  std::unique_ptr<Mesh> mesh_;
  MeshSegments segments_;
  std::vector<std::byte> letters_in_, letters_out_;
  std::vector<std::unique_ptr<MeshBuffer>> mail_in_;  ///< by rank
  std::unique_ptr<MeshBuffer> mail_out_;
  std::vector<bool> arrived_;
  const CollectiveControl* control_ = nullptr;
};

}  // namespace

std::unique_ptr<CollectiveEngine> make_mesh_engine(const char* backend, std::unique_ptr<Mesh> mesh,
                                                   std::shared_ptr<Store> store, const std::string& prefix,
                                                   const CollectiveControl& control) {
  auto engine = std::make_unique<MeshEngine>(backend, std::move(mesh), std::move(store), prefix);
  engine->run(Collective{}, control);
  return engine;
}

}  // namespace kiln
