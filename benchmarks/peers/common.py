# SPDX-License-Identifier: Apache-2.0
"""Sizes, weights and data of the workloads, used identically by every framework.

Every tensor comes from the formula of benchmarks/formula.h, under the name
`bench/<workload>/<name>`, so that a C++ program computes the same bits. Weights are made in
PyTorch's layout (Linear: out x in, Conv: O I kH kW); the dictionaries returned here hold Linear
weights transposed (in x out). Uniform in [-std*sqrt(3), std*sqrt(3)) where a std is given."""

import os
import numpy as np

LR = float(os.environ.get("BENCH_LR", "1e-5"))
B1, B2, EPS, WD = 0.9, 0.999, 1e-8, 0.01
SGD_LR = 0.05
MLP = {"mlp": ([784, 1024, 1024, 10], 128), "tiny-mlp": ([64, 64, 64, 8], 32)}
GPTS = {  # heads of 64
    "gpt-small": dict(L=6, D=384, V=96, T=128, B=8),
    "gpt2": dict(L=12, D=768, V=50257, T=1024, B=8),
}
BERT = dict(L=6, D=384, H=12, F=1536, V=30522, P=512, T=128, B=8)
DLRM = dict(tables=8, rows=100_000, dim=64, idx=20, B=256)
PW = 4096
CONV = [(3, 32, 1), (32, 64, 2), (64, 128, 2)]
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def fnv1a64(name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001B3) & MASK
    return h


def bits(name, shape):
    """z of element i for every i, as uint64 of `shape`."""
    n = int(np.prod(shape))
    start = np.uint64((fnv1a64(name) * GOLDEN + GOLDEN) & MASK)
    with np.errstate(over="ignore"):
        z = np.arange(n, dtype=np.uint64) + start
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z.reshape(shape)


def real(name, shape, lo, hi):
    u = (bits(name, shape) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    lo, hi = np.float32(lo), np.float32(hi)
    return lo + (hi - lo) * u


def ints(name, shape, n):
    return (bits(name, shape) % np.uint64(n)).astype(np.int64)


def make(workload, batch=None, data="0"):
    """Parameters and one batch. `data` names the batch: give each rank its own."""
    pre, dat = f"bench/{workload}/", f"bench/{workload}/data{data}/"
    s3 = 3**0.5
    p, x = {}, {}

    def w(name, *shape, std=0.02):
        p[name] = real(pre + name, shape, -std * s3, std * s3)

    def lin(name, i, o, std=0.02):
        p[name] = np.ascontiguousarray(real(pre + name, (o, i), -std * s3, std * s3).T)

    def zero(name, n):
        p[name] = np.zeros(n, np.float32)

    def one(name, n):
        p[name] = np.ones(n, np.float32)

    if workload in MLP:
        sizes, B = MLP[workload]
        B = batch or B
        for k, (i, o) in enumerate(zip(sizes, sizes[1:])):
            lin(f"w{k}", i, o, i**-0.5)
            zero(f"b{k}", o)
        x["x"] = real(dat + "x", (B, sizes[0]), -s3, s3)
        x["y"] = ints(dat + "y", (B,), sizes[-1])
    elif workload in GPTS:
        c = GPTS[workload]
        D = c["D"]
        B = batch or c["B"]
        w("wte", c["V"], D)
        w("wpe", c["T"], D)
        for l in range(c["L"]):
            k = f"h{l}."
            one(k + "ln1.g", D)
            zero(k + "ln1.b", D)
            lin(k + "qkv.w", D, 3 * D)
            zero(k + "qkv.b", 3 * D)
            lin(k + "proj.w", D, D)
            zero(k + "proj.b", D)
            one(k + "ln2.g", D)
            zero(k + "ln2.b", D)
            lin(k + "fc.w", D, 4 * D)
            zero(k + "fc.b", 4 * D)
            lin(k + "fc2.w", 4 * D, D)
            zero(k + "fc2.b", D)
        one("lnf.g", D)
        zero("lnf.b", D)
        lin("head.w", D, c["V"])
        x["x"] = ints(dat + "x", (B, c["T"]), c["V"])
        x["y"] = ints(dat + "y", (B, c["T"]), c["V"])
    elif workload == "bert-mini":
        c = BERT
        D = c["D"]
        B = batch or c["B"]
        w("word", c["V"], D)
        w("pos", c["P"], D)
        w("type", 2, D)
        one("lne.g", D)
        zero("lne.b", D)
        for l in range(c["L"]):
            k = f"h{l}."
            for q in "qkvo":
                lin(k + q + ".w", D, D)
                zero(k + q + ".b", D)
            one(k + "ln1.g", D)
            zero(k + "ln1.b", D)
            one(k + "ln2.g", D)
            zero(k + "ln2.b", D)
            lin(k + "fc.w", D, c["F"])
            zero(k + "fc.b", c["F"])
            lin(k + "fc2.w", c["F"], D)
            zero(k + "fc2.b", D)
        lin("cls.w", D, 2)
        zero("cls.b", 2)
        x["x"] = ints(dat + "x", (B, c["T"]), c["V"])
        x["t"] = ints(dat + "t", (B, c["T"]), 2)
        x["y"] = ints(dat + "y", (B,), 2)
    elif workload == "convnet":
        B = batch or 64
        for i, (a, b, s) in enumerate(CONV):
            w(f"c{i}.w", b, a, 3, 3, std=(2 / (a * 9)) ** 0.5)
            one(f"bn{i}.g", b)
            zero(f"bn{i}.b", b)
        lin("fc.w", 128, 10, 128**-0.5)
        zero("fc.b", 10)
        x["x"] = real(dat + "x", (B, 3, 32, 32), -s3, s3)
        x["y"] = ints(dat + "y", (B,), 10)
    elif workload == "pointwise":
        N = PW
        for k, mid in (("a", 1), ("b", 0), ("g", 1), ("be", 0)):
            p[k] = real(pre + k, (N,), mid - 0.1 * s3, mid + 0.1 * s3)
        p["x"] = real(pre + "x", (N, N), -s3, s3)
        x["t"] = real(dat + "t", (N, N), 0, 1)
    elif workload == "dlrm":
        c = DLRM
        B = batch or c["B"]
        for i in range(c["tables"]):
            w(f"e{i}", c["rows"], c["dim"], std=0.01)
        lin("w0", 512, 256, 512**-0.5)
        zero("b0", 256)
        lin("w1", 256, 1, 256**-0.5)
        zero("b1", 1)
        x["i"] = ints(dat + "i", (c["tables"], B, c["idx"]), c["rows"])
        x["y"] = ints(dat + "y", (B,), 2).astype(np.float32)
    else:
        raise SystemExit("unknown workload " + workload)
    return p, x
