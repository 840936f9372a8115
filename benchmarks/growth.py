#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of Kiln against batch, width, depth and positions, as a table and a picture.

One process is one measurement. Odd sizes stand beside the multiples of 16 next to them: by FLOP, none may
take much longer. The rounds go through the sizes forth and back; of each size the least lower-half median
counts."""
import argparse
import json
import math
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
VOCABULARY, CLASSES = 96, 10
CURVES = {  # name -> workload with {} for the size, multiples of 16 and smaller, odd ones
    "batch": ("mlp-{}-512-3", [1, 2, 4, 8, 16, 32, 64, 128, 256, 512], [31, 33, 127, 129, 257]),
    "width": ("mlp-128-{}-3", [16, 32, 64, 128, 256, 512, 1024], [65, 127, 129, 255, 257, 513]),
    "depth": ("mlp-64-256-{}", [1, 2, 4, 8, 16, 32], []),
    "positions": ("gpt-4-{}-128-2", [16, 32, 64, 128, 256, 512], [63, 65, 127, 129, 255, 257]),
}
MOST = 1 / 0.85  # time of an odd size by FLOP, over that of its neighbour


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--curves", default=",".join(CURVES), help="of: " + ", ".join(CURVES))
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--secs", type=float, default=0.5, help="of each measurement")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--most-gflop", type=float, default=math.inf, help="leave larger steps out")
    ap.add_argument("--svg", help="file for the picture")
    ap.add_argument("--kiln", default=str(HERE.parent / "build/release/bin/kiln-bench"))
    return ap.parse_args()


def flop(workload):
    """Of a step's products, thrice: forward and both gradients. Causal attention counts half a matrix."""
    kind, *sizes = workload.split("-")
    b, *rest = map(int, sizes)
    if kind == "mlp":
        w, layers = rest
        return 6 * b * (layers * w * w + w * CLASSES)
    t, w, layers = rest
    return 6 * b * t * (layers * (12 * w * w + t * w) + w * VOCABULARY)


def measure(a, workload):
    command = [a.kiln, "--workload", workload, "--json", "--threads", str(a.threads), "--secs", str(a.secs)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{run.stdout}{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])["low_ms"]


def neighbour(size, sizes):
    """The measured multiple of 16 next to an odd size."""
    return min((s for s in sizes if s % 16 == 0), key=lambda s: abs(s - size), default=None)


def measure_all(a):
    """Curve -> size -> ms. Every round goes through all of them, since machines have slow minutes."""
    curves = {}
    for name in a.curves.split(","):
        workload, even, odd = CURVES[name]
        sizes = [s for s in sorted(even + odd) if flop(workload.format(s)) <= a.most_gflop * 1e9]
        if sizes:
            curves[name] = {s: math.inf for s in sizes}
    order = [(name, s) for name, times in curves.items() for s in times]
    for r in range(a.rounds):
        for name, s in order if r % 2 == 0 else order[::-1]:
            curves[name][s] = min(curves[name][s], measure(a, CURVES[name][0].format(s)))
    return curves


def table(name, times):
    """Lines of a table, and the odd sizes that take too long."""
    workload, even, odd = CURVES[name]
    lines, slow = [], []
    for s, ms in times.items():
        rate = flop(workload.format(s)) / ms * 1e-6
        near, ratio = neighbour(s, [e for e in even if e in times]), ""
        if s in odd and near:
            over = flop(workload.format(near)) / times[near] * 1e-6 / rate
            ratio = f"{over:.2f} of {near}"
            slow += [f"{name} {s}: {over:.2f} of the time of {near} by FLOP"] if over > MOST else []
        lines.append(f"| {name} | {s} | {ms:.4g} | {rate:.3g} | {ratio} |")
    return lines, slow


def panel(name, times, left, top):
    """A curve on axes of logarithms, 330 x 230; odd sizes are hollow."""
    workload, _, odd = CURVES[name]
    width, height = 260, 160
    xs, ys = [math.log2(s) for s in times], [math.log10(t) for t in times.values()]
    low, high = math.floor(min(ys)), math.ceil(max(ys) + 1e-9)
    span = max(xs) - min(xs) or 1
    def x(s):
        return left + 50 + (math.log2(s) - min(xs)) / span * width
    def y(ms):
        return top + 30 + (high - math.log10(ms)) / (high - low) * height
    out = [f'<text x="{left + 50}" y="{top + 18}">{name}: {workload.format("N")}</text>']
    for p in range(low, high + 1):
        out.append(f'<path d="M{left + 50} {y(10 ** p):.1f}h{width}" stroke="#ddd"/>'
                   f'<text x="{left + 45}" y="{y(10 ** p) + 4:.1f}" text-anchor="end">{10 ** p:g} ms</text>')
    for s in (s for s in times if s not in odd):
        out.append(f'<text x="{x(s):.1f}" y="{top + height + 45}" text-anchor="middle">{s}</text>')
    line = " ".join(f"{x(s):.1f},{y(t):.1f}" for s, t in times.items())
    out.append(f'<polyline points="{line}" fill="none" stroke="#07c"/>')
    for s, t in times.items():
        out.append(f'<circle cx="{x(s):.1f}" cy="{y(t):.1f}" r="3" stroke="#07c" '
                   f'fill="{"#fff" if s in odd else "#07c"}"/>')
    return out


def picture(curves):
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="700" height="480" font-family="sans-serif" '
           'font-size="10">', '<rect width="700" height="480" fill="#fff"/>']
    for i, (name, times) in enumerate(curves.items()):
        out += panel(name, times, 350 * (i % 2), 240 * (i // 2))
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    a = arguments()
    curves = measure_all(a)
    print("| curve | size | ms | GFLOP/s | time by FLOP over its neighbour's |")
    print("|" + " --- |" * 5)
    slow = []
    for name, times in curves.items():
        lines, more = table(name, times)
        print("\n".join(lines), flush=True)
        slow += more
    if a.svg:
        pathlib.Path(a.svg).write_text(picture(curves))
    print("\n".join(["", *slow]) if slow else "\nno odd size is slower than its neighbour by 15 %")


if __name__ == "__main__":
    main()
