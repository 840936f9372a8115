// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous.h"

#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/hash.h"
#include "ir/base/options.h"

namespace kiln {

namespace {

constexpr int kMostRanks = 1 << 20, kMostPorts = 65535;

std::optional<int> parse(const std::string& text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

/// The number that a variable holds, in [lo, hi]; nothing when it is unset.
std::optional<int> number(const char* name, int lo, int hi) {
  const std::string text = system_env(name);
  if (text.empty()) return std::nullopt;
  const auto value = parse(text);
  KILN_CHECK(value && *value >= lo && *value <= hi, invalid,
             "rendezvous: {} is wrong; got '{}', expected a number from {} to {}", name, text, lo, hi);
  return value;
}

/// The names of a launcher's variables.
struct Names {
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Names kPlain{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kMpirun{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                        "OMPI_COMM_WORLD_LOCAL_SIZE"};

int required(const char* name, int lo, int hi, const char* because) {
  const auto value = number(name, lo, hi);
  KILN_CHECK(value, invalid, "rendezvous: {} is not set, but {} is; set both, or neither for a world of one",
             name, because);
  return *value;
}

void check_rank(const char* name, int rank, const char* of, int size) {
  KILN_CHECK(rank < size, invalid, "rendezvous: {} is {}, but {} is {}; expected a rank from 0 to {}", name,
             rank, of, size, size - 1);
}

/// Rank and size, of the world and of this machine. The latter are the same as the former where they are not
/// set at all: a world of one machine, started by hand.
Rendezvous placed(const Names& names, const char* launcher) {
  Rendezvous r;
  r.launcher = launcher;
  r.rank = required(names.rank, 0, kMostRanks, names.size);
  r.world_size = required(names.size, 1, kMostRanks, names.rank);
  check_rank(names.rank, r.rank, names.size, r.world_size);
  r.local_rank = r.rank, r.local_world_size = r.world_size;
  if (system_env(names.local_rank).empty() && system_env(names.local_size).empty()) return r;
  r.local_rank = required(names.local_rank, 0, kMostRanks, names.local_size);
  r.local_world_size = required(names.local_size, 1, r.world_size, names.local_rank);
  check_rank(names.local_rank, r.local_rank, names.local_size, r.local_world_size);
  return r;
}

/// MASTER_ADDR and MASTER_PORT. False, if neither is set.
bool take_master(Rendezvous& r) {
  const std::string address = system_env("MASTER_ADDR");
  const auto port = number("MASTER_PORT", 1, kMostPorts);
  if (address.empty() && !port) return false;
  KILN_CHECK(!address.empty() && port, invalid, "rendezvous: {} is set, but {} is not; set both",
             port ? "MASTER_PORT" : "MASTER_ADDR", port ? "MASTER_ADDR" : "MASTER_PORT");
  r.address = address == "localhost" ? "127.0.0.1" : address;
  r.port = *port;
  return true;
}

/// A port that all ranks of `world` compute, below those that systems give to clients.
int port_of(const std::string& world) { return 20000 + static_cast<int>(hash128(world).lo % 12000); }

void meet_by_file(Rendezvous& r) {
  r.address = "127.0.0.1";
  r.port = 0;
}

/// The number of tasks is the step's, where there is one within a larger allocation.
const char* srun_size() {
  return system_env("SLURM_STEP_NUM_TASKS").empty() ? "SLURM_NTASKS" : "SLURM_STEP_NUM_TASKS";
}

/// What mpirun or srun say of this process, beside RANK and WORLD_SIZE, which are read. One process cannot
/// know whose those are. A launcher or script that runs inside sets them for each process, rightly, and then
/// LOCAL_RANK, too; a shell that exports them makes all processes the same rank. Of one world that is an
/// error. Of worlds of other sizes it may be meant: they fail to join if it is not.
void compare_with_outer(Rendezvous& r) {
  const bool mpirun = !system_env(kMpirun.rank).empty();
  if (!mpirun && system_env("SLURM_LAUNCH_NODE_IPADDR").empty()) return;
  const char* const outer = mpirun ? "mpirun" : "srun";
  const char* const rank_name = mpirun ? kMpirun.rank : "SLURM_PROCID";
  const char* const size_name = mpirun ? kMpirun.size : srun_size();
  const auto rank = parse(system_env(rank_name)), size = parse(system_env(size_name));
  if (!rank || !size || *size == 1 || (*rank == r.rank && *size == r.world_size)) return;
  if (!system_env("TORCHELASTIC_RUN_ID").empty()) return;  // torchrun numbers its processes itself
  const std::string both = fmt::format("RANK is {} and WORLD_SIZE is {}, but {} is {} and {} is {}", r.rank,
                                       r.world_size, rank_name, *rank, size_name, *size);
  const bool by_hand = system_env(kPlain.local_rank).empty();
  KILN_CHECK(!by_hand || *size != r.world_size, invalid,
             "rendezvous: {}; unset RANK and WORLD_SIZE, and {} counts (a script that numbers processes "
             "otherwise must set LOCAL_RANK and LOCAL_WORLD_SIZE, too)",
             both, outer);
  r.doubt =
      fmt::format("{} (if the shell exports RANK and WORLD_SIZE, unset them, and {} counts)", both, outer);
}

Rendezvous from_plain() {
  Rendezvous r = placed(kPlain, "environment");
  if (r.world_size == 1) return r;
  compare_with_outer(r);
  KILN_CHECK(take_master(r), invalid,
             "rendezvous: {} by RANK and WORLD_SIZE, but MASTER_ADDR and MASTER_PORT are not set; they say "
             "where rank 0 is (kiln run and torchrun set them)",
             r.str());
  if (system_env("TORCHELASTIC_USE_AGENT_STORE") != "True") return r;
  // torchrun's agent listens on MASTER_PORT itself.
  r.launcher = "torchrun";
  r.world = fmt::format("torchrun {} {} {}", system_env("TORCHELASTIC_RUN_ID"), r.port,
                        system_env("TORCHELASTIC_RESTART_COUNT"));
  if (r.local_world_size == r.world_size) meet_by_file(r);
  else r.port = port_of(r.world);
  return r;
}

Rendezvous from_mpirun() {
  Rendezvous r = placed(kMpirun, "mpirun");
  if (r.world_size == 1 || take_master(r)) return r;
  KILN_CHECK(r.local_world_size == r.world_size, invalid,
             "rendezvous: {} by mpirun on several machines ({} on this one); it does not say where rank 0 is "
             "(mpirun -x MASTER_ADDR=host -x MASTER_PORT=port)",
             r.str(), r.local_world_size);
  const std::string job = system_env("PMIX_NAMESPACE");
  KILN_CHECK(!job.empty(), invalid,
             "rendezvous: {} by mpirun, but PMIX_NAMESPACE is not set; nothing names this world "
             "(mpirun -x MASTER_ADDR=127.0.0.1 -x MASTER_PORT=port)",
             r.str());
  r.world = "mpirun " + job;
  meet_by_file(r);
  return r;
}

/// Element `node` of Slurm's "2(x3),1": 2, 2, 2, 1. Nothing, if the text is not of that form.
std::optional<int> tasks_of(const std::string& text, int node) {
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    int tasks = 0, times = 1;
    auto [stop, error] = std::from_chars(at, end, tasks);
    if (error != std::errc()) return std::nullopt;
    if (end - stop > 2 && stop[0] == '(' && stop[1] == 'x') {
      const auto repeat = std::from_chars(stop + 2, end, times);
      if (repeat.ec != std::errc() || repeat.ptr == end) return std::nullopt;
      stop = repeat.ptr + 1;
    }
    if (node < times) return tasks;
    node -= times;
    at = stop < end && *stop == ',' ? stop + 1 : end;
  }
  return std::nullopt;
}

Rendezvous from_srun() {
  Rendezvous r;
  r.launcher = "srun";
  r.rank = required("SLURM_PROCID", 0, kMostRanks, "SLURM_LAUNCH_NODE_IPADDR");
  const char* const size = srun_size();
  r.world_size = required(size, 1, kMostRanks, "SLURM_PROCID");
  check_rank("SLURM_PROCID", r.rank, size, r.world_size);
  r.local_rank = required("SLURM_LOCALID", 0, kMostRanks, "SLURM_PROCID");
  const int node = number("SLURM_NODEID", 0, kMostRanks).value_or(0);
  r.local_world_size = tasks_of(system_env("SLURM_STEP_TASKS_PER_NODE"), node).value_or(r.world_size);
  check_rank("SLURM_LOCALID", r.local_rank, "the number of tasks on this node", r.local_world_size);
  if (r.world_size == 1) return r;
  r.world = fmt::format("srun {}.{}", system_env("SLURM_JOB_ID"), system_env("SLURM_STEP_ID"));
  if (take_master(r)) return r;
  r.address = system_env("SLURM_LAUNCH_NODE_IPADDR");
  r.port = port_of(r.world);
  return r;
}

}  // namespace

std::string Rendezvous::str() const { return fmt::format("rank {} of {}", rank, world_size); }

Rendezvous rendezvous_from_environment() {
  const auto any = [](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!system_env(name).empty()) return true;
    return false;
  };
  // The most deliberate first: mpirun under Slurm sets both its own and Slurm's.
  if (any({"RANK", "WORLD_SIZE"})) return from_plain();
  if (any({kMpirun.rank, kMpirun.size})) return from_mpirun();
  // A batch script has most of Slurm's variables too, but only srun says from where it was called.
  if (any({"SLURM_LAUNCH_NODE_IPADDR"})) return from_srun();
  return {};
}

}  // namespace kiln
