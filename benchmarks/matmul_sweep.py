#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Single f32 products out of real models: the kernels that Kiln generates against BLIS, MKL (PyTorch) and
OpenBLAS (NumPy).

One process times a group of products by one system; systems take turns, in the other order every second
round. For each product the least of the rounds' lower-half medians counts. Results must agree. Prints a table
of ratios to the best of the others, and the geometric mean of each class.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# Square ones; of linear layers (nt), their input gradients (nn) and weight gradients (tn) in gpt-small, GPT-2
# 124M, BERT and the MLPs; few rows; odd sizes; with what follows fused in.
CLASSES = {
    "large square": [f"{n}x{n}x{n}:{how}" for n in (512, 768, 1024, 1536) for how in ("nn", "nt", "tn")],
    "layers": """1024x1152x384:nt 1024x384x384:nt 1024x1536x384:nt 1024x384x1536:nt 1024x384x1152:nn
        1024x384x1536:nn 1152x384x1024:tn 1536x384x1024:tn 384x1536x1024:tn 1024x2304x768:nt 1024x768x768:nt
        1024x3072x768:nt 1024x768x3072:nt 3072x768x1024:tn 768x3072x1024:tn 128x1024x784:nt 128x1024x1024:nt
        1024x784x128:tn 1024x1024x128:tn""".split(),
    "skinny and odd": """1x1024x1024:nt 4x1024x1024:nt 8x4096x1024:nt 16x1024x4096:nt 32x64x64:nt
        128x10x1024:nt 10x1024x128:tn 1024x96x384:nt 384x8x1024:tn 4096x16x64:nn 127x129x131:nn 257x511x255:nt
        33x1000x65:tn 1000x1000x1000:nn 999x1001x333:nt 513x257x1025:tn""".split(),
    "fused": [f"{p}:{w}" for w in ("gelu", "residual") for p in (
        "1024x1536x384:nt", "1024x384x1536:nt", "1024x3072x768:nt", "1024x768x3072:nt", "128x1024x784:nt",
        "16x1024x4096:nt", "257x511x255:nt")],
}


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--classes", default=",".join(CLASSES), help="of: " + ", ".join(CLASSES))
    ap.add_argument("--systems", default="kiln,blis,torch,numpy", help="of these")
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--secs", type=float, default=0.2, help="of each product in a round")
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--tune", default="off", choices=("off", "fast", "max"),
                    help="Kiln's kernels: candidates are measured first, and what wins is kept in the cache")
    ap.add_argument("--json", help="file for all numbers")
    ap.add_argument("--kiln", default=str(HERE.parent / "build/release/bin/kiln-matmul"))
    ap.add_argument("--venv", default=str(HERE.parent / ".venv-peers"))
    return ap.parse_args()


def measure(a, system, products):
    """One process: product -> {low_ms, norm}."""
    threads, secs = str(a.threads), str(a.secs)
    if system in ("kiln", "blis"):
        how = ["compiled", "--tune", a.tune] if system == "kiln" else ["eager"]
        command = [a.kiln, "--mode", *how, "--threads", threads, "--secs", secs, *products]
    else:
        command = [f"{a.venv}/bin/python", str(HERE / "peers/matmul.py"), system, threads, secs, *products]
    if a.threads == 1:
        command = ["taskset", "-c", "1", *command]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{run.stdout}{run.stderr}")
    rows = (json.loads(line) for line in run.stdout.splitlines())
    return {r["product"]: r for r in rows}


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def gflops(product, ms):
    m, n, k = (int(x) for x in product.split(":")[0].split("x"))
    return 2e-6 * m * n * k / ms


def sweep(a, products, systems):
    """product -> system -> least low_ms."""
    least = {p: {} for p in products}
    norms = {}
    for r in range(a.rounds):
        for s in systems if r % 2 == 0 else systems[::-1]:
            for p, row in measure(a, s, products).items():
                least[p][s] = min(row["low_ms"], least[p].get(s, math.inf))
                if abs(row["norm"] - norms.setdefault(p, row["norm"])) > 1e-4 * norms[p]:
                    sys.exit(f"{p}: norm {row['norm']} by {s}, {norms[p]} by {systems[0]}")
    return least


def main():
    a = arguments()
    everything = {}
    for name in a.classes.split(","):
        products = CLASSES[name]
        systems = [s for s in a.systems.split(",") if not (s == "numpy" and name == "fused")]
        least = sweep(a, products, systems)
        everything[name] = least
        print(f"\n{name}, GFLOP/s on {a.threads} threads\n\n| product | " + " | ".join(systems) +
              " | kiln / best |\n|" + " --- |" * (len(systems) + 2))
        ratios = []
        for p in products:
            best = min(t for s, t in least[p].items() if s != "kiln")
            ratios.append(best / least[p]["kiln"])
            cells = " | ".join(f"{gflops(p, least[p][s]):.0f}" for s in systems)
            print(f"| {p} | {cells} | {ratios[-1]:.2f} |")
        print(f"| geometric mean | {' | ' * (len(systems) - 1)} | {geometric_mean(ratios):.3f} |", flush=True)
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(everything, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
