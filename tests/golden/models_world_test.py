# SPDX-License-Identifier: Apache-2.0
"""mlp and gpt-tiny of models.json by two processes that talk by Gloo (R-131). Arguments: the programs
models_world and kiln."""
import subprocess
import sys
import unittest

PROGRAM, KILN = sys.argv[1:3]
MODELS = ("mlp", "gpt-tiny")
LIMIT_S = 280


class World(unittest.TestCase):
    def test_two_processes(self):
        done = subprocess.run([KILN, "run", "--nproc", "2", "--", PROGRAM, *MODELS], capture_output=True,
                              text=True, timeout=LIMIT_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        expected = [f"[{r}] {m}, {mode}, rank {r} of 2, gloo: as PyTorch"
                    for m in MODELS for mode in ("eager", "compiled") for r in (0, 1)]
        self.assertEqual(sorted(done.stdout.splitlines()), sorted(expected))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
