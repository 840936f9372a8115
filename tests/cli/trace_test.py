# SPDX-License-Identifier: Apache-2.0
"""KILN_TRACE in a program that trains: a whole JSON array, whose calls say which callable they are of."""
import glob
import json
import os
import sys

sys.dont_write_bytecode = True
import tools  # noqa: E402


class Trace(tools.WithFolder):
    def test_calls_have_names_and_numbers(self):
        self.train("32", "ddp", KILN_TRACE=self.path("trace"))
        (name,) = glob.glob(self.path("trace.*.json"))
        pid = int(name.split(".")[-2])
        with open(name, encoding="utf-8") as f:
            events = json.load(f)
        self.assertEqual({e["pid"] for e in events}, {pid})
        self.assertEqual(events[0]["args"]["name"], f"cli_train (pid {pid})")
        calls = [(e["name"], e["args"]["call"]) for e in events if e.get("cat") == "call"]
        step, evaluate = "train (train.cpp:41)", "evaluate (train.cpp:51)"  # the latter stops at a host read
        self.assertEqual(calls, [(step, 1), (step, 2), (step, 3), (evaluate, 1), (evaluate, 1)])
        inside = [e for e in events if e.get("cat") == "kernel"]
        self.assertTrue(all(e["args"]["bytes"] >= 0 for e in inside))

    def test_a_diagnostic_that_cannot_be_written_ends_no_run(self):
        blocked = self.path("file") + "/below"
        with open(self.path("file"), "w", encoding="utf-8"):
            pass
        quiet, _ = self.train("32")
        for switches, said in (
                ({"KILN_TRACE": blocked}, rf"KILN_TRACE: cannot write {blocked}\.\d+\.json: Not a directory"),
                ({"KILN_RECORD": blocked}, rf"KILN_RECORD: {blocked}\.lock: Not a directory"),
                ({"KILN_DUMP": "plan,loops", "KILN_DUMP_DIR": blocked},
                 rf"KILN_DUMP: cannot write to {blocked}: Not a directory")):
            out, err = self.train("32", cache=self.path(next(iter(switches))), **switches)
            self.assertEqual(out["losses"], quiet["losses"])
            self.assertRegex(err, rf"^kiln warning: {said}; going on without\n$")
        self.assertEqual(os.path.getsize(self.path("file")), 0)


if __name__ == "__main__":
    tools.main()
