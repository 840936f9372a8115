# SPDX-License-Identifier: Apache-2.0
"""One measurement of a peer: one process, one JSON line.

python run.py --framework torch-eager|torch-compile|jax|mlx --workload W --threads N [--cache DIR]

The first step is timed alone (it compiles), then two more, then steps for about --secs."""

import time

START = time.perf_counter()
import argparse
import importlib
import json
import os
import resource
import sys

MODULES = {
    "torch-eager": "impl_torch",
    "torch-compile": "impl_torch",
    "jax": "impl_jax",
    "mlx": "impl_mlx",
}


def arguments():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--framework", required=True, choices=MODULES)
    ap.add_argument("--workload", required=True)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--secs", type=float, default=10)
    ap.add_argument("--cache", help="folder of the compiler's cache (a fresh one is a cold start)")
    ap.add_argument("--mode", help="torch.compile's mode, or nocompile for mlx")
    ap.add_argument("--opt", help="torch's AdamW: default, foreach, fused or compiled")
    ap.add_argument("--flat", action="store_true", help="jax with 2-D matmuls")
    ap.add_argument("--dlrm", default="dense", choices=["dense", "sparse"])
    ap.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="torch alone knows cuda")
    ap.add_argument("--precision", default="highest", choices=["highest", "high"], help="of torch")
    ap.add_argument("--autocast", default="off", choices=["off", "bf16"], help="of torch's forward")
    a = ap.parse_args()
    if a.autocast != "off" and MODULES[a.framework] != "impl_torch":
        ap.error(f"--autocast {a.autocast}: torch alone knows it")
    if a.opt is None:
        a.opt = "compiled" if a.framework == "torch-compile" else "default"
    return a


def environment(a):
    """Threads, pinning and caches; must run before the framework is imported."""
    for k in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        os.environ.pop(k, None)
    for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[k] = str(a.threads)
    os.environ["JAX_PLATFORMS"] = "cpu"
    if a.threads == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if not a.cache:
        return
    os.makedirs(a.cache, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = a.cache
    os.environ["JAX_COMPILATION_CACHE_DIR"] = a.cache
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    if a.framework == "mlx":
        os.environ["TMPDIR"] = a.cache


def peak_mb(who=resource.RUSAGE_SELF):
    return round(resource.getrusage(who).ru_maxrss / 1024)


def timed(step):
    t = time.perf_counter()
    loss = step()
    return time.perf_counter() - t, loss


def steps_for(step, secs):
    """Times of the steps of about `secs`: at least 5, at most 40 s of them."""
    times, begin = [], time.perf_counter()
    while True:
        times.append(timed(step)[0])
        passed = time.perf_counter() - begin
        enough = len(times) >= 20 and passed >= min(4, secs)
        if enough or (passed >= secs and len(times) >= 5) or passed > 40:
            return times


def median(sorted_times):
    n = len(sorted_times)
    return (sorted_times[(n - 1) // 2] + sorted_times[n // 2]) / 2


def main():
    a = arguments()
    environment(a)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    step, extra = importlib.import_module(MODULES[a.framework]).build(a)
    first, losses = [], []
    for _ in range(3):
        seconds, loss = timed(step)
        first.append(round(seconds, 4))
        losses.append(loss)
        if len(first) == 1:
            to_first = time.perf_counter() - START
    for _ in range(2 if first[-1] < 2 else 0):
        step()
    times = sorted(steps_for(step, a.secs))
    ms = lambda t: round(1e3 * t, 4)
    row = dict(
        framework=a.framework,
        workload=a.workload,
        threads=a.threads,
        opt=a.opt,
        autocast=a.autocast,
        median_ms=ms(median(times)),
        low_ms=ms(median(times[: (len(times) + 1) // 2])),
        min_ms=ms(times[0]),
        n=len(times),
        first_step_s=first[0],
        startup_s=round(first[0] - median(times), 4),
        process_to_first_loss_s=round(to_first, 2),
        losses=losses,
        peak_rss_mb=peak_mb(),
        child_peak_rss_mb=peak_mb(resource.RUSAGE_CHILDREN),
    )
    row.update(extra() or {})
    print(json.dumps(row), flush=True)
    if a.framework == "mlx":
        os._exit(0)  # its worker threads do not always end


if __name__ == "__main__":
    main()
