# SPDX-License-Identifier: Apache-2.0
"""`kiln explain`: the exact text for a small program, buckets, host reads, and JSON that adds up."""
import json
import os
import sys

sys.dont_write_bytecode = True
import tools  # noqa: E402

SMALL = """\
stage 2: evaluate for x86-64-v3, 2 threads
  graph: 2 ops: 2 elementwise
  inputs: 1 scalar, 1 captured; outputs: 1, 0 in place
  ops by region: 2 mul
  plan: 1 launch of 1 kernel in 1 phase
         launch  tasks       bytes         FLOP         us  bound by    lines
      0  mul         1        16 B       2 FLOP      0.001  memory      train.cpp:55
  memory: scalar 8 B, captured 4 B, handed out 4 B, arena 0 B, scratch 0 B a thread, constants 0 B
    largest: #0 (scalar) 8 B, #0 (external) 4 B, #0 (output) 4 B
  at least 0.001 us, at 20.0 GB/s and 40.0 GFLOP/s, which are assumed (--measure: what this machine does)
    0.001 us where memory is the limit, 0.000 us where arithmetic is
"""


class Explain(tools.WithFolder):
    def explain(self, job, *args):
        return self.good("explain", job, "--target", "x86-64-v3", "--threads", "2", *args)

    def test_exact_text(self):
        job, _ = self.record()
        self.assertEqual(self.explain(job, "--program", "2"), SMALL)

    def test_the_whole_job(self):
        job, _ = self.record()
        out = self.explain(job)
        self.assertEqual([line.split(" for ")[0] for line in out.splitlines() if line.startswith("stage")],
                         ["stage 0: train", "stage 1: evaluate", "stage 2: evaluate"])
        self.assertIn("  ends at host read train.cpp:55, which costs 4 B: what it hands out\n", out)
        self.assertIn(" AdamW.step", out)
        self.assertIn("fc1.weight (external) 2.0 KiB", out)
        self.assertIn(" of relu at train.cpp:24 (arena) 1.0 KiB", out)
        peak = r"\n    peak: ([\d.]+ KiB) of the arena, at launch \d+: %\d+ of \w+ at train.cpp:\d+ "
        self.assertRegex(out, peak)
        self.assertEqual(out, self.explain(job), "and again")
        # 8 rows of 16 times 32 columns, twice, are most of the first launch's FLOPs.
        train = json.loads(self.explain(job, "--json"))[0]
        self.assertGreaterEqual(train["launches"][0]["flops"], 2 * 8 * 16 * 32)

    def test_json_adds_up(self):
        job, _ = self.record()
        for stage in json.loads(self.explain(job, "--json")):
            for value in stage["repeated"]:
                self.assertGreater(len(value["launches"]), 1)
                self.assertLess(max(value["launches"]), len(stage["launches"]))
            memory = stage["memory"]
            if memory["arena"]:
                peak = memory["peak"]
                self.assertEqual(peak["bytes"], sum(b["bytes"] for b in peak["alive"]))
                self.assertLessEqual(peak["bytes"], memory["arena"])
                self.assertLess(peak["launch"], len(stage["launches"]))
            self.assertEqual(sum(stage["graph"]["by_kind"].values()), stage["graph"]["ops"])
            for launch in stage["launches"]:
                limits = stage["predicted"]
                by_memory = launch["bytes"] / limits["bytes_per_s"]
                by_work = launch["flops"] / limits["flops_per_s"]
                self.assertAlmostEqual(launch["seconds"], max(by_memory, by_work), delta=1e-12)
                self.assertEqual(launch["bound"], "memory" if by_memory >= by_work else "arithmetic")
            total = sum(r["seconds"] for r in stage["launches"])
            self.assertAlmostEqual(stage["predicted"]["seconds"], total, delta=1e-12)

    def test_a_run_measures_what_the_plan_launches(self):
        job, _ = self.record()
        args = ("explain", job, "--run", "1", "--threads", "2", "--program", "0")
        stage = json.loads(self.good(*args, "--json"))[0]
        self.assertGreaterEqual(stage["measured"]["calls"], 3)
        self.assertGreater(stage["measured"]["seconds"], 0)
        for launch in stage["launches"]:
            self.assertGreater(launch["measured_seconds"], 0, launch)
        self.assertNotEqual(stage["predicted"]["flops_per_s"], 40e9, "limits are this machine's")
        out = self.good(*args)
        head, _, table = out.partition("\n  measured: ")
        self.assertRegex(table, r"^[\d.]+ us a call, the median of \d+ calls; launch by launch [\d.]+ us, of")
        rows = [line.split() for line in table.splitlines()[2:]]
        self.assertEqual(sorted(int(r[0]) for r in rows), list(range(len(stage["launches"]))))
        times = [float(r[1]) for r in rows]
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertAlmostEqual(sum(float(r[2][:-1]) for r in rows), 100, delta=0.05 * len(rows))
        self.assertIn(" train.cpp:24", table)
        self.assertNotIn("not run", out)

    def test_a_run_is_refused_where_it_would_say_nothing(self):
        job, _ = self.record()
        for target in ("sm_90a", "x86-64-v3" if os.uname().machine == "aarch64" else "aarch64"):
            refused = self.kiln("explain", job, "--target", target, "--run", "1")
            why = f"kiln: explain: --run runs kernels on this CPU; got --target {target}\n"
            self.assertEqual(refused, (2, "", why))
        ddp = self.path("ddp.kiln")
        self.train("32", "ddp", KILN_RECORD=ddp)
        refused = self.kiln("explain", ddp, "--run", "1", "--program", "0")
        self.assertNotEqual(refused[0], 0)
        self.assertIn("explain: --run takes programs of one rank; this one communicates\n", refused[2])

    def test_what_is_stored_between_launches_and_why(self):
        job, _ = self.record()
        stage = json.loads(self.explain(job, "--program", "1", "--json"))[0]
        for value in stage["stored"]:
            self.assertLess(value["writer"], min(value["readers"]), value)
            self.assertNotEqual(value["why"], "")
        self.assertTrue(any("dot_general" in v["why"] for v in stage["stored"]), stage["stored"])
        out = self.explain(job, "--program", "1")
        self.assertIn("\n  between launches: ", out)
        self.assertRegex(out, r"\n    1\.0 KiB %\d+ of relu at train\.cpp:24: of launch 0 for 1: dot_general "
                              r"reads its operands from memory\n")

    def test_kernels_for_gpus_that_are_not_here(self):
        job, _ = self.record()
        self.skip_without_nvrtc(job)
        args = ("explain", job, "--target", "sm_90a", "--program", "0")
        stage = json.loads(self.good(*args, "--json"))[0]
        self.assertEqual(stage["target"], "sm_90a")
        for launch in stage["launches"]:
            self.assertGreater(launch["registers"], 0)
            self.assertEqual(launch["spill_bytes"], 0)
            self.assertEqual(list(launch["us"]), ["A100", "H100", "B200"])
            self.assertTrue(0 < launch["occupancy"] <= 1, launch)
        out = self.good(*args)
        self.assertRegex(out, r"^stage 0: train for sm_90a\n  graph: ")
        self.assertRegex(out, r"\n  plan: \d+ launches of \d+ kernels in \d+ sources?, by NVRTC [\d.]+\n")
        self.assertNotIn("registers and spills", out)
        self.assertRegex(out, r" A100 us +H100 us +B200 us  bound by lines\n")
        self.assertRegex(out, r"\n  predicted: [\d.]+ us on A100, [\d.]+ us on H100, [\d.]+ us on B200, one ")

    def test_without_a_compiler_for_gpus(self):
        job, _ = self.record()
        args, none = ("explain", job, "--target", "sm_90a"), {"KILN_CUDA_PATH": self.path("nowhere")}
        stages = json.loads(self.good(*args, "--json", **none))
        self.assertEqual(len(stages), 3)
        for stage in stages:
            self.assertIsNone(stage["compiler"])
            self.assertIn("no NVRTC: ", stage["no_compiler"])
            for launch in stage["launches"]:
                self.assertEqual((launch["registers"], launch["spill_bytes"]), (-1, -1))
        lines = self.good(*args, **none).splitlines()
        self.assertEqual(lines[-1], "registers and spills are not known, and occupancy is without them: " +
                         stages[0]["no_compiler"])
        self.assertEqual([line for line in lines[:-1] if "NVRTC" in line], [])
        self.assertEqual(sum(line.endswith(" sources") or line.endswith(" source") for line in lines), 3)

    def test_gpus_have_the_sections_of_cpus(self):
        job = self.path("ddp.kiln")
        self.train("32", "ddp", KILN_RECORD=job)

        def sections(target):
            out = self.good("explain", job, "--target", target, "--program", "0")
            lines = [line for line in out.splitlines() if not line.startswith("      ")]
            words = (line.split(":")[0].strip() for line in lines[1:])
            return out, [w for w in words if w in ("graph", "inputs", "ops by region", "plan", "bucket 0",
                                                   "memory", "largest")]

        cpu, expected = sections("x86-64-v3")
        gpu, got = sections("sm_90a")
        self.assertEqual(got, expected)
        self.assertEqual(len(got), 7, gpu)

        def line(text, start):
            return next(x for x in text.splitlines() if x.startswith(start))

        for start in ("  graph: ", "  inputs: ", "  ops by region: "):
            self.assertEqual(line(gpu, start), line(cpu, start))
        self.assertRegex(line(gpu, "  bucket 0: "),
                         r"all_reduce of 4 tensors, ([\d.]+ KiB), sent as \1 of f32, group 0; started by "
                         r"launch \d+, awaited by launch \d+$")
        inputs = r"^  memory: arg [\d.]+ KiB, param [\d.]+ KiB, scalar \d+ B, handed out [\d.]+ KiB, arena "
        self.assertRegex(line(gpu, "  memory: "), inputs + r"[\d.]+ KiB, constants \d+ B$")
        self.assertRegex(gpu, r" limited by +bytes +FLOP +A100 us ")
        self.assertRegex(gpu, r"\n +\d+  start bucket 0 +- +- +- +- +0 B +- - +0 B +0 FLOP +0\.00 ")
        self.assertIn(", one launch after the other; communication is not counted\n", gpu)
        self.check_numbers_of_gpus(job)

    def check_numbers_of_gpus(self, job):
        cpu, gpu = (json.loads(self.good("explain", job, "--target", t, "--program", "0", "--json"))[0]
                    for t in ("x86-64-v3", "sm_90a"))
        self.assertEqual(gpu["graph"], cpu["graph"])
        self.assertEqual(gpu["collectives"], cpu["collectives"])
        memory = gpu["memory"]
        self.assertEqual(memory["inputs"], cpu["memory"]["inputs"])
        self.assertEqual(memory["handed_out"], cpu["memory"]["handed_out"])
        self.assertNotIn("scratch", memory)
        self.assertGreaterEqual(memory["arena"], max(b["bytes"] for b in memory["largest"]
                                                     if b["kind"] == "arena"))
        self.assertGreaterEqual(gpu["launches"][0]["flops"], 2 * 8 * 16 * 32)
        for name, us in gpu["predicted"]["us"].items():
            self.assertAlmostEqual(us, sum(r["us"][name] for r in gpu["launches"]))

    def test_products_of_halves_are_for_tensor_cores(self):
        def units(*how):
            job = self.path("products.kiln")
            self.train("64", *how, KILN_RECORD=job)
            out = self.good("explain", job, "--target", "sm_90a", "--program", "0", "--json",
                            KILN_CUDA_PATH=self.path("nowhere"))
            os.remove(job)
            rows = json.loads(out)[0]["launches"]
            return [{r["unit"] for r in rows if ("dot_general" in r["ops"]) == product}
                    for product in (True, False)]

        self.assertEqual(units(), [{"f32"}, {"f32"}])
        self.assertEqual(units("autocast"), [{"half"}, {"f32"}])

    def test_what_is_for_cpus_alone(self):
        job, _ = self.record()
        for args, why in ((("--measure",), "--measure runs kernels on this CPU"),
                          (("--threads", "2"), "--threads is a number of CPU threads")):
            for target in ("sm_90a", "x86-64-v3,sm_90a"):
                self.assertEqual(self.kiln("explain", job, "--target", target, *args),
                                 (2, "", f"kiln: explain: {why}; got --target sm_90a\n"))

    def test_buckets(self):
        job = self.path("ddp.kiln")
        self.train("32", "ddp", KILN_RECORD=job)
        out = self.explain(job, "--program", "0")
        self.assertRegex(out, r"\n  bucket 0: all_reduce of 4 tensors, ([\d.]+ KiB), sent as \1 of f32, "
                              r"group 0; started by launch \d+, awaited by launch \d+\n")
        stage = json.loads(self.explain(job, "--program", "0", "--json"))[0]
        self.assertEqual([(c["kind"], c["tensors"]) for c in stage["collectives"]], [("all_reduce", 4)])
        bucket = stage["collectives"][0]
        self.assertEqual((bucket["wire"], bucket["wire_bytes"]), ("f32", bucket["bytes"]))
        named = {r["name"]: r["bound"] for r in stage["launches"] if "bucket" in r["name"]}
        self.assertEqual(named, {"start bucket 0": "-", "wait for bucket 0": "-"})
        # The updates are one launch, and each reads its piece of the bucket and no more: that makes the
        # gradient, and parameter and two moments are read and written.
        updates = [r["bytes"] for r in stage["launches"] if "sqrt" in r["ops"]]
        self.assertEqual(len(updates), 1)
        elements = 16 * 32 + 32 + 32 * 4 + 4
        self.assertTrue(0 <= updates[0] - 8 * 4 * elements < 256, updates)
        self.assertGreater(stage["collectives"][0]["bytes"], 2048)
        self.assertIn("; communication is not counted\n", out)
        self.assertIn(" DistributedDataParallel.reduce+AdamW.step x4  ", out)

    def test_buckets_that_are_sent_as_halves(self):
        job = self.path("compressed.kiln")
        self.train("32", "bf16", KILN_RECORD=job)
        self.assertRegex(self.explain(job, "--program", "0"),
                         r"\n  bucket 0: all_reduce of 4 tensors, [\d.]+ KiB, sent as [\d.]+ KiB of bf16, ")
        bucket = json.loads(self.explain(job, "--program", "0", "--json"))[0]["collectives"][0]
        self.assertEqual((bucket["wire"], 2 * bucket["wire_bytes"]), ("bf16", bucket["bytes"]))

    def test_measured_limits(self):
        job, _ = self.record()
        out = self.good("explain", job, "--program", "0", "--threads", "1", "--measure", "--json")
        stage = json.loads(out)[0]
        self.assertGreater(stage["predicted"]["flops_per_s"], 1e9)
        self.assertNotEqual(stage["predicted"]["flops_per_s"], 20e9)
        self.assertGreater(stage["predicted"]["seconds"], 0)


if __name__ == "__main__":
    tools.main()
