# SPDX-License-Identifier: Apache-2.0
"""Two processes, each with a simulated GPU, that train by an NCCL of processes: to the bits that one process
gets from both batches; and where one is killed, the other ends at once and names it. Argument: the program
nccl_member."""
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

MEMBER = sys.argv[1]
LIMIT_S = 60  # of the ranks, who are quicker where they notice something


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, size, *arguments):
        port = free_port()
        started = []
        for rank in range(size):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                       MASTER_PORT=str(port), TMPDIR=self.folder)
            p = subprocess.Popen([MEMBER, *arguments], env=env, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
            self.addCleanup(p.communicate)
            self.addCleanup(p.kill)
            started.append(p)
        return started

    def trained(self, size, mode):
        """The bits of the parameters, which all ranks have."""
        bits = set()
        for rank, p in enumerate(self.start(size, mode)):
            out, err = p.communicate(timeout=LIMIT_S)
            self.assertEqual((p.returncode, err), (0, ""), out)
            found = re.fullmatch(rf"rank {rank}:((?: \S+)+)\n", out)
            self.assertTrue(found, out)
            bits.add(found.group(1))
        self.assertEqual(len(bits), 1, bits)
        return bits.pop()

    def test_two_train_as_one(self):
        alone = self.trained(1, "eager")
        self.assertEqual(len(alone.split()), 10)
        for mode in ("eager", "kernels", "graphs"):
            with self.subTest(mode):
                self.assertEqual(self.trained(2, mode), alone)
        self.assertEqual(os.listdir(self.folder), [])

    def test_who_is_left_names_who_was_killed(self):
        for mode, where, rank in (("eager", "inside", 0), ("eager", "inside", 1), ("kernels", "inside", 1),
                                  ("graphs", "inside", 0), ("graphs", "inside", 1), ("kernels", "between", 0),
                                  ("kernels", "between", 1)):
            with self.subTest(mode, where=where, rank=rank):
                started = self.start(2, mode, where, str(rank))
                victim, left = started[rank], started[1 - rank]
                said = {"inside": "in a collective", "between": "between steps"}[where]
                self.assertEqual(victim.stdout.readline(), said + "\n")
                victim.send_signal(signal.SIGKILL)
                out, err = left.communicate(timeout=LIMIT_S)
                self.assertEqual((left.returncode, err), (1, ""), out)
                found = re.fullmatch(rf"rank {1 - rank}, (\S+) s: (.*)\n", out)
                self.assertTrue(found, out)
                self.assertLess(float(found.group(1)), LIMIT_S / 3)
                self.assertRegex(found.group(2), rf"^comm: .*rank {rank}(, which serves it at \S+,)? is lost")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
