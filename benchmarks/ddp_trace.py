#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads traces that KILN_TRACE wrote, one a rank, and prints how much of the communication each rank's
steps had to wait for. --merge FILE joins the traces to one for ui.perfetto.dev. Steps are the calls with
collectives; the first --skip of them are left out."""

import argparse
import json
import statistics


def load(path):
    with open(path) as f:
        return json.load(f)


def steps(events, skip):
    """Per step: its length, its exposed communication, and its communication, in us."""
    out = []
    calls = [e for e in events if e.get("cat") == "call"]
    for c in calls:
        begin, end = c["ts"], c["ts"] + c["dur"]
        inside = [e for e in events if e["ph"] == "X" and begin <= e["ts"] <= end and e is not c]
        waits = [e["dur"] for e in inside if e["cat"] == "wait"]
        if not waits:
            continue
        out.append((c["dur"], sum(waits), sum(e["dur"] for e in inside if e["cat"] == "collective")))
    return out[skip:]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("trace", nargs="+")
    ap.add_argument("--skip", type=int, default=3)
    ap.add_argument("--merge", metavar="FILE")
    a = ap.parse_args()
    everything = []
    for path in a.trace:
        events = load(path)
        everything += events
        found = steps(events, a.skip)
        if not found:
            print(f"{path}: no step with collectives after the first {a.skip}")
            continue
        length, exposed, total = (statistics.median(x) for x in zip(*found))
        print(
            f"{path}: {len(found)} steps of {length / 1e3:.1f} ms; communication {total / 1e3:.1f} ms, "
            f"of which {exposed / 1e3:.1f} ms exposed: {100 * exposed / length:.1f} % of the step"
        )
    if a.merge:
        with open(a.merge, "w") as f:
            json.dump(everything, f)


if __name__ == "__main__":
    main()
