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
    def ranks(self, scenario, odd, *how, timeout=TIMEOUT_S, limit=TIMEOUT_S + SLACK_S):
        """What both ranks, started by hand so that nobody ends them, say at their end; and their statuses."""
        port = free_port()
        env = [dict(os.environ, RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
               for r in (0, 1)]
        started = [subprocess.Popen([MEMBER, scenario, str(odd), str(timeout), *how], env=e, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for e in env]
        said = []
        try:
            for r, p in enumerate(started):
                out, err = p.communicate(timeout=LIMIT_S)
                self.assertEqual(err, "", scenario)
                found = re.fullmatch(rf"rank {r} \(gloo\), (\S+) s: (.*)\n", out)
                self.assertTrue(found, out)
                self.assertLess(float(found.group(1)), limit, out)
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
                               ("an all_reduce of its own", "all_reduce #[0-9]+ of f32.*: neither can go on"),
                               ("a barrier of its own", "barrier #[0-9]+ .*: neither can go on"),
                               ("a wrapper of its own", "the constructor of .*#2 .*: neither can go on"),
                               ("an all_reduce before the first step", "the first backward of .*: neither"),
                               ("two backwards", "communicate differently in call 3: collective 2 is")):
            for odd in (0, 1):
                with self.subTest(scenario, odd=odd):
                    said, statuses = self.ranks(scenario, odd)
                    self.assertEqual(statuses, [1, 1], said)
                    for s in said:
                        self.assertRegex(s, "^(comm|invalid): ")
                    self.assertRegex("\n".join(said), text.replace("ODD", str(odd)))

    def test_who_goes_early_is_told_at_once(self):
        gone = (r"rank ODD (has left after 2 calls|is gone: )|"
                r"rank (ODD|0, which serves .*,) is lost: .*ended without destroy_process_group")
        left = r"in destroy_process_group \(divergence_member\.cpp:\d+\).*neither can go on"
        for end, text in (("destroy", left), ("return", gone), ("exit", gone)):
            for mode in ("eager", "compiled"):
                for odd in (0, 1):
                    with self.subTest(end, mode=mode, odd=odd):
                        said, statuses = self.ranks("fewer calls", odd, mode, end, timeout=LIMIT_S,
                                                    limit=LIMIT_S / 3)
                        self.assertEqual(statuses, [odd, 1 - odd], said)
                        self.assertRegex(said[odd], "^ok ")
                        self.assertRegex(said[1 - odd], text.replace("ODD", str(odd)))
                        self.assertNotIn("Cancelling", said[1 - odd])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
