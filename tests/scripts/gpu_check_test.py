# SPDX-License-Identifier: Apache-2.0
"""Runs benchmarks/gpu_check.py on a bundle made of fakes: kiln-bench, the peers' PyTorch, compute-sanitizer
and tests that pass, fail and hang; and one program of this build as a test on the simulated device.

The fakes have a clock of their own, and a machine: 4000 GB/s, 50 TFLOP/s in f32, 400 in tf32, 800 in bf16.
Usage: gpu_check_test.py FOLDER_OF_PROGRAMS"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLED = ("benchmarks/gpu_check.py", "benchmarks/compare_rows.py", "benchmarks/peers/run.py")
REAL_TEST = "KILN_TEST_DEVICE=cuda golden.ops_golden_test =add"
TESTS = ["WANTED=1 wants a", "passes"]

# kiln-bench and the peers' PyTorch hang, break or fail when called with what these variables say.
KILN_BENCH = """#!/bin/sh
called="kiln-bench $*"
echo "$called" >> "$FAKE_LOG"
case $called in
  *"${FAKE_HANGS:-nothing}"*) exec sleep 100 ;;
  *"${FAKE_BROKEN:-nothing}"*) echo all went well; exit 0 ;;
  *"${FAKE_FAILS:-nothing}"*) echo no such device >&2; exit 1 ;;
  *" --autocast bf16 "*) ms=12.16 ;;
  *" gpt2 "*) ms=36.96 ;;
  *" pointwise "*) ms=0.1007 ;;
  *" matmul-"*" highest "*) n=${2#matmul-} ms=$((8 * n * n * n))e-11 ;;  # half the peak
  *" matmul-"*) n=${2#matmul-} ms=$((n * n * n))e-11 ;;
  *) ms=0.5 ;;
esac
case $called in
  *"${FAKE_WRONG:-nothing}"*) loss=NaN ;;
  *" mlp "*) loss=2.3712 ;;
  *" gpt-small "*) loss=4.63878 ;;
  *" pointwise "*) loss=0.333076 ;;
  *) loss=10.9 ;;
esac
echo warming up
echo '{"first_step_s": 5, "startup_s": 4.75, "losses": ['$loss'], "device_peak_mb": 500.5, "compiled": 3,' \\
  '"median_ms": '$ms', "low_ms": '$ms', "min_ms": '$ms'}'
"""
IMPL_TORCH = """
import os, sys
import torch
called = "run.py " + " ".join(sys.argv[1:])
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(called + "\\n")
if os.environ.get("FAKE_FAILS", "nothing") in called:
    sys.exit("no such device")

def build(a):
    seconds = {"gpt2": 0.04}.get(a.workload, 0.0004)
    seconds *= {"off": 1, "bf16": 0.5}[a.autocast]
    if a.framework == "torch-compile":
        seconds *= 0.5 if a.mode == "max-autotune" else 0.75
    steps = []
    known = {"mlp": [2.3712, 2.354486, 2.337841], "gpt-small": [4.63878, 4.600086, 4.56517],
             "pointwise": [0.333076]}.get(a.workload, [10.95])
    def step():
        torch.now[0] += seconds + (0 if steps else 3)
        steps.append(1)
        return known[min(len(steps), len(known)) - 1]
    return step, lambda: dict(device_peak_mb=1000.5)
"""
TORCH = """
import time
now = [100.0]
time.perf_counter = lambda: now[0]
__version__, float32, bfloat16 = "2.x", "f32", "bf16"
precision = []
set_float32_matmul_precision = precision.append
class Tensor:
    def __init__(self, *sizes, device, dtype=float32):
        self.sizes, self.dtype = sizes, dtype
    def numel(self):
        return self.sizes[0]
    def copy_(self, other):
        now[0] += 2 * 4 * self.numel() / 4000e9
    def __matmul__(self, other):
        peak = 800e12 if self.dtype == bfloat16 else {"highest": 50e12, "high": 400e12}[precision[-1]]
        now[0] += 2 * self.sizes[0] ** 3 / peak
empty = randn = Tensor
empty_like = lambda x: Tensor(*x.sizes, device="cuda")
class cuda:
    synchronize = lambda: None
    get_device_name = lambda: "Fake GPU"
    get_device_capability = lambda: (9, 0)
"""
SANITIZER = """#!/bin/sh
echo "compute-sanitizer $*" >> "$FAKE_LOG"
shift 2
case "$FAKE_SANITIZER $*" in
  "refused "*) echo "Error: device not supported"; exit 1 ;;
  "first "*wants*) echo "Invalid __global__ write" >&2; exit 9 ;;
  "crashes "*) echo "Segmentation fault" >&2; exit 139 ;;
esac
exec "$@"
"""
PROGRAMS = {
    "kiln-bench": KILN_BENCH,
    "compute-sanitizer": SANITIZER,
    "wants": '#!/bin/sh\n[ "$WANTED $*" = "1 a" ]\n',
    "passes": "#!/bin/sh\n",
    "fails": "#!/bin/sh\necho wrong >&2\nexit 3\n",
    "hangs": '#!/bin/sh\nsleep 100 &\necho $! > "$FAKE_LOG"\nwait\n',
}


def set_tests(lines):
    (BUNDLE / "gpu_tests.txt").write_text("# a comment\n\n" + "\n".join(lines) + "\n")


def setUpModule():
    """The bundle, and gpu_check imported from it."""
    global BUNDLE, gpu_check
    BUNDLE = pathlib.Path(tempfile.mkdtemp())
    unittest.addModuleCleanup(shutil.rmtree, BUNDLE)
    for folder in ("bin", "tests", "peers", "fake"):
        (BUNDLE / folder).mkdir()
    for path in BUNDLED:
        shutil.copy(ROOT / path, BUNDLE / path.removeprefix("benchmarks/"))
    (BUNDLE / "tests" / "goldens").symlink_to(ROOT / "tests" / "goldens")
    for name, text in PROGRAMS.items():
        (BUNDLE / "bin" / name).write_text(text)
        (BUNDLE / "bin" / name).chmod(0o755)
    (BUNDLE / "bin" / "golden.ops_golden_test").symlink_to(BUILT / "golden.ops_golden_test")
    (BUNDLE / "peers" / "impl_torch.py").write_text(IMPL_TORCH)
    (BUNDLE / "fake" / "torch.py").write_text(TORCH)
    sys.path.insert(0, str(BUNDLE))
    import gpu_check


def environment(**fakes):
    return dict(os.environ, PATH=f"{BUNDLE / 'bin'}:{os.environ['PATH']}", PYTHONPATH=str(BUNDLE / "fake"),
                PYTHONDONTWRITEBYTECODE="1", FAKE_LOG=str(BUNDLE / "log")) | fakes


def script(*arguments, **fakes):
    """(exit status, gpu_check.json, printed) of scripts/gpu_check.sh; every call of a fake is in the log."""
    (BUNDLE / "log").write_text("")
    done = subprocess.run([str(ROOT / "scripts" / "gpu_check.sh"), str(BUNDLE), "--out", str(BUNDLE / "out"),
                           *arguments], env=environment(**fakes), capture_output=True, text=True)
    assert done.returncode in (0, 1), done
    assert (BUNDLE / "out" / "gpu_check.md").read_text() == done.stdout
    return done.returncode, json.loads((BUNDLE / "out" / "gpu_check.json").read_text()), done.stdout


def check(only, budget=100, least=0.05, **fakes):
    """(result, table) of these parts, run from here; `least` is the time that a program must have."""
    a = types.SimpleNamespace(budget=budget, secs=0, driver="auto", only=only)
    with mock.patch.dict(os.environ, environment(**fakes)), mock.patch.object(gpu_check, "LEAST_S", least):
        c = gpu_check.Check(a)
        gpu_check.run_parts(c)
    return c.result, gpu_check.table(c.result)


def calls():
    return (BUNDLE / "log").read_text().splitlines()


def ended(pid):
    """Whether a process is gone, or soon is, or is only not yet reaped."""
    for _ in range(20):
        try:
            if " Z " in pathlib.Path(f"/proc/{pid}/stat").read_text():
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


class Bundle(unittest.TestCase):
    def test_what_the_check_imports_is_in_the_bundle(self):
        copied = re.findall(r"benchmarks/[\w./]+", (ROOT / "scripts" / "gpu_bundle.sh").read_text())
        for path in BUNDLED:
            self.assertTrue(any(path.startswith(c) for c in copied),
                            f"scripts/gpu_bundle.sh copies {copied}, but gpu_check.py needs {path}, too")

    def test_without_a_bundle(self):
        done = subprocess.run([str(ROOT / "scripts" / "gpu_check.sh"), "/nonexistent"], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no bundle in /nonexistent", done.stderr)

    def test_a_program_of_this_build_on_the_simulated_device(self):
        set_tests([REAL_TEST])
        status, result, printed = script("--driver", "sim")
        self.assertEqual((status, result["tests"], calls()), (0, {REAL_TEST: "passed"}, []), printed)
        self.assertEqual(list(result["parts"]), ["tests"])
        self.assertIn("Tests: 1 of 1 passed; compute-sanitizer: not run\n", printed)


class Whole(unittest.TestCase):
    """Everything, with nothing wrong."""

    @classmethod
    def setUpClass(cls):
        set_tests(TESTS)
        cls.status, cls.result, cls.printed = script("--secs", "0")
        cls.calls = calls()

    def test_nothing_failed_and_nothing_was_left_out(self):
        self.assertEqual((self.status, self.result["failed"], self.result["left_out"]), (0, [], []))
        self.assertEqual(self.result["tests"], {t: "passed" for t in TESTS})
        self.assertIn("Tests: 2 of 2 passed; compute-sanitizer: clean\n", self.printed)
        self.assertNotIn("left out", self.printed)

    def test_limits(self):
        limits = self.result["limits"]
        self.assertEqual((limits["name"], limits["sm"]), ("Fake GPU", [9, 0]))
        measured = [limits[k] for k in ("copy_gbs", "f32_tflops", "tf32_tflops", "bf16_tflops")]
        for got, expected in zip(measured, (4000, 50, 400, 800)):
            self.assertAlmostEqual(got, expected, delta=expected * 1e-6)
        self.assertIn("f32_tflops 50, tf32_tflops 400, bf16_tflops 800", self.printed)

    def test_every_workload_is_run_by_every_system(self):
        systems = ["kiln compiled", "kiln graphs", "torch eager", "torch compile", "torch max-autotune"]
        self.assertEqual([(r["workload"], r["system"]) for r in self.result["rows"]],
                         [(w, s) for w in gpu_check.WORKLOADS for s in systems])

    def test_kiln_and_its_peers_are_asked_for_the_same(self):
        for part in ("--workload mlp --device cuda --precision highest --autocast off ",
                     "--workload gpt2 --device cuda --precision high --autocast off ",
                     "--workload gpt2 --device cuda --precision high --autocast bf16 "):
            asked = [c for c in self.calls if part in c]
            self.assertEqual([c.split()[0] for c in asked], ["kiln-bench"] * 2 + ["run.py"] * 3, asked)
            for call, words in zip(asked, ("--mode compiled", "--mode graphs", "torch-eager --opt fused",
                                           "torch-compile", "torch-compile --mode max-autotune")):
                self.assertIn(words, call)

    def test_step_table(self):
        """gpt2: 7.0e12 FLOP / 400 TFLOP/s and 3.91 GB / 4000 GB/s are 18.5 ms; under bf16 9.7 ms."""
        for row in ("| workload | system | step ms | to best torch | % of limit | first step s | "
                    "start-up s | GPU MB |",
                    "| mlp | kiln compiled | 0.5 | 2.50x | 7 % | 5 | 4.75 | 500.5 |",
                    "| pointwise | kiln graphs | 0.1007 | 0.50x | 50 % | 5 | 4.75 | 500.5 |",
                    "| gpt2 | kiln compiled | 36.96 | 1.85x | 50 % | 5 | 4.75 | 500.5 |",
                    "| gpt2 | torch eager | 40 | 2.00x | 46 % | 3.04 | 3 | 1000.5 |",
                    "| gpt2-bf16 | kiln graphs | 12.16 | 1.22x | 80 % | 5 | 4.75 | 500.5 |",
                    "| gpt2-bf16 | torch max-autotune | 10 | 1.00x | 97 % | 3.01 | 3 | 1000.5 |"):
            self.assertIn(f"\n{row}\n", self.printed)
        self.assertAlmostEqual(self.result["rows"][-1]["limit_ms"], 9.728, delta=0.001)

    def test_counts_of_gpt2(self):
        """FLOP of the products, thrice for forward and both gradients, by the rule of the smaller GPT."""
        def flop(layers, d, vocab, seq, batch):
            weights = layers * 12 * d * d + d * vocab
            return 3 * 2 * batch * seq * (weights + layers * 2 * seq * d)
        self.assertAlmostEqual(flop(6, 384, 96, 128, 8) / gpu_check.FLOP["gpt-small"], 1, delta=0.001)
        self.assertAlmostEqual(flop(12, 768, 50257, 1024, 8) / gpu_check.FLOP["gpt2"], 1, delta=0.001)
        self.assertAlmostEqual(gpu_check.BYTES["gpt2"], 24 * 163.04e6, delta=1e6)

    def test_sweep_table(self):
        self.assertEqual([(s["precision"], s["n"]) for s in self.result["sweep"]],
                         [(p, n) for p in ("highest", "high") for n in gpu_check.SWEEP])
        for row in ("| product | kiln ms | torch ms | ratio | kiln TFLOP/s | % of peak |",
                    "| 8192, highest | 43.98 | 21.99 | 2.00x | 25 | 50 % |",
                    "| 1024, high | 0.01074 | 0.005369 | 2.00x | 200 | 50 % |"):
            self.assertIn(f"\n{row}\n", self.printed)

    def test_time_of_the_parts(self):
        parts = self.result["parts"]
        self.assertEqual(list(parts), list(gpu_check.SHARES))
        self.assertRegex(self.printed,
                         r"\nSeconds: limits \d+ of 34, tests \d+ of \d+, .*, sweep \d+ of \d+\n")
        # What the others did not use is the last one's.
        self.assertGreater(parts["sweep"]["had_s"], 340 - 100)


class Tests(unittest.TestCase):
    def test_one_fails_one_hangs_and_one_is_left_out(self):
        set_tests(["fails", "hangs", "passes"])
        result, table = check("tests", budget=0.7)
        self.assertEqual(result["tests"], {"fails": "failed", "hangs": "failed", "passes": "left out"})
        self.assertEqual(result["failed"], ["fails: wrong", "hangs: took over 1 s"])
        self.assertEqual(result["left_out"], ["passes (not begun)"])
        for line in ("Tests: 0 of 3 passed; ", "\nFAILED fails: wrong\n",
                     "\nleft out for lack of time: passes (not begun)\n"):
            self.assertIn(line, table)
        self.assertTrue(ended(int(calls()[0])), "what the hanging one began still runs")

    def test_a_program_that_is_not_there(self):
        set_tests(["missing", "passes"])
        result, _ = check("tests")
        self.assertEqual(result["tests"], {"missing": "failed", "passes": "passed"})
        self.assertIn("No such file", result["failed"][0])

    def test_failures_are_the_exit_status(self):
        set_tests(["fails"])
        status, _, printed = script("--only", "tests")
        self.assertEqual(status, 1)
        self.assertIn("FAILED fails: wrong\n", printed)


class Sanitizer(unittest.TestCase):
    def sanitized(self, how, failed):
        set_tests([*TESTS, "fails"])
        (BUNDLE / "log").write_text("")
        result, table = check("sanitizer", FAKE_SANITIZER=how)
        self.assertEqual(result["failed"], failed)
        self.assertIn(f"Tests: not run; compute-sanitizer: {result['sanitizer']}\n", table)
        return result["sanitizer"]

    def test_clean(self):
        self.assertEqual(self.sanitized("runs", []), "clean")
        self.assertEqual(calls(), [f"compute-sanitizer --error-exitcode 9 {BUNDLE}/bin/wants a",
                                   f"compute-sanitizer --error-exitcode 9 {BUNDLE}/bin/passes"])

    def test_refused_is_no_failure(self):
        self.assertEqual(self.sanitized("refused", []), "refused")

    def test_an_error_in_the_first_stays_when_the_second_is_clean(self):
        failed = ["compute-sanitizer WANTED=1 wants a: Invalid __global__ write"]
        self.assertEqual(self.sanitized("first", failed), "found errors")

    def test_a_program_that_fails_under_it(self):
        failed = [f"compute-sanitizer {t}: Segmentation fault" for t in TESTS]
        self.assertEqual(self.sanitized("crashes", failed), "failed")

    def test_not_finished_in_time(self):
        set_tests(["hangs", "hangs"])
        result, _ = check("sanitizer", budget=0.5)
        self.assertEqual((result["sanitizer"], result["failed"]), ("not finished", []))
        self.assertEqual(result["left_out"], ["compute-sanitizer hangs (stopped after 0 s)",
                                              "compute-sanitizer hangs (not begun)"])

    def test_not_installed(self):
        with mock.patch.object(gpu_check.shutil, "which", return_value=None), \
             mock.patch.object(gpu_check.os.path, "exists", return_value=False):
            self.assertEqual(check("sanitizer")[0]["sanitizer"], "not installed")


class Measured(unittest.TestCase):
    """Workloads and products where something is wrong."""

    def test_the_other_rows_stay(self):
        result, table = check("pointwise", FAKE_BROKEN="--mode graphs", FAKE_FAILS="--mode max-autotune")
        self.assertEqual([r["system"] for r in result["rows"]],
                         ["kiln compiled", "torch eager", "torch compile"])
        self.assertEqual(result["failed"][0], "pointwise, kiln graphs: no line of JSON: all went well")
        self.assertRegex(result["failed"][1], "^pointwise, torch max-autotune: .*no such device$")
        # The best of torch is compile now, and without limits nothing is a part of them.
        self.assertIn("| pointwise | kiln compiled | 0.1007 | 0.34x |  | 5 | 4.75 | 500.5 |\n", table)

    def test_wrong_losses_are_a_failure(self):
        for part in ("mlp", "gpt2-bf16"):
            result, _ = check(part, FAKE_WRONG="--mode graphs")
            self.assertEqual(len(result["failed"]), 1, result["failed"])
            self.assertRegex(result["failed"][0], rf"^{part}, kiln graphs: losses \[nan\], expected \[\d")

    def test_limits_that_fail(self):
        result, table = check("limits|sweep", FAKE_FAILS="matmul-512", PYTHONPATH="/nonexistent")
        self.assertIsNone(result["limits"])
        self.assertRegex(result["failed"][0], "(?s)^limits: .*Error")
        # Without PyTorch the products are Kiln's alone.
        self.assertEqual(len(result["sweep"]), 2 * (len(gpu_check.SWEEP) - 1))
        self.assertIn("\n| 8192, highest | 43.98 |  |  | 25 |  |\n", table)

    def test_a_peer_takes_autocast_from_torch_alone(self):
        run = [sys.executable, str(BUNDLE / "peers" / "run.py"), "--workload", "mlp", "--framework"]
        done = subprocess.run([*run, "jax", "--autocast", "bf16"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--autocast bf16: torch alone knows it", done.stderr)
        done = subprocess.run([*run, "torch-eager", "--autocast", "bf16", "--secs", "0"], env=environment(),
                              capture_output=True, text=True)
        self.assertEqual(json.loads(done.stdout)["autocast"], "bf16", done)


class Shares(unittest.TestCase):
    def test_every_part_has_one(self):
        self.assertEqual(sum(gpu_check.SHARES.values()), 100)
        self.assertEqual(set(gpu_check.SHARES) - {"limits", "tests", "sanitizer", "sweep"},
                         set(gpu_check.WORKLOADS))
        # By default each is long enough to begin something, and then some.
        for part, share in gpu_check.SHARES.items():
            self.assertGreater(340 * share / 100, 5 * gpu_check.LEAST_S, part)

    def test_deadlines(self):
        whole = gpu_check.deadlines(list(gpu_check.SHARES), 1000, 200)
        self.assertEqual(whole[:3] + whole[-1:], [1020, 1052, 1068, 1200])
        self.assertEqual(gpu_check.deadlines(["tests", "mlp"], 0, 30), [20, 30])
        self.assertEqual(gpu_check.deadlines([], 0, 30), [])

    def test_tests_that_hang_leave_the_others_their_shares(self):
        set_tests(["hangs", "passes"])
        result, table = check("tests|mlp", budget=2.4)
        parts = result["parts"]
        self.assertAlmostEqual(parts["tests"]["took_s"], 1.6, delta=0.5)  # 16 of 24
        self.assertAlmostEqual(parts["mlp"]["had_s"], 0.8, delta=0.5)
        self.assertEqual((result["tests"]["hangs"], result["rows"][0]["system"]), ("failed", "kiln compiled"))
        self.assertIn("left out for lack of time: passes (not begun)\n", table)

    def test_time_that_is_not_used_flows_on(self):
        set_tests(["passes"])
        parts = check("tests|sanitizer", budget=60)[0]["parts"]
        self.assertEqual(parts["tests"]["had_s"], 40)
        self.assertAlmostEqual(parts["sanitizer"]["had_s"], 60, delta=5)

    def test_a_measurement_cut_short_is_left_out_and_no_failure(self):
        result, table = check("mlp", budget=0.8, FAKE_HANGS="--mode graphs")
        self.assertEqual([r["system"] for r in result["rows"]], ["kiln compiled"])
        self.assertEqual(result["failed"], [])
        self.assertRegex(result["left_out"][0], r"^mlp, kiln graphs \(stopped after \d s\)$")
        self.assertEqual(result["left_out"][1:],
                         [f"mlp, torch {m} (not begun)" for m in gpu_check.TORCH_MODES])
        self.assertIn("left out for lack of time: mlp, torch eager (not begun)\n", table)

    def test_one_that_takes_longer_than_any_may_is_a_failure(self):
        c = gpu_check.Check(types.SimpleNamespace(budget=100, secs=0, driver="auto", only=""))
        with mock.patch.object(gpu_check, "LEAST_S", 0), mock.patch.dict(c.env, environment()):
            self.assertIsNone(c.json_row("slow", [str(BUNDLE / "bin" / "hangs")], 0.2))
        self.assertEqual((c.result["failed"], c.result["left_out"]), (["slow: took over 0 s"], []))

    def test_nothing_is_begun_with_too_little_time(self):
        result, _ = check("mlp", budget=2, least=3)
        self.assertEqual((len(result["left_out"]), result["rows"]), (5, []))

    def test_only_some_parts(self):
        for only, driver, parts in (("gpt2", "auto", ["gpt2", "gpt2-bf16"]), ("gpt2$", "auto", ["gpt2"]),
                                    ("", "sim", ["tests"]), ("mlp", "sim", [])):
            c = gpu_check.Check(types.SimpleNamespace(budget=1, secs=0, driver=driver, only=only))
            self.assertEqual([p for p in gpu_check.SHARES if c.wants(p)], parts)


if __name__ == "__main__":
    BUILT = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
