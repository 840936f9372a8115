# SPDX-License-Identifier: Apache-2.0
"""`kiln warm`: a recorded job is compiled ahead of the run, which then compiles nothing."""
import json
import os
import platform
import pty
import resource
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
import tools  # noqa: E402


class Warm(tools.WithFolder):
    def test_then_a_fresh_process_compiles_nothing(self):
        job, losses = self.record()
        report = json.loads(self.good("warm", job, "--json"))
        self.assertEqual((report["compiled"], report["cached"], report["failed"]), (3, 0, 0))
        self.assertEqual([p["name"] for p in report["programs"]], ["train", "evaluate", "evaluate"])
        self.assertEqual(report["bytes"], sum(p["bytes"] for p in report["programs"]))
        warm, err = self.train()
        self.assertEqual(err, "")
        self.assertEqual(warm["losses"], losses)
        self.assertEqual([(b["cached"], b["compiled"]) for b in warm["builds"]], [(True, 0)] * 2)
        self.assertLess(sum(b["seconds"] for b in warm["builds"]), 0.15)
        again = json.loads(self.good("warm", job, "--json"))
        self.assertEqual((again["compiled"], again["cached"]), (0, 3))

    def test_writes_the_very_bytes_that_runs_write(self):
        job, _ = self.record()
        self.good("warm", job, "-j", "2")
        self.train(cache=self.path("one"))
        self.train(cache=self.path("two"), KILN_RECORD=self.path("other.kiln"))
        self.assertEqual(self.files(), self.files(self.path("one")))
        self.assertEqual(self.files(), self.files(self.path("two")))

    def test_two_ranks_record_one_job(self):
        both = self.path("both.kiln")
        env = {**tools.CLEAN, "KILN_RECORD": both, "KILN_CACHE_DIR": self.cache}
        ranks = [subprocess.Popen([tools.TRAIN, width], env=env, stdout=subprocess.DEVNULL)
                 for width in ("32", "48", "32")]
        self.assertEqual([r.wait(timeout=100) for r in ranks], [0, 0, 0])
        report = json.loads(self.good("warm", both, "--json"))
        # The step after the host read is the same program for both.
        self.assertEqual((report["compiled"], report["cached"]), (0, 5))

    def tuned_by_run(self, result):
        return [(b["tuned"], b["compiled"]) for b in result["builds"]]

    def test_tuned_for_the_threads_of_the_recorded_run(self):
        job, losses = self.record("wide.kiln", width="1024")  # on one thread
        report = json.loads(self.good("warm", job, "--tune", "fast", "--json", KILN_NUM_THREADS="3"))
        self.assertEqual((report["compiled"], report["failed"]), (3, 0))
        self.assertEqual([p["threads"] for p in report["programs"]], [1, 1, 1])
        self.assertGreater(report["programs"][0]["tuned"], 0)
        result, _ = self.train("1024", KILN_TUNE="fast")
        self.assertEqual(self.tuned_by_run(result), [(0, 0)] * 2, "all rows are there")
        self.assertEqual(result["losses"], losses)
        # A run on more threads has rows of its own, which --threads asks for.
        out = self.good("warm", job, "--tune", "fast", "--threads", "2", "-j", "1")
        self.assertRegex(out, r"^\[1/3\] train for host, 2 threads: ")
        self.assertRegex(out, r"\n[1-9]\d* kernels? tuned, \d+ known\n")
        result, _ = self.train("1024", KILN_TUNE="fast", KILN_NUM_THREADS="2")
        self.assertEqual(self.tuned_by_run(result), [(0, 0)] * 2)

    def test_tuned_for_every_number_of_threads_that_ranks_had(self):
        job = self.path("both.kiln")
        elsewhere = self.path("recorded")
        for threads in ("2", "1", "2"):
            self.train("1024", cache=elsewhere, KILN_RECORD=job, KILN_NUM_THREADS=threads)
        self.assertEqual(len(json.loads(self.good("warm", job, "--json"))["programs"]), 3)
        report = json.loads(self.good("warm", job, "--tune", "fast", "--json"))
        self.assertEqual(sorted((p["program"], p["threads"]) for p in report["programs"]),
                         [(p, n) for p in range(3) for n in (1, 2)])
        for threads in ("1", "2"):
            result, _ = self.train("1024", KILN_TUNE="fast", KILN_NUM_THREADS=threads)
            self.assertEqual(self.tuned_by_run(result), [(0, 0)] * 2, threads)

    def test_tuned_for_ranks_that_share_the_machine(self):
        job = self.path("ranks.kiln")
        command = [tools.KILN, "run", "--nproc", "2", "--", tools.TRAIN, "1024"]  # with half of the CPUs each
        status, _, err = tools.run(*command, KILN_CACHE_DIR=self.path("recorded"), KILN_RECORD=job)
        self.assertEqual(status, 0, err)
        report = json.loads(self.good("warm", job, "--tune", "fast", "--json"))
        self.assertGreater(report["programs"][0]["tuned"], 0)
        status, out, err = tools.run(*command, KILN_CACHE_DIR=self.cache, KILN_TUNE="fast")
        self.assertEqual(status, 0, err)
        for line in out.splitlines():
            self.assertEqual(self.tuned_by_run(json.loads(line.split("] ")[1])), [(0, 0)] * 2)

    def test_lines_and_targets(self):
        job, _ = self.record()
        out = self.good("warm", job, "--target", "x86-64-v3,x86-64-v4,x86-64-v3", "-j", "1")
        lines = out.splitlines()
        self.assertEqual(len(lines), 7, out)
        self.assertRegex(lines[0], r"^\[1/6\] train for x86-64-v3: compiled, \d+ of \d+ kernels compiled, "
                                   r"[\d.]+ s$")
        self.assertRegex(lines[5], r"^\[6/6\] evaluate for x86-64-v4: compiled, ")
        self.assertRegex(lines[6], r"^3 programs for 2 targets: 6 compiled, 0 from the cache, 0 failed; "
                                   r"\d+ kernels compiled, [\d.]+ KiB to load, [\d.]+ s$")

    def test_kernels_for_arm_from_any_machine(self):
        job, _ = self.record()
        report = json.loads(self.good("warm", job, "--target", "aarch64", "--json"))
        self.assertEqual((report["compiled"], report["failed"]), (3, 0))
        machines = set()
        for name, data in self.files().items():
            at = data.find(b"\x7fELF") if name.startswith("object/") else -1
            if at >= 0:
                machines.add(int.from_bytes(data[at + 18:at + 20], "little"))
        self.assertEqual(machines, {183}, "EM_AARCH64")
        self.assertIn("3 of 3 programs would be found", self.good("cache", "why-miss", job, "--target",
                                                                  "aarch64"))
        self.assertIn(" aarch64 ", self.good("cache", "ls", "--kind", "plan"))
        if platform.machine() == "aarch64":
            return
        env = {"KILN_CACHE_DIR": self.cache, "KILN_TARGET": "aarch64"}
        status, _, err = tools.run(tools.KILN, "warm", job, "--target", "aarch64", "--tune", "fast", **env)
        self.assertNotEqual(status, 0)
        self.assertIn("code for aarch64-unknown-linux-gnu cannot run on ", err)
        status, _, err = tools.run(tools.TRAIN, "32", **env)
        self.assertNotEqual(status, 0)
        self.assertIn("cannot run on x86_64-unknown-linux-gnu (set KILN_TARGET=host)", err)

    def test_machine_code_for_gpus_that_are_not_here(self):
        job, _ = self.record()
        self.skip_without_nvrtc(job)
        out = self.good("warm", job, "--target", "sm_80,sm_90a", "-j", "1").splitlines()
        self.assertRegex(out[0], r"^\[1/6\] train for sm_80: compiled, \d+ kernels, \d+ sources? compiled, ")
        self.assertRegex(out[6], r"^3 programs for 2 targets: 6 compiled, 0 from the cache, 0 failed; "
                                 r"\d+ CUDA sources compiled, ")
        again = self.good("warm", job, "--target", "sm_90a,sm_80", "-j", "1").splitlines()
        self.assertRegex(again[6], r"^3 programs for 2 targets: 0 compiled, 6 from the cache, 0 failed; 0 ")
        self.assertRegex(self.good("cache", "why-miss", job, "--target", "sm_90a"), r"3 of 3 programs would ")
        status, _, err = tools.run(tools.KILN, "warm", job, "--target", "sm_80", "--tune", "fast",
                                   KILN_CACHE_DIR=self.cache)
        self.assertEqual((status, err),
                         (2, "kiln: warm: --tune and --tuning are for CPUs; got --target sm_80\n"))

    def test_then_a_simulated_gpu_finds_the_plans(self):
        job, _ = self.record()
        self.skip_without_nvrtc(job)
        gpu = {"KILN_CUDA_DRIVER": "sim"}
        cold, err = self.train("32", "cuda", cache=self.path("cold"), **gpu)
        self.assertEqual(err, "")
        plans = {name for name in self.files(self.path("cold")) if name.startswith("plan/")}
        self.assertEqual(len(plans), 3)
        report = json.loads(self.good("warm", job, "--target", "sm_90a", "--json"))
        self.assertEqual((report["compiled"], report["failed"]), (3, 0))
        warmed = self.files()
        # Sources, which the simulated GPU asks for, and sources with machine code.
        self.assertEqual(len([name for name in warmed if name.startswith("plan/")]), 6)
        self.assertLessEqual(plans, set(warmed))
        # A run that found no plan would make one; this one makes what stands for machine code there, once.
        for compiles in (True, False):
            warm, err = self.train("32", "cuda", **gpu)
            self.assertEqual((err, warm["losses"]), ("", cold["losses"]))
            after = self.files()
            self.assertEqual({n: after[n] for n in warmed}, warmed)
            made = {name.split("/")[0] for name in set(after) - set(warmed)}
            self.assertNotIn("plan", made)
            self.assertNotIn("cubin", made)
            self.assertEqual([b["compiled"] > 0 for b in warm["builds"]], [compiles] * 2)
        self.assertEqual([(b["cached"], b["compiled"]) for b in warm["builds"]], [(True, 0)] * 2)

    def test_a_bar_on_a_terminal(self):
        job, _ = self.record()
        ours, theirs = pty.openpty()
        done = subprocess.run([tools.KILN, "warm", job], stderr=theirs, stdout=subprocess.PIPE, text=True,
                              env={**tools.CLEAN, "KILN_CACHE_DIR": self.cache}, timeout=100)
        os.close(theirs)
        shown = os.read(ours, 65536).decode()
        os.close(ours)
        self.assertEqual(done.returncode, 0)
        self.assertIn("[##########....................] 1/3 ", shown)
        self.assertIn("[##############################] 3/3 ", shown)
        self.assertEqual(done.stdout.count("\n"), 1, "the summary alone")

    def test_a_reader_that_goes_is_no_reason_to_stop(self):
        job, _ = self.record()
        env = {**tools.CLEAN, "KILN_CACHE_DIR": self.cache}
        process = subprocess.Popen([tools.KILN, "warm", job, "-j", "2"], env=env, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        process.stdout.close()
        self.assertNotEqual(process.wait(timeout=100), -signal.SIGABRT)
        report = json.loads(self.good("warm", job, "--json"))
        self.assertEqual((report["compiled"], report["cached"]), (0, 3))

    def test_interrupt_keeps_what_is_done(self):
        job, _ = self.record()
        env = {**tools.CLEAN, "KILN_CACHE_DIR": self.cache}
        process = subprocess.Popen([tools.KILN, "warm", job, "-j", "1"], env=env, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=100)
        self.assertTrue(first.startswith("[1/3] train for host: compiled"), first)
        self.assertEqual(process.returncode, 130)
        self.assertRegex(err, r"^kiln: warm: interrupted; [123] of 3 are done and kept\n$")
        report = json.loads(self.good("warm", job, "--json"))
        self.assertGreaterEqual(report["cached"], 1)


class Mistakes(tools.WithFolder):
    def fails(self, status, message, *args, **more):
        got, _, err = self.kiln(*args, **more)
        self.assertEqual((got, err.count("\n")), (status, 1), err)
        self.assertIn(message, err)

    def test_jobs(self):
        job, _ = self.record()
        with open(job, "rb") as f:
            good = f.read()

        def write(name, data):
            with open(self.path(name), "wb") as f:
                f.write(data)
            return self.path(name)

        for args in (("warm",), ("cache", "why-miss"), ("explain",)):
            self.fails(1, "missing: No such file or directory", *args, self.path("missing"))
            self.fails(1, ": the file is empty; expected a job recorded with KILN_RECORD", *args,
                       write("a", b""))
            self.fails(1, ": not a job file; expected one recorded with KILN_RECORD", *args,
                       write("b", b"MThd\0"))
            self.fails(1, ": the job is cut short; got ", *args, write("c", good[:-1]))
            self.fails(1, ": the job is damaged: its checksum differs", *args,
                       write("d", good[:-3] + b"x\n}"))
            self.fails(1, ": not a file", *args, self.folder)
        self.assertFalse(os.path.exists(self.cache), "nothing was made")

    def test_a_program_that_is_not_there(self):
        job, _ = self.record()
        self.fails(2, f"explain: {job} has no program 3; got 3 programs", "explain", job, "--program", "3")
        self.fails(2, "warm: --threads is the number to tune for; got 2 without --tune or --tuning", "warm",
                   job, "--threads", "2")

    def test_a_warm_that_stores_nothing_has_failed(self):
        job, _ = self.record()
        with open(self.path("file"), "w", encoding="utf-8") as f:
            f.write("in the way")
        blocked = self.path("file/cache")
        self.fails(1, f"cache folder {blocked} cannot be written: ", "warm", job, cache=blocked)
        # The run itself goes on.
        result, err = self.train(cache=blocked)
        self.assertIn("going on without", err)
        self.assertEqual([b["cached"] for b in result["builds"]], [False, False])

    def test_a_disk_that_fills_up(self):
        job, _ = self.record()

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

        status, _, err = tools.run(tools.KILN, "warm", job, limits=small_files, KILN_CACHE_DIR=self.cache)
        self.assertEqual(status, 1)
        self.assertRegex(err, r"kiln: warm: cache folder \S+ cannot be written: write \S+: the bytes do "
                              r"not fit; ")

    def test_a_limit_that_cannot_hold_the_job(self):
        job, _ = self.record()
        self.fails(1, "more than the cache may hold; got a limit of 0 B (raise KILN_CACHE_LIMIT_MB", "warm",
                   job, KILN_CACHE_LIMIT_MB="0")


if __name__ == "__main__":
    tools.main()
