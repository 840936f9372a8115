// SPDX-License-Identifier: Apache-2.0
#include "runtime/world.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "ir/base/options.h"
#include "runtime/rendezvous_file.h"
#include "runtime/store_grpc.h"
#include "runtime/store_values.h"

namespace kiln {

namespace {

using Clock = std::chrono::steady_clock;

// Keys of the store. Groups and communicators have theirs.
constexpr const char *kIdentity = "world/identity", *kAll = "world/all", *kEnd = "world/end";
constexpr const char *kNeverSet = "world/never", *kYes = "yes";
/// From the moment when all have left to the end of rank 0's service.
constexpr Seconds kClosing{10};
// How often a rank that leaves looks whether its group is still whole.
constexpr Seconds kWorldLook{0.5};
std::string joined(int rank) { return fmt::format("world/joined/{}", rank); }
std::string left(int rank) { return fmt::format("world/left/{}", rank); }

}  // namespace

/// The store of a world until the rank leaves it: whoever keeps the group must not keep rank 0's service.
class World::OpenStore final : public Store {
 public:
  explicit OpenStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override { store()->set(key, value); }
  std::string set_once(const std::string& key, const std::string& value) override {
    return store()->set_once(key, value);
  }
  std::optional<std::string> get(const std::string& key) override { return store()->get(key); }
  std::optional<std::string> wait(const std::string& key, Seconds timeout,
                                  const std::string& known = {}) override {
    return store()->wait(key, timeout, known);
  }
  int64_t add(const std::string& key, int64_t n) override { return store()->add(key, n); }
  void erase(const std::string& key) override { store()->erase(key); }
  std::vector<int> lost() override { return store()->lost(); }
  void leave() override { store()->leave(); }
  /// Every later call throws.
  void close() {
    const std::lock_guard lock(mutex_);
    store_.reset();
  }

 private:
  std::shared_ptr<Store> store() {
    const std::lock_guard lock(mutex_);
    KILN_CHECK(store_, comm, "store: this rank has left its world");
    return store_;
  }

  std::mutex mutex_;
  std::shared_ptr<Store> store_;
};

namespace {

/// How much time a rank has to join.
class Deadline {
 public:
  explicit Deadline(Seconds timeout)
      : timeout_(timeout), end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout)) {}
  Seconds left() const { return std::max(Seconds(0), Seconds(end_ - Clock::now())); }
  double seconds() const { return timeout_.count(); }

 private:
  Seconds timeout_;
  Clock::time_point end_;
};

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

/// Rank 0's part: serves the store and says where.
std::shared_ptr<Store> serve(const Rendezvous& place, std::optional<RendezvousFile>& file) {
  const ServedStore served =
      serve_store(place.port, place.world_size, is_loopback(place.address) ? place.address : "");
  const bool by_file = place.port == 0;
  const std::string token = by_file ? random_token() : "";
  served.store->set(kIdentity, place.world + " " + token);
  if (by_file) file.emplace(place.world, served.port, token);
  return served.store;
}

/// Where rank 0 has said that it is.
Published await_file(const Rendezvous& place, const Deadline& deadline) {
  while (true) {
    if (const auto published = read_rendezvous_file(place.world)) return *published;
    KILN_CHECK(
        deadline.left() > Seconds(0), comm,
        "rendezvous: {} waited {:g} s for rank 0, which has not come: there is no {} of a living process "
        "(does rank 0 run, with the same user and TMPDIR?)",
        place.str(), deadline.seconds(), rendezvous_path(place.world));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// The identity of the world that `store` serves. Nothing, if this process has left that one: it is just
/// being closed, on the port where the next world will be.
std::optional<std::string> identity_of(Store& store, int rank, const Deadline& deadline) {
  try {
    if (store.get(left(rank))) return std::nullopt;
    return store.wait(kIdentity, deadline.left()).value_or("nothing");
  } catch (const Error&) {
    if (deadline.left() == Seconds(0)) throw;
    return std::nullopt;
  }
}

/// The other ranks' part.
std::shared_ptr<Store> connect(const Rendezvous& place, const Deadline& deadline) {
  while (true) {
    Published at{place.port, ""};
    if (place.port == 0) at = await_file(place, deadline);
    auto store = connect_store(place.address, at.port, place.rank, place.world_size, deadline.left());
    const std::string expected = place.world + " " + at.token;
    const auto found = identity_of(*store, place.rank, deadline);
    if (found == expected) return store;
    store->leave();
    KILN_CHECK(!found, comm, "rendezvous: {} found another world at {}:{}; got '{}', expected '{}'",
               place.str(), place.address, at.port, *found, expected);
    store.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// "1, 2 and 3 more" of a world.
std::string missing_ranks(Store& store, int size) {
  std::string out;
  int count = 0;
  for (int r = 0; r < size; ++r) {
    if (store.get(joined(r))) continue;
    if (++count <= 8) out += fmt::format("{}{}", out.empty() ? "" : ", ", r);
  }
  return count > 8 ? fmt::format("{} and {} more", out, count - 8) : out;
}

/// All ranks are here when this returns. Rank 0 tells the others, so that all say the same of who is missing.
void meet(const Rendezvous& place, Store& store, std::optional<RendezvousFile>& file,
          const Deadline& deadline) {
  store.set(joined(place.rank), kYes);
  std::string missing;
  if (place.rank == 0) {
    for (int r = 1; r < place.world_size && missing.empty(); ++r)
      if (!store.wait(joined(r), deadline.left())) missing = missing_ranks(store, place.world_size);
    if (const auto refused = store.get(kRefused); refused && !missing.empty())
      missing += "; one was refused: " + *refused;
    file.reset();  // before anybody can leave and come again
    store.set(kAll, missing.empty() ? kYes : missing);
  } else {
    const auto told = store.wait(kAll, deadline.left());
    if (told == kYes) return;
    missing = told ? *told : missing_ranks(store, place.world_size);
  }
  if (missing.empty()) return;
  store.leave();
  throw Error(ErrorKind::comm, fmt::format("rendezvous: {} waited {:g} s for ranks that have not come: {}",
                                           place.str(), deadline.seconds(), missing));
}

}  // namespace

World::World(const Rendezvous& place, const WorldOptions& options)
    : place_(place), timeout_(options.timeout) {
  try {
    if (place_.world_size == 1) group_ = make_local_groups(1, timeout_)[0];
    else join(options.interface);
  } catch (const Error& e) {
    if (place_.doubt.empty()) throw;
    throw Error(e.kind(), fmt::format("{}; {}", e.what(), place_.doubt));
  }
  if (options.nccl) group_->set_device_groups([this](int index) { return device_group(index); });
}

void World::join(const std::string& interface) {
  const Deadline deadline(timeout_);
  std::optional<RendezvousFile> file;
  store_ = std::make_shared<OpenStore>(place_.rank == 0 ? serve(place_, file) : connect(place_, deadline));
  meet(place_, *store_, file, deadline);
  try {
    group_ = make_gloo_group(store_, "world", place_.rank, place_.world_size, interface,
                             std::max(deadline.left(), Seconds(1)));
  } catch (const Error&) {
    if (place_.rank == 0) store_->leave();  // which gives the others time to read why
    throw;
  }
  group_->set_timeout(timeout_);
}

World::~World() {
  if (group_) group_->set_device_groups({});  // others may keep it
}

std::shared_ptr<DeviceGroup> World::device_group(int index) {
  if (const auto made = device_groups_.find(index); made != device_groups_.end()) return made->second;
  CudaDevice& device = cuda_device(index);
  const nccl::Library* library = nullptr;
  if (place_.world_size > 1) {
    std::string why;
    KILN_CHECK(!device.simulated(), unsupported,
               "cuda:{}: NCCL knows no simulated devices (init_process_group({{.backend = \"gloo\"}}) sends "
               "what is on them through the host)",
               index);
    library = nccl::find_library(why);
    KILN_CHECK(library, unsupported,
               "cuda:{}: {} (install NCCL, or name its folder by KILN_CUDA_PATH; "
               "init_process_group({{.backend = \"gloo\"}}) does without, through the host)",
               index, why);
  }
  // Ranks make them in the same order, each for a GPU of its own number.
  auto made = make_nccl_group(group_->store(), fmt::format("world/cuda/{}/", device_groups_.size()),
                              place_.rank, place_.world_size, device, library, group_->timeout());
  device_groups_[index] = made;
  return made;
}

int device_of_rank(const Rendezvous& place) {
  const int count = cuda_device_count(), rank = place.local_rank;
  if (count == 1 && rank > 0 && !system_env("CUDA_VISIBLE_DEVICES").empty()) return 0;
  std::string why;
  KILN_CHECK(count > 0 || cuda::find_driver(why), device, "no CUDA device can be used: {}", why);
  KILN_CHECK(rank < count, device,
             "there is no GPU for this process: LOCAL_RANK is {}, but it sees {} GPU{} (start as many "
             "processes on a machine as it has GPUs; CUDA_VISIBLE_DEVICES chooses which are seen)",
             rank, count, count == 1 ? "" : "s");
  return rank;
}

std::optional<std::string> World::broken() const {
  std::optional<std::string> why = group_->broken();
  for (const auto& [index, group] : device_groups_)
    if (!why) why = group->broken();
  return why;
}

/// Until all ranks leave, or `time` is over. In a turn of the group it ends with that.
void World::wait_for_others(Seconds time, bool in_turn) {
  const Deadline deadline(time);
  const auto wait = [&](const std::string& key) {
    while (!store_->wait(key, std::min(deadline.left(), kWorldLook)) && deadline.left() > Seconds(0))
      if (const auto why = in_turn ? broken() : std::nullopt) throw Error(ErrorKind::comm, *why);
  };
  store_->set(left(place_.rank), kYes);
  if (place_.rank > 0) return wait(kEnd);
  for (int r = 1; r < place_.world_size; ++r) wait(left(r));
  store_->set(kEnd, kYes);
}

/// In a turn of every group: whoever is in something else, on any of them, is told at once.
void World::leave_together(Seconds left, SourceLoc loc) {
  const Deadline deadline(left);
  std::function<void()> wait = [&] { wait_for_others(deadline.left(), true); };
  std::vector<ProcessGroup*> all = {group_.get()};
  for (const auto& [index, group] : device_groups_) all.push_back(group.get());
  for (ProcessGroup* group : all)
    wait = [group, inner = wait, loc] { group->run("destroy_process_group", inner, {"", loc})->wait(); };
  wait();
}

void World::leave(SourceLoc loc) {
  group_->set_device_groups({});
  if (!store_) {
    device_groups_.clear();
    group_.reset();
    return;
  }
  const Deadline deadline(timeout_);
  try {
    try {
      leave_together(deadline.left(), loc);
    } catch (const Error&) {  // the group has failed, but others may need this rank's store
      wait_for_others(deadline.left(), false);
    }
    device_groups_.clear();
    if (place_.rank > 0) {
      store_->leave();
      store_->wait(kNeverSet, kClosing);  // ends with the service
    }
  } catch (const Error&) {
    // Somebody is lost, so nobody is waited for; or the service has ended.
  }
  device_groups_.clear();
  group_.reset();
  store_->leave();
  store_->close();
}

}  // namespace kiln
