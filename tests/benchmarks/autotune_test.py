#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One and two processes tune a small workload: one plan for all, each kernel measured by one process, and a
second start that tunes nothing; and the plot of it. Argument: the program kiln-autotune."""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
PLOT = os.path.join(HERE, "../../benchmarks/autotune/plot.py")

with tempfile.TemporaryDirectory() as folder:
    report, picture = os.path.join(folder, "tune.json"), os.path.join(folder, "tune.svg")
    run = os.path.join(folder, "run")
    subprocess.run([sys.argv[1], "--workload", "mlp", "--ranks", "1,2", "--folder", run,
                    f"--benchmark_out={report}", "--benchmark_out_format=json"], check=True)
    with open(report, encoding="utf-8") as file:
        rows = json.load(file)["benchmarks"]
    assert len(rows) == 2, rows
    for row in rows:
        assert "error_message" not in row, row
        assert row["plans"] == 1 and row["second_start_tunes"] == 0, row
        assert row["tuned"] == row["kernels"] > 2, row
    subprocess.run([sys.executable, "-B", PLOT, report, picture], check=True)
    bars = xml.etree.ElementTree.parse(picture).getroot()
    assert len(bars.findall("{http://www.w3.org/2000/svg}rect")) == 3
    refused = subprocess.run([sys.executable, "-B", PLOT], capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "plot.py tune.json tune.svg" in refused.stderr
