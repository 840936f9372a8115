# SPDX-License-Identifier: Apache-2.0
"""gpt-small data parallel in PyTorch, Gloo, one thread a process; rank 0 prints one line of JSON:
torchrun --standalone --nproc-per-node 2 ddp.py [--compile] [--bucket MB] [--compression bf16] [--pin]"""

import argparse
import json
import os
import sys
import time

ap = argparse.ArgumentParser()
ap.add_argument("--compile", action="store_true")
ap.add_argument("--bucket", type=float, default=25)
ap.add_argument("--compression", default="none", choices=("none", "fp16", "bf16"))
ap.add_argument("--cache", help="folder for the inductor's results")
ap.add_argument("--pin", action="store_true", help="rank r runs on CPU r")
a = ap.parse_args()
for k in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(k, None)
try:
    with open("/proc/self/autogroup", "w") as f:
        f.write("-20")  # torchrun gives each rank a session, and so an autogroup, of its own
except OSError:
    pass
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
if a.cache:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = a.cache
if a.pin:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]})
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import common as C
import impl_torch as I
import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

torch.set_num_threads(1)
dist.init_process_group("gloo")
p, x = C.make("gpt-small", data=str(rank))
X, Y = torch.from_numpy(x["x"]), torch.from_numpy(x["y"])
m = I.GPT(p).train()
parameters = sum(q.numel() for q in m.parameters())
net = torch.nn.parallel.DistributedDataParallel(m, bucket_cap_mb=a.bucket)
if a.compression != "none":
    net.register_comm_hook(None, getattr(default_hooks, f"{a.compression}_compress_hook"))
opt = torch.optim.AdamW(m.parameters(), lr=C.LR, weight_decay=C.WD, fused=True)
f = torch.compile(net) if a.compile else net


def step():
    opt.zero_grad(set_to_none=True)
    loss = f(X, Y)
    loss.backward()
    opt.step()
    return loss.item()


t = time.perf_counter()
losses = [step()]
first = time.perf_counter() - t
losses += [step(), step()]
times = []
dist.barrier()
for _ in range(int(os.environ.get("DDP_N", "5"))):
    t = time.perf_counter()
    step()
    times.append(time.perf_counter() - t)

# The bare all-reduce of the same bytes, in buckets of the same size.
cap = int(a.bucket * 2**20 / 4)
wire = {"none": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[a.compression]
buckets = [torch.ones(min(cap, parameters - at), dtype=wire) for at in range(0, parameters, cap)]
alone = []
for _ in range(6):
    dist.barrier()
    t = time.perf_counter()
    for w in [dist.all_reduce(b, async_op=True) for b in buckets]:
        w.wait()
    alone.append(time.perf_counter() - t)
if rank == 0:
    result = {
        "world": world,
        "compile": a.compile,
        "bucket_mb": a.bucket,
        "compression": a.compression,
        "median_ms": 1e3 * float(np.median(times)),
        "min_ms": 1e3 * min(times),
        "n": len(times),
        "first_step_s": first,
        "losses": losses,
        "allreduce_alone_ms": 1e3 * float(np.median(alone[1:])),
    }
    print(json.dumps(result), flush=True)
dist.barrier()
dist.destroy_process_group()
