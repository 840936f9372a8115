#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs kiln-ddp on two ranks that a slow link joins, and prints how much of the communication was exposed.

The ranks live in two network namespaces, joined by a veth pair whose two ends send at most --rate (tbf).
Needs root, ip and tc (Debian's iproute2). Everything after -- goes to kiln-ddp. Leaves a merged trace for
ui.perfetto.dev."""

import argparse
import glob
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ("kiln-a", "kiln-b")
ADDRESSES = ("198.18.77.1", "198.18.77.2")


def sh(*words):
    subprocess.run(words, check=True)


def make_link(rate):
    for n in NAMES:
        sh("ip", "netns", "add", n)
    ends = ("kiln-va", "netns", NAMES[0], "type", "veth", "peer", "name", "kiln-vb", "netns", NAMES[1])
    sh("ip", "link", "add", *ends)
    for n, end, address in zip(NAMES, ("kiln-va", "kiln-vb"), ADDRESSES):
        sh("ip", "-n", n, "address", "add", f"{address}/30", "dev", end)
        sh("ip", "-n", n, "link", "set", "lo", "up")
        sh("ip", "-n", n, "link", "set", end, "up")
        shape = ("tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        sh("tc", "-n", n, "qdisc", "add", "dev", end, "root", *shape)


def drop_link():
    for n in NAMES:
        subprocess.run(("ip", "netns", "delete", n), stderr=subprocess.DEVNULL)


def start(rank, a, trace, rest):
    env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    env |= {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29533"}
    if trace:
        env["KILN_TRACE"] = trace
    program = [os.path.join(a.bin, "kiln-ddp"), *rest]
    cpu = sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]
    where = ["ip", "netns", "exec", NAMES[rank], "taskset", "-c", str(cpu)]
    return subprocess.Popen([*where, *program], env=env)


def run(a, trace, rest):
    ranks = [start(r, a, trace, rest) for r in range(2)]
    try:
        return [p.wait(timeout=a.limit) for p in ranks]
    finally:
        for p in ranks:
            p.kill()


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--rate", default="1gbit")
    ap.add_argument("--bin", default="build/release/bin", help="folder of kiln-ddp")
    ap.add_argument("--out", default="kiln-link-trace.json", help="the merged trace")
    ap.add_argument("--limit", type=float, default=300, help="seconds")
    a, rest = ap.parse_known_args()
    rest = [x for x in rest if x != "--"]
    if os.geteuid() != 0:
        raise SystemExit("ddp_link.py: network namespaces need root")
    drop_link()
    try:
        make_link(a.rate)
        print("untraced:", flush=True)
        if any(run(a, None, rest)):
            return 1
        with tempfile.TemporaryDirectory() as folder:
            print("traced:", flush=True)
            if any(run(a, os.path.join(folder, "rank"), rest)):
                return 1
            traces = sorted(glob.glob(os.path.join(folder, "*.json")))
            tool = os.path.join(HERE, "ddp_trace.py")
            return subprocess.run([sys.executable, tool, *traces, "--merge", a.out]).returncode
    finally:
        drop_link()


if __name__ == "__main__":
    sys.exit(main())
