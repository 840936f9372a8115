#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""digits_run_test.py DIGITS: what examples/digits/run.sh does after building: it fetches the images, trains,
and reaches what the README says."""
import os
import re
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DIGITS = ""


class Digits(unittest.TestCase):
    def test_more_than_98_percent_in_less_than_a_minute(self):
        subprocess.run([os.path.join(ROOT, "examples/digits/setup.sh")], check=True)
        done = subprocess.run([DIGITS], cwd=ROOT, check=True, capture_output=True, text=True)
        found = re.search(r"accuracy ([0-9.]+) % on the test images, ([0-9.]+) s", done.stdout)
        self.assertIsNotNone(found, done.stdout)
        self.assertGreaterEqual(float(found[1]), 98, done.stdout)
        self.assertLess(float(found[2]), 60, done.stdout)


if __name__ == "__main__":
    DIGITS = os.path.abspath(sys.argv.pop(1))
    unittest.main()
