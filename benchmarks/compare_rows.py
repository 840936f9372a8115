# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of compare.py: one row per workload and system. Runs nothing and reads no file."""

import statistics

# Kiln's target: this times the best peer (or 1.2 times the machine's limit, where that is more).
TARGET = {
    "tiny-mlp": 0.1,
    "mlp": 0.75,
    "gpt-small": 0.75,
    "bert-mini": 0.75,
    "convnet": 0.6,
    "pointwise": 0.12,
    "dlrm": 0.25,
}
LIMIT_SLACK = 1.2
# Further targets: the geometric mean of the ratios, start-ups in seconds, memory against the best peer's,
# and what a cold process may take beyond a warm one.
MEAN_TARGET = 0.36
COLD_TARGET_S, WARM_TARGET_S = 3, 0.1
RSS_TARGET, COLD_RSS_MB = 0.7, 250
# Programs written around their framework's automatic gradient: no peers, but not to be slower than.
BY_HAND = ("torch-sparse", "jax-sparse")

# First losses of every right program, and how far rounding may take one from them.
LOSSES = {
    "tiny-mlp": [2.086496, 2.085945, 2.085393],
    "mlp": [2.371200, 2.354486, 2.337841],
    "gpt-small": [4.638780, 4.600086, 4.565170],
    "bert-mini": [0.685476, 0.676117, 0.666886],
    "convnet": [2.361087, 2.360337, 2.359587],
    "pointwise": [0.333076],
    "dlrm": [0.693755, 0.693103, 0.692454],
}
LOSS_TOLERANCE = 1e-5


def mlp_parameters(sizes):
    return sum(i * o + o for i, o in zip(sizes, sizes[1:]))


def gpt_parameters(layers, d, vocab, seq):
    block = 2 * 2 * d + (d + 1) * 3 * d + (d + 1) * d + (d + 1) * 4 * d + (4 * d + 1) * d
    return vocab * d + seq * d + layers * block + 2 * d + d * vocab


def bert_parameters(layers, d, ffn, vocab, positions):
    block = 4 * (d + 1) * d + (d + 1) * ffn + (ffn + 1) * d + 2 * 2 * d
    return (vocab + positions + 2) * d + 2 * d + layers * block + (d + 1) * 2


def conv_parameters(channels, classes):
    convs = sum(i * o * 9 + 2 * o for i, o in zip(channels, channels[1:]))
    return convs + (channels[-1] + 1) * classes


# FLOP: contractions only, no gradient of the batch. Bytes that must move: AdamW reads and writes
# parameter, first and second moment (24 a parameter); inputs are read once, outputs written once. The
# rows that dlrm looks up are read, and once more read and written by SGD; no others change.
FLOP = {
    "tiny-mlp": 1.41e6,
    "mlp": 1.22e9,
    "gpt-small": 69.1e9,
    "bert-mini": 68.9e9,
    "convnet": 3.85e9,
    "pointwise": 0,
    "dlrm": 0.2e9,
}
BYTES = {
    "tiny-mlp": 24 * mlp_parameters([64, 64, 64, 8]) + 32 * (64 * 4 + 8),
    "mlp": 24 * mlp_parameters([784, 1024, 1024, 10]) + 128 * (784 * 4 + 8),
    "gpt-small": 24 * gpt_parameters(6, 384, 96, 128) + 2 * 8 * 128 * 8,
    "bert-mini": 24 * bert_parameters(6, 384, 1536, 30522, 512) + 2 * 8 * 128 * 8,
    "convnet": 24 * conv_parameters([3, 32, 64, 128], 10) + 64 * (3 * 32 * 32 * 4 + 8),
    "pointwise": 3 * 4096 * 4096 * 4 + 8 * 4096 * 4,
    "dlrm": 3 * 8 * 256 * 20 * 64 * 4 + 8 * mlp_parameters([512, 256, 1]) + 8 * 256 * 20 * 8,
}


def low_median(values):
    """Median of the lower half."""
    values = sorted(values)
    return statistics.median(values[: (len(values) + 1) // 2])


def limit_ms(workload, limits):
    seconds = FLOP[workload] / (limits["gflops"] * 1e9) + BYTES[workload] / (limits["gbs"] * 1e9)
    return 1e3 * seconds


def find(table, workload, system, threads, version):
    """The row to add to. Rounds of another version of the system are dropped: they are stale."""
    for r in table:
        if (r["workload"], r["system"], r["threads"]) == (workload, system, threads):
            if r["version"] != version:
                print(f"{workload} {system}: dropping {r['rounds']} rounds of another version")
                r.update(version=version, round_ms=[], warm_s=[], rss=[], cold_s=[], cold_rss=[])
            return r
    row = dict(workload=workload, system=system, threads=threads, version=version)
    row.update(round_ms=[], warm_s=[], rss=[], cold_s=[], cold_rss=[], wrong=None)
    table.append(row)
    return row


def wrong_losses(workload, losses):
    """What is wrong with the first losses, or None."""
    return differing_losses(losses, LOSSES[workload], LOSS_TOLERANCE)


def differing_losses(losses, expected, tolerance):
    """The same, of any."""
    for got, want in zip(losses, expected):
        if not abs(got - want) <= tolerance * abs(want):
            return f"losses {losses[:3]}, expected {expected[:3]}"
    return None if losses else "no losses"


def add_round(row, sample):
    row["wrong"] = wrong_losses(row["workload"], sample["losses"])
    row["round_ms"].append(sample["median_ms"])
    row["warm_s"].append(sample["startup_s"])
    row["rss"].append(sample["peak_rss_mb"])


def add_cold(row, sample):
    row["cold_s"].append(sample["startup_s"])
    row["cold_rss"].append(sample["peak_rss_mb"])


def finish(table, workload, threads, limits):
    """Fills in the figures that follow from the rounds of one workload."""
    group = [r for r in table if r["workload"] == workload and r["threads"] == threads]
    group = [r for r in group if r["round_ms"]]
    for r in group:
        r["time_ms"] = round(low_median(r["round_ms"]), 4)
        r["rounds"] = len(r["round_ms"])
        r["startup_warm_s"] = round(statistics.median(r["warm_s"]), 4)
        r["startup_cold_s"] = round(statistics.median(r["cold_s"]), 4) if r["cold_s"] else None
        r["peak_rss_mb"] = max(r["rss"])
        r["cold_peak_rss_mb"] = max(r["cold_rss"]) if r["cold_rss"] else None
    others = [r for r in group if r["system"] != "kiln" and not r["wrong"]]
    peers = [r for r in others if r["system"] not in BY_HAND]
    by_hand = [r["time_ms"] for r in others if r["system"] in BY_HAND]
    best = min(peers, key=lambda r: r["time_ms"], default=None)
    limit = limit_ms(workload, limits)
    for r in group:
        r["best_peer"] = best["system"] if best else None
        r["ratio"] = round(r["time_ms"] / best["time_ms"], 4) if best else None
        r["limit_ms"] = round(limit, 4)
        r["gflops"], r["gbs"] = limits["gflops"], limits["gbs"]
        r["met"] = None
        if r["system"] == "kiln" and best:
            target = min([TARGET[workload] * best["time_ms"], *by_hand])
            bound = max(target, LIMIT_SLACK * limit)
            r["met"] = not r["wrong"] and r["time_ms"] <= bound


def text(value, digits=4):
    if value is None:
        return "-"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def markdown(table):
    head = ["workload", "system", "thr", "ms", "rounds", "ratio to best peer", "target", "limit ms"]
    head += ["% of limit", "cold s", "warm s", "RSS MB", "cold RSS MB", "met"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    order = list(TARGET)
    done = [r for r in table if "time_ms" in r]
    for r in sorted(done, key=lambda r: (order.index(r["workload"]), r["time_ms"])):
        kiln = r["system"] == "kiln"
        ratio = f"{text(r['ratio'])} ({r['best_peer']})" if r["best_peer"] else "-"
        met = "WRONG: " + r["wrong"] if r["wrong"] else {True: "yes", False: "NO", None: ""}[r["met"]]
        cells = [r["workload"], f"**{r['system']}**" if kiln else r["system"], r["threads"]]
        cells += [text(r["time_ms"]), r["rounds"], ratio, TARGET[r["workload"]] if kiln else ""]
        cells += [text(r["limit_ms"]), f"{100 * r['limit_ms'] / r['time_ms']:.0f}"]
        cells += [text(r["startup_cold_s"], 3), text(r["startup_warm_s"], 3)]
        cells += [r["peak_rss_mb"], text(r["cold_peak_rss_mb"]), met]
        lines.append("| " + " | ".join(str(c) for c in cells) + " |")
    return "\n".join(lines)


def verdicts(table):
    """What Kiln owes beyond step times, a line each: what was found, and yes, NO, or - for nothing found."""
    kiln = [r for r in table if r["system"] == "kiln" and "time_ms" in r]

    def line(what, found, met):
        return f"- {what}: {found}: {'yes' if met else 'NO'}" if found else f"- {what}: -"

    def each(what, value, bound):
        """A target of every workload: the worst is shown."""
        have = [(value(r) / bound(r), r) for r in kiln if value(r) is not None and bound(r)]
        if not have:
            return line(what, None, None)
        share, worst = max(have, key=lambda x: x[0])
        found = f"{value(worst):.3g} of {bound(worst):.3g} ({worst['workload']}, of {len(have)})"
        return line(what, found, share <= 1)

    def best_rss(r):
        peers = [
            p["peak_rss_mb"]
            for p in table
            if (p["workload"], p["threads"]) == (r["workload"], r["threads"]) and "time_ms" in p
            and p["system"] not in ("kiln", *BY_HAND) and not p["wrong"]
        ]
        return min(peers, default=None)

    ratios = [r["ratio"] for r in kiln if r["ratio"]]
    mean = statistics.geometric_mean(ratios) if ratios else None
    return [
        line(
            f"geometric mean of the ratios, at most {MEAN_TARGET}",
            f"{mean:.3g} of {len(ratios)}" if ratios else None,
            ratios and mean <= MEAN_TARGET,
        ),
        each("cold start, s", lambda r: r["startup_cold_s"], lambda r: COLD_TARGET_S),
        each("warm start, s", lambda r: r["startup_warm_s"], lambda r: WARM_TARGET_S),
        each(
            f"peak RSS, MB, of {RSS_TARGET} times the best peer's",
            lambda r: r["peak_rss_mb"],
            lambda r: RSS_TARGET * best_rss(r) if best_rss(r) else None,
        ),
        each(
            f"cold peak RSS, MB, of the warm one's and {COLD_RSS_MB}",
            lambda r: r["cold_peak_rss_mb"],
            lambda r: r["peak_rss_mb"] + COLD_RSS_MB,
        ),
    ]
