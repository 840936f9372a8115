# SPDX-License-Identifier: Apache-2.0
"""Products of f32 matrices by others, on the numbers of kiln-matmul; one line of JSON for each.

Usage: matmul.py torch|numpy THREADS SECONDS PRODUCT...: MKL as PyTorch has it (fused parts are PyTorch's
eager kernels, bias by addmm), or OpenBLAS as NumPy has it.
"""
import json
import os
import sys
import time

THREADS = sys.argv[2]
os.environ.update(OPENBLAS_NUM_THREADS=THREADS, OMP_NUM_THREADS=THREADS, MKL_NUM_THREADS=THREADS)

import numpy as np  # noqa: E402  (after the numbers of threads)

import common as C  # noqa: E402


def operands(text):
    sizes, how, *fused = text.split(":")
    m, n, k = (int(x) for x in sizes.split("x"))
    a = C.real("bench/product/a", (k, m) if how == "tn" else (m, k), -1, 1)
    b = C.real("bench/product/b", (n, k) if how == "nt" else (k, n), -1, 1)
    bias = C.real("bench/product/bias", (n,), -1, 1)
    residual = C.real("bench/product/residual", (m, n), -1, 1)
    return (a.T if how == "tn" else a, b.T if how == "nt" else b, bias, residual), (fused or [""])[0]


def step_of(system, text):
    arrays, fused = operands(text)
    if system == "numpy":
        a, b, _, _ = arrays
        return lambda: a @ b
    import torch
    torch.set_num_threads(int(THREADS))
    a, b, bias, residual = (torch.from_numpy(x) for x in arrays)
    if fused == "gelu":
        return lambda: torch.nn.functional.gelu(torch.addmm(bias, a, b))
    if fused == "residual":
        return lambda: torch.addmm(bias, a, b) + residual
    return lambda: torch.mm(a, b)


def main():
    system, seconds = sys.argv[1], float(sys.argv[3])
    for text in sys.argv[4:]:
        step = step_of(system, text)
        for _ in range(5):
            c = step()
        times, end = [], time.perf_counter() + seconds
        while len(times) < 20 or time.perf_counter() < end:
            start = time.perf_counter()
            c = step()
            times.append((time.perf_counter() - start) * 1e3)
        times.sort()
        low = times[: (len(times) + 1) // 2]
        norm = float(np.linalg.norm(np.asarray(c, dtype=np.float64)))
        print(json.dumps({"product": text, "low_ms": low[len(low) // 2], "norm": norm}), flush=True)


if __name__ == "__main__":
    main()
