# SPDX-License-Identifier: Apache-2.0
"""PyTorch's attention on the numbers of kiln-bench's attention-N and flex-KIND-N.

Usage: attention.py N THREADS SECONDS KIND SYSTEM: prints one JSON line. 8 heads of 64; the loss is half the
sum of squares of the result. KIND: causal, window (the last 256 keys) or alibi (causal, less by distance).
SYSTEM: sdpa (scaled_dot_product_attention, forward and backward, with what is not causal as a mask in
memory) or flex-forward (flex_attention, compiled). What flex_attention says of a backward on a CPU is printed
by flex-backward, which fails.
"""
import json
import os
import resource
import sys
import time

import torch
from torch.nn.attention import flex_attention as flex

import common as C

HEADS, WINDOW = 8, 256


def seen(b, h, row, key, window):
    causal = row >= key
    return causal & (row - key < WINDOW) if window else causal


def make_sdpa(n, kind):
    """A function of q, k, v."""
    sdpa = torch.nn.functional.scaled_dot_product_attention
    if kind == "causal":
        return lambda q, k, v: sdpa(q, k, v, is_causal=True)
    row, key = torch.arange(n).reshape(n, 1), torch.arange(n)
    mask = seen(0, 0, row, key, kind == "window")
    if kind == "alibi":
        slopes = torch.exp2(-torch.arange(1.0, HEADS + 1)).reshape(1, HEADS, 1, 1)
        mask = ((key - row) * slopes).masked_fill_(~mask, -torch.inf)
    return lambda q, k, v: sdpa(q, k, v, attn_mask=mask)


def make_flex(n, kind):
    window = kind == "window"

    def mask(b, h, row, key):
        return seen(b, h, row, key, window)

    blocks = flex.create_block_mask(mask, 1, 1, n, n, device="cpu")
    slopes = torch.exp2(-torch.arange(1.0, HEADS + 1))

    def alibi(score, b, h, row, key):
        return score + (key - row) * slopes[h]

    attend = torch.compile(flex.flex_attention)
    change = alibi if kind == "alibi" else None
    return lambda q, k, v: attend(q, k, v, score_mod=change, block_mask=blocks)


def main():
    n, threads, seconds, kind, system = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:]
    torch.set_num_threads(threads)
    if threads == 1:
        os.sched_setaffinity(0, {1})
    backward = system != "flex-forward"
    shape = (1, HEADS, n, 64)
    q, k, v = (
        torch.from_numpy(C.real(f"bench/attention/{x}", shape, -1, 1)).requires_grad_(backward) for x in "qkv"
    )
    attend = make_sdpa(n, kind) if system == "sdpa" else make_flex(n, kind)

    def step():
        q.grad = k.grad = v.grad = None
        y = attend(q, k, v)
        loss = (y * y).sum() * 0.5
        if backward:
            loss.backward()
        return loss.item()

    start = time.perf_counter()
    loss = step()
    first = time.perf_counter() - start
    step()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    low = times[: (len(times) + 1) // 2]
    norms = {x: float(t.grad.double().norm()) for x, t in zip("qkv", (q, k, v)) if backward}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"low_ms": low[len(low) // 2], "first_step_s": first, "loss": loss, "gnorm": norms,
                      "peak_rss_mb": peak}))


if __name__ == "__main__":
    main()
