# SPDX-License-Identifier: Apache-2.0
"""Runs the program `kiln`: what it prints, on which stream, with which exit status.

Usage: cli_test.py KILN SOURCE_DIR. With KILN_UPDATE_GOLDEN=1 it rewrites docs/options.md.
"""
import os
import re
import subprocess
import sys
import unittest

KILN, ROOT = sys.argv[1], sys.argv[2]
OPTIONS_PAGE = os.path.join(ROOT, "docs", "options.md")


def run(*args, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}
    done = subprocess.run([KILN, *args], capture_output=True, text=True, env={**clean, **env}, timeout=60)
    return done.returncode, done.stdout, done.stderr


class Usage(unittest.TestCase):
    def test_version_and_help(self):
        status, out, err = run("--version")
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(re.fullmatch(r"kiln \d+\.\d+\.\d+\n", out), out)
        status, out, err = run("--help")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("options", out)

    def test_mistakes_are_one_line_and_status_2(self):
        cases = {
            ("frob",): "kiln: unknown command 'frob'; commands: ",
            ("--frob",): "kiln: unknown argument '--frob' (kiln --help)\n",
            ("options", "--frob"): "kiln: options: unknown argument '--frob' (kiln options --help)\n",
            ("options", "more"): "kiln: options: unknown argument 'more' (kiln options --help)\n",
            ("options", "--markdown=5"): "kiln: options: --markdown takes no value (kiln options --help)\n",
            (): "kiln: no command; commands: options, run, warm, cache, explain, tuning (kiln --help)\n",
            ("cache",):
                "kiln: cache: no command; commands: ls, stat, verify, gc, why-miss (kiln cache --help)\n",
            ("cache", "frob"): "kiln: cache: unknown command 'frob'; commands: ls, ",
            ("cache", "gc", "all"): "kiln: cache gc: unknown argument 'all' (kiln cache gc --help)\n",
            ("cache", "ls", "--json=x"): "kiln: cache ls: --json takes no value (kiln cache ls --help)\n",
            ("warm", "x", "--jobs="): "kiln: warm: --jobs needs a value (kiln warm --help)\n",
            ("cache", "ls", "--kind"): "kiln: cache ls: --kind needs a value (kiln cache ls --help)\n",
            ("explain",): "kiln: explain: no JOB; expected kiln explain JOB (kiln explain --help)\n",
            ("cache", "why-miss"): "kiln: cache why-miss: no JOB; expected kiln cache why-miss JOB (kiln ",
            ("warm", "x", "-j", "1", "-j", "2"):
                "kiln: warm: --jobs is given more than once (kiln warm --help)\n",
        }
        for args, message in cases.items():
            self.check(message, *args)

    def test_bad_values_say_what_fits(self):
        numbers = {
            ("warm", "x", "--jobs"): (0, 1024), ("explain", "x", "--threads"): (0, 256),
            ("warm", "x", "--threads"): (0, 256), ("cache", "why-miss", "x", "--threads"): (0, 256),
            ("explain", "x", "--program"): (0, 2**31 - 1), ("cache", "gc", "--limit"): (0, 2**40),
            ("cache", "gc", "--older-than"): (0, 2**20), ("run", "--nproc"): (1, 1024),
        }
        for args, (least, most) in numbers.items():
            where = " ".join(a for a in args[:-1] if a != "x")
            for value in ("x", "-1", "1.5", "2x", "0x10", "+1", "99999999999999999999"):
                self.check(f"kiln: {where}: bad {args[-1]}; got '{value}', expected a whole number from "
                           f"{least} to {most}\n", *args[:-1], f"{args[-1]}={value}")
        choices = {
            ("warm", "x", "--tune"): "off, fast, max", ("explain", "x", "--tune"): "off, fast, max",
            ("cache", "why-miss", "x", "--tune"): "off, fast, max",
            ("cache", "ls", "--kind"): "cubin, object, plan, sim, tune",
            ("cache", "ls", "--sort"): "used, written, bytes, kind",
        }
        for args, words in choices.items():
            where = " ".join(a for a in args[:-1] if a != "x")
            self.check(f"kiln: {where}: bad {args[-1]}; got 'frob', expected one of {words}\n", *args, "frob")
        for args in (("warm",), ("explain",), ("cache", "why-miss")):
            for value in ("z80", "", "host,z80", "host,"):
                self.check(f"kiln: {' '.join(args)}: bad --target; got '{value}', expected some of host, "
                           "x86-64-v3, x86-64-v4, aarch64, sm_80, sm_90a, sm_100a and the like, with "
                           "commas between\n", *args, "x", "--target", value)

    def check(self, message, *args):
        status, out, err = run(*args)
        self.assertEqual((status, out), (2, ""), args)
        self.assertTrue(err.startswith(message), err)
        self.assertEqual(err.count("\n"), 1, err)

    def test_unknown_switch(self):
        status, out, err = run("options", KILN_FROB="1")
        self.assertEqual((status, out), (2, ""))
        self.assertTrue(err.startswith("kiln: unknown switch KILN_FROB; known switches: KILN_"), err)


class Options(unittest.TestCase):
    def test_text_shows_what_is_set(self):
        status, out, _ = run("options", KILN_COMPILE="off")
        self.assertEqual(status, 0)
        self.assertIn("KILN_COMPILE  (one of on, off, check; default on)\n", out)
        self.assertEqual(out.count("set to"), 1)
        self.assertIn("    set to off\n", out)

    def test_bad_value(self):
        status, _, err = run("options", KILN_COMPILE="frob")
        self.assertEqual(status, 2)
        self.assertEqual(err, "kiln: KILN_COMPILE: bad value; got 'frob', expected one of on, off, check\n")

    def test_page_is_fresh(self):
        status, out, _ = run("options", "--markdown")
        self.assertEqual(status, 0)
        if os.environ.get("KILN_UPDATE_GOLDEN") == "1":
            with open(OPTIONS_PAGE, "w", encoding="utf-8") as f:
                f.write(out)
        with open(OPTIONS_PAGE, encoding="utf-8") as f:
            self.assertEqual(f.read(), out,
                             "docs/options.md is stale: kiln options --markdown >docs/options.md")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
