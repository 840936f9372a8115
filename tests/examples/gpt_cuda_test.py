# SPDX-License-Identifier: Apache-2.0
"""Runs the GPT example on the simulated GPU: losses, validation and what a checkpoint brings back must be the
CPU's, but for rounding; and a checkpoint of the one is read on the other. Argument: the program."""

import json
import os
import subprocess
import sys
import unittest

from with_text import WithText

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "gpt"
SMALL = ("--layers 1 --dim 16 --heads 2 --seq 8 --batch 2 --dropout 0.1 --warmup 1 --eval-every 0 "
         "--threads 2 --no-progress").split()
TOLERANCE = 1e-4  # relative: sums in another order


class Cuda(WithText):
    def setUp(self):
        super().setUp()
        with open(self.path("text")) as f:
            text = f.read(1200)
        with open(self.path("short"), "w") as f:
            f.write(text)

    def run_gpt(self, *more, driver="sim"):
        line = [PROGRAM, "--data", self.path("short"), *SMALL, *more]
        env = {**self.env, "KILN_CUDA_DRIVER": driver}
        return subprocess.run(line, env=env, capture_output=True, text=True, timeout=250)

    def figures(self, *more):
        done = self.run_gpt("--json", self.path("json"), *more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.path("json")) as f:
            return json.load(f), done.stdout

    def check_alike(self, a, b):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertAlmostEqual(x, y, delta=TOLERANCE * abs(x))

    def check_same_run(self, a, b):
        self.assertGreater(len(a["losses"]), 0)
        for name in ("losses", "eager_losses"):
            self.check_alike(a[name], b[name])
        for name in ("val_loss_first", "val_loss_last"):
            self.check_alike([a[name]], [b[name]])

    def test_the_losses_are_those_of_the_cpu(self):
        first = "--steps 2 --eager-steps 1 --sample 2 --checkpoint".split()
        on_cpu, _ = self.figures(*first, self.path("cpu"))
        on_gpu, out = self.figures(*first, self.path("gpu"), "--device", "cuda")
        self.check_same_run(on_cpu, on_gpu)
        self.check_alike(on_gpu["eager_losses"], on_gpu["losses"][:1])
        self.assertRegex(out, r"(?s)--- sample ---\n..\n--- end ---")
        self.assertNotIn("this machine's limit", out)
        again = "--steps 4 --eager-steps 0 --sample 0 --resume".split()
        on_cpu, _ = self.figures(*again, self.path("cpu"))
        on_gpu, _ = self.figures(*again, self.path("gpu"), "--device", "cuda:1")
        moved, _ = self.figures(*again, self.path("gpu"))
        self.assertEqual(len(on_cpu["losses"]), 2)
        self.check_same_run(on_cpu, on_gpu)
        self.check_same_run(on_cpu, moved)

    def check_refused(self, words, *more, driver="sim"):
        done = self.run_gpt("--steps", "1", *more, driver=driver)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, "^gpt: .*" + words)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_gpu_that_is_not_there(self):
        self.check_refused("no CUDA device can be used: KILN_CUDA_DRIVER=off", "--device", "cuda",
                           driver="off")
        self.check_refused("got index 9, expected 0 to 1 ", "--device", "cuda:9")


if __name__ == "__main__":
    unittest.main()
