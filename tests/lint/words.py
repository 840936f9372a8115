# SPDX-License-Identifier: Apache-2.0
"""No unfinished work and no foreign places in the sources, the scripts or the documents."""
import os
import re

import source

WORDS = [
    (re.compile(r"\b(TODO|FIXME|XXX|HACK|WIP)\b"), "unfinished work"),
    (re.compile(r"\bplaceholders?\b|\bstubs?\b|\bstubbed\b|\bdummy\b", re.I), "unfinished work"),
    (re.compile(r"\bnot (yet )?implemented\b|\bunimplemented\b|\bfor now\b", re.I), "unfinished work"),
    (re.compile(r"/work/|/root/|/home/\w+/"), "a path of one machine"),
    (re.compile(r"\bissues? #?\d+\b", re.I), "a number that leads nowhere in this tree"),
]
DIRS = source.SOURCE_DIRS + ("tests", "scripts", "cmake", "docs", ".ci")
SUFFIXES = (".h", ".cpp", ".py", ".sh", ".cmake", ".txt", ".md", ".in", "/run", ".cuh")
# This folder names the words in order to forbid them.
OWN = "tests/lint/"


def check(root):
    faults = []
    top = [f for f in sorted(os.listdir(root)) if f.endswith(SUFFIXES)]
    for path in top + source.files(root, DIRS, SUFFIXES):
        if path.startswith(OWN) or path.endswith("/run") and not path.startswith(".ci"):
            continue
        for number, line in enumerate(source.read(root, path).splitlines(), 1):
            for pattern, what in WORDS:
                match = pattern.search(line)
                if match:
                    faults.append(f"{path}:{number}: '{match.group(0)}' is {what}")
    return faults


if __name__ == "__main__":
    source.main(check)
