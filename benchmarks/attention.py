#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Causal attention, forward and backward, of Kiln against PyTorch's, over the number of positions.

One process is one measurement; systems take turns, in the other order every second round. Prints for each N
and system the least of the rounds' lower-half medians and the largest peak memory of a process. Losses and
norms of gradients must agree.
"""
import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--sizes", default="128,256,512,1024,2048,4096,8192", help="numbers of positions")
    ap.add_argument("--systems", default="kiln,sdpa", help="of these two")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--secs", type=float, default=2, help="of each measurement")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--kiln", default=str(HERE.parent / "build/release/bin/kiln-bench"))
    ap.add_argument("--venv", default=str(HERE.parent / ".venv-peers"))
    return ap.parse_args()


def measure(a, system, n):
    """One process. A dict with low_ms, peak_rss_mb, loss and gnorm."""
    threads, secs = str(a.threads), str(a.secs)
    if system == "kiln":
        command = [a.kiln, "--workload", f"attention-{n}", "--json", "--threads", threads, "--secs", secs]
    else:
        command = [f"{a.venv}/bin/python", str(HERE / "peers/attention.py"), str(n), threads, secs]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{run.stdout}{run.stderr}")
    row = json.loads(run.stdout.splitlines()[-1])
    row.setdefault("loss", row.get("losses", [None])[0])
    return row


def agree(rows):
    """Whether all have the loss and the norms of the first, to a part in ten thousand."""
    first = rows[0]
    pairs = [(r["loss"], first["loss"]) for r in rows]
    pairs += [(r["gnorm"][x], first["gnorm"][x]) for r in rows for x in "qkv"]
    return all(abs(x - y) <= 1e-4 * abs(y) for x, y in pairs)


def main():
    a = arguments()
    systems = a.systems.split(",")
    print("| N | " + " | ".join(f"{s} ms | MB" for s in systems) + " | kiln / best |")
    print("|" + " --- |" * (2 * len(systems) + 2))
    for n in (int(x) for x in a.sizes.split(",")):
        rows = {s: [] for s in systems}
        for r in range(a.rounds):
            for s in systems if r % 2 == 0 else systems[::-1]:
                rows[s].append(measure(a, s, n))
        if not agree([rows[s][0] for s in systems]):
            sys.exit(f"N = {n}: results differ: {rows}")
        best = {s: min(r["low_ms"] for r in rows[s]) for s in systems}
        peers = [t for s, t in best.items() if s != "kiln"]
        cells = [f"{best[s]:.2f} | {max(r['peak_rss_mb'] for r in rows[s]):.0f}" for s in systems]
        ratio = f"{best['kiln'] / min(peers):.2f}" if "kiln" in best and peers else ""
        print(f"| {n} | " + " | ".join(cells) + f" | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
