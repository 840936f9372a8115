# SPDX-License-Identifier: Apache-2.0
"""PyTorch's causal attention, forward and backward, on the numbers of kiln-bench's attention-N.

Usage: attention.py N THREADS SECONDS: prints one JSON line. 8 heads of 64; the loss is half the sum of
squares of the result. By scaled_dot_product_attention: flex_attention has no backward on a CPU.
"""
import json
import os
import resource
import sys
import time

import torch

import common as C


def main():
    n, threads, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(threads)
    if threads == 1:
        os.sched_setaffinity(0, {1})
    shape = (1, 8, n, 64)
    q, k, v = (
        torch.from_numpy(C.real(f"bench/attention/{x}", shape, -1, 1)).requires_grad_() for x in "qkv"
    )

    def step():
        q.grad = k.grad = v.grad = None
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        loss = (y * y).sum() * 0.5
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
    norms = {x: float(t.grad.double().norm()) for x, t in zip("qkv", (q, k, v))}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"low_ms": low[len(low) // 2], "first_step_s": first, "loss": loss, "gnorm": norms,
                      "peak_rss_mb": peak}))


if __name__ == "__main__":
    main()
