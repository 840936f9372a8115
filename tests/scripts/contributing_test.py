# SPDX-License-Identifier: Apache-2.0
"""The op that CONTRIBUTING.md adds as a diff: it applies to the sources, they compile, and the table has it.

Usage: contributing_test.py CXX CMAKE SOURCE_DIR LIBRARY...
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CXX, CMAKE, ROOT, *LIBRARIES = sys.argv[1:]
ROOT = pathlib.Path(ROOT)
FLAGS = ["-std=c++20", "-O0", "-DFMT_SHARED"]
SYSTEM = ["-lspdlog", "-lfmt", "-lxxhash", "-ldl"]


def run(*args, cwd=None):
    done = subprocess.run([str(a) for a in args], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, args))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def documented_diff():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```diff\n(.*?)^```$", text, re.S | re.M)
    assert len(blocks) == 1, f"CONTRIBUTING.md has {len(blocks)} diffs, expected one"
    return blocks[0]


def families():
    """Files of the families, in the order that the build has them."""
    text = (ROOT / "ir/CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"set\(KILN_OP_FAMILIES ([\w ]+)\)", text)[1].split()


class AddAnOp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        diff = documented_diff()
        self.files = re.findall(r"^\+\+\+ b/(\S+)$", diff, re.M)
        self.name = re.search(r'^\+.*\.name = "(\w+)"', diff, re.M)[1]
        for file in self.files:
            target = self.folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / file).read_bytes())
        (self.folder / "op.diff").write_text(diff, encoding="utf-8")
        # Not a repository: git takes the folder as it is.
        run("git", "apply", "op.diff", cwd=self.folder)

    def source(self, file):
        return self.folder / file if file in self.files else ROOT / file

    def compile(self, source, *flags):
        out = self.folder / (source.stem + ".o")
        run(CXX, *FLAGS, *flags, f"-I{self.folder}/generated", f"-I{ROOT}", "-c", source, "-o", out)
        return out

    def test_applies_compiles_and_is_in_the_table(self):
        self.assertEqual(len(self.files), 2, "one row of the table, one of a test")
        files = [self.source(f"ir/ops/{family}.cpp") for family in families()]
        run(CMAKE, f"-DFILES={';'.join(map(str, files))}", f"-DOUT_DIR={self.folder}/generated", "-P",
            ROOT / "cmake/op_names.cmake")
        for file in self.files:
            if file.startswith("tests/"):
                self.compile(self.source(file), "-fsyntax-only")
        # What numbers the rows, and the family; the others are those of the build.
        objects = [self.compile(s) for s in (
            ROOT / "ir/op.cpp", self.folder / "generated/ir/op_table.cpp", ROOT / "tests/ir/op_facts.cpp",
            *(self.source(f) for f in self.files if f.startswith("ir/")))]
        program = self.folder / "op_facts"
        # The libraries' objects hold several sources each, those compiled here too: the first ones count.
        run(CXX, *objects, *LIBRARIES, *SYSTEM, "-Wl,-z,muldefs", "-o", program)
        rows = [line.split("\t") for line in run(program, "rows").splitlines()]
        mine = [fields for fields in rows if fields[1] == self.name]
        self.assertEqual(len(mine), 1, f"no row {self.name}")
        self.assertTrue(all(mine[0][i] for i in (2, 3, 5, 6)), f"a row without a doc: {mine[0]}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
