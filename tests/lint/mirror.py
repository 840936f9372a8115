# SPDX-License-Identifier: Apache-2.0
"""tests/ mirrors the sources: tests/<folder>/X_test.cpp tests <folder>/X.cpp.

X_more_test.cpp is a further test of X, and where X is a folder, the test of all its sources. A source that
has none stands in covered.txt beside this file, with the test that covers it: "<source> <test>".
"""
import os

import source

MIRRORED = ("ir", "codegen", "runtime", "autotune", "frontend")
COVERED = "tests/lint/covered.txt"


def read_covered(root):
    """(source, test) pairs of covered.txt, and the faults in it."""
    pairs, faults = {}, []
    if not os.path.exists(os.path.join(root, COVERED)):
        return pairs, faults
    for number, line in enumerate(source.read(root, COVERED).splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != 2:
            faults.append(f"{COVERED}:{number}: expected '<source> <test>'")
            continue
        pairs[words[0]] = words[1]
        for word in words:
            if not os.path.exists(os.path.join(root, word)):
                faults.append(f"{COVERED}:{number}: no file {word}")
    return pairs, faults


def subject(test, sources):
    """The source that `test` is named after, or None: the longest stem that its name starts with."""
    name = test.removeprefix("tests/").removesuffix("_test.cpp")
    while name:
        if name + ".cpp" in sources or name + ".h" in sources:
            return name
        folder, _, stem = name.rpartition("/")
        if "_" not in stem:
            return None
        name = f"{folder}/{stem.rpartition('_')[0]}"
    return None


def folder_of(test, sources):
    """The folder that `test` is named after, e.g. "ir/ops" for tests/ir/ops_test.cpp, or None."""
    name = test.removeprefix("tests/").removesuffix("_test.cpp")
    return name if any(s.startswith(name + "/") for s in sources) else None


def check(root):
    sources = set(source.files(root, MIRRORED, (".cpp", ".h")))
    tests = [t for t in source.files(root, [f"tests/{d}" for d in MIRRORED], ("_test.cpp",))]
    covered, faults = read_covered(root)
    subjects, folders = set(), set()
    for test in tests:
        name, folder = subject(test, sources), folder_of(test, sources)
        folders.add(folder)
        if name is None and folder is None:
            faults.append(f"{test}: there is no {test.removeprefix('tests/').replace('_test.cpp', '.cpp')}")
        subjects.add(name)
    for path in sorted(sources):
        stem = path.removesuffix(".cpp")
        if not path.endswith(".cpp"):
            continue
        tested = stem in subjects or path.rpartition("/")[0] in folders
        if not tested and path not in covered:
            faults.append(f"{path}: no test; write tests/{stem}_test.cpp or name its test in {COVERED}")
        if f"tests/{stem}_test.cpp" in tests and path in covered:
            faults.append(f"{path}: has a test of its name; drop it from {COVERED}")
    return faults


if __name__ == "__main__":
    source.main(check)
