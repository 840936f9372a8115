# SPDX-License-Identifier: Apache-2.0
"""Processes that train together, under every launcher; what they say when ranks die or do not come.

Usage: world_test.py KILN WORLD_MEMBER DOCUMENTED_PROGRAM. torchrun and srun are imitated by their
variables.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from processes import alive, eventually

KILN, MEMBER, DOCUMENTED = sys.argv[1:4]
LIMIT = 100
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMIX_", "SLURM_")


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    return {**clean, **{k: str(v) for k, v in more.items()}}


def spawn(*command, **env):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(**env))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def plain(rank, size, port, **more):
    return dict(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=size, MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port, **more)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(p) for p in f.read().split()]


class World(unittest.TestCase):
    def setUp(self):
        self.started = []

    def tearDown(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.communicate(timeout=LIMIT)

    def start(self, *command, **env):
        self.started.append(spawn(*command, **env))
        return self.started[-1]

    def finish(self, p):
        out, err = p.communicate(timeout=LIMIT)
        self.started.remove(p)
        return p.returncode, out, err

    def ranks(self, action, environments, limit=60):
        """What processes with these environments, started by hand, came to."""
        started = [self.start(MEMBER, action, str(limit), **e) for e in environments]
        return [self.finish(p) for p in started]

    def trained(self, out, size):
        """Checks that all ranks have trained to the same parameters; returns these."""
        found = re.findall(r"(\d+)/(\d+) (\d+): parameters (\S+)", out)
        self.assertEqual(sorted((int(r), int(n), int(local)) for r, n, local, _ in found),
                         [(r, size, r) for r in range(size)], out)
        self.assertEqual(len({p for _, _, _, p in found}), 1, out)
        return float(found[0][3])

    def alone(self):
        status, out, err = self.finish(self.start(MEMBER, "train"))
        self.assertEqual((status, err), (0, ""))
        return self.trained(out, 1)


class Launchers(World):
    def test_kiln_run(self):
        expected = self.alone()
        for size in (1, 2, 4):
            p = self.start(KILN, "run", "--nproc", str(size), "--", MEMBER, "train")
            status, out, err = self.finish(p)
            self.assertEqual((status, err), (0, ""))
            self.assertAlmostEqual(self.trained(out, size), expected, places=4)

    def test_the_documented_program(self):
        status, out, err = self.finish(self.start(KILN, "run", "--nproc", "2", "--", DOCUMENTED))
        self.assertEqual((status, err), (0, ""))
        losses = [float(x) for x in re.findall(r"^\[0\] step \d: loss (\S+)$", out, re.M)]
        self.assertEqual(len(losses), 10, out)
        self.assertLess(losses[-1], losses[0])

    def test_mpirun(self):
        mpirun = shutil.which("mpirun")
        self.assertTrue(mpirun, "mpirun is missing: scripts/setup.sh installs openmpi-bin")
        with tempfile.TemporaryDirectory() as folder:
            command = [mpirun, "-np", "2", "--allow-run-as-root", "--oversubscribe", MEMBER, "train"]
            status, out, err = self.finish(self.start(*command, TMPDIR=folder))
            self.assertEqual(status, 0, err)
            self.assertAlmostEqual(self.trained(out, 2), self.alone(), places=4)
            self.assertEqual([f for f in os.listdir(folder) if f.startswith("kiln")], [])

    def test_torchrun_whose_agent_holds_the_port(self):
        with socket.socket() as agent:
            agent.bind(("127.0.0.1", 0))
            agent.listen()
            port = agent.getsockname()[1]
            done = self.ranks("train", [plain(r, 2, port, TORCHELASTIC_USE_AGENT_STORE="True",
                                              TORCHELASTIC_RUN_ID="none", TORCHELASTIC_RESTART_COUNT=0)
                                        for r in (1, 0)])
        self.assertEqual([(status, err) for status, _, err in done], [(0, "")] * 2)
        self.assertAlmostEqual(self.trained(done[0][1] + done[1][1], 2), self.alone(), places=4)

    def test_two_torchruns_on_one_machine(self):
        def agent(rank, port):
            return plain(rank, 2, port, TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RUN_ID="none")
        done = self.ranks("collect", [agent(r, port) for port in (29501, 29502) for r in (1, 0)])
        self.assertEqual([(status, err) for status, _, err in done], [(0, "")] * 4)

    def test_srun(self):
        step = dict(SLURM_NTASKS=3, SLURM_NODEID=0, SLURM_STEP_TASKS_PER_NODE="3", SLURM_STEP_ID=0,
                    SLURM_LAUNCH_NODE_IPADDR="127.0.0.1", SLURM_JOB_ID=os.getpid())
        done = self.ranks("collect", [dict(step, SLURM_PROCID=r, SLURM_LOCALID=r) for r in range(3)])
        self.assertEqual([(status, err) for status, _, err in done], [(0, "")] * 3)
        self.assertEqual(done[2][1], "2/3 2: sum 3 root 12 part 202 all 0 1 2\n")

    def test_a_stale_file_is_not_used(self):
        with tempfile.TemporaryDirectory() as folder:
            job = dict(OMPI_COMM_WORLD_SIZE=2, PMIX_NAMESPACE="stale", TMPDIR=folder)
            killed = self.start(MEMBER, "collect", OMPI_COMM_WORLD_RANK=0, **job)
            # The file itself, not yet the one that is renamed to it.
            published = re.compile(r"kiln-[^.]*$")
            self.assertTrue(eventually(lambda: any(map(published.match, os.listdir(folder)))))
            killed.kill()
            self.finish(killed)
            late = self.start(MEMBER, "collect", OMPI_COMM_WORLD_RANK=1, **job)
            time.sleep(0.3)
            first = self.start(MEMBER, "collect", OMPI_COMM_WORLD_RANK=0, **job)
            self.assertEqual([self.finish(p)[0] for p in (late, first)], [0, 0])
            self.assertEqual([f for f in os.listdir(folder) if f.startswith("kiln")], [])


class Leaving(World):
    def run_action(self, action, size=3):
        return self.finish(self.start(KILN, "run", "--nproc", str(size), "--", MEMBER, action))

    def test_again(self):
        status, out, err = self.run_action("again")
        self.assertEqual((status, err, out.count("sum 3")), (0, "", 3))

    def test_without_leaving(self):
        status, out, err = self.run_action("forget")
        self.assertEqual((status, err, out.count("sum 3")), (0, "", 3))

    def test_rank_zero_waits_for_the_slow(self):
        status, out, err = self.run_action("slow")
        self.assertEqual((status, err, out.count("done")), (0, "", 3))


class Tuning(World):
    def tuned(self, action, cache):
        """Of each rank that validated: kernels that it measured, got from others, and knew."""
        p = self.start(KILN, "run", "--nproc", "2", "--", MEMBER, action, KILN_TUNE="fast",
                       KILN_TUNE_BUDGET_S="10", KILN_CACHE_DIR=cache)
        status, out, err = self.finish(p)
        self.assertEqual((status, err), (0, ""))
        return [tuple(map(int, t)) for t in re.findall(r"tuned (\d+) received (\d+) found (\d+)", out)]

    def test_what_does_not_communicate_is_measured_by_one_rank(self):
        with tempfile.TemporaryDirectory() as cache:
            (tuned, received, _), (tuned_there, received_there, _) = self.tuned("validate", cache)
            self.assertGreater(tuned + tuned_there, 1)
            self.assertEqual((received, received_there), (tuned_there, tuned))
            self.assertEqual(self.tuned("validate", cache), [(0, 0, tuned + tuned_there)] * 2)

    def test_a_rank_alone_waits_for_nobody(self):
        with tempfile.TemporaryDirectory() as cache:
            begin = time.monotonic()
            (tuned, received, _), = self.tuned("validate_last", cache)
            self.assertLess(time.monotonic() - begin, 25, "it would wait for 30 s")
            self.assertGreater(tuned, 1)
            self.assertEqual(received, 0)


class Failures(World):
    def test_a_missing_rank_is_named_by_all(self):
        port = free_port()
        begin = time.monotonic()
        done = self.ranks("collect", [plain(r, 4, port) for r in (0, 2)], limit=2)
        self.assertLess(time.monotonic() - begin, 20)
        for status, out, err in done:
            self.assertEqual((status, out), (3, ""))
            self.assertRegex(err, r"error: rendezvous: rank \d of 4 waited 2 s for ranks that have "
                                  r"not come: 1, 3")
            self.assertRegex(err, r"\[in init_process_group \(world_member.cpp:\d+\)\]")

    def test_a_wrong_world_size(self):
        port = free_port()
        done = self.ranks("collect", [plain(0, 2, port), plain(1, 3, port)], limit=2)
        why = "rank 1 belongs to a world of 3 ranks, this store to one of 2"
        self.assertIn("refuses: " + why, done[1][2])
        self.assertIn("have not come: 1; one was refused: " + why, done[0][2])
        self.assertEqual([status for status, _, _ in done], [3, 3])

    def test_different_models(self):
        # Whoever finds out first must not take the store away from the other.
        for _ in range(5):
            port = free_port()
            for status, _, err in self.ranks("models", [plain(r, 2, port) for r in (0, 1)]):
                self.assertEqual(status, 3)
                self.assertRegex(err, r"world_member.cpp:\d+\): the names or sizes of params\[0\] differ: ")

    def test_a_shell_that_makes_all_the_same_rank(self):
        mpirun = [shutil.which("mpirun"), "-np", "2", "--allow-run-as-root", "--oversubscribe"]
        begin = time.monotonic()
        for size, why in (2, "; unset RANK and WORLD_SIZE, and mpirun"), (3, r" \(if the shell exports RANK"):
            p = self.start(*mpirun, MEMBER, "collect", RANK=0, WORLD_SIZE=size, MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=free_port())
            status, out, err = self.finish(p)
            self.assertEqual((status, out), (3, ""))
            self.assertRegex(err, rf"error: .*RANK is 0 and WORLD_SIZE is {size}, but OMPI_COMM_WORLD_RANK "
                                  rf"is [01] and OMPI_COMM_WORLD_SIZE is 2{why}")
        self.assertLess(time.monotonic() - begin, 50, "nobody waits for ranks that cannot come")

    def test_a_port_in_use(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            (status, _, err), = self.ranks("collect", [plain(0, 2, other.getsockname()[1])], limit=2)
        self.assertEqual(status, 3)
        self.assertIn("cannot listen on port", err)

    def test_an_unreachable_store(self):
        (status, _, err), = self.ranks("collect", [plain(1, 2, free_port())], limit=1)
        self.assertEqual(status, 3)
        self.assertIn("rank 1 of 2 cannot reach the store of rank 0", err)

    def test_joining_can_be_interrupted(self):
        for rank in (0, 1):
            p = self.start(MEMBER, "collect", **plain(rank, 2, free_port()))
            time.sleep(0.5)
            p.terminate()
            self.assertEqual(self.finish(p)[0], -signal.SIGTERM)


class Traces(World):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix="kiln-world-trace-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def events(self, pid):
        with open(os.path.join(self.folder, f"trace.{pid}.json"), encoding="utf-8") as f:
            return json.load(f)

    def test_processes_are_named_by_rank(self):
        p = self.start(KILN, "run", "--nproc", "2", "--", MEMBER, "train",
                       KILN_TRACE=os.path.join(self.folder, "trace"))
        self.assertEqual(self.finish(p)[0], 0)
        names = []
        for pid in sorted(int(name.split(".")[1]) for name in os.listdir(self.folder)):
            events = self.events(pid)
            named, sort = events[0]["args"]["name"], events[1]["args"]["sort_index"]
            self.assertEqual(named, f"rank {sort} of 2 (pid {pid})")
            names.append(sort)
            calls = [e for e in events if e.get("cat") == "call"]
            self.assertEqual([e["args"]["call"] for e in calls], [1, 2, 3])
            self.assertRegex(calls[0]["name"], r"^step \(world_member\.cpp:\d+\)$")
        self.assertEqual(sorted(names), [0, 1])

    def test_a_killed_process_leaves_a_whole_trace(self):
        p = self.start(MEMBER, "forever", KILN_TRACE=os.path.join(self.folder, "trace"))
        self.assertRegex(p.stdout.readline(), "trains")
        p.kill()
        self.finish(p)
        events = self.events(p.pid)
        self.assertEqual(events[0]["args"]["name"], f"rank 0 of 1 (pid {p.pid})")
        self.assertGreaterEqual(len([e for e in events if e.get("cat") == "call"]), 3)


class Deaths(World):
    def test_the_others_name_a_killed_rank(self):
        for victim in (0, 1):
            port = free_port()
            started = [self.start(MEMBER, "forever", "20", **plain(r, 2, port)) for r in (0, 1)]
            for p in started:
                self.assertRegex(p.stdout.readline(), "trains")
            started[victim].kill()
            begin = time.monotonic()
            status, _, err = self.finish(started[1 - victim])
            self.assertLess(time.monotonic() - begin, 20 + 5)
            self.assertEqual(status, 3)
            self.assertRegex(err, rf"error: .*rank {victim}\b")

    def test_the_launcher_ends_the_rest(self):
        p = self.start(KILN, "run", "--nproc", "3", "--", MEMBER, "forever")
        while "trains" not in p.stdout.readline():
            pass
        pids = children(p.pid)
        self.assertEqual(len(pids), 3)
        os.kill(pids[1], signal.SIGKILL)
        begin = time.monotonic()
        status, _, err = self.finish(p)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(status, 128 + signal.SIGKILL)
        self.assertIn(f"kiln run: rank 1 (pid {pids[1]}) was killed by SIGKILL; ending the others\n", err)
        self.assertFalse([pid for pid in pids if alive(pid)])

    def test_no_orphans_of_a_killed_launcher(self):
        p = self.start(KILN, "run", "--nproc", "3", "--", MEMBER, "forever")
        while "trains" not in p.stdout.readline():
            pass
        pids = children(p.pid)
        p.kill()
        self.assertTrue(eventually(lambda: not any(map(alive, pids))), pids)

    def test_ranks_killed_while_they_join(self):
        for delay in (0.0, 0.01, 0.03, 0.06, 0.1):
            p = self.start(KILN, "run", "--nproc", "2", "--", MEMBER, "forever")
            self.assertTrue(eventually(lambda pid=p.pid: len(children(pid)) == 2))
            pids = children(p.pid)
            time.sleep(delay)
            os.kill(pids[1], signal.SIGKILL)
            status, _, err = self.finish(p)
            self.assertEqual(status, 128 + signal.SIGKILL, err)
            self.assertFalse([pid for pid in pids if alive(pid)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
