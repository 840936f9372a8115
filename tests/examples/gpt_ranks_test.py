# SPDX-License-Identifier: Apache-2.0
"""Runs the GPT example on two ranks, started by kiln run, by mpirun and as torchrun would: the loss curve
must be that of one process with the joined batch. Arguments: the programs gpt and kiln."""

import json
import os
import signal
import socket
import subprocess
import sys
import unittest

from with_text import WithText

KILN = os.path.abspath(sys.argv.pop(2)) if len(sys.argv) > 2 else "kiln"
PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "gpt"
SMALL = "--layers 2 --dim 32 --heads 2 --seq 16 --batch 8 --sample 0 --eager-steps 0 --threads 1".split()
LIMIT_S = 240


class Ranks(WithText):
    def command(self, name, *more):
        known = ["--data", self.path("text"), *SMALL, "--json", self.path(name)]
        return [PROGRAM, *known, *([] if "--steps" in more else ["--steps", "20"]), *more]

    def losses(self, name):
        with open(self.path(name)) as f:
            return json.load(f)["losses"]

    def run_line(self, line, env=None):
        done = subprocess.run(line, env=env or self.env, capture_output=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, (done.stdout + done.stderr).decode())
        return done.stdout.decode()

    def check_curve(self, name):
        alone, joined = self.losses("alone"), self.losses(name)
        self.assertEqual(len(joined), 20)
        self.assertNotEqual(alone[0], alone[19])
        for a, b in zip(alone, joined):
            self.assertAlmostEqual(a, b, delta=2e-5 * abs(a))

    def test_the_curve_is_that_of_one_process(self):
        self.run_line(self.command("alone"))
        with self.subTest("kiln run"):
            out = self.run_line([KILN, "run", "--nproc", "2", "--", *self.command("two")])
            self.assertIn("2 ranks", out)
            self.assertEqual(out.count("validation loss before"), 1)
            self.check_curve("two")
        with self.subTest("kiln run, eager"):
            self.run_line([KILN, "run", "--nproc", "2", "--", *self.command("eager", "--eager")])
            self.check_curve("eager")
        with self.subTest("mpirun"):
            mpi = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
            self.run_line([*mpi, *self.command("mpi")])
            self.check_curve("mpi")
        with self.subTest("torchrun"):
            self.torchrun(self.command("torch"))
            self.check_curve("torch")

    def torchrun(self, line):
        """Its variables, and its agent, which holds the port that they name."""
        with socket.socket() as agent:
            agent.bind(("127.0.0.1", 0))
            agent.listen()
            env = dict(self.env, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(agent.getsockname()[1]))
            env |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "test"}
            env |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1"}
            ranks = [
                subprocess.Popen(
                    line, env=dict(env, RANK=str(r), LOCAL_RANK=str(r)), stdout=subprocess.DEVNULL
                )
                for r in range(2)
            ]
            try:
                self.assertEqual([p.wait(timeout=LIMIT_S) for p in ranks], [0, 0])
            finally:
                for p in ranks:
                    p.kill()

    def test_a_signal_stops_all_after_the_same_step(self):
        saved = self.path("saved")
        line = self.command("stopped", "--checkpoint", saved, "--save-every", "1", "--steps", "100000")
        started = [KILN, "run", "--nproc", "2", "--", *line]
        run = subprocess.Popen(started, env=self.env, stdout=subprocess.PIPE)
        self.wait_for(saved, run)
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 0, out.decode())
        self.assertIn("stopped by signal 2 after step", out.decode())
        # Nothing is left to do up to step 1, which all ranks must find out alike.
        again = self.command("again", "--steps", "1", "--resume", saved)
        self.run_line([KILN, "run", "--nproc", "2", "--", *again])

    def test_a_batch_that_cannot_be_shared_is_refused(self):
        line = self.command("odd")
        line[line.index("--batch") + 1] = "3"
        line = [KILN, "run", "--nproc", "2", "--", *line]
        done = subprocess.run(line, env=self.env, capture_output=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"3 windows cannot be shared by 2 ranks equally", done.stderr)


if __name__ == "__main__":
    unittest.main()
