# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of docs/CLI.md, in their order, and compares what they print, but for numbers and names
of entries. With KILN_UPDATE_GOLDEN=1 it writes what they print into the page."""
import os
import re
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True
import tools  # noqa: E402

PAGE = os.path.join(tools.ROOT, "docs", "CLI.md")
BLOCK = re.compile(r"(?<=```console\n)(.*?)(?=```\n)", re.S)


def shape(text):
    """What stays the same from run to run: lines in any order, numbers and digests blanked."""
    text = re.sub(r"\b[0-9a-f]{12,32}\b", "ENTRY", text)
    text = re.sub(r"\b[0-9.]+ (B|KiB|MiB)\b", "SIZE", text)
    text = re.sub(r"\d[\d.]*", "N", text)
    return sorted(re.sub(r" +", " ", text).strip().splitlines())


class Docs(tools.WithFolder):
    def command(self, line):
        words = shlex.split(line)
        env = dict(tools.CLEAN, KILN_CACHE_DIR="cache", KILN_NUM_THREADS="1")
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            env[name] = value
        program = {"kiln": tools.KILN, "./train": tools.TRAIN}[words[0]]
        done = subprocess.run([program, *words[1:]], capture_output=True, text=True, env=env, timeout=100,
                              cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""), line)
        return done.stdout if words[0] == "kiln" else ""

    def test_page(self):
        self.record("wider.kiln", width="40")
        with open(PAGE, encoding="utf-8") as f:
            page = f.read()
        commands = 0

        def run_block(match):
            nonlocal commands
            out = ""
            for part in re.split(r"^\$ ", match.group(1), flags=re.M)[1:]:
                line, _, expected = part.partition("\n")
                got = self.command(line)
                commands += 1
                if os.environ.get("KILN_UPDATE_GOLDEN") != "1":
                    self.assertEqual(shape(got), shape(expected), line)
                out += f"$ {line}\n{got}"
            return out

        page = BLOCK.sub(run_block, page)
        self.assertGreaterEqual(commands, 10)
        if os.environ.get("KILN_UPDATE_GOLDEN") == "1":
            with open(PAGE, "w", encoding="utf-8") as f:
                f.write(page)


if __name__ == "__main__":
    tools.main()
