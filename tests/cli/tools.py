# SPDX-License-Identifier: Apache-2.0
"""What the tests of the program `kiln` share: programs run with a clean environment, and folders that go.

Usage of each test: X_test.py KILN TRAIN SOURCE_DIR.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

KILN, TRAIN, ROOT = sys.argv[1], sys.argv[2], sys.argv[3]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}
CLEAN["KILN_TUNE_BUDGET_S"] = "60"  # a slow machine, too, comes to its end


def run(*args, cwd=None, limits=None, **env):
    """Exit status, stdout and stderr of a program."""
    done = subprocess.run(args, capture_output=True, text=True, env={**CLEAN, **env}, timeout=100, cwd=cwd,
                          preexec_fn=limits)
    return done.returncode, done.stdout, done.stderr


class WithFolder(unittest.TestCase):
    """A folder of its own, a cache in it, and a job."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="kiln-cli-test-")
        self.cache = self.path("cache")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def kiln(self, *args, cache=None, **env):
        return run(KILN, *args, KILN_CACHE_DIR=cache or self.cache, **env)

    def good(self, *args, **env):
        """stdout of a command that must succeed without a word on stderr."""
        status, out, err = self.kiln(*args, **env)
        self.assertEqual((status, err), (0, ""), args)
        return out

    def train(self, *args, cache=None, **env):
        """What a run printed, and its stderr."""
        status, out, err = run(TRAIN, *args, **{"KILN_CACHE_DIR": cache or self.cache,
                                                "KILN_NUM_THREADS": "1", **env})
        self.assertEqual(status, 0, err)
        return json.loads(out), err

    recorded = {}

    def record(self, name="job.kiln", width="32"):
        """A job of three programs, none of them in the cache. Returns the path and the losses."""
        job = self.path(name)
        if width not in self.recorded:
            result, err = self.train(width, cache=self.path("recorded"), KILN_RECORD=job)
            self.assertEqual(err, "")
            shutil.rmtree(self.path("recorded"))
            with open(job, "rb") as f:
                self.recorded[width] = f.read(), result["losses"]
        with open(job, "wb") as f:
            f.write(self.recorded[width][0])
        return job, self.recorded[width][1]

    def skip_without_nvrtc(self, job):
        out = self.good("explain", job, "--target", "sm_90a", "--program", "0", "--json",
                        cache=self.path("elsewhere"))
        stage = json.loads(out)[0]
        if not stage["compiler"]:
            self.skipTest(stage["no_compiler"])

    def files(self, cache=None):
        """kind/name -> bytes of every entry; fails on leftovers."""
        out = {}
        for folder, _, names in os.walk(cache or self.cache):
            for name in names:
                self.assertFalse(name.startswith("."), name)
                with open(os.path.join(folder, name), "rb") as f:
                    out[os.path.basename(folder) + "/" + name] = f.read()
        return out

    def damage(self, entry, edit):
        with open(os.path.join(self.cache, entry), "rb") as f:
            data = f.read()
        with open(os.path.join(self.cache, entry), "wb") as f:
            f.write(edit(data))


def main():
    unittest.main(argv=sys.argv[:1])
