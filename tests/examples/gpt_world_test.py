# SPDX-License-Identifier: Apache-2.0
"""Gradients of the GPT example's model on processes that talk by Gloo: the same bits on all ranks, and those
of one process with the joined batch. Arguments: the programs gpt_world and kiln, and the model's size."""
import re
import subprocess
import sys
import unittest

PROGRAM, KILN, SIZE = sys.argv[1:4]
LIMIT_S = 500


class World(unittest.TestCase):
    def check(self, ranks):
        done = subprocess.run([KILN, "run", "--nproc", str(ranks), "--", PROGRAM, SIZE], capture_output=True,
                              text=True, timeout=LIMIT_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        found = re.findall(r"rank (\d) of (\d): (\d+) bytes of gradients, hash (\w+), (\d+) reductions",
                           done.stdout)
        self.assertEqual(sorted(rank for rank, *_ in found), [str(r) for r in range(ranks)], done.stdout)
        self.assertEqual(len({tuple(rest) for _, *rest in found}), 1, done.stdout)
        self.assertEqual(found[0][1], str(ranks))
        self.assertGreater(int(found[0][2]), 100_000)
        self.assertGreater(int(found[0][4]), 0)
        distance, of_one = map(float, re.search(r"distance (\S+) of one (\S+)", done.stdout).groups())
        print(f"{SIZE}, {ranks} ranks: {distance:.2g} of the largest gradient from one process,",
              f"{of_one:.2g} of a parameter's largest")
        self.assertLess(distance, 1e-6)
        self.assertLess(of_one, 1e-5)
        self.assertGreater(of_one, 0)  # sums of parts are not those of the whole

    def test_two_ranks(self):
        self.check(2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
