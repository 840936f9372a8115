# SPDX-License-Identifier: Apache-2.0
"""Kills one of two ranks of the GPT example at random moments: at its start, while it builds, steps,
communicates and saves. The other must end within its timeout, naming the lost rank; no process stays
behind; and the last checkpoint must be one to go on from. Arguments: the program, and how many moments."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 10
SMALL = "--layers 2 --dim 32 --heads 2 --seq 16 --batch 8 --sample 0 --eval-every 0 --warmup 1".split()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Moment:
    def __init__(self, program, folder, cache, delay, victim):
        self.delay, self.victim = delay, victim
        self.saved = os.path.join(folder, "saved")
        port = str(free_port())
        self.line = [program, "--data", os.path.join(folder, "text"), *SMALL, "--threads", "1"]
        self.line += ["--timeout", str(TIMEOUT_S)]
        self.env = dict(os.environ, KILN_CACHE_DIR=cache, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
        self.env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}

    def start(self, rank):
        more = ["--steps", "1000000", "--checkpoint", self.saved, "--save-every", "3", "--no-progress"]
        env = dict(self.env, RANK=str(rank), LOCAL_RANK=str(rank))
        return subprocess.Popen(
            [*self.line, *more], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def fault(self):
        """What went wrong, or None."""
        ranks = [self.start(r) for r in range(2)]
        try:
            time.sleep(self.delay)
            ranks[self.victim].send_signal(signal.SIGKILL)
            killed = time.time()
            other = ranks[1 - self.victim]
            try:
                text, _ = other.communicate(timeout=TIMEOUT_S + 5)
            except subprocess.TimeoutExpired:
                return f"rank {1 - self.victim} still ran {TIMEOUT_S + 5} s later"
            took = time.time() - killed
            if other.returncode == 0:
                return f"rank {1 - self.victim} ended well:\n{text}"
            named = rf"rank {self.victim}\b|ranks that have not come: {self.victim}\b"
            if not re.search(named, text):
                return f"rank {1 - self.victim} does not name the other:\n{text}"
            last = text.splitlines()[-1]
            print(f"  killed rank {self.victim} after {self.delay:.2f} s: {took:.1f} s; {last}", flush=True)
            return self.resume()
        finally:
            for p in ranks:
                p.kill()
                p.wait()

    def resume(self):
        if not os.path.exists(self.saved):
            return None
        ranks = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        env = {k: v for k, v in self.env.items() if k not in ranks}
        done = subprocess.run(
            [*self.line, "--steps", "1", "--resume", self.saved], env=env, capture_output=True, timeout=60
        )
        return None if done.returncode == 0 else f"the checkpoint cannot be resumed:\n{done.stderr.decode()}"


def left_behind(program):
    found = subprocess.run(["pgrep", "-f", program], capture_output=True, text=True).stdout.split()
    return [p for p in found if p != str(os.getpid()) and p != str(os.getppid())]


def main():
    program, count = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    random.seed(7)
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text"), "w") as f:
            f.write("".join(f"line {i * 7919 % 1000} of a text that repeats\n" for i in range(2000)))
        # A copy, so that whoever is left behind is this test's.
        own = os.path.join(folder, "gpt-under-test")
        os.symlink(program, own)
        for i in range(count):
            # Half of them with an empty cache: they build for a while; the others soon train.
            cache = os.path.join(folder, "warm" if i % 2 else f"cold-{i}")
            delay = random.uniform(0, 4 if i % 2 == 0 else 2)
            moment = Moment(own, folder, cache, delay, random.randrange(2))
            wrong = moment.fault()
            if os.path.exists(moment.saved):
                os.remove(moment.saved)
            if wrong:
                faults += 1
                print(f"moment {i}, rank {moment.victim} killed after {moment.delay:.2f} s: {wrong}")
        stay = left_behind(own)
        if stay:
            faults += 1
            print(f"left behind: {stay}")
    print(f"{count} moments, {faults} faults")
    return faults != 0


sys.exit(main())
