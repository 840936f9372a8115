# SPDX-License-Identifier: Apache-2.0
"""Two processes that talk by Gloo, one of which does something else than the other in one step: both go on,
or both end with an error within the timeout, and one says what differs. C-10, C-19, C-20. Argument: the
program divergence_member."""
import os
import re
import socket
import subprocess
import sys
import unittest

MEMBER = sys.argv[1]
LIMIT_S = 60
TIMEOUT_S = 3
SLACK_S = 6


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Divergence(unittest.TestCase):
    def ranks(self, scenario, odd):
        """What both ranks, started by hand so that nobody ends them, say at their end; and their statuses."""
        port = free_port()
        env = [dict(os.environ, RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
               for r in (0, 1)]
        started = [subprocess.Popen([MEMBER, scenario, str(odd), str(TIMEOUT_S)], env=e, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for e in env]
        said = []
        try:
            for r, p in enumerate(started):
                out, err = p.communicate(timeout=LIMIT_S)
                self.assertEqual(err, "", scenario)
                found = re.fullmatch(rf"rank {r} \(gloo\), (\S+) s: (.*)\n", out)
                self.assertTrue(found, out)
                self.assertLess(float(found.group(1)), TIMEOUT_S + SLACK_S, out)
                said.append(found.group(2))
        finally:
            for p in started:
                p.kill()
                p.communicate()
        return said, [p.returncode for p in started]

    def test_both_go_on(self):
        for scenario in ("another branch", "another shape", "a hook that reads", "a slow first trace"):
            for odd in (0, 1):
                with self.subTest(scenario, odd=odd):
                    said, statuses = self.ranks(scenario, odd)
                    self.assertEqual(statuses, [0, 0], said)
                    self.assertEqual(said[0], said[1])

    def test_both_end_in_errors(self):
        for scenario, text in (("fewer calls", "rank ODD has (made|left after) 2 calls"),
                               ("an exception before backward", "4 calls, and failed in call 3: oops"),
                               ("a parameter without gradient", "failed in call 3: DistributedDataParallel"),
                               ("no_sync", "rank ODD has (made|left after) 4 calls"),
                               ("two backwards", "communicate differently in call 3: collective 2 is")):
            for odd in (0, 1):
                with self.subTest(scenario, odd=odd):
                    said, statuses = self.ranks(scenario, odd)
                    self.assertEqual(statuses, [1, 1], said)
                    for s in said:
                        self.assertRegex(s, "^(comm|invalid): ")
                    self.assertRegex("\n".join(said), text.replace("ODD", str(odd)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
