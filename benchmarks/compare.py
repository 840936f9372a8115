#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Kiln and its peers alternately on the same work and prints the table of ratios.

A round is one process of each system, caches warm; a round's time is its median step, a system's
time the median of the lower half of its rounds. Every second round runs the systems in reverse
order. Cold starts (fresh cache folders) are spread over the rounds. --json FILE keeps every round
(rewritten after each, and taken up again by the next run). Needs scripts/peers.sh and kiln-bench."""

import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare_rows as rows
import compare_run as run


def arguments():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--all", action="store_true", help="all workloads and systems: the default")
    ap.add_argument("--workload", action="append", choices=run.ALL, help="default: all")
    ap.add_argument("--systems", help=f"comma-separated, of {','.join(run.SYSTEMS)}; default: all")
    ap.add_argument("--rounds", type=int, default=15)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--secs", type=float, default=1)
    ap.add_argument("--cold", type=int, default=3, help="cold starts of each compiling system")
    ap.add_argument("--json", metavar="FILE", help="results; an existing file is continued")
    ap.add_argument("--kiln", default="build/release/bin/kiln-bench", help="the Kiln program")
    ap.add_argument("--venv", default=".venv-peers", help="what scripts/peers.sh made")
    ap.add_argument("--cache", default=".cache/compare", help="warm caches and small programs")
    a = ap.parse_args()
    if a.all and (a.workload or a.systems):
        ap.error("--all leaves nothing to choose; drop --workload and --systems")
    a.workload = a.workload or run.ALL
    a.systems = a.systems.split(",") if a.systems else list(run.SYSTEMS)
    for s in a.systems:
        if s not in run.SYSTEMS:
            ap.error(f"unknown system {s}; known: {', '.join(run.SYSTEMS)}")
    if a.rounds < 1 or a.threads < 1 or a.secs <= 0 or a.cold < 0:
        ap.error("--rounds, --threads and --secs must be positive")
    return a


def save(path, table):
    if not path:
        return
    tmp = f"{path}.{os.getpid()}.tmp"
    with open(tmp, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in table) + "\n]\n")
        f.flush()
        os.fsync(f.fileno())
    os.replace(tmp, path)


def load(path):
    if not path or not os.path.exists(path):
        return []
    try:
        with open(path) as f:
            table = json.load(f)
        assert isinstance(table, list) and all("workload" in r and "system" in r for r in table)
        return table
    except (ValueError, AssertionError):
        raise SystemExit(f"{path}: not a result file of this program; name another")


def one_round(a, host, table, workload, systems, index):
    """Measures each system once, cold first where a cold start is due. True if anything ran."""
    ran = False
    for system in systems if index % 2 == 0 else reversed(systems):
        row = rows.find(table, workload, system, a.threads, host.version(system))
        if len(row["round_ms"]) > index:
            continue
        ran = True
        due = min(a.cold, index * a.cold // a.rounds + 1) if run.SYSTEMS[system].cold else 0
        while len(row["cold_s"]) < due:
            rows.add_cold(row, host.measure(system, workload, cold=True))
        rows.add_round(row, host.measure(system, workload, cold=False))
        done = len(row["round_ms"])
        print(f"{workload} {system} round {done}: {row['round_ms'][-1]:.4g} ms", file=sys.stderr)
    return ran


def main():
    a = arguments()
    host = run.Host(a)
    table = load(a.json)
    limits = host.limits()
    print(f"machine: {host.cpu}; {limits['gflops']} GFLOP/s FMA, {limits['gbs']} GB/s copy")
    for workload in a.workload:
        systems = [s for s in a.systems if workload in run.SYSTEMS[s].workloads]
        for index in range(a.rounds):
            if one_round(a, host, table, workload, systems, index):
                rows.finish(table, workload, a.threads, limits)
                save(a.json, table)
        rows.finish(table, workload, a.threads, limits)
    save(a.json, table)
    shown = [r for r in table if r["threads"] == a.threads]
    print(rows.markdown(shown))
    print("\n" + "\n".join(rows.verdicts(shown)))


if __name__ == "__main__":
    main()
