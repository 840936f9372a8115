# SPDX-License-Identifier: Apache-2.0
"""Runs the digits example on the simulated GPU: each epoch's loss and accuracy must be the CPU's, but for
rounding. Argument: the program."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "digits"
SMALL = "--epochs 2 --batch 16 --width 2 --test-share 0.2".split()
IMAGES, TESTED = 40, 8
EPOCH = re.compile(r"epoch +\d+: loss ([0-9.]+), accuracy on the test ([0-9.]+) %")


def image(number):
    """A bar, in a row for the digits 0 to 4 and in a column for the others, and a pixel that is lit, too."""
    digit = number % 10
    pixels = []
    for i in range(64):
        line = i // 8 if digit < 5 else i % 8
        pixels.append(16 if line == digit % 5 + 1 else 9 if i == number * 7 % 64 else 0)
    return ",".join(map(str, [*pixels, digit])) + "\n"


class Cuda(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.data = os.path.join(folder.name, "digits.csv")
        with open(self.data, "w") as f:
            f.write("".join(image(i) for i in range(IMAGES)))
        self.env = dict(os.environ, KILN_CACHE_DIR=os.path.join(folder.name, "cache"), KILN_CUDA_DRIVER="sim")

    def run_digits(self, *more):
        line = [PROGRAM, "--data", self.data, *SMALL, *more]
        return subprocess.run(line, env=self.env, capture_output=True, text=True, timeout=250)

    def epochs(self, *more):
        """(loss, accuracy) of each."""
        done = self.run_digits(*more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = [(float(loss), float(share)) for loss, share in EPOCH.findall(done.stdout)]
        self.assertEqual(len(found), 2, done.stdout)
        return found

    def test_the_losses_are_those_of_the_cpu(self):
        for cpu, gpu in zip(self.epochs(), self.epochs("--device", "cuda")):
            self.assertAlmostEqual(cpu[0], gpu[0], delta=1e-3)
            self.assertAlmostEqual(cpu[1], gpu[1], delta=100 / TESTED + 0.1)  # one image

    def test_a_device_that_is_none(self):
        done = self.run_digits("--device", "gpu")
        self.assertGreater(done.returncode, 1)
        self.assertIn("--device: got gpu, expected cpu, cuda or cuda:N\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
