# SPDX-License-Identifier: Apache-2.0
"""Kills one of two ranks of the GPT example at random moments: as it starts, while it builds, measures
schedules, steps with its collectives, and writes a checkpoint; with and without a launcher. The other must
end within its timeout, naming the lost rank; no process stays behind; and the last checkpoint must be one
to go on from. Arguments: the programs gpt and kiln, and how many moments."""

import collections
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

TIMEOUT_S, GRACE_S = 10, 5
SMALL = "--layers 2 --dim 32 --heads 2 --seq 16 --batch 8 --sample 0 --eval-every 0 --warmup 1".split()
PHASES = (("start", True), ("build", False), ("tune", False), ("step", False), ("save", True),
          ("save", False), ("start", False), ("build", True), ("tune", True), ("step", True))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(p) for p in f.read().split()]


class Moment:
    """One run of two ranks, one of which is killed in a phase."""

    def __init__(self, gpt, kiln, folder, number):
        self.phase, self.launched = PHASES[number % len(PHASES)]
        self.folder, self.kiln, self.victim = folder, kiln, random.randrange(2)
        self.saved = os.path.join(folder, "saved")
        self.line = [gpt, "--data", os.path.join(folder, "text"), *SMALL, "--threads", "1",
                     "--timeout", str(TIMEOUT_S)]
        cold = self.phase in ("start", "build", "tune")
        cache = os.path.join(folder, f"cold-{number}" if cold else "warm")
        self.env = dict(os.environ, KILN_CACHE_DIR=cache, KILN_TUNE_BUDGET_S="1")
        if self.phase == "tune":
            self.env["KILN_TUNE"] = "fast"
        self.delay = random.uniform(*{"start": (0, 0.15), "build": (0.2, 5), "tune": (0.5, 8),
                                      "step": (0, 0.3), "save": (0, 0.004)}[self.phase])
        self.took, self.last = 0.0, ""

    def __str__(self):
        return (f"{self.phase}, {'kiln run' if self.launched else 'by hand'}: rank {self.victim} killed "
                f"after {self.delay:.4f} s")

    def start(self):
        """The processes to wait for, and the ranks' ids."""
        line = [*self.line, "--steps", "1000000", "--checkpoint", self.saved, "--save-every", "3",
                "--no-progress"]
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if self.launched:
            run = subprocess.Popen([self.kiln, "run", "--nproc", "2", "--", *line], env=self.env, **pipes)
            ids = []
            while len(ids) < 2 and run.poll() is None:
                ids = children(run.pid)
            return [run], ids
        world = dict(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                     MASTER_PORT=str(free_port()))
        ranks = [subprocess.Popen(line, env=self.env | world | dict(RANK=str(r), LOCAL_RANK=str(r)), **pipes)
                 for r in range(2)]
        return ranks, [p.pid for p in ranks]

    def saving(self):
        return any(f.startswith(".saved.") for f in os.listdir(self.folder))

    def await_moment(self, started):
        """True once the ranks are in the phase, unless they have ended before."""
        end = time.time() + 60
        reached = {"step": lambda: os.path.exists(self.saved),
                   "save": lambda: os.path.exists(self.saved) and self.saving()}.get(self.phase)
        while reached and not reached():
            if time.time() > end or any(p.poll() is not None for p in started):
                return False
        time.sleep(self.delay)
        return True

    def fault(self):
        """What went wrong, or None."""
        started, ids = self.start()
        try:
            if not self.await_moment(started):
                return "the ranks did not come so far"
            os.kill(ids[self.victim], signal.SIGKILL)
            killed = time.time()
            other = started[0] if self.launched else started[1 - self.victim]
            try:
                text, _ = other.communicate(timeout=TIMEOUT_S + GRACE_S)
            except subprocess.TimeoutExpired:
                return f"the other still ran {TIMEOUT_S + GRACE_S} s later"
            self.took = time.time() - killed
            self.last = ([line for line in text.splitlines() if re.search(self.naming(), line)] or [""])[0]
            if other.returncode == 0:
                return f"the other ended well:\n{text}"
            if not self.last:
                return f"the other does not name rank {self.victim}:\n{text}"
            if self.launched and other.returncode != 128 + signal.SIGKILL:
                return f"kiln run ended with {other.returncode}:\n{text}"
            return self.resume()
        finally:
            for pid in ids:
                self.kill(pid)
            for p in started:
                p.kill()
                p.wait()

    def naming(self):
        if self.launched:
            return rf"kiln run: rank {self.victim} \(pid \d+\) was killed by SIGKILL"
        return rf"^gpt: .*(rank|ranks that have not come:) {self.victim}\b"

    @staticmethod
    def kill(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def resume(self):
        if not os.path.exists(self.saved):
            return "there is no checkpoint" if self.phase in ("step", "save") else None
        done = subprocess.run([*self.line, "--steps", "1", "--resume", self.saved], env=self.env,
                              capture_output=True, timeout=60)
        return None if done.returncode == 0 else f"the checkpoint cannot be resumed:\n{done.stderr.decode()}"

    def clear(self):
        for name in os.listdir(self.folder):
            if "saved" in name:
                os.remove(os.path.join(self.folder, name))


def left_behind(program):
    found = subprocess.run(["pgrep", "-f", program], capture_output=True, text=True).stdout.split()
    return [p for p in found if p != str(os.getpid()) and p != str(os.getppid())]


def main():
    gpt, kiln, count = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), int(sys.argv[3])
    random.seed(7)
    faults, longest = 0, collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "w") as f:
            f.write("".join(f"line {i * 7919 % 1000} of a text that repeats\n" for i in range(2000)))
        # A copy, so that whoever is left behind is this test's.
        own = os.path.join(folder, "gpt-under-test")
        os.symlink(gpt, own)
        for i in range(count):
            moment = Moment(own, kiln, folder, i)
            wrong = moment.fault()
            stay = left_behind(own)
            moment.clear()
            kind = (moment.phase, moment.launched)
            longest[kind] = max(longest[kind], moment.took)
            if wrong or stay:
                faults += 1
                print(f"FAULT {moment}: {wrong or ''} {f'left behind: {stay}' if stay else ''}", flush=True)
            else:
                print(f"  {moment}; {moment.took:.1f} s; {moment.last}", flush=True)
    for (phase, launched), seconds in longest.items():
        print(f"{phase}, {'kiln run' if launched else 'by hand'}: at most {seconds:.1f} s")
    print(f"{count} moments, {faults} faults")
    return faults != 0


sys.exit(main())
