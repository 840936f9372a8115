# SPDX-License-Identifier: Apache-2.0
"""`kiln cache`: what it lists, finds damaged and removes, and why a program would not be found."""
import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import tools  # noqa: E402


class Cache(tools.WithFolder):
    def setUp(self):
        super().setUp()
        self.job, self.losses = self.record()
        self.good("warm", self.job)

    def entries(self, kind):
        return sorted(e for e in self.files() if e.startswith(kind))

    def age(self, entry, days):
        when = time.time() - days * 24 * 3600
        os.utime(os.path.join(self.cache, entry), (when, when))

    def test_ls(self):
        rows = json.loads(self.good("cache", "ls", "--json"))
        self.assertEqual({r["kind"] for r in rows}, {"plan", "object"})
        self.assertEqual({r["kind"] + "/" + r["entry"]: r["bytes"] for r in rows},
                         {name: len(data) for name, data in self.files().items()})
        plans = [r for r in rows if r["kind"] == "plan"]
        self.assertEqual(len(plans), 3)
        for r in plans:
            self.assertRegex(r["what"], r"^program of \d+ ops, \d+ inputs, \d+ outputs$")
        for r in rows:
            self.assertEqual(r["target"], "host")
            self.assertRegex(r["compiler"], r"^clang \d+\.\d+\.\d+$")
            self.assertLess(abs(r["used"] - time.time()), 100)
        self.age(self.entries("plan")[0], 3)
        text = self.good("cache", "ls", "--kind", "plan").splitlines()
        self.assertEqual(text[0].split(), "kind entry size age used target compiler what".split())
        self.assertEqual(len(text), 4)
        self.assertIn("     3 d  host", text[3], "the latest comes first")
        sizes = [r["bytes"] for r in json.loads(self.good("cache", "ls", "--json", "--sort", "bytes"))]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.assertIn("--sort", self.kiln("cache", "ls", "--sort", "taste")[2])

    def test_kinds_that_ls_knows(self):
        for kind in ("cubin", "object", "plan", "sim", "tune"):
            rows = json.loads(self.good("cache", "ls", "--json", "--kind", kind))
            self.assertEqual(sorted(f"{kind}/{r['entry']}" for r in rows), self.entries(kind))

    def test_code_for_gpus(self):
        self.skip_without_nvrtc(self.job)
        self.good("warm", self.job, "--target", "sm_80,sm_90a")
        self.assertLessEqual(set(json.loads(self.good("cache", "stat", "--json"))["kinds"]),
                             {"cubin", "object", "plan", "sim", "tune"})
        rows = json.loads(self.good("cache", "ls", "--json", "--kind", "cubin"))
        self.assertEqual(sorted("cubin/" + r["entry"] for r in rows), self.entries("cubin"))
        self.assertEqual({r["target"] for r in rows}, {"sm_80", "sm_90a"})
        for r in rows:
            self.assertRegex(r["compiler"], r"^nvrtc \d+\.\d+$")
            self.assertRegex(r["what"], r"^CUDA source m_[0-9a-f]{32}$")
        # A plan holds its code: with it, a damaged cubin stays as it is.
        damaged = self.entries("cubin")[0]
        self.damage(damaged, lambda data: data[:-1])
        before = self.files()
        self.assertIn("6 from the cache", self.good("warm", self.job, "--target", "sm_80,sm_90a"))
        self.assertEqual(self.files(), before)
        self.assertIn("needs no object or cubin of a plan that is good", self.kiln("cache", "verify")[2])
        for plan in self.entries("plan"):
            self.damage(plan, lambda data: data[:-1])
        self.good("warm", self.job, "--target", "host,sm_80,sm_90a")
        self.good("cache", "verify")

    def test_stat(self):
        report = json.loads(self.good("cache", "stat", "--json", KILN_CACHE_LIMIT_MB="7"))
        self.assertEqual(report["limit"], 7 << 20)
        self.assertEqual(report["bytes"], sum(len(d) for d in self.files().values()))
        self.assertEqual(report["kinds"]["plan"]["entries"], 3)
        self.age(self.entries("object")[0], 40)
        text = self.good("cache", "stat")
        self.assertTrue(text.startswith(f"folder {self.cache}\nobject "), text)
        self.assertTrue(text.endswith("least recently used 40 d ago\n"), text)

    def test_verify(self):
        out = self.good("cache", "verify")
        self.assertEqual(out, f"{len(self.files())} good, 0 damaged\n")
        cut, flipped = self.entries("plan")[0], self.entries("object")[0]
        self.damage(cut, lambda data: data[:-1])
        self.damage(flipped, lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:])
        status, out, err = self.kiln("cache", "verify")
        self.assertEqual(status, 1)
        self.assertEqual(err, f"kiln: cache verify: 2 of {len(self.files())} are damaged (they are misses: "
                              "a run makes again what it needs, and needs no object or cubin of a plan that "
                              "is good; --delete removes them)\n")
        self.assertIn(f"damaged {cut.replace('/', ' ')}: its header does not fit its size (cut short, or not "
                      "an entry)\n", out)
        self.assertIn(f"damaged {flipped.replace('/', ' ')}: its checksum differs\n", out)
        self.assertIn("damaged: its checksum differs", self.good("cache", "ls"))
        status, out, _ = self.kiln("cache", "verify", "--delete")
        self.assertEqual(status, 1)
        self.assertIn(", 2 damaged, 2 removed\n", out)
        self.good("cache", "verify")
        self.assertEqual(self.train()[0]["losses"], self.losses)

    def test_gc(self):
        oldest, old = self.entries("object")[0], self.entries("plan")[0]
        self.age(oldest, 20)
        self.age(old, 10)
        self.assertEqual(self.good("cache", "gc", "--older-than", "30").splitlines()[-1][:33],
                         "0 entries of 0 B removed; " + f"{len(self.files())} entries of"[:7])
        out = self.good("cache", "gc", "--older-than", "15").splitlines()
        self.assertEqual(len(out), 2)
        self.assertRegex(out[0], "^removed " + oldest.replace("/", " ") + r": [\d.]+ KiB, used 20 d ago$")
        self.assertNotIn(oldest, self.files())
        report = json.loads(self.good("cache", "gc", "--limit", "0", "--json"))
        first = report["entries"][0]["entry"]
        self.assertEqual(first, old.split("/")[1], "the least recently used goes first")
        self.assertEqual(report["stay"], 0)
        self.assertEqual(self.files(), {})
        self.assertEqual(self.good("cache", "ls"), "")
        self.assertEqual(self.good("cache", "gc"), "0 entries of 0 B removed; 0 entries of 0 B stay\n")

    def test_while_others_use_it(self):
        env = {**tools.CLEAN, "KILN_CACHE_DIR": self.cache}
        others = [subprocess.Popen([tools.TRAIN, str(32 + 8 * i)], env=env, stdout=subprocess.DEVNULL)
                  for i in range(3)]
        while any(o.poll() is None for o in others):
            for args in (("ls",), ("stat",), ("verify",), ("gc", "--limit", "0")):
                self.good("cache", *args)
        self.assertEqual([o.wait() for o in others], [0, 0, 0])

    def test_no_folder(self):
        for args in (("ls",), ("stat",), ("verify",), ("gc",), ("why-miss", self.job)):
            status, _, err = self.kiln("cache", *args, cache=self.path("none"))
            self.assertEqual(status, 1)
            self.assertEqual(err, f"kiln: cache folder {self.path('none')}: No such file or directory\n")
        with open(self.path("file"), "w", encoding="utf-8"):
            pass
        self.assertIn(": Not a directory\n", self.kiln("cache", "ls", cache=self.path("file"))[2])


class WhyMiss(tools.WithFolder):
    def setUp(self):
        super().setUp()
        self.job, _ = self.record()
        self.good("warm", self.job, "--target", "x86-64-v3")

    def why(self, *args):
        return self.good("cache", "why-miss", self.job, *args)

    def test_hit(self):
        self.assertEqual(self.why("--target", "x86-64-v3"), "train for x86-64-v3: hit\n" +
                         2 * "evaluate for x86-64-v3: hit\n" + "3 of 3 programs would be found\n")

    def test_target(self):
        out = self.why("--target", "x86-64-v4")
        self.assertRegex(out, r"^train for x86-64-v4: miss: the nearest entry, [0-9a-f]{12}, has the same "
                              r"graph and differs in\n  target: there -avx512bw -avx512cd ")
        self.assertIn(", here +avx512bw +avx512cd ", out)
        self.assertNotIn("compiler: ", out)

    def test_graph(self):
        other, _ = self.record("other.kiln", width="40")
        out = self.good("cache", "why-miss", other, "--target", "x86-64-v3")
        self.assertRegex(out, r"train for x86-64-v3: miss: the nearest entry, [0-9a-f]{12}, differs in\n"
                              r"  graph: line \d+: there `[^`]*32[^`]*`, here `[^`]*40[^`]*`\n")
        rows = json.loads(self.good("cache", "why-miss", other, "--target", "x86-64-v3", "--json"))
        self.assertEqual([r["hit"] for r in rows], [False, False, True])
        self.assertIn("graph", rows[0]["differs"])

    def test_runs_that_tune(self):
        job, _ = self.record("wide.kiln", width="1024")
        look = ("cache", "why-miss", job, "--json")
        self.assertRegex(json.loads(self.good(*look, "--tune", "fast"))[0]["why"],
                         r"^(\d+) of \1 kernels are not tuned for 1 thread$")
        report = json.loads(self.good("warm", job, "--tune", "fast", "--json"))
        self.assertGreater(report["programs"][0]["tuned"], 0)
        tuned = json.loads(self.good(*look, "--tune", "fast"))
        self.assertEqual([r["hit"] for r in tuned], [True] * 3)
        self.assertEqual([r["threads"] for r in tuned], [1] * 3)
        plain = json.loads(self.good(*look))
        self.assertFalse(plain[0]["hit"])
        self.assertEqual(list(plain[0]["differs"]), ["options"])
        before = self.files()
        self.good("explain", job, "--tune", "fast")
        self.assertEqual(self.files(), before)
        self.good("cache", "gc", "--limit", "0")
        self.assertEqual(self.good("explain", job, "--tune", "fast"), self.good("explain", job))

    def test_tuned_for_other_threads(self):
        job, _ = self.record("wide.kiln", width="1024")  # on one thread
        self.good("warm", job)
        look = ("cache", "why-miss", job, "--tune", "fast")
        self.assertNotIn("but for", self.good(*look))
        self.good("warm", job, "--tune", "fast", "--threads", "2")
        out = self.good(*look)
        self.assertRegex(out, r"^train for host, 1 thread: miss: (\d+) of \1 kernels are not tuned for "
                              r"1 thread but for 2 \(kiln warm --tune fast --threads 1\)\n"
                              r"  threads: there 2, here 1\n")
        self.assertTrue(out.endswith("evaluate for host, 1 thread: hit\n1 of 3 programs would be found\n"),
                        "the last has nothing to tune: " + out)
        self.assertEqual(json.loads(self.good(*look, "--json"))[0]["differs"],
                         {"threads": "there 2, here 1"})
        self.assertIn("\n3 of 3 programs would be found\n", self.good(*look, "--threads", "2"))
        status, _, err = self.kiln("cache", "why-miss", job, "--threads", "2")
        self.assertEqual((status, err), (2, "kiln: cache why-miss: --threads is the number that a run tunes "
                                            "for; got 2 without --tune or --tuning\n"))

    def test_damage_and_emptiness(self):
        for entry in self.files():
            if entry.startswith("plan/"):
                self.damage(entry, lambda data: data[:-1])
        self.assertRegex(self.why("--target", "x86-64-v3"), r"miss: its entry [0-9a-f]{32} is damaged: ")
        self.good("cache", "gc", "--limit", "0")
        self.assertIn("train for host: miss: the cache holds no program\n", self.why())


if __name__ == "__main__":
    tools.main()
