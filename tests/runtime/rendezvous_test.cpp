// SPDX-License-Identifier: Apache-2.0
// What each launcher's variables mean, and what is said of variables that are wrong.
#include "runtime/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

const char* const kAll[] = {"RANK",
                            "WORLD_SIZE",
                            "LOCAL_RANK",
                            "LOCAL_WORLD_SIZE",
                            "MASTER_ADDR",
                            "MASTER_PORT",
                            "TORCHELASTIC_USE_AGENT_STORE",
                            "TORCHELASTIC_RUN_ID",
                            "TORCHELASTIC_RESTART_COUNT",
                            "OMPI_COMM_WORLD_RANK",
                            "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE",
                            "PMIX_NAMESPACE",
                            "SLURM_PROCID",
                            "SLURM_NTASKS",
                            "SLURM_STEP_NUM_TASKS",
                            "SLURM_LOCALID",
                            "SLURM_NODEID",
                            "SLURM_STEP_TASKS_PER_NODE",
                            "SLURM_LAUNCH_NODE_IPADDR",
                            "SLURM_JOB_ID",
                            "SLURM_STEP_ID"};

/// The rendezvous of an environment that has `variables` and no others of these.
Rendezvous from(const Variables& variables) {
  for (const char* name : kAll) unsetenv(name);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  return rendezvous_from_environment();
}
std::string refused(const Variables& variables) {
  try {
    from(variables);
    return "no error";
  } catch (const Error& e) {
    return fmt::format("{}: {}", to_string(e.kind()), e.what());
  }
}
Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Variables kPlain = {{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "29500"}};
const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_NAMESPACE", "3154182145"}};
const Variables kSrun = {{"SLURM_PROCID", "2"},
                         {"SLURM_NTASKS", "5"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                         {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.7"},
                         {"SLURM_JOB_ID", "4711"},
                         {"SLURM_STEP_ID", "0"}};

TEST(Rendezvous, NothingSetIsAWorldOfOne) {
  const Rendezvous r = from({});
  EXPECT_EQ(r.str(), "rank 0 of 1");
  EXPECT_EQ(r.local_world_size, 1);
  EXPECT_EQ(r.launcher, "none");
  EXPECT_EQ(from({{"MASTER_ADDR", "node0"}}).world_size, 1);
}

TEST(Rendezvous, RankAndWorldSize) {
  const Rendezvous r = from(kPlain);
  EXPECT_EQ(r.str(), "rank 5 of 8");
  EXPECT_EQ(r.local_rank, 1);
  EXPECT_EQ(r.local_world_size, 4);
  EXPECT_EQ(r.address, "node0");
  EXPECT_EQ(r.port, 29500);
  EXPECT_EQ(r.launcher, "environment");
  const Rendezvous by_hand =
      from({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(by_hand.local_rank, 1);
  EXPECT_EQ(by_hand.local_world_size, 2);
  EXPECT_EQ(by_hand.address, "127.0.0.1");
  EXPECT_EQ(from({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).world_size, 1);
}

TEST(Rendezvous, TorchrunsAgentHoldsItsPort) {
  const Variables agent = {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"TORCHELASTIC_RUN_ID", "a"},
                           {"TORCHELASTIC_RESTART_COUNT", "0"}};
  const Rendezvous far = from(with(kPlain, agent));
  EXPECT_EQ(far.launcher, "torchrun");
  EXPECT_EQ(far.address, "node0");
  EXPECT_NE(far.port, 29500);
  EXPECT_GE(far.port, 20000);
  EXPECT_LT(far.port, 32000);
  EXPECT_EQ(from(with(with(kPlain, agent), {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).port, far.port);
  EXPECT_NE(from(with(with(kPlain, agent), {{"MASTER_PORT", "29501"}})).port, far.port);

  const Rendezvous near = from(with(with(kPlain, agent), {{"LOCAL_WORLD_SIZE", "8"}}));
  EXPECT_EQ(near.address, "127.0.0.1");
  EXPECT_EQ(near.port, 0);
  EXPECT_EQ(near.world, "torchrun a 29500 0");
  EXPECT_EQ(from(with(kPlain, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).port, 29500);
}

TEST(Rendezvous, Mpirun) {
  const Rendezvous r = from(kMpirun);
  EXPECT_EQ(r.str(), "rank 1 of 2");
  EXPECT_EQ(r.local_rank, 1);
  EXPECT_EQ(r.launcher, "mpirun");
  EXPECT_EQ(r.world, "mpirun 3154182145");
  EXPECT_EQ(r.port, 0);
  const Rendezvous told = from(with(kMpirun, {{"MASTER_ADDR", "node0"},
                                              {"MASTER_PORT", "4000"},
                                              {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}));
  EXPECT_EQ(told.address, "node0");
  EXPECT_EQ(told.port, 4000);
}

TEST(Rendezvous, Srun) {
  const Rendezvous r = from(kSrun);
  EXPECT_EQ(r.str(), "rank 2 of 5");
  EXPECT_EQ(r.local_rank, 0);
  EXPECT_EQ(r.local_world_size, 2);
  EXPECT_EQ(r.address, "10.0.0.7");
  EXPECT_EQ(r.launcher, "srun");
  EXPECT_EQ(r.world, "srun 4711.0");
  EXPECT_EQ(from(with(kSrun, {{"SLURM_NODEID", "2"}})).local_world_size, 1);
  EXPECT_EQ(from(with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "odd"}})).local_world_size, 5);
  EXPECT_EQ(from(with(kSrun, {{"SLURM_STEP_NUM_TASKS", "3"}})).world_size, 3);
  EXPECT_EQ(from(with(kSrun, {{"SLURM_PROCID", "4"}})).port, r.port);
  EXPECT_NE(from(with(kSrun, {{"SLURM_JOB_ID", "4712"}})).port, r.port);
  EXPECT_EQ(from(with(kSrun, {{"MASTER_ADDR", "n"}, {"MASTER_PORT", "77"}})).port, 77);
}

TEST(Rendezvous, ABatchScriptIsNoTask) {
  Variables script = kSrun;
  script.erase("SLURM_LAUNCH_NODE_IPADDR");
  EXPECT_EQ(from(script).world_size, 1);
}

TEST(Rendezvous, TheMostDeliberateLauncherWins) {
  EXPECT_EQ(from(with(with(kPlain, kMpirun), kSrun)).launcher, "environment");
  EXPECT_EQ(from(with(kMpirun, kSrun)).launcher, "mpirun");
}

const Variables kByHand = {
    {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};

TEST(Rendezvous, AShellThatMakesAllTheSameRank) {
  EXPECT_EQ(refused(with(kMpirun, kByHand)),
            "invalid: rendezvous: RANK is 0 and WORLD_SIZE is 2, but OMPI_COMM_WORLD_RANK is 1 and "
            "OMPI_COMM_WORLD_SIZE is 2; unset RANK and WORLD_SIZE, and mpirun counts (a script that numbers "
            "processes otherwise must set LOCAL_RANK and LOCAL_WORLD_SIZE, too)");
  const Variables step = with(kSrun, {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}});
  EXPECT_THAT(refused(with(step, kByHand)),
              HasSubstr("but SLURM_PROCID is 1 and SLURM_STEP_NUM_TASKS is 2; unset RANK and WORLD_SIZE, "
                        "and srun counts"));
  // Who agrees is right, and is not in doubt.
  for (const Variables& outer : {kMpirun, step}) {
    const Rendezvous r = from(with(with(outer, kByHand), {{"RANK", "1"}}));
    EXPECT_EQ(r.launcher + " " + r.str() + r.doubt, "environment rank 1 of 2");
  }
}

// mpirun under Slurm starts its daemons by srun, as one task a machine.
TEST(Rendezvous, MpirunCountsAndNotTheSrunAroundIt) {
  const Variables daemon = with(kSrun, {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}});
  const Variables both = with(daemon, kMpirun);
  EXPECT_EQ(from(with(with(both, kByHand), {{"RANK", "1"}})).doubt, "");
  EXPECT_THAT(refused(with(both, kByHand)), HasSubstr("but OMPI_COMM_WORLD_RANK is 1"));
}

TEST(Rendezvous, LaunchersInsideOthersCountForThemselves) {
  // torchrun, one agent a task: ranks are given in the order in which agents come.
  const Variables agents = with(kSrun, {{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}});
  for (const Variables& outer : {agents, kMpirun}) {
    for (const char* const size : {"2", "16"}) {
      const Rendezvous r = from(with(with(outer, kByHand), {{"WORLD_SIZE", size},
                                                            {"LOCAL_RANK", "0"},
                                                            {"LOCAL_WORLD_SIZE", "1"},
                                                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                            {"TORCHELASTIC_RUN_ID", "7"}}));
      EXPECT_EQ(r.launcher + " " + r.str() + r.doubt, fmt::format("torchrun rank 0 of {}", size));
    }
    // kiln run, one world a task, or a script that sets what a launcher does.
    const Rendezvous r = from(with(with(outer, kByHand), {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}));
    EXPECT_EQ(r.str(), "rank 0 of 2");
    EXPECT_NE(r.doubt, "");
  }
  // The one task of a step or of mpirun is nobody's rank but its own.
  const Variables alone = with(kSrun, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(from(with(with(alone, kByHand), {{"RANK", "1"}})).doubt, "");
  // Tasks that are told to be alone are that.
  const Rendezvous one = from(with(kMpirun, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_EQ(one.str() + one.doubt, "rank 0 of 1");
}

TEST(Rendezvous, AnotherSizeIsDoubted) {
  EXPECT_EQ(from(with(with(kMpirun, kByHand), {{"WORLD_SIZE", "4"}})).doubt,
            "RANK is 0 and WORLD_SIZE is 4, but OMPI_COMM_WORLD_RANK is 1 and OMPI_COMM_WORLD_SIZE is 2 (if "
            "the shell exports RANK and WORLD_SIZE, unset them, and mpirun counts)");
  EXPECT_EQ(from(with(with(kMpirun, kByHand), {{"OMPI_COMM_WORLD_SIZE", "odd"}})).doubt, "");
}

TEST(Rendezvous, NumbersThatAreWrong) {
  for (const char* bad : {"x", "-1", "1x", "1.5", " 1", "99999999999", "0x1"}) {
    EXPECT_THAT(
        refused(with(kPlain, {{"RANK", bad}})),
        HasSubstr(fmt::format("invalid: rendezvous: RANK is wrong; got '{}', expected a number", bad)));
  }
  EXPECT_THAT(refused(with(kPlain, {{"WORLD_SIZE", "0"}})), HasSubstr("WORLD_SIZE is wrong; got '0'"));
  EXPECT_THAT(refused(with(kPlain, {{"MASTER_PORT", "0"}})), HasSubstr("expected a number from 1 to 65535"));
  EXPECT_THAT(refused(with(kPlain, {{"MASTER_PORT", "65536"}})), HasSubstr("MASTER_PORT is wrong"));
  EXPECT_THAT(refused(with(kPlain, {{"LOCAL_WORLD_SIZE", "9"}})),
              HasSubstr("LOCAL_WORLD_SIZE is wrong; got '9'"));
  EXPECT_THAT(refused(with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "two"}})),
              HasSubstr("OMPI_COMM_WORLD_SIZE is wrong"));
  EXPECT_THAT(refused(with(kSrun, {{"SLURM_LOCALID", "-"}})), HasSubstr("SLURM_LOCALID is wrong"));
}

TEST(Rendezvous, RanksBeyondTheWorld) {
  EXPECT_EQ(refused(with(kPlain, {{"RANK", "8"}})),
            "invalid: rendezvous: RANK is 8, but WORLD_SIZE is 8; expected a rank from 0 to 7");
  EXPECT_THAT(refused(with(kPlain, {{"LOCAL_RANK", "4"}})),
              HasSubstr("LOCAL_RANK is 4, but LOCAL_WORLD_SIZE is 4"));
  EXPECT_THAT(refused(with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "2"}})),
              HasSubstr("OMPI_COMM_WORLD_RANK is 2"));
  EXPECT_THAT(refused(with(kSrun, {{"SLURM_PROCID", "5"}})),
              HasSubstr("SLURM_PROCID is 5, but SLURM_NTASKS is 5"));
  EXPECT_THAT(refused(with(kSrun, {{"SLURM_LOCALID", "2"}})), HasSubstr("SLURM_LOCALID is 2"));
}

TEST(Rendezvous, OnlySomeAreSet) {
  EXPECT_EQ(
      refused({{"RANK", "0"}}),
      "invalid: rendezvous: WORLD_SIZE is not set, but RANK is; set both, or neither for a world of one");
  EXPECT_THAT(refused({{"WORLD_SIZE", "1"}}), HasSubstr("RANK is not set, but WORLD_SIZE is"));
  EXPECT_THAT(refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("rank 0 of 2 by RANK and WORLD_SIZE, but MASTER_ADDR and MASTER_PORT are not set"));
  for (const char* gone : {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    Variables some = kPlain;
    some.erase(gone);
    EXPECT_THAT(refused(some), HasSubstr(gone)) << gone;
  }
  Variables nameless = kMpirun;
  nameless.erase("PMIX_NAMESPACE");
  EXPECT_THAT(refused(nameless), HasSubstr("PMIX_NAMESPACE is not set"));
  EXPECT_THAT(refused(with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "4"}})),
              HasSubstr("by mpirun on several machines (2 on this one); it does not say where rank 0 is"));
  EXPECT_THAT(refused({{"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.7"}}),
              HasSubstr("SLURM_PROCID is not set, but SLURM_LAUNCH_NODE_IPADDR is"));
}

}  // namespace KILN_FILE
}  // namespace kiln
