# SPDX-License-Identifier: Apache-2.0
"""The GPT example and the program kiln on a file system that is full, or that nobody may write to: a run goes
on without its cache, its trace and its record, and says so once; what was asked for ends in one error that
names path and reason; what was there before stays, and nothing half written does. Arguments: the programs gpt
and kiln. Mounts a file system of its own, which takes root or a user namespace; skipped where neither is
permitted."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

GPT, KILN = (os.path.abspath(p) for p in sys.argv[1:3])
SMALL = ("--layers 1 --dim 32 --heads 2 --seq 16 --batch 8 --sample 0 --eval-every 0 --warmup 1 "
         "--eager-steps 0 --threads 1 --no-progress").split()
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}
FULL, READ_ONLY = "No space left on device", "Read-only file system"
CACHE = os.path.join(tempfile.gettempdir(), f"kiln-disk-test-{os.getpid()}")  # one for all tests
LIMIT_S = 200


def in_own_namespace():
    """Becomes this test with mounts of its own, or skips it."""
    if os.environ.get("GPT_DISK_TEST") == "inside":
        return
    for how in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        probe = [*how, "mount", "-t", "tmpfs", "none", "/mnt"]
        if shutil.which("unshare") and subprocess.run(probe, capture_output=True).returncode == 0:
            line = [*how, sys.executable, "-B", *sys.argv]
            sys.exit(subprocess.run(line, env={**os.environ, "GPT_DISK_TEST": "inside"}).returncode)
    print("skipped: this process may not mount a file system")
    sys.exit(0)


class Disk(unittest.TestCase):
    """A file system of 1 MB in a folder."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="kiln-disk-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.disk = self.path("disk")
        os.mkdir(self.disk)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", self.disk], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], check=True)
        with open(self.path("text"), "w", encoding="ascii") as f:
            f.write("".join(f"line {i * 7919 % 1000} of a text that repeats\n" for i in range(2000)))

    def path(self, name):
        return os.path.join(self.folder, name)

    def on_disk(self, name):
        return os.path.join(self.disk, name)

    def fill(self, kib_left=0):
        with open(self.on_disk("fill"), "wb", buffering=0) as f:
            try:
                while f.write(bytes(4096)) == 4096:
                    pass
            except OSError:
                pass
            f.truncate(f.tell() - kib_left * 1024)

    def seal(self):
        subprocess.run(["mount", "-o", "remount,ro", self.disk], check=True)

    def run_line(self, line, cache=None, **env):
        env = {**CLEAN, "KILN_CACHE_DIR": cache or CACHE, **env}
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=LIMIT_S)
        return done.returncode, done.stdout, done.stderr

    def gpt(self, *more, steps=3):
        return [GPT, "--data", self.path("text"), *SMALL, "--steps", str(steps), *more]

    def no_cache(self, name, why):
        return f"cache folder {self.on_disk(name)} cannot be written: {why}; going on without$"

    def check_goes_on(self, warning, line, **more):
        """The run succeeds, with `warning` as its only one of that kind."""
        status, _, err = self.run_line(line, **more)
        self.assertEqual(status, 0, err)
        told = [w for w in err.splitlines() if not w.startswith("kiln warning: tuning: '")]
        self.assertEqual(len(told), 1, err)
        self.assertRegex(told[0], "^kiln warning: " + warning)
        self.check_no_litter()

    def check_fails(self, error, line, **more):
        status, _, err = self.run_line(line, **more)
        self.assertEqual(status, 1, err)
        self.assertRegex(err, f"(^|\n){error}\n$")
        self.check_no_litter()

    def check_no_litter(self):
        for folder, _, names in os.walk(self.disk):
            self.assertEqual([n for n in names if n.startswith(".")], [], folder)

    def saved(self):
        """A checkpoint on the disk; its bytes."""
        status, _, err = self.run_line(self.gpt("--checkpoint", self.on_disk("saved")))
        self.assertEqual(status, 0, err)
        with open(self.on_disk("saved"), "rb") as f:
            return f.read()

    def check_still(self, saved):
        with open(self.on_disk("saved"), "rb") as f:
            self.assertEqual(f.read(), saved)
        status, _, err = self.run_line(self.gpt("--resume", self.on_disk("saved"), steps=4))
        self.assertEqual(status, 0, err)

    def job(self):
        job = self.path("job.kiln")
        self.assertEqual(self.run_line(self.gpt(), KILN_RECORD=job)[0], 0)
        return job


class Full(Disk):
    def test_the_cache(self):
        for left in (0, 60):
            self.fill(left)
            self.check_goes_on(self.no_cache("a", f".*; {FULL}"), self.gpt(), cache=self.on_disk("a"))
        self.fill(60)
        self.check_goes_on(self.no_cache("b", f".*; {FULL}"), self.gpt(), cache=self.on_disk("b"),
                           KILN_TUNE="fast", KILN_TUNE_BUDGET_S="2")

    def test_a_checkpoint(self):
        saved = self.saved()
        self.fill()
        error = f"gpt: write {self.on_disk('saved')}: the bytes do not fit; {FULL}"
        line = self.gpt("--checkpoint", self.on_disk("saved"), "--save-every", "5", steps=100)
        self.check_fails(error, line)
        self.check_still(saved)
        status, _, err = self.run_line([KILN, "run", "--nproc", "2", "--", *line])
        self.assertEqual(status, 1)
        self.assertIn(f"[0] {error}\n", err)
        self.assertRegex(err, r"\[1\] gpt: rank 1: .*rank 0\b")
        self.check_no_litter()
        self.check_still(saved)

    def test_a_trace(self):
        for left in (0, 40):
            self.fill(left)
            trace = self.on_disk("trace")
            self.check_goes_on(f"KILN_TRACE: cannot write {trace}.\\d+.json: {FULL}; going on without$",
                               self.gpt(steps=200), KILN_TRACE=trace)

    def test_a_record(self):
        self.fill()
        job = self.on_disk("job")
        self.check_goes_on(f"KILN_RECORD: write {job}: the bytes do not fit; {FULL}; going on without$",
                           self.gpt(), KILN_RECORD=job)

    def test_warm(self):
        job = self.job()
        for left in (0, 60):
            self.fill(left)
            cache = self.on_disk("c")
            self.check_fails(rf"kiln: (warm: )?cache folder {cache} cannot be written: write \S+: the bytes "
                             rf"do not fit; {FULL}", [KILN, "warm", job], cache=cache)

    def test_output(self):
        job = self.job()
        self.fill()
        for command in (["options"], ["warm", job, "--json"], ["cache", "ls"]):
            with open(self.on_disk("out"), "wb") as out:
                done = subprocess.run([KILN, *command], env={**CLEAN, "KILN_CACHE_DIR": CACHE},
                                      stdout=out, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
            self.assertEqual(done.returncode, 1, command)
            self.assertRegex(done.stderr, f"^kiln: cannot write .*{FULL}\n$")


class ReadOnly(Disk):
    def test_the_cache(self):
        cache = self.on_disk("warm")
        self.assertEqual(self.run_line(self.gpt(), cache=cache)[0], 0)
        self.seal()
        status, out, err = self.run_line(self.gpt(), cache=cache)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("(from the disk cache)", out)
        self.check_goes_on(self.no_cache("no", f".*: {READ_ONLY}"), self.gpt(), cache=self.on_disk("no"))
        self.check_fails(rf"kiln: cache entry {cache}/\S+ cannot be removed: {READ_ONLY}",
                         [KILN, "cache", "gc", "--limit", "0"], cache=cache)
        self.check_fails(rf"kiln: cache folder {cache} cannot be written: .*; {READ_ONLY}",
                         [KILN, "warm", self.job()], cache=cache)

    def test_what_a_run_writes(self):
        saved = self.saved()
        self.seal()
        name = self.on_disk("saved")
        self.check_fails(f"gpt: write {name}: cannot create a temporary in its folder; {READ_ONLY}",
                         self.gpt("--checkpoint", name))
        self.check_still(saved)
        self.check_goes_on(rf"KILN_TRACE: cannot write {name}.\d+.json: {READ_ONLY}; going on without$",
                           self.gpt(), KILN_TRACE=name)
        self.check_goes_on(rf"KILN_RECORD: {name}.lock: {READ_ONLY}; going on without$", self.gpt(),
                           KILN_RECORD=name)


if __name__ == "__main__":
    in_own_namespace()
    try:
        unittest.main(argv=sys.argv[:1])
    finally:
        shutil.rmtree(CACHE, ignore_errors=True)
