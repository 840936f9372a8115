# SPDX-License-Identifier: Apache-2.0
"""What the tests of the GPT example share: a folder of their own with a text to train on and a cache."""

import os
import tempfile
import time
import unittest


class WithText(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        with open(self.path("text"), "w") as f:
            f.write("".join(f"line {i * 7919 % 1000} of a text that repeats\n" for i in range(2000)))
        self.env = dict(os.environ, KILN_CACHE_DIR=self.path("cache"))

    def path(self, name):
        return os.path.join(self.dir, name)

    def wait_for(self, path, run):
        """Until the file is there, or the process has ended, or two minutes are over."""
        deadline = time.time() + 120
        while not os.path.exists(path) and run.poll() is None and time.time() < deadline:
            time.sleep(0.002)
