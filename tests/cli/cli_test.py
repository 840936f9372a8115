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
            ("options", "--frob"): "kiln: options: unknown argument '--frob' (kiln --help)\n",
            ("options", "more"): "kiln: options: unknown argument 'more' (kiln --help)\n",
            (): "kiln: no command; commands: ",
        }
        for args, message in cases.items():
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
