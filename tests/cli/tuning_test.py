# SPDX-License-Identifier: Apache-2.0
"""`kiln tuning` and the levels of --tune: what one machine has found is a file, from which others run the
same plans without measuring."""
import json
import os
import pty
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import tools  # noqa: E402


class Tuning(tools.WithFolder):
    def tuned(self, level="fast"):
        """A job whose kernels are worth a trial, and its tuning file."""
        job, losses = self.record("wide.kiln", width="1024")
        self.good("warm", job, "--tune", level, "--json", KILN_TUNE_BUDGET_S="20")
        file = self.path(f"{level}.jsonl")
        with open(file, "w", encoding="utf-8") as f:
            f.write(self.good("tuning", "export"))
        return job, file, losses

    def test_a_file_is_replayed_by_runs_and_commands(self):
        job, file, losses = self.tuned()
        with open(file, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
        self.assertGreater(len(rows), 0)
        for row in rows:
            self.assertEqual(row["threads"], 1)
            self.assertTrue(row["key"].startswith("kiln kernel "))
        # Elsewhere: an empty cache, and a machine that never measures.
        elsewhere = {"cache": self.path("elsewhere"), "KILN_TUNING": file}
        result, err = self.train("1024", **elsewhere)
        self.assertEqual(err, "")
        self.assertEqual([b["tuned"] for b in result["builds"]], [0, 0])
        self.assertEqual(result["losses"], losses)
        status, out, err = tools.run(tools.KILN, "warm", job, "--tuning", file, "--json",
                                     KILN_CACHE_DIR=elsewhere["cache"])
        self.assertEqual(status, 0, err)
        self.assertEqual((json.loads(out)["compiled"], json.loads(out)["cached"]), (0, 3))
        fresh = {"cache": self.path("fresh"), "KILN_TUNING": file}
        tools.run(tools.KILN, "warm", job, "--tuning", file, KILN_CACHE_DIR=fresh["cache"])
        result, _ = self.train("1024", **fresh)
        self.assertEqual([(b["cached"], b["compiled"]) for b in result["builds"]], [(True, 0)] * 2)
        self.assertIn("3 of 3 programs would be found", tools.run(
            tools.KILN, "cache", "why-miss", job, "--tuning", file, KILN_CACHE_DIR=fresh["cache"])[1])

    def test_explain_shows_what_tuning_gained(self):
        job, file, _ = self.tuned("max")
        for args in (("--tune", "max"), ("--tuning", file)):
            for program in ("0", "1"):
                stage = json.loads(self.good("explain", job, *args, "--program", program, "--json"))[0]
                out = self.good("explain", job, *args, "--program", program)
                lines = out.partition("\n  schedules: ")[2].splitlines()[:len(stage["schedules"]) + 2]
                self.assertRegex(lines[0], rf"^{len(stage['schedules'])} kernels? by tuning$")
                self.assertEqual(lines[1].split(),
                                 ["kernel", "compared", "default", "time", "gain", "schedule"])
                for line, (kernel, row) in zip(lines[2:], stage["schedules"].items()):
                    self.assertGreater(row["compared"], 1)
                    self.assertGreaterEqual(row["default_seconds"], row["seconds"])
                    gain = 100 - 100 * row["seconds"] / row["default_seconds"]
                    time = r"[\d.]+ [mu]?s"
                    self.assertRegex(line, rf"^    {kernel[:12]} +{row['compared']} +{time} +{time} +\d+ %  ")
                    self.assertAlmostEqual(int(line.split(" %  ")[0].split()[-1]), gain, delta=0.51)
                    self.assertTrue(line.endswith(row["schedule"]))

    def test_show_and_merge(self):
        job, file, _ = self.tuned()
        lines = self.good("tuning", "show", file).splitlines()
        self.assertRegex(lines[0], r"^kernel +threads +time +gain +schedule$")
        self.assertRegex(lines[1], r"^[0-9a-f]{12} +1 +[\d.]+ [mu]?s +-?\d+ % +(matmul|rows) ")
        shown = json.loads(self.good("tuning", "show", file, "--json"))
        self.assertEqual(len(shown), len(lines) - 1)
        self.good("warm", job, "--tune", "fast", "--threads", "2", "--json")
        both = self.path("both.jsonl")
        with open(both, "w", encoding="utf-8") as f:
            f.write(self.good("tuning", "export"))
        with open(both, encoding="utf-8") as f:
            self.assertEqual(self.good("tuning", "merge", file, both), f.read())

    def test_max_searches_further_and_its_rows_serve_fast(self):
        job, file, _ = self.tuned("max")
        with open(file, encoding="utf-8") as f:
            self.assertTrue(all(json.loads(line)["wide"] for line in f))
        result, _ = self.train("1024", KILN_TUNE="fast")
        self.assertEqual([(b["tuned"], b["compiled"]) for b in result["builds"]], [(0, 0)] * 2)
        result, _ = self.train("1024", KILN_TUNE="max")
        self.assertEqual([b["tuned"] for b in result["builds"]], [0, 0])

    def test_a_replayed_file_of_max_gives_the_same_bits(self):
        _, file, plain = self.tuned("max")
        searched, _ = self.train("1024", KILN_TUNE="max")
        self.assertEqual([b["tuned"] for b in searched["builds"]], [0, 0])
        replayed, _ = self.train("1024", cache=self.path("replayed"), KILN_TUNING=file)
        self.assertEqual(replayed["losses"], searched["losses"])
        for tuned, untuned in zip(searched["losses"], plain):  # sums may be in another order
            self.assertAlmostEqual(float.fromhex(tuned), float.fromhex(untuned), delta=1e-5)

    def test_what_is_wrong_is_said(self):
        job, _ = self.record()
        bad = self.path("bad.jsonl")
        with open(bad, "w", encoding="utf-8") as f:
            f.write("{}\n")
        for args in (("tuning", "show", bad), ("tuning", "merge", bad), ("warm", job, "--tuning", bad)):
            status, _, err = tools.run(tools.KILN, *args, KILN_CACHE_DIR=self.cache)
            self.assertNotEqual(status, 0)
            self.assertIn("bad.jsonl:1: no row of a tuning file", err)
            self.assertEqual(err.count("\n"), 1)
        status, _, err = tools.run(tools.TRAIN, "32", KILN_CACHE_DIR=self.cache,
                                   KILN_TUNING=self.path("none"))
        self.assertNotEqual(status, 0)
        self.assertIn("tuning file " + self.path("none") + " cannot be read", err)
        for args, what in ((("tuning",), "no command; commands: export, merge, show"),
                           (("tuning", "show"), "no FILE; expected kiln tuning show FILE"),
                           (("warm", job, "--tune", "slow"), "expected one of off, fast, max"),
                           (("warm", job, "--threads", "2"), "without --tune or --tuning")):
            status, _, err = tools.run(tools.KILN, *args, KILN_CACHE_DIR=self.cache)
            self.assertEqual(status, 2 if "off" in what or "FILE" in what or "commands" in what else status)
            self.assertNotEqual(status, 0)
            self.assertIn(what, err)

    def test_interrupted_it_keeps_what_was_measured(self):
        job, _ = self.record("wide.kiln", width="1024")
        main, side = pty.openpty()
        warm = subprocess.Popen([tools.KILN, "warm", job, "--tune", "max"], stdout=subprocess.DEVNULL,
                                stderr=side, env={**tools.CLEAN, "KILN_CACHE_DIR": self.cache})
        os.close(side)
        seen = ""
        while " tuned" not in seen:  # the bar, after the first kernel
            seen += os.read(main, 4096).decode()
        warm.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                more = os.read(main, 4096).decode()
            except OSError:
                break
            seen += more
        self.assertEqual(warm.wait(timeout=60), 128 + signal.SIGINT)
        self.assertRegex(seen, r"interrupted; \d of 3 are done and kept, and \d+ kernels? tuned")
        self.assertGreater(len(self.good("tuning", "export").splitlines()), 0)


if __name__ == "__main__":
    tools.main()
