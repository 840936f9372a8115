# SPDX-License-Identifier: Apache-2.0
"""Runs scripts/gpu_check.sh on a bundle made of programs of this build, on the simulated device: its tests,
one that fails and one that hangs past the budget among them, and what it writes of them.

Usage: gpu_check_test.py FOLDER_OF_PROGRAMS"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(sys.argv[1]).resolve()


def make_bundle(folder, lines):
    (folder / "bin").mkdir()
    (folder / "tests").mkdir()
    (folder / "tests" / "goldens").symlink_to(ROOT / "tests" / "goldens")
    for program in ("golden.ops_golden_test",):
        (folder / "bin" / program).symlink_to(PROGRAMS / program)
    for name, body in (("fails", "echo wrong >&2; exit 3"), ("hangs", "exec sleep 100")):
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / "gpu_tests.txt").write_text("# a comment\n\n" + "\n".join(lines) + "\n")
    (folder / "gpu_check.py").write_text((ROOT / "benchmarks" / "gpu_check.py").read_text())


def check(lines, budget):
    """(exit status, gpu_check.json, printed)"""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_bundle(folder, lines)
        done = subprocess.run(
            [str(ROOT / "scripts" / "gpu_check.sh"), str(folder), "--driver", "sim", "--out", str(folder),
             "--budget", str(budget)], capture_output=True, text=True)
        return done.returncode, json.loads((folder / "gpu_check.json").read_text()), done.stdout


def main():
    add = "KILN_TEST_DEVICE=cuda golden.ops_golden_test =add"
    status, result, printed = check([add], 100)
    assert (status, result["tests"]) == (0, {add: "passed"}), (status, result)
    assert "Tests: 1 of 1 passed" in printed, printed

    status, result, printed = check(["fails", "hangs", add], 6)
    assert status == 1, status
    assert result["tests"] == {"fails": "failed", "hangs": "failed"}, result
    assert result["not_run"] == [add], result
    assert result["failed"][0] == "fails: wrong", result
    assert result["failed"][1].startswith("hangs: took over"), result
    assert "FAILED fails: wrong" in printed and f"not run: {add}" in printed, printed

    missing = subprocess.run([str(ROOT / "scripts" / "gpu_check.sh"), "/nonexistent"],
                             capture_output=True, text=True)
    assert missing.returncode == 2 and "no bundle in /nonexistent" in missing.stderr, missing
    print("gpu_check: tests, failures, time and what is written of them")


if __name__ == "__main__":
    main()
