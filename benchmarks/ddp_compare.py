#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs data-parallel gpt-small alternately with Kiln and with PyTorch (eager, and compiled), two Gloo
processes of one thread each, and prints the ratios.

A round is one run of each system, caches warm, every second one in reverse order; a system's time is
the median of its rounds' median steps. Needs scripts/peers.sh, kiln and kiln-ddp."""

import argparse
import json
import os
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
SYSTEMS = ("kiln", "torch-eager", "torch-compile")
TIME_LIMIT_S = 900


def command(system, a):
    env = dict(os.environ)
    if system == "kiln":
        env["KILN_CACHE_DIR"] = os.path.abspath(os.path.join(a.cache, "kiln"))
        program = [os.path.join(a.bin, "kiln-ddp"), "--bucket", str(a.bucket), "--steps", str(a.steps)]
        program += ["--compression", a.compression]
        return [os.path.join(a.bin, "kiln"), "run", "--nproc", str(a.nproc), "--", *program], env
    env["DDP_N"] = str(a.steps)
    script = [os.path.join(HERE, "peers", "ddp.py"), "--bucket", str(a.bucket), "--pin"]
    script += ["--compression", a.compression]
    if system == "torch-compile":
        script += ["--compile", "--cache", os.path.abspath(os.path.join(a.cache, "inductor"))]
    launcher = os.path.join(a.venv, "bin", "torchrun")
    return [launcher, "--standalone", "--nproc-per-node", str(a.nproc), *script], env


def measure(system, a, tries=4):
    """PyTorch's ranks abort now and then; such a run is made again."""
    line, env = command(system, a)
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=TIME_LIMIT_S)
    # `kiln run` puts the rank before each line.
    found = [x[x.index("{") :] for x in done.stdout.splitlines() if '{"' in x and "median_ms" in x]
    if (done.returncode != 0 or not found) and system != "kiln" and tries > 1:
        print(f"{system}: failed with {done.returncode}; again", flush=True)
        return measure(system, a, tries - 1)
    if done.returncode != 0 or not found:
        text = done.stdout + done.stderr[-2000:]
        raise SystemExit(f"{' '.join(line)}: failed with {done.returncode}\n{text}")
    return json.loads(found[-1])


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--steps", type=int, default=20, help="timed steps of a run")
    ap.add_argument("--nproc", type=int, default=2)
    ap.add_argument("--bucket", type=float, default=25, help="MiB")
    ap.add_argument(
        "--compression", default="none", choices=("none", "fp16", "bf16"), help="what gradients are sent as"
    )
    ap.add_argument("--systems", default=",".join(SYSTEMS))
    ap.add_argument("--bin", default="build/release/bin", help="folder of kiln and kiln-ddp")
    ap.add_argument("--venv", default=".venv-peers", help="what scripts/peers.sh made")
    ap.add_argument("--cache", default=".cache/ddp", help="warm caches")
    ap.add_argument("--json", metavar="FILE", help="every run")
    a = ap.parse_args()
    systems = a.systems.split(",")
    for s in systems:
        if s not in SYSTEMS:
            ap.error(f"unknown system {s}; known: {', '.join(SYSTEMS)}")
    os.makedirs(a.cache, exist_ok=True)
    for s in systems:
        measure(s, a)  # fills the caches
    runs = {s: [] for s in systems}
    for r in range(a.rounds):
        for s in systems if r % 2 == 0 else reversed(systems):
            runs[s].append(measure(s, a))
            print(f"round {r + 1} {s}: {runs[s][-1]['median_ms']:.1f} ms", flush=True)
    print(f"\n{'system':<14} {'step ms':>8} {'min ms':>8} {'first s':>8} {'all-reduce alone ms':>20} losses")
    time = {s: statistics.median(x["median_ms"] for x in runs[s]) for s in systems}
    for s in systems:
        last = runs[s][-1]
        print(
            f"{s:<14} {time[s]:>8.1f} {min(x['min_ms'] for x in runs[s]):>8.1f} "
            f"{last['first_step_s']:>8.2f} "
            f"{statistics.median(x['allreduce_alone_ms'] for x in runs[s]):>20.1f} "
            + " ".join(f"{x:.5f}" for x in last["losses"])
        )
    if "kiln" in systems:
        for s in systems[1:]:
            print(f"kiln is {time['kiln'] / time[s]:.2f}x of {s}")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(runs, f, indent=1)


if __name__ == "__main__":
    main()
