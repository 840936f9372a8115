# SPDX-License-Identifier: Apache-2.0
"""The arithmetic and the resuming of benchmarks/compare.py, without running any system."""

import os
import sys
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "benchmarks"))
import compare
import compare_rows as rows

LIMITS = {"gflops": 200.0, "gbs": 40.0}


class FakeHost:
    def __init__(self, versions=None):
        self.calls, self.versions = [], versions or {}

    def version(self, system):
        return self.versions.get(system, "1")

    def measure(self, system, workload, cold):
        self.calls.append((system, cold))
        ms = {"kiln": 1.0, "torch-eager": 4.0, "jax": 2.0}[system]
        return dict(
            median_ms=ms, startup_s=3.0 if cold else 0.1, peak_rss_mb=50, losses=[2.086496]
        )


def args(**kw):
    return types.SimpleNamespace(**(dict(rounds=6, cold=3, threads=2) | kw))


def run(host, table, rounds=6):
    for i in range(rounds):
        compare.one_round(args(), host, table, "tiny-mlp", ["kiln", "torch-eager", "jax"], i)
    rows.finish(table, "tiny-mlp", 2, LIMITS)


class Arithmetic(unittest.TestCase):
    def test_low_median(self):
        self.assertEqual(rows.low_median([5]), 5)
        self.assertEqual(rows.low_median([9, 1]), 1)
        self.assertEqual(rows.low_median([5, 1, 2, 100]), 1.5)
        self.assertEqual(rows.low_median([5, 1, 2, 100, 3]), 2)

    def test_limits(self):
        self.assertEqual(rows.mlp_parameters([784, 1024, 1024, 10]), 1863690)
        self.assertEqual(rows.gpt_parameters(6, 384, 96, 128), 10770432)
        self.assertAlmostEqual(rows.BYTES["pointwise"] / 1e6, 201, delta=1)
        self.assertAlmostEqual(rows.limit_ms("pointwise", LIMITS), 5.04, delta=0.01)
        self.assertAlmostEqual(rows.limit_ms("gpt-small", LIMITS), 345.5 + 6.46, delta=0.1)
        self.assertEqual(rows.bert_parameters(6, 384, 1536, 30522, 512), 22566146)
        self.assertEqual(rows.conv_parameters([3, 32, 64, 128], 10), 94762)
        self.assertEqual(set(rows.FLOP), set(rows.LOSSES))
        self.assertEqual(set(rows.BYTES), set(rows.TARGET))

    def test_wrong_losses(self):
        self.assertIsNone(rows.wrong_losses("mlp", [2.3712, 2.354486, 2.337841]))
        self.assertIn("expected", rows.wrong_losses("mlp", [2.3712, 2.36, 2.337841]))
        self.assertIn("expected", rows.wrong_losses("mlp", [float("nan")]))
        self.assertEqual(rows.wrong_losses("mlp", []), "no losses")


    def test_programs_by_hand_are_no_peers_but_a_bound(self):
        def met(kiln_ms):
            table = []
            for system, ms in {"kiln": kiln_ms, "torch-eager": 100, "jax-sparse": 10}.items():
                row = rows.find(table, "dlrm", system, 2, "1")
                sample = dict(median_ms=ms, startup_s=0.1, peak_rss_mb=50, losses=[0.693755])
                rows.add_round(row, sample)
            rows.finish(table, "dlrm", 2, LIMITS)
            return table[0]["best_peer"], table[0]["met"]

        self.assertEqual(met(9), ("torch-eager", True))
        self.assertEqual(met(11), ("torch-eager", False))  # a quarter of the peer, but not of the sparse one


class Rounds(unittest.TestCase):
    def test_order_alternates_and_cold_starts_are_spread(self):
        host, table = FakeHost(), []
        run(host, table)
        warm = [s for s, cold in host.calls if not cold]
        self.assertEqual(warm[:6], ["kiln", "torch-eager", "jax", "jax", "torch-eager", "kiln"])
        cold = [i for i, (s, cold) in enumerate(host.calls) if cold and s == "kiln"]
        self.assertEqual(len(cold), 3)
        self.assertGreater(min(cold[1] - cold[0], cold[2] - cold[1]), 5)
        self.assertNotIn(("torch-eager", True), host.calls)

    def test_row_has_the_promised_fields(self):
        table = []
        run(FakeHost(), table)
        kiln = table[0]
        wanted = "workload system threads time_ms rounds best_peer ratio limit_ms met startup_cold_s"
        for name in (wanted + " startup_warm_s peak_rss_mb cold_peak_rss_mb").split():
            self.assertIn(name, kiln)
        self.assertEqual((kiln["best_peer"], kiln["ratio"], kiln["met"]), ("jax", 0.5, False))
        self.assertEqual((kiln["startup_cold_s"], kiln["startup_warm_s"]), (3.0, 0.1))
        self.assertIn("**kiln**", rows.markdown(table))

    def test_what_is_owed_beyond_step_times(self):
        table = []
        run(FakeHost(), table)
        self.assertEqual(rows.verdicts(table), [
            "- geometric mean of the ratios, at most 0.36: 0.5 of 1: NO",
            "- cold start, s: 3 of 3 (tiny-mlp, of 1): yes",
            "- warm start, s: 0.1 of 0.1 (tiny-mlp, of 1): yes",
            "- peak RSS, MB, of 0.7 times the best peer's: 50 of 35 (tiny-mlp, of 1): NO",
            "- cold peak RSS, MB, of the warm one's and 250: 50 of 300 (tiny-mlp, of 1): yes",
        ])
        alone = [r for r in table if r["system"] == "kiln"]
        alone[0]["ratio"] = None
        self.assertEqual(rows.verdicts(alone)[0], "- geometric mean of the ratios, at most 0.36: -")
        self.assertEqual(rows.verdicts(alone)[3], "- peak RSS, MB, of 0.7 times the best peer's: -")

    def test_met_within_the_limit(self):
        table = []
        run(FakeHost(), table)
        rows.finish(table, "tiny-mlp", 2, {"gflops": 200.0, "gbs": 0.2})
        self.assertTrue(table[0]["met"])
        table[0]["wrong"] = "losses"
        rows.finish(table, "tiny-mlp", 2, {"gflops": 200.0, "gbs": 0.2})
        self.assertFalse(table[0]["met"])

    def test_resume_runs_only_what_is_missing(self):
        host, table = FakeHost(), []
        run(host, table, rounds=4)
        before = len(host.calls)
        run(host, table, rounds=4)
        self.assertEqual(len(host.calls), before)
        run(host, table, rounds=6)
        self.assertEqual([r["rounds"] for r in table], [6, 6, 6])

    def test_another_version_starts_again(self):
        table = []
        run(FakeHost(), table)
        host = FakeHost({"kiln": "2"})
        run(host, table)
        self.assertEqual({s for s, _ in host.calls}, {"kiln"})
        self.assertEqual(table[0]["rounds"], 6)


if __name__ == "__main__":
    unittest.main()
