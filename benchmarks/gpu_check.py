# SPDX-License-Identifier: Apache-2.0
"""Checks Kiln on a GPU and measures it against PyTorch. Runs beside bin/, lib/ and peers/ of a bundle.

1. What the machine is and can do: copies and matrix products by PyTorch.
2. The CUDA tests on the real device, and some of them under compute-sanitizer.
3. mlp, gpt-small, pointwise and GPT-2 124M: Kiln, with and without CUDA graphs, against PyTorch's eager,
   compile and max-autotune; one process each. A sweep of matrix products.

Each part has a share of --budget; what no time is left for is listed as not run."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
WORKLOADS = {  # name -> precision of f32 products
    "mlp": "highest",
    "gpt-small": "highest",
    "pointwise": "highest",
    "gpt2": "high",
}
KILN_MODES = ("compiled", "graphs")
TORCH_MODES = {  # name -> arguments of peers/run.py
    "eager": ["--framework", "torch-eager", "--opt", "fused"],
    "compile": ["--framework", "torch-compile"],
    "max-autotune": ["--framework", "torch-compile", "--mode", "max-autotune"],
}
SWEEP = (512, 1024, 2048, 4096, 8192)
SANITIZED = 2  # tests, the first of the list


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--budget", type=float, default=340, help="seconds for all (default 340)")
    ap.add_argument("--out", default=".", help="folder for gpu_check.json and gpu_check.md")
    ap.add_argument("--secs", type=float, default=2, help="seconds of steps per measurement")
    ap.add_argument("--driver", default="auto", choices=["auto", "sim"],
                    help="sim: tests on the simulated device, no timing")
    ap.add_argument("--only", default="", help="regex of parts: limits, tests, sanitizer, WORKLOAD, sweep")
    return ap.parse_args()


class Check:
    """Runs programs of the bundle within the budget and keeps what they say."""

    def __init__(self, a):
        self.a = a
        self.end = time.monotonic() + a.budget
        self.result = {"tests": {}, "rows": [], "sweep": [], "not_run": [], "failed": []}
        self.env = dict(
            os.environ,
            KILN_CUDA_DRIVER=a.driver,
            KILN_CACHE_DIR=str(HERE / "cache"),
            KILN_GOLDENS=str(HERE / "tests" / "goldens"),
            LD_LIBRARY_PATH=f"{HERE / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        )

    def left(self):
        return self.end - time.monotonic()

    def wants(self, part):
        return re.search(self.a.only, part) is not None

    def run(self, what, command, limit, **variables):
        """(exit status, output), or None where there was no time for it."""
        limit = min(limit, self.left())
        if limit < 3:
            self.result["not_run"].append(what)
            return None
        try:
            p = subprocess.run(command, env={**self.env, **variables}, cwd=HERE, capture_output=True,
                               text=True, timeout=limit)
            status, out, err = p.returncode, p.stdout, p.stderr
        except subprocess.TimeoutExpired:
            status, out, err = -1, "", f"took over {limit:.0f} s"
        if status:
            self.result["failed"].append(f"{what}: {(err or out).strip()[-400:]}")
        return status, out

    def json_row(self, what, command, limit):
        got = self.run(what, command, limit)
        if not got or got[0]:
            return None
        return json.loads(got[1].strip().splitlines()[-1])


LIMITS = """
import json, torch, time
def best(fn, n=5):
    fn(); torch.cuda.synchronize(); t = []
    for _ in range(n):
        a = time.perf_counter(); fn(); torch.cuda.synchronize(); t.append(time.perf_counter() - a)
    return min(t)
d = dict(name=torch.cuda.get_device_name(), torch=torch.__version__, sm=torch.cuda.get_device_capability())
x = torch.empty(1 << 28, device="cuda"); y = torch.empty_like(x)
d["copy_gbs"] = 2 * x.numel() * 4 / best(lambda: y.copy_(x)) / 1e9
n = 8192
for key, dtype, precision in (("f32", torch.float32, "highest"), ("tf32", torch.float32, "high"),
                              ("bf16", torch.bfloat16, "high")):
    torch.set_float32_matmul_precision(precision)
    a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
    d[key + "_tflops"] = 2 * n**3 / best(lambda: a @ b) / 1e12
print(json.dumps(d))
"""


def limits(c):
    c.result["limits"] = c.json_row("limits", [sys.executable, "-c", LIMITS], 60)


def listed_tests():
    """(what it is called, variables, command) of each test of the list."""
    out = []
    for line in (HERE / "gpu_tests.txt").read_text().split("\n"):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        variables = dict(w.split("=", 1) for w in words if re.match(r"[A-Z_]+=", w))
        program, *arguments = words[len(variables):]
        out.append((line, variables, [str(HERE / "bin" / program), *arguments]))
    return out


def tests(c):
    for what, variables, command in listed_tests():
        got = c.run(what, command, 60, **variables)
        if got:
            c.result["tests"][what] = "passed" if got[0] == 0 else "failed"


def sanitizer(c):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        c.result["sanitizer"] = "not installed"
        return
    for what, variables, command in listed_tests()[:SANITIZED]:
        got = c.run(f"compute-sanitizer {what}", [tool, "--error-exitcode", "9", *command], 40, **variables)
        if got is None:
            continue
        refused = got[0] and re.search("not supported|error 999", got[1] + c.result["failed"][-1])
        if refused:  # some virtual machines do not let it in: said, not failed
            c.result["failed"].pop()
        c.result["sanitizer"] = "refused" if refused else "clean" if got[0] == 0 else "found errors"


def workload(c, name, precision):
    for mode in KILN_MODES:
        command = [str(HERE / "bin" / "kiln-bench"), "--workload", name, "--mode", mode, "--device", "cuda",
                   "--precision", precision, "--json", "--secs", str(c.a.secs)]
        add(c, name, f"kiln {mode}", command, 60)
    for mode, extra in TORCH_MODES.items():
        command = [sys.executable, str(HERE / "peers" / "run.py"), "--workload", name, "--device", "cuda",
                   "--precision", precision, "--secs", str(c.a.secs), *extra]
        add(c, name, f"torch {mode}", command, 100)


def add(c, name, system, command, limit):
    row = c.json_row(f"{name}, {system}", command, limit)
    if row:
        keys = ("median_ms", "low_ms", "first_step_s", "startup_s", "device_peak_mb", "losses", "compiled")
        c.result["rows"].append({"workload": name, "system": system, **{k: row[k] for k in keys if k in row}})


SWEEP_TORCH = """
import json, sys, torch, time
out = []
for n in map(int, sys.argv[2:]):
    torch.set_float32_matmul_precision(sys.argv[1])
    a = torch.randn(n, n, device="cuda"); b = torch.randn(n, n, device="cuda"); a @ b
    torch.cuda.synchronize(); t = []
    for _ in range(10):
        s = time.perf_counter(); a @ b; torch.cuda.synchronize(); t.append(time.perf_counter() - s)
    out.append(min(t) * 1e3)
print(json.dumps(out))
"""


def sweep(c):
    for precision in ("highest", "high"):
        peer = c.json_row(f"sweep {precision}, torch",
                          [sys.executable, "-c", SWEEP_TORCH, precision, *map(str, SWEEP)], 60)
        for i, n in enumerate(SWEEP):
            command = [str(HERE / "bin" / "kiln-bench"), "--workload", f"matmul-{n}", "--device", "cuda",
                       "--precision", precision, "--json", "--secs", "0.5"]
            row = c.json_row(f"sweep {precision} {n}, kiln", command, 30)
            if row and peer:
                ms = row["min_ms"]
                c.result["sweep"].append(dict(precision=precision, n=n, kiln_ms=ms, torch_ms=peer[i],
                                              kiln_tflops=2e-9 * n**3 / ms))


def limits_line(limits):
    values = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in limits.items())
    return "Limits: " + ", ".join(values)


def step_rows(rows):
    out = ["| workload | system | step ms | to best torch | first step s | GPU MB |",
           "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        peers = [x["low_ms"] for x in rows
                 if x["workload"] == row["workload"] and x["system"].startswith("torch")]
        ratio = f"{row['low_ms'] / min(peers):.2f}x" if peers else ""
        out.append(f"| {row['workload']} | {row['system']} | {row['low_ms']:.4g} | {ratio} | "
                   f"{row['first_step_s']:.3g} | {row.get('device_peak_mb', '')} |")
    return out


def sweep_rows(rows):
    out = ["", "| product | kiln ms | torch ms | ratio | kiln TFLOP/s |", "| --- | --- | --- | --- | --- |"]
    for s in rows:
        out.append(f"| {s['n']}, {s['precision']} | {s['kiln_ms']:.4g} | {s['torch_ms']:.4g} | "
                   f"{s['kiln_ms'] / s['torch_ms']:.2f}x | {s['kiln_tflops']:.4g} |")
    return out


def table(r):
    """What people read, as Markdown."""
    out = [limits_line(r["limits"]), ""] if r.get("limits") else []
    passed = sum(v == "passed" for v in r["tests"].values())
    out += [f"Tests: {passed} of {len(r['tests'])} passed; "
            f"compute-sanitizer: {r.get('sanitizer', 'not run')}", ""]
    out += step_rows(r["rows"]) if r["rows"] else []
    out += sweep_rows(r["sweep"]) if r["sweep"] else []
    out += [""] + [f"not run: {x}" for x in r["not_run"]] + [f"FAILED {x}" for x in r["failed"]]
    return "\n".join(out)


def main():
    a = arguments()
    c = Check(a)
    real = a.driver != "sim"
    if real and c.wants("limits"):
        limits(c)
    if c.wants("tests"):
        tests(c)
    if real and c.wants("sanitizer"):
        sanitizer(c)
    for name, precision in WORKLOADS.items():
        if real and c.wants(name):
            workload(c, name, precision)
    if real and c.wants("sweep"):
        sweep(c)
    out = pathlib.Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu_check.json").write_text(json.dumps(c.result, indent=1) + "\n")
    text = table(c.result)
    (out / "gpu_check.md").write_text(text + "\n")
    print(text)
    return 1 if c.result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
