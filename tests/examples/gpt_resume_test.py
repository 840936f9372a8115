# SPDX-License-Identifier: Apache-2.0
"""Runs the GPT example: interrupted by SIGKILL and by Ctrl-C, then resumed, it must end with the very
bytes of an undisturbed run. Argument: the program."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest

from with_text import WithText

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "gpt"
SMALL = "--layers 1 --dim 32 --heads 2 --seq 16 --batch 4 --sample 0 --eager-steps 0 --threads 2".split()
STEPS = 120


class Resume(WithText):
    def command(self, *more):
        return [PROGRAM, "--data", self.path("text"), *SMALL, "--steps", str(STEPS), *more]

    def run_gpt(self, *more, code=0):
        done = subprocess.run(self.command(*more), env=self.env, capture_output=True, timeout=300)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done

    def undisturbed(self):
        self.run_gpt("--checkpoint", self.path("whole"))
        with open(self.path("whole"), "rb") as f:
            return f.read()

    def interrupted(self, sig):
        """Starts a run that saves each step, waits for its first checkpoint, sends `sig`."""
        part = self.path("part")
        more = ["--checkpoint", part, "--save-every", "1"]
        run = subprocess.Popen(self.command(*more), env=self.env, stdout=subprocess.DEVNULL)
        self.wait_for(part, run)
        time.sleep(0.01)
        run.send_signal(sig)
        return run.wait(timeout=120), part

    def check_resumed(self, part):
        left = self.temporaries()
        self.run_gpt("--resume", part, "--checkpoint", self.path("end"), "--json", self.path("json"))
        with open(self.path("json")) as f:
            steps = json.load(f)["steps"]
        self.assertLess(steps, STEPS, "the signal came too late to interrupt anything")
        with open(self.path("end"), "rb") as f:
            return left, f.read()

    def test_killed(self):
        whole = self.undisturbed()
        code, part = self.interrupted(signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL)
        _, end = self.check_resumed(part)
        self.assertEqual(end, whole)

    def temporaries(self):
        return [n for n in os.listdir(self.dir) if n.startswith(".part.")]

    def test_killed_while_it_saves(self):
        """Half a checkpoint is left, beside the whole one, until the next is saved there."""
        part = self.path("part")
        run = subprocess.Popen(self.command("--checkpoint", part, "--save-every", "1"), env=self.env,
                               stdout=subprocess.DEVNULL)
        deadline = time.time() + 120
        while time.time() < deadline and run.poll() is None:
            if os.path.exists(part) and self.temporaries():
                run.send_signal(signal.SIGSTOP)
                os.waitpid(run.pid, os.WUNTRACED)
                if self.temporaries():
                    break
                run.send_signal(signal.SIGCONT)
        run.kill()
        self.assertEqual(run.wait(timeout=120), -signal.SIGKILL)
        self.assertEqual(len(self.temporaries()), 1)
        self.run_gpt("--resume", part, "--checkpoint", part)
        self.assertEqual(self.temporaries(), [])

    def test_stopped_by_ctrl_c(self):
        whole = self.undisturbed()
        code, part = self.interrupted(signal.SIGINT)
        self.assertEqual(code, 0)
        left, end = self.check_resumed(part)
        self.assertEqual(left, [])
        self.assertEqual(end, whole)

    def test_damaged_checkpoint(self):
        self.undisturbed()
        with open(self.path("whole"), "r+b") as f:
            f.truncate(os.path.getsize(self.path("whole")) - 1)
        done = self.run_gpt("--resume", self.path("whole"), code=1)
        self.assertIn(b"whole", done.stderr)
        self.assertEqual(done.stderr.count(b"\n"), 1)

    def test_missing_files(self):
        done = self.run_gpt("--resume", self.path("none"), code=1)
        self.assertIn(b"cannot read the file; No such file or directory", done.stderr)
        done = self.run_gpt("--json", self.path("no/such"), code=1)
        self.assertIn(b"cannot create a temporary in its folder", done.stderr)

    def test_output_that_cannot_be_written(self):
        """Is said, and loses nothing else."""
        whole = self.undisturbed()
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                self.command("--checkpoint", self.path("end")),
                env=self.env, stdout=full, stderr=subprocess.PIPE, timeout=300)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"gpt: the output cannot be written: No space left on device", done.stderr)
        with open(self.path("end"), "rb") as f:
            self.assertEqual(f.read(), whole)

    def test_killed_while_the_cache_is_written(self):
        """What is left of the cache is whole, or made again."""
        whole = self.undisturbed()
        self.env["KILN_CACHE_DIR"] = self.path("torn")
        for i in range(4):
            run = subprocess.Popen(self.command(), env=self.env, stdout=subprocess.DEVNULL)
            entries, deadline = len(self.entries()) + 1 + i, time.time() + 120
            while len(self.entries()) < entries and run.poll() is None and time.time() < deadline:
                time.sleep(0.0005)
            run.kill()
            run.wait(timeout=120)
        self.run_gpt("--checkpoint", self.path("end"))
        with open(self.path("end"), "rb") as f:
            self.assertEqual(f.read(), whole)

    def entries(self):
        """Files of the cache, those being written too."""
        return [n for _, _, names in os.walk(self.path("torn")) for n in names]


if __name__ == "__main__":
    unittest.main()
