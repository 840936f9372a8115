# SPDX-License-Identifier: Apache-2.0
"""Runs `kiln run`: what ranks get, what it prints, how it ends them, and that none is left.

Usage: run_test.py KILN. Ranks are shell and Python programs; those that use Kiln are in world_test.py.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from processes import alive, eventually

KILN = sys.argv[1]
CPUS = sorted(os.sched_getaffinity(0))
LIMIT = 60


def clean_environment(**more):
    return {**{k: v for k, v in os.environ.items() if not k.startswith("KILN_")}, **more}


def run(n, *program, options=(), binary=False, before=None, **env):
    done = subprocess.run([KILN, "run", "--nproc", str(n), *options, "--", *program], capture_output=True,
                          text=not binary, env=clean_environment(**env), timeout=LIMIT, preexec_fn=before)
    return done.returncode, done.stdout, done.stderr


def sh(n, script, **more):
    return run(n, "sh", "-c", script, **more)


def python(n, script, **more):
    return run(n, sys.executable, "-c", script, **more)


def start(n, script, **more):
    return subprocess.Popen([KILN, "run", "--nproc", str(n), "--", sys.executable, "-u", "-c", script],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=clean_environment(**more))


class Environment(unittest.TestCase):
    def test_ranks_get_the_variables_that_torchrun_sets(self):
        status, out, err = sh(3, 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR '
                                 '$MASTER_PORT $TORCHELASTIC_USE_AGENT_STORE."',
                              TORCHELASTIC_USE_AGENT_STORE="True", RANK="7", MASTER_ADDR="elsewhere")
        self.assertEqual((status, err), (0, ""))
        lines = sorted(out.splitlines())
        port = lines[0].split()[-2]
        self.assertGreater(int(port), 1023)
        self.assertEqual(lines, [f"[{r}] {r}/3 {r}/3 127.0.0.1 {port} ." for r in range(3)])

    def test_nothing_is_on_standard_input(self):
        self.assertEqual(sh(2, "cat"), (0, "", ""))

    def test_no_signal_is_blocked_in_a_rank(self):
        status, out, _ = sh(1, "grep SigBlk /proc/self/status")
        self.assertEqual((status, out.split()[-1].strip("0")), (0, ""))

    def test_no_descriptor_leaks_into_a_rank(self):
        script = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1])"
        status, out, _ = python(2, script)
        self.assertEqual(status, 0)
        self.assertEqual({line[4:] for line in out.splitlines()}, {"[0, 1, 2]"})


class Pinning(unittest.TestCase):
    SHOW = "import os; print(sorted(os.sched_getaffinity(0)))"

    def sets(self, n, **more):
        status, out, err = python(n, self.SHOW, **more)
        self.assertEqual((status, err), (0, ""))
        return [eval(line[4:]) for line in sorted(out.splitlines())]  # pylint: disable=eval-used

    def test_sets_are_disjoint(self):
        if len(CPUS) < 2:
            self.skipTest("one CPU")
        sets = self.sets(2)
        self.assertEqual(sorted(sets[0] + sets[1]), CPUS)

    def test_more_ranks_than_cpus_share(self):
        sets = self.sets(len(CPUS) + 1)
        self.assertTrue(all(len(s) == 1 for s in sets), sets)
        self.assertEqual({cpu for s in sets for cpu in s}, set(CPUS))

    def test_nothing_is_set_without_pinning(self):
        self.assertEqual(self.sets(2, options=["--no-pin"]), [CPUS, CPUS])

    def test_within_what_the_launcher_may_use(self):
        self.assertEqual(self.sets(2, before=lambda: os.sched_setaffinity(0, CPUS[-1:])), [CPUS[-1:]] * 2)


class Output(unittest.TestCase):
    def test_streams_stay_apart_and_a_last_line_is_kept(self):
        status, out, err = sh(2, "echo out; printf half; echo err >&2; printf tail >&2")
        self.assertEqual(status, 0)
        self.assertEqual(sorted(out.splitlines()), ["[0] half", "[0] out", "[1] half", "[1] out"])
        self.assertEqual(sorted(err.splitlines()), ["[0] err", "[0] tail", "[1] err", "[1] tail"])
        self.assertTrue(out.endswith("\n") and err.endswith("\n"))

    def test_lines_are_never_torn(self):
        script = ("import os,sys,random\n"
                  "r = random.Random(int(os.environ['RANK']))\n"
                  "lines = (os.environ['RANK'] * r.randrange(3000) for _ in range(400))\n"
                  "data = ''.join(line + '\\n' for line in lines).encode()\n"
                  "while data:\n"
                  "    n = r.randrange(1, 5000)\n"
                  "    os.write(1, data[:n]); data = data[n:]\n")
        status, out, err = python(4, script)
        self.assertEqual((status, err), (0, ""))
        lines = out.splitlines()
        self.assertEqual(len(lines), 1600)
        for line in lines:
            self.assertEqual(line[0], "[")
            self.assertEqual(set(line[4:]) - {line[1]}, set(), line[:80])

    def test_bytes_and_long_lines_pass_unchanged(self):
        script = "import os; b = bytes(c for c in range(256) if c != 10) * 40000 + b'\\n'\n" \
                 "while b: b = b[os.write(1, b):]"
        status, out, err = python(2, script, binary=True)
        line = bytes(c for c in range(256) if c != 10) * 40000
        self.assertEqual((status, err), (0, b""))
        self.assertEqual(sorted(out.split(b"\n")), sorted([b"", b"[0] " + line, b"[1] " + line]))

    def test_lines_come_while_the_ranks_run(self):
        p = start(1, "print('early'); import time; time.sleep(60)")
        self.assertEqual(p.stdout.readline(), "[0] early\n")
        p.terminate()
        p.communicate(timeout=LIMIT)

    def test_a_reader_that_goes_ends_the_ranks(self):
        p = start(2, "import os,time; print(os.getpid(), flush=True)\nwhile True: print('x' * 1000)")
        pids = {int(p.stdout.readline()[4:]) for _ in range(1)}
        p.stdout.close()
        p.wait(timeout=LIMIT)
        p.stderr.close()
        self.assertNotEqual(p.returncode, 0)
        self.assertTrue(eventually(lambda: not any(map(alive, pids))))

    def test_a_reader_that_sleeps_leaves_it_open_to_signals(self):
        p = start(1, "import os\nwhile True: os.write(1, b'x' * 65536 + b'\\n')")
        p.stdout.read(1)
        time.sleep(0.3)
        p.send_signal(signal.SIGTERM)
        pid = self.only_child(p.pid)
        self.assertTrue(eventually(lambda: not pid or not alive(pid)))
        p.communicate(timeout=LIMIT)
        self.assertEqual(p.returncode, 128 + signal.SIGTERM)

    @staticmethod
    def only_child(pid):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            children = f.read().split()
        return int(children[0]) if children else None


class Ending(unittest.TestCase):
    def test_all_well(self):
        self.assertEqual(sh(4, "exit 0"), (0, "", ""))

    def test_status_of_the_first_that_failed(self):
        status, out, err = sh(3, "[ $RANK = 1 ] && exit 7; exec sleep 60")
        self.assertEqual((status, out), (7, ""))
        self.assertRegex(err, r"\Akiln run: rank 1 \(pid \d+\) exited with status 7; ending the others\n\Z")

    def test_a_signal_is_named(self):
        status, _, err = sh(2, "[ $RANK = 1 ] && kill -KILL $$; exec sleep 60")
        self.assertEqual(status, 128 + signal.SIGKILL)
        self.assertRegex(err, r"\Akiln run: rank 1 \(pid \d+\) was killed by SIGKILL; ending the others\n\Z")

    def test_the_last_one_has_no_others_to_end(self):
        status, _, err = sh(2, "[ $RANK = 0 ] && exit 0; sleep 0.3; exit 3")
        self.assertEqual(status, 3)
        self.assertRegex(err, r"\Akiln run: rank 1 \(pid \d+\) exited with status 3\n\Z")

    def test_the_others_get_time_to_end(self):
        script = ("import os,signal,sys,time\n"
                  "def end(*_): print('saved', flush=True); sys.exit(0)\n"
                  "signal.signal(signal.SIGTERM, end)\n"
                  "print('ready', flush=True)\n"
                  "time.sleep(1 if os.environ['RANK'] == '1' else 60); os._exit(4)")
        status, out, _ = python(2, script)
        self.assertEqual(status, 4)
        self.assertIn("[0] saved\n", out)

    def test_who_ignores_sigterm_is_killed(self):
        begin = time.monotonic()
        script = "[ $RANK = 1 ] && { sleep 0.3; exit 5; }; trap '' TERM; while :; do sleep 1; done"
        status, _, err = sh(2, script)
        self.assertEqual(status, 5)
        self.assertIn("kiln run: ranks still run 5 s after SIGTERM; killing them\n", err)
        self.assertLess(time.monotonic() - begin, 15)

    def test_what_a_rank_leaves_behind_ends_with_it(self):
        status, out, _ = sh(1, "sleep 60 >/dev/null 2>&1 & echo $!")
        self.assertEqual(status, 0)
        self.assertTrue(eventually(lambda: not alive(int(out[4:]))))

    def test_an_open_pipe_of_somebody_else_is_not_waited_for(self):
        begin = time.monotonic()
        status, out, _ = sh(1, "setsid sleep 30 & echo $!")
        self.assertEqual(status, 0)
        self.assertLess(time.monotonic() - begin, 20)
        os.kill(int(out[4:]), signal.SIGKILL)


class Signals(unittest.TestCase):
    SHOW = ("import os,signal,time\n"
            "def show(n, _): print(signal.Signals(n).name, flush=True); os._exit(0)\n"
            "for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):\n"
            "    signal.signal(s, show)\n"
            "print('ready', flush=True)\n"
            "while True: time.sleep(1)\n")

    def test_all_are_forwarded_to_all_ranks(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            p = start(2, self.SHOW)
            self.assertEqual(sorted(p.stdout.readline() for _ in range(2)), ["[0] ready\n", "[1] ready\n"])
            p.send_signal(number)
            out, err = p.communicate(timeout=LIMIT)
            self.assertEqual(sorted(out.splitlines()), [f"[{r}] {number.name}" for r in range(2)])
            self.assertEqual((p.returncode, err), (0, ""))

    def test_a_rank_that_a_signal_ends(self):
        p = start(2, "print('ready'); import time; time.sleep(60)")
        p.stdout.readline(), p.stdout.readline()
        p.terminate()
        _, err = p.communicate(timeout=LIMIT)
        self.assertEqual(p.returncode, 128 + signal.SIGTERM)
        self.assertRegex(err, r"kiln run: rank \d \(pid \d+\) was killed by SIGTERM")

    def test_no_rank_outlives_a_killed_launcher(self):
        p = start(3, "import os,signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                     "print(os.getpid()); time.sleep(60)")
        pids = [int(p.stdout.readline()[4:]) for _ in range(3)]
        self.assertTrue(all(map(alive, pids)))
        p.kill()
        p.communicate(timeout=LIMIT)
        self.assertTrue(eventually(lambda: not any(map(alive, pids))), pids)


class Mistakes(unittest.TestCase):
    def check(self, args, message, **more):
        done = subprocess.run([KILN, "run", *args], capture_output=True, text=True, timeout=LIMIT,
                              env=clean_environment(), **more)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", message))

    def test_number_of_ranks(self):
        for n in ("0", "-1", "1025", "two", "99999999999", "1.5"):
            self.check(["--nproc", n, "--", "true"],
                       f"kiln: run: bad --nproc; got '{n}', expected a whole number from 1 to 1024\n")
        self.check(["--nproc", "--", "true"], "kiln: run: --nproc needs a value (kiln run --help)\n")
        self.check(["--pin=no", "--", "true"], "kiln: run: --pin takes no value (kiln run --help)\n")

    def test_program(self):
        none = "kiln: run: no program (kiln run --nproc 2 -- program arguments)\n"
        self.check([], none)
        self.check(["--nproc", "2", "--"], none)
        self.check(["--", ""], none)
        self.check(["--nproc", "2", "sleep", "1"],
                   "kiln: run: no -- before the program 'sleep'; expected kiln run --nproc 2 -- sleep 1 "
                   "(kiln run --help)\n")
        self.check(["--nprocs", "2", "sleep"], "kiln: run: unknown argument '--nprocs' (kiln run --help)\n")
        self.check(["--", "/no/such/program"],
                   "kiln: run: cannot start '/no/such/program'; No such file or directory\n")
        self.check(["--", "no-such-program-anywhere"],
                   "kiln: run: cannot start 'no-such-program-anywhere'; it is not on PATH\n")
        with tempfile.TemporaryDirectory() as folder:
            self.script(folder, "mine", "#!/bin/sh\n")
            self.check(["--", "mine"],
                       "kiln: run: cannot start 'mine'; it is not on PATH (to run the one in this folder: "
                       "./mine)\n", cwd=folder)
            path = self.script(folder, "orphan", "#!/no/such/shell\n")
            self.check(["--", path], f"kiln: run: cannot start '{path}'; it is there, but the interpreter or "
                                     "loader that it names is not\n")
        with tempfile.NamedTemporaryFile() as f:
            self.check(["--", f.name], f"kiln: run: cannot start '{f.name}'; Permission denied\n")

    @staticmethod
    def script(folder, name, text):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)
        return path

    def test_arguments_reach_the_program_as_they_are(self):
        status, out, err = run(1, "printf", "%s|", "--", "[a,b]", "", "--nproc", "3", "-h", "a b")
        self.assertEqual((status, out, err), (0, "[0] --|[a,b]||--nproc|3|-h|a b|\n", ""))

    def test_too_few_descriptors(self):
        done = subprocess.run(["bash", "-c", f"ulimit -n 64; exec {KILN} run --nproc 40 -- true"],
                              capture_output=True, text=True, timeout=LIMIT, env=clean_environment())
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "kiln: run: 40 ranks need 112 open files; got 64 (ulimit -n 112)\n")

    def test_many_ranks(self):
        status, out, err = sh(100, "echo $RANK")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(sorted(out.splitlines()), sorted(f"[{r}] {r}" for r in range(100)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
