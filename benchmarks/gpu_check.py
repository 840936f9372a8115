# SPDX-License-Identifier: Apache-2.0
"""Checks Kiln on a GPU and measures it against PyTorch. Runs beside bin/, lib/ and peers/ of a bundle.

1. What the machine is and can do: copies and matrix products by PyTorch.
2. The CUDA tests on the real device, and some of them under compute-sanitizer.
3. mlp, gpt-small, pointwise and GPT-2 124M, this one in tf32 and under bf16 autocast: Kiln, with and
   without CUDA graphs, against PyTorch's eager, compile and max-autotune; one process each. A sweep of
   matrix products.

Each part has its share of --budget, and what the parts before it did not use of theirs. What no time was
left for is listed."""

import argparse
import functools
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import compare_rows

HERE = pathlib.Path(__file__).resolve().parent
WORKLOADS = {  # name -> workload, precision of f32 products, autocast
    "mlp": ("mlp", "highest", "off"),
    "gpt-small": ("gpt-small", "highest", "off"),
    "pointwise": ("pointwise", "highest", "off"),
    "gpt2": ("gpt2", "high", "off"),
    "gpt2-bf16": ("gpt2", "high", "bf16"),
}
PEAKS = {"highest": "f32_tflops", "high": "tf32_tflops", "bf16": "bf16_tflops"}
# What compare.py counts, and GPT-2's, which no CPU is measured with: 8 rows of 1024 tokens.
FLOP = compare_rows.FLOP | {"gpt2": 7.0e12}
BYTES = compare_rows.BYTES | {
    "gpt2": 24 * compare_rows.gpt_parameters(12, 768, 50257, 1024) + 2 * 8 * 1024 * 8
}
KILN_MODES = ("compiled", "graphs")
TORCH_MODES = {  # name -> arguments of peers/run.py
    "eager": ["--framework", "torch-eager", "--opt", "fused"],
    "compile": ["--framework", "torch-compile"],
    "max-autotune": ["--framework", "torch-compile", "--mode", "max-autotune"],
}
SWEEP = (512, 1024, 2048, 4096, 8192)
SANITIZED = 2  # tests, the first of the list
SHARES = {  # part -> its share of the budget, in the order that they run
    "limits": 10,
    "tests": 16,
    "sanitizer": 8,
    "mlp": 8,
    "gpt-small": 10,
    "pointwise": 8,
    "gpt2": 13,
    "gpt2-bf16": 13,
    "sweep": 14,
}
EXACT_TOLERANCE, ROUNDED_TOLERANCE = 1e-4, 2e-2  # of losses
LEAST_S = 3  # nothing is begun that has less


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--budget", type=float, default=340, help="seconds for all (default 340)")
    ap.add_argument("--out", default=".", help="folder for gpu_check.json and gpu_check.md")
    ap.add_argument("--secs", type=float, default=2, help="seconds of steps per measurement")
    ap.add_argument("--driver", default="auto", choices=["auto", "sim"],
                    help="sim: tests on the simulated device, no timing")
    ap.add_argument("--only", default="", help="regex of parts: " + ", ".join(SHARES))
    return ap.parse_args()


@dataclass
class Ran:
    """How a program ended. A status of None: it was stopped after `limit` seconds."""

    status: int | None
    out: str
    err: str
    limit: float


def run_program(command, env, limit):
    try:
        p = subprocess.Popen(command, env=env, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, errors="replace", start_new_session=True)
    except OSError as e:
        return Ran(127, "", str(e), limit)
    with p:
        try:
            out, err = p.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return Ran(None, "", "", limit)
        finally:
            if p.returncode is None:  # its children, too: compilers, or what a tool runs
                os.killpg(p.pid, signal.SIGKILL)
        return Ran(p.returncode, out, err, limit)


class Check:
    """Runs programs of the bundle within the budget and keeps what they say."""

    def __init__(self, a):
        self.a = a
        self.end = time.monotonic() + a.budget
        self.result = {"parts": {}, "tests": {}, "rows": [], "sweep": [], "left_out": [], "failed": []}
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
        return re.search(self.a.only, part) is not None and (part == "tests" or self.a.driver != "sim")

    def leave_out(self, what, why):
        self.result["left_out"].append(f"{what} ({why})")

    def fail(self, what, r):
        why = f"took over {r.limit:.0f} s" if r.status is None else (r.err or r.out).strip()[-400:]
        self.result["failed"].append(f"{what}: {why}")

    def run(self, what, command, limit, **variables):
        """How the command ended, or None where its part has no time for it."""
        limit = min(limit, self.left())
        if limit < LEAST_S:
            self.leave_out(what, "not begun")
            return None
        return run_program(command, {**self.env, **variables}, limit)

    def finished(self, what, command, limit, **variables):
        """How the command ended by itself, or None. To be stopped at the end of the part is no failure."""
        r = self.run(what, command, limit, **variables)
        if r is None or r.status is not None:
            return r
        if r.limit < limit:
            self.leave_out(what, f"stopped after {r.limit:.0f} s")
        else:
            self.fail(what, r)
        return None

    def json_row(self, what, command, limit):
        r = self.finished(what, command, limit)
        if r is None:
            return None
        try:
            if r.status == 0:
                return json.loads(r.out.strip().rpartition("\n")[2])
        except ValueError:
            r.err = f"no line of JSON: {r.out.strip()[-200:]}"
        self.fail(what, r)
        return None


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
        r = c.run(what, command, 60, **variables)
        if r and r.status != 0:  # one that hangs is a failure, whoever stops it
            c.fail(what, r)
        c.result["tests"][what] = "left out" if r is None else "failed" if r.status != 0 else "passed"


VERDICTS = ("not finished", "clean", "refused", "failed", "found errors")  # of the sanitizer; the worst last
FOUND_ERRORS = 9  # the exit status that it is asked for


def sanitizer(c):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        c.result["sanitizer"] = "not installed"
        return
    verdicts = [sanitized(c, tool, *test) for test in listed_tests()[:SANITIZED]]
    c.result["sanitizer"] = max(verdicts, key=VERDICTS.index, default="not run")


def sanitized(c, tool, what, variables, command):
    what = f"compute-sanitizer {what}"
    r = c.finished(what, [tool, "--error-exitcode", str(FOUND_ERRORS), *command], 40, **variables)
    if r is None:
        return "not finished"
    if r.status == 0:
        return "clean"
    if re.search("not supported|error 999", r.out + r.err):
        return "refused"  # some virtual machines do not let it in: said, not failed
    c.fail(what, r)
    return "found errors" if r.status == FOUND_ERRORS else "failed"


def workload(c, name):
    workload, precision, autocast = WORKLOADS[name]
    common = ["--workload", workload, "--device", "cuda", "--precision", precision, "--autocast", autocast,
              "--secs", str(c.a.secs)]
    for mode in KILN_MODES:
        add(c, name, f"kiln {mode}",
            [str(HERE / "bin" / "kiln-bench"), *common, "--mode", mode, "--json"], 60)
    for mode, extra in TORCH_MODES.items():
        add(c, name, f"torch {mode}", [sys.executable, str(HERE / "peers" / "run.py"), *common, *extra], 100)


def limit_ms(name, limits):
    """The least that a step of the workload takes at what the machine was measured to do, or None."""
    workload, precision, autocast = WORKLOADS[name]
    if not limits:
        return None
    peak = limits[PEAKS[precision if autocast == "off" else autocast]]
    return 1e3 * (FLOP[workload] / (peak * 1e12) + BYTES[workload] / (limits["copy_gbs"] * 1e9))


def wrong(name, losses, rows):
    """What is wrong with a row's losses, or None: those of exact f32 are known, others are compared with the
    first row of the workload."""
    workload, precision, autocast = WORKLOADS[name]
    exact = precision == "highest" and autocast == "off"
    if exact:
        return compare_rows.differing_losses(losses, compare_rows.LOSSES[workload], EXACT_TOLERANCE)
    first = next((r["losses"] for r in rows if r["workload"] == name and r.get("losses")), losses)
    return compare_rows.differing_losses(losses, first, ROUNDED_TOLERANCE)


def add(c, name, system, command, limit):
    row = c.json_row(f"{name}, {system}", command, limit)
    if row:
        fault = wrong(name, row.get("losses", []), c.result["rows"])
        if fault:
            c.result["failed"].append(f"{name}, {system}: {fault}")
        keys = ("median_ms", "low_ms", "first_step_s", "startup_s", "device_peak_mb", "losses", "compiled")
        c.result["rows"].append({"workload": name, "system": system, **{k: row[k] for k in keys if k in row},
                                 "limit_ms": limit_ms(name, c.result.get("limits"))})


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
    limits = c.result.get("limits")
    for precision in ("highest", "high"):
        peer = c.json_row(f"sweep {precision}, torch",
                          [sys.executable, "-c", SWEEP_TORCH, precision, *map(str, SWEEP)], 60)
        for i, n in enumerate(SWEEP):
            command = [str(HERE / "bin" / "kiln-bench"), "--workload", f"matmul-{n}", "--device", "cuda",
                       "--precision", precision, "--json", "--secs", "0.5"]
            row = c.json_row(f"sweep {precision} {n}, kiln", command, 30)
            if row:
                c.result["sweep"].append(dict(
                    precision=precision, n=n, kiln_ms=row["min_ms"], torch_ms=peer[i] if peer else None,
                    kiln_tflops=2e-9 * n**3 / row["min_ms"],
                    peak_tflops=limits[PEAKS[precision]] if limits else None))


def limits_line(limits):
    values = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in limits.items())
    return "Limits: " + ", ".join(values)


def percent(part, whole):
    return f"{100 * part / whole:.0f} %" if part is not None and whole else ""


def step_rows(rows):
    out = ["| workload | system | step ms | to best torch | % of limit | first step s | start-up s | "
           "GPU MB |",
           "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        peers = [x["low_ms"] for x in rows
                 if x["workload"] == row["workload"] and x["system"].startswith("torch")]
        ratio = f"{row['low_ms'] / min(peers):.2f}x" if peers else ""
        out.append(f"| {row['workload']} | {row['system']} | {row['low_ms']:.4g} | {ratio} | "
                   f"{percent(row['limit_ms'], row['low_ms'])} | {row['first_step_s']:.3g} | "
                   f"{row['startup_s']:.3g} | {row.get('device_peak_mb', '')} |")
    return out


def sweep_rows(rows):
    out = ["", "| product | kiln ms | torch ms | ratio | kiln TFLOP/s | % of peak |",
           "| --- | --- | --- | --- | --- | --- |"]
    for s in rows:
        torch = s["torch_ms"]
        peer = f"{torch:.4g} | {s['kiln_ms'] / torch:.2f}x" if torch else " | "
        out.append(f"| {s['n']}, {s['precision']} | {s['kiln_ms']:.4g} | {peer} | {s['kiln_tflops']:.4g} | "
                   f"{percent(s['kiln_tflops'], s['peak_tflops'])} |")
    return out


def tests_line(r):
    passed = sum(v == "passed" for v in r["tests"].values())
    said = f"{passed} of {len(r['tests'])} passed" if r["tests"] else "not run"
    return f"Tests: {said}; compute-sanitizer: {r.get('sanitizer', 'not run')}"


def table(r):
    """What people read, as Markdown."""
    out = []
    if r.get("limits"):
        out += [limits_line(r["limits"]), "A step's limit: its FLOP / the peak of its precision + the bytes "
                "that must move / the bandwidth of copies.", ""]
    out += [tests_line(r), ""]
    out += step_rows(r["rows"]) if r["rows"] else []
    out += sweep_rows(r["sweep"]) if r["sweep"] else []
    out += ["", "Seconds: " + ", ".join(f"{part} {t['took_s']:.0f} of {t['had_s']:.0f}"
                                        for part, t in r["parts"].items())]
    out += [f"left out for lack of time: {x}" for x in r["left_out"]]
    out += [f"FAILED {x}" for x in r["failed"]]
    return "\n".join(out)


def deadlines(parts, begin, budget):
    """When each part has to end, so that those after it have their shares."""
    ends = list(itertools.accumulate(SHARES[p] for p in parts))
    return [begin + budget * end / ends[-1] for end in ends]


def run_parts(c):
    work = {"limits": limits, "tests": tests, "sanitizer": sanitizer, "sweep": sweep}
    work |= {name: functools.partial(workload, name=name) for name in WORKLOADS}
    parts = [p for p in SHARES if c.wants(p)]
    for part, end in zip(parts, deadlines(parts, time.monotonic(), c.a.budget)):
        c.end, begin = end, time.monotonic()
        work[part](c)
        c.result["parts"][part] = dict(had_s=round(end - begin, 1),
                                       took_s=round(time.monotonic() - begin, 1))


def main():
    c = Check(arguments())
    run_parts(c)
    out = pathlib.Path(c.a.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu_check.json").write_text(json.dumps(c.result, indent=1) + "\n")
    text = table(c.result)
    (out / "gpu_check.md").write_text(text + "\n")
    print(text)
    return 1 if c.result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
