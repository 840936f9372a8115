# SPDX-License-Identifier: Apache-2.0
"""What scripts/cuda_table.py makes of rows of `kiln explain`: made-up ones, no program and no compiler."""
import contextlib
import copy
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import cuda_table

NVRTC = "NVRTC 13.0"


def launch(kernel, name="linear", **values):
    row = dict(kernel=kernel, name=name, ops="dot_general", threads=256, registers=40, shared=2048,
               occupancy=0.75, spill_bytes=0)
    return row | values


def explained(*launches, compiler=NVRTC):
    """One program of these launches for every architecture."""
    program = {"compiler": compiler, "launches": list(launches)}
    if not compiler:
        program["no_compiler"] = "no NVRTC"
    return {arch: [copy.deepcopy(program)] for arch in cuda_table.ARCHS}


def judged(workloads, page=None):
    """(exit status, printed, page): compared with `page` where there is one, else written."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
        path = pathlib.Path(folder) / "page.md"
        if page is not None:
            path.write_text(page)
        status = cuda_table.judge(workloads, path, check=page is not None)
        return status, printed.getvalue(), path.read_text() if path.exists() else None


class CudaTable(unittest.TestCase):
    def setUp(self):
        self.workloads = [("mlp", explained(launch("k1"), launch("k2", name="gelu"))),
                          ("pointwise", explained(launch("k3", name="norm")))]
        status, printed, self.page = judged(self.workloads)
        self.assertEqual((status, printed), (0, ""))

    def test_a_row_has_the_values_of_each_architecture(self):
        row = "| gelu | dot_general |" + " 256 | 40 | 2.0 KiB | 75 % |" * len(cuda_table.ARCHS)
        self.assertIn(f"\n{row}\n", self.page)
        self.assertIn(f"with {NVRTC}.\n\n## mlp\n", self.page)
        self.assertIn("\n## pointwise\n", self.page)

    def test_a_kernel_has_one_row_and_what_is_no_kernel_has_none(self):
        library, builtin = launch("", name="cublas"), launch("k4", name="copy", registers=-1)
        self.workloads[0] = ("mlp", explained(launch("k1"), library, launch("k1", name="again"), builtin))
        page = judged(self.workloads)[2]
        self.assertEqual(page.count("| dot_general |"), 2, page)  # k1, and k3 of the other workload

    def test_launches_are_matched_by_what_they_compute(self):
        first, second = cuda_table.ARCHS[:2]
        by_arch = explained(launch("k1"), launch("k2", name="AdamW.step x4", threads=64))
        split = [launch("k5", threads=32), launch("k6", threads=128), launch("k7", name="AdamW.step x2")]
        by_arch[second][0]["launches"] = split
        rows = cuda_table.kernels(by_arch)
        self.assertEqual([name for name, _, _ in rows], ["linear", "AdamW.step x4", "linear"])
        self.assertEqual([row[second]["kernel"] for _, _, row in rows], ["k5", "k7", "k6"])
        self.assertNotIn(first, rows[2][2])
        page = judged([("mlp", by_arch)])[2]
        self.assertIn("| linear | dot_general | - | - | - | - | 128 | 40 |", page)

    def test_the_same_rows_pass(self):
        self.assertEqual(judged(self.workloads, self.page), (0, "", self.page))

    def test_a_changed_row_fails_for_any_architecture_and_value(self):
        for arch in cuda_table.ARCHS:
            for key, value in dict(threads=128, registers=41, shared=4096, occupancy=0.5).items():
                workloads = copy.deepcopy(self.workloads)
                workloads[1][1][arch][0]["launches"][0][key] = value
                status, printed, page = judged(workloads, self.page)
                self.assertEqual((status, page), (1, self.page), (arch, key))
                self.assertIn("is not what the kernels are now", printed)
                self.assertEqual(printed.count("\n| norm |"), 1, printed)
                self.assertNotIn("| gelu |", printed)

    def test_a_row_more_or_less_fails(self):
        for launches in ([launch("k1")], [launch("k1"), launch("k2", name="gelu"), launch("k4")]):
            status, printed, _ = judged([("mlp", explained(*launches)), self.workloads[1]], self.page)
            self.assertEqual(status, 1)
            self.assertIn("is not what the kernels are now", printed)

    def test_a_spill_fails_and_is_not_written(self):
        for arch in cuda_table.ARCHS:
            workloads = copy.deepcopy(self.workloads)
            workloads[0][1][arch][0]["launches"][1]["spill_bytes"] = 8
            said = f"mlp for {arch}: gelu (k2) spills 8 bytes\n"
            self.assertEqual(judged(workloads), (1, said, None))
            self.assertEqual(judged(workloads, self.page), (1, said, self.page))

    def test_a_spill_fails_beside_the_page_of_another_compiler(self):
        other = self.page.replace(NVRTC, "NVRTC 12.9")
        spilling = [("mlp", explained(launch("k1", spill_bytes=16)))]
        self.assertEqual(judged(spilling, other)[0], 1)
        status, printed, _ = judged([("mlp", explained(launch("k1", registers=99)))], other)
        self.assertEqual(status, 0)
        self.assertIn("made by another compiler than NVRTC 13.0; not compared", printed)

    def test_without_a_compiler_it_is_skipped(self):
        workloads = [("mlp", explained(launch("k1", spill_bytes=-1), compiler=None))]
        self.assertEqual(judged(workloads, self.page)[:2], (cuda_table.SKIPPED, "skipped: no NVRTC\n"))


if __name__ == "__main__":
    unittest.main()
