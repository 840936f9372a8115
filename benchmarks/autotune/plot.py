#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what kiln-autotune wrote with --benchmark_out as an SVG: wall time by number of processes, beside
the time of one process divided by their number.

    kiln-autotune --benchmark_out=tune.json --benchmark_out_format=json
    benchmarks/autotune/plot.py tune.json tune.svg
"""
import json
import re
import statistics
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 480, 300, 60, 50, 40


def times(report):
    """{number of processes: median seconds}"""
    found = {}
    for row in report["benchmarks"]:
        match = re.search(r"/ranks:(\d+)", row["name"])
        if match and row.get("run_type", "iteration") == "iteration" and "error_message" not in row:
            found.setdefault(int(match.group(1)), []).append(row["real_time"])
    return {n: statistics.median(t) for n, t in sorted(found.items())}


def draw(seconds, title):
    most = max(seconds.values()) * 1.1
    room = HEIGHT - BOTTOM - TOP
    step = (WIDTH - LEFT - 20) / len(seconds)

    def y(value):
        return HEIGHT - BOTTOM - room * value / most

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             'font-family="sans-serif" font-size="12">',
             '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-size="14">{title}</text>']
    one = seconds.get(1)
    for i, (n, value) in enumerate(seconds.items()):
        x = LEFT + step * i
        parts.append(f'<rect x="{x + step * 0.2:.1f}" y="{y(value):.1f}" width="{step * 0.6:.1f}" '
                     f'height="{y(0) - y(value):.1f}" fill="#4878a8"/>')
        share = f" ({value / one:.2f}x)" if one else ""
        parts.append(f'<text x="{x + step / 2:.1f}" y="{y(value) - 5:.1f}" text-anchor="middle">'
                     f'{value:.2f} s{share}</text>')
        parts.append(f'<text x="{x + step / 2:.1f}" y="{HEIGHT - BOTTOM + 18}" '
                     f'text-anchor="middle">{n}</text>')
        if one:
            parts.append(f'<line x1="{x + step * 0.1:.1f}" x2="{x + step * 0.9:.1f}" y1="{y(one / n):.1f}" '
                         f'y2="{y(one / n):.1f}" stroke="#c04040" stroke-width="2" stroke-dasharray="5,3"/>')
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(0)}" y2="{y(0)}" stroke="black"/>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">processes, one thread each '
                 '(dashed: evenly shared)</text>')
    parts.append(f'<text x="18" y="{HEIGHT / 2}" transform="rotate(-90 18 {HEIGHT / 2})" '
                 'text-anchor="middle">seconds to tune</text>')
    return "\n".join(parts + ["</svg>", ""])


def main(argv):
    if len(argv) != 3:
        sys.exit(__doc__)
    with open(argv[1], encoding="utf-8") as file:
        report = json.load(file)
    seconds = times(report)
    if not seconds:
        sys.exit(f"{argv[1]}: no results of kiln-autotune in it")
    title = "Tuning " + report["benchmarks"][0]["name"].split("/")[1]
    with open(argv[2], "w", encoding="utf-8") as file:
        file.write(draw(seconds, title))


if __name__ == "__main__":
    main(sys.argv)
