#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention of Kiln against PyTorch's, over the number of positions.

Causal, of a window of 256 keys, and causal with less by distance (alibi). Forward and backward against
scaled_dot_product_attention; the forward alone against flex_attention, as long as that has no backward on a
CPU: what it says of one is printed first. One process is one measurement; systems take turns, in the other
order every second round. Prints for each N and system the least of the rounds' lower-half medians and the
largest peak memory of a process. Losses and norms of gradients must agree.
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
    ap.add_argument("--kinds", default="causal,window,alibi", help="of these three")
    ap.add_argument("--systems", default="kiln,sdpa,kiln-forward,flex-forward",
                    help="of these four and flex-backward")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--secs", type=float, default=2, help="of each measurement")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--kiln", default=str(HERE.parent / "build/release/bin/kiln-bench"))
    ap.add_argument("--venv", default=str(HERE.parent / ".venv-peers"))
    return ap.parse_args()


def is_forward(system):
    return system.endswith("-forward")


def command(a, kind, system, n):
    threads, secs = str(a.threads), str(a.secs)
    if not system.startswith("kiln"):
        return [f"{a.venv}/bin/python", str(HERE / "peers/attention.py"), str(n), threads, secs, kind, system]
    workload = f"flex-{kind}-forward-{n}" if is_forward(system) else f"flex-{kind}-{n}"
    if kind == "causal" and not is_forward(system):
        workload = f"attention-{n}"  # scaled_dot_product_attention, too
    return [a.kiln, "--workload", workload, "--json", "--threads", threads, "--secs", secs]


def measure(a, kind, system, n):
    """One process. A dict with low_ms, peak_rss_mb, loss and gnorm."""
    line = command(a, kind, system, n)
    run = subprocess.run(line, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(line)} failed:\n{run.stdout}{run.stderr}")
    row = json.loads(run.stdout.splitlines()[-1])
    row.setdefault("loss", row.get("losses", [None])[0])
    return row


def agree(rows):
    """Whether all have the loss of the first, and the norms of the first that has any, to 1e-4 of them."""
    pairs = [(r["loss"], rows[0]["loss"]) for r in rows]
    norms = [r["gnorm"] for r in rows if r.get("gnorm")]
    pairs += [(g[x], norms[0][x]) for g in norms for x in "qkv"]
    return all(abs(x - y) <= 1e-4 * abs(y) for x, y in pairs)


def ratio(best, forward):
    """Of Kiln's time and the least of the others', of those that do the same."""
    own = [t for s, t in best.items() if is_forward(s) == forward and s.startswith("kiln")]
    peers = [t for s, t in best.items() if is_forward(s) == forward and not s.startswith("kiln")]
    return f"{own[0] / min(peers):.2f}" if own and peers else ""


def compare(a, kind, systems):
    print(f"\n{kind}:\n\n| N | " + " | ".join(f"{s} ms | MB" for s in systems)
          + " | kiln / best | forward alone |")
    print("|" + " --- |" * (2 * len(systems) + 3), flush=True)
    for n in (int(x) for x in a.sizes.split(",")):
        rows = {s: [] for s in systems}
        for r in range(a.rounds):
            for s in systems if r % 2 == 0 else systems[::-1]:
                rows[s].append(measure(a, kind, s, n))
        if not agree([rows[s][0] for s in systems]):
            sys.exit(f"{kind}, N = {n}: results differ: {rows}")
        best = {s: min(r["low_ms"] for r in rows[s]) for s in systems}
        cells = [f"{best[s]:.2f} | {max(r['peak_rss_mb'] for r in rows[s]):.0f}" for s in systems]
        cells += [ratio(best, False), ratio(best, True)]
        print(f"| {n} | " + " | ".join(cells) + " |", flush=True)


def main():
    a = arguments()
    systems = a.systems.split(",")
    if "flex-forward" in systems:
        run = subprocess.run(command(a, "causal", "flex-backward", 128), capture_output=True, text=True,
                             check=False)
        says = run.stderr.strip().splitlines()[-1] if run.returncode != 0 else "works: use flex-backward"
        print(f"backward of flex_attention: {says}")
    for kind in a.kinds.split(","):
        compare(a, kind, systems)


if __name__ == "__main__":
    main()
