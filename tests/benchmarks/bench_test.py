#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs kiln-bench on every workload, compiled and for the small ones eagerly, and compares the first
losses with the peers'. Argument: the program."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../benchmarks"))
import compare_rows as rows

EAGERLY_TOO = ("tiny-mlp", "mlp", "convnet")
failures = 0
for workload in rows.LOSSES:
    for mode in ["compiled", "eager"] if workload in EAGERLY_TOO else ["compiled"]:
        line = [sys.argv[1], "--workload", workload, "--mode", mode, "--secs", "0", "--json"]
        done = subprocess.run(line, capture_output=True, text=True)
        wrong = done.stderr or "no output"
        if done.returncode == 0:
            wrong = rows.wrong_losses(workload, json.loads(done.stdout)["losses"])
        print(f"{workload} {mode}: {wrong or 'losses agree'}")
        failures += wrong is not None
sys.exit(failures != 0)
