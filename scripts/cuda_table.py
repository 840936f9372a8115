#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/CUDA_KERNELS.md: what NVRTC makes of the kernels of the benchmarks, for three architectures.

Records each workload by a short run on the CPU and asks `kiln explain` for its CUDA kernels; needs NVRTC,
but no GPU. With --check it compares instead, if the page was made by the same NVRTC, and in any case fails
where a kernel spills registers.
Usage: cuda_table.py [--check] FOLDER_OF_PROGRAMS [PAGE]
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

WORKLOADS = ("mlp", "gpt-small", "pointwise")
ARCHS = ("sm_80", "sm_90a", "sm_100a")
SKIPPED = 77  # what ctest takes for skipped


def run(args, env):
    done = subprocess.run([str(a) for a in args], env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{args[0]} failed:\n{done.stderr}")
    return done.stdout


def explained(programs, workload, folder):
    """arch -> what explain says of the workload's programs."""
    job = folder / f"{workload}.job"
    env = dict(os.environ, KILN_CACHE_DIR=str(folder / "cache"), KILN_RECORD=str(job))
    run([programs / "kiln-bench", "--workload", workload, "--mode", "compiled", "--secs", "0.01", "--threads",
         "1"], env)
    del env["KILN_RECORD"]
    out = json.loads(run([programs / "kiln", "explain", job, "--target", ",".join(ARCHS), "--json"], env))
    return {arch: [p for p in out if p["target"] == arch] for arch in ARCHS}


def kernels(by_arch):
    """(launch name, ops, arch -> row) of each kernel, in the order of their first launches.

    Launches of two architectures are matched by what they compute: one may split a product that the other
    does not, and join other updates to one launch.
    """
    rows = {}
    for arch in ARCHS:
        seen, alike = set(), collections.Counter()
        for at, program in enumerate(by_arch[arch]):
            for launch in program["launches"]:
                if not launch["kernel"] or launch["registers"] < 0 or launch["kernel"] in seen:
                    continue
                seen.add(launch["kernel"])
                key = at, re.sub(r" x\d+$", "", launch["name"]), launch["ops"]
                alike[key] += 1
                rows.setdefault((*key, alike[key]), {})[arch] = launch
    return [(next(iter(by.values()))["name"], ops, by) for (_, _, ops, _), by in rows.items()]


def table(workload, rows):
    lines = [f"## {workload}", "",
             "| kernel | ops |" + "".join(f" {a}: threads | registers | shared | occupancy |" for a in ARCHS),
             "| --- | --- |" + " ---: | ---: | ---: | ---: |" * len(ARCHS)]
    for name, ops, by_arch in rows:
        cells = [name, ops if len(ops) <= 60 else ops[:57] + "..."]
        for arch in ARCHS:
            row = by_arch.get(arch)
            if row is None:
                cells += ["-"] * 4
                continue
            cells += [str(row["threads"]), str(row["registers"]),
                      f"{row['shared'] / 1024:.1f} KiB" if row["shared"] else "0",
                      f"{100 * row['occupancy']:.0f} %"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def spills(workload, by_arch):
    """What is said of each kernel that spills registers."""
    return [f"{workload} for {arch}: {row['name']} ({row['kernel']}) spills {row['spill_bytes']} bytes"
            for arch in ARCHS for program in by_arch[arch] for row in program["launches"]
            if row["spill_bytes"] > 0]


def page(workloads):
    """The page and its compiler, of (workload, arch -> what explain says) pairs."""
    first = workloads[0][1][ARCHS[0]][0]
    compiler = first["compiler"] or first["no_compiler"]
    text = "".join("\n" + table(workload, kernels(by_arch)) for workload, by_arch in workloads)
    head = ("# Kernels as CUDA code\n\n"
            "What the compiler makes of the kernels of the benchmarks' training steps: registers of a\n"
            "thread, shared memory of a block, and the share of its warps that a multiprocessor runs at\n"
            f"once. No kernel spills a register. Made by scripts/cuda_table.py with {compiler}.\n")
    return head + text, compiler


def judge(workloads, path, check):
    """Writes the page at `path` or compares with it; the exit status."""
    text, compiler = page(workloads)
    if not compiler.startswith("NVRTC "):
        print(f"skipped: {compiler}")
        return SKIPPED
    faults = [fault for workload, by_arch in workloads for fault in spills(workload, by_arch)]
    if faults:
        print("\n".join(faults))
        return 1
    if not check:
        path.write_text(text)
        return 0
    was = path.read_text()
    if f"with {compiler}.\n" not in was:
        print(f"{path} was made by another compiler than {compiler}; not compared")
    elif was != text:
        changed = [line for line in text.splitlines() if line not in was.splitlines()]
        print(f"{path} is not what the kernels are now (scripts/cuda_table.py writes it):", *changed[:20],
              sep="\n")
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("page", type=pathlib.Path, nargs="?", default=pathlib.Path("docs/CUDA_KERNELS.md"))
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        workloads = [(w, explained(o.programs, w, pathlib.Path(name))) for w in WORKLOADS]
    return judge(workloads, o.page, o.check)


if __name__ == "__main__":
    sys.exit(main())
