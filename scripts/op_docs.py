#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/OPS.md, every op and every function on tensors, and docs/OP_TESTS.md, what tests each of them.

The first is made of the rows (tests/ir/op_facts) and of the comments in the headers of frontend/. The second
also runs the tests of ops.json, and asks for a reason in tests/golden/op_reasons.txt where a test is missing.
With --check it compares the pages instead. --ops: only the first page, which takes no time. --lines: takes
what the tests printed, and the traces of the first, from a folder of their files, as ctest leaves them.
Usage: op_docs.py [--check] [--ops] [--lines FOLDER] FOLDER_OF_PROGRAMS
"""
import argparse
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPS, TESTS = ROOT / "docs/OPS.md", ROOT / "docs/OP_TESTS.md"
REASONS = ROOT / "tests/golden/op_reasons.txt"
AS_IS = "the gradient, in the operand's dtype"
# Headers of kiln.h that have no functions on tensors, or are about files, devices and programs.
NOT_OPS = {"checkpoint", "compile", "cuda", "distributed", "dlpack", "npy", "safetensors", "serialize",
           "sharded_safetensors", "tensor", "autocast", "grad_scaler"}
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "floor_divide": "//",
             "remainder": "%", "matmul": "@", "neg": "-"}


# --- the rows ---

class Row:
    def __init__(self, fields):
        self.name, self.kind, self.operands, self.attributes, self.doc, self.source = fields
        self.derivative, self.gradient, self.fuzzed = "", 0, 0


def read_rows(programs):
    rows = {}
    for line in run([programs / "op_facts"]).splitlines():
        what, name, *fields = line.split("\t")
        if what == "row":
            rows[name] = Row([name, *fields])
        elif what == "derivative":
            rows[name].derivative = fields[0]
        else:
            setattr(rows[name], what, int(fields[0]))
    return rows


def run(args, **env):
    done = subprocess.run([str(a) for a in args], env={**os.environ, **env}, cwd=ROOT, capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        faults = [line for line in done.stdout.splitlines() if " fail" in line]
        sys.exit(f"{args[0]} failed:\n{done.stderr}" + "\n".join(faults[-20:]))
    return done.stdout


# --- the functions ---

class Function:
    def __init__(self, name, signature, doc, section, header):
        self.name, self.signatures, self.section, self.header = name, [signature], section, header
        self.docs = [doc] if doc else []

    def torch(self, golden_names):
        """PyTorch's name for it."""
        for prefix, full in (("F", "torch.nn.functional"), ("torch", "torch")):
            if f"{prefix}.{self.name}" in golden_names:
                return f"{full}.{self.name}"
        if f".{self.name}" in golden_names:
            return f"torch.Tensor.{self.name}"
        text = self.header.about
        return ("torch.nn.functional." if "torch.nn.functional" in text else "torch.") + self.name


class Header:
    """The functions in namespace kiln that a header declares, with their comments."""

    def __init__(self, path):
        self.name = f"frontend/{path.name}"
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        about = []
        for line in lines[1:]:
            if not line.startswith("//"):
                break
            about.append(line[2:].strip())
        self.about = " ".join(about)
        self.functions = {}
        self._read(lines)

    def _read(self, lines):
        depth, doc, section, statement, inside = 0, [], "", "", False
        for line in lines:
            stripped = line.strip()
            if not inside:
                inside = stripped == "namespace kiln {"
                continue
            if depth == 0 and stripped.startswith("}  // namespace kiln"):
                inside = False
                continue
            if depth == 0 and not statement and stripped.startswith("///"):
                doc.append(stripped[3:].strip())
                continue
            if depth == 0 and not statement and stripped.startswith("//"):
                section = stripped[2:].strip() if not stripped.startswith("// NOLINT") else section
                continue
            if not stripped:
                if depth == 0:
                    doc = []
                continue
            code = re.sub(r"\s*//.*", "", line)
            statement += " " + code.strip()
            flat = re.sub(r"\([^()]*\)", "", re.sub(r"= \{[^{}]*\}", "", re.sub(r"\{\}", "", code)))
            depth += flat.count("{") - flat.count("}")
            if depth == 0 and stripped.split("//")[0].rstrip().endswith((";", "}")):
                self._add(statement.strip(), " ".join(doc), section)
                statement, doc = "", []

    def _add(self, statement, doc, section):
        match = re.match(r"(?:inline |template <[^>]*> )*([\w:<>, &*]+?)[ ]?([&*]?)\b(\w+)\((.*)", statement)
        if not match or re.match(r"(struct|class|enum|using|namespace|operator)\b", statement):
            return
        result, name = match[1], match[3]
        if "Tensor" not in result or name == "operator":
            return
        head = statement.split(" {")[0] if statement.endswith("}") else statement
        signature = re.sub(r",? ?Loc loc = Loc::current\(\)", "", head.rstrip(";")).replace("( ", "(")
        if name in self.functions:
            known = self.functions[name]
            known.signatures.append(signature)
            if doc:
                known.docs.append(doc)
        else:
            self.functions[name] = Function(name, signature, doc, section, self)


def read_headers():
    text = (ROOT / "frontend/kiln.h").read_text(encoding="utf-8")
    headers = []
    for stem in re.findall(r'#include "frontend/(\w+)\.h"', text):
        if stem in NOT_OPS:
            continue
        header = Header(ROOT / f"frontend/{stem}.h")
        if header.functions:
            headers.append(header)
    return headers


# --- the first page ---

def cell(text):
    return text.replace("|", "\\|")


def row_lines(rows):
    lines = ["## Rows of the table", "",
             "What the compiler knows: everything else is made of these. The derivative names the rows that",
             "its rule emits; `zero`: nothing flows, and that is no error.", "",
             "| op | kind | operands | attributes | what it is | derivative | source |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows.values():
        lines.append("| " + " | ".join(cell(c) for c in (
            f"`{r.name}`", r.kind, r.operands, r.attributes, r.doc,
            r.derivative or AS_IS, r.source)) + " |")
    return lines


def parts_of(doc):
    """The doc's text and its Shapes:, Throws: and Source: sentences."""
    pieces = re.split(r"\b(Shapes|Throws|Source|Units|Threads|Blocks): ", doc)
    return pieces[0].strip(), list(zip(pieces[1::2], (p.strip() for p in pieces[2::2])))


def function_lines(function, rows, golden_names):
    lines = [f"### {function.name}", "", "```cpp", *(s + ";" for s in function.signatures), "```"]
    row = rows.get(function.name)
    docs = function.docs or ([row.doc] if row else [])
    sources = False
    for doc in docs:
        text, parts = parts_of(doc)
        if text:
            lines.append(text)
        for what, said in parts:
            sources = sources or what == "Source" and "torch" in said
            lines.append(f"- {what}: {said}")
    if not sources:
        lines.append(f"- PyTorch: `{function.torch(golden_names)}`")
    if row:
        lines.append(f"- Row: `{row.name}`; derivative: {row.derivative or AS_IS}")
    return lines + [""]


def ops_page(rows, headers, golden_names):
    lines = ["# Ops", "",
             "Made by `scripts/op_docs.py` from the rows in `ir/ops/` and the headers in `frontend/`; a test",
             "says when it is stale. [OP_TESTS.md](OP_TESTS.md) tells what tests each of them.", "",
             "Every function takes the caller's line as its last argument, which is left out here. It throws",
             "`kiln::Error` of kind `invalid`, with that line, where PyTorch refuses: ranks, dtypes, shapes",
             "that do not broadcast, indices out of range. `Throws` names what is said beyond that.",
             "Functions that are no row differentiate through the rows that they are made of.", ""]
    lines += row_lines(rows)
    for header in headers:
        lines += ["", f"## {header.name}", "", header.about, ""]
        section = ""
        for f in header.functions.values():
            if f.section != section:
                section = f.section
                lines += [f"*{section}*", ""]
            lines += function_lines(f, rows, golden_names)
        lines.pop()
    return "\n".join(lines).rstrip() + "\n"


# --- the second page ---

def golden_cases():
    with open(ROOT / "tests/goldens/ops.json", encoding="utf-8") as f:
        return json.load(f)["cases"]


def called(case):
    """Names that the expression calls: "torch.sum", "F.gelu", ".view"."""
    return {m[1] if m[1].startswith(("torch.", "F.")) else "." + m[2]
            for m in re.finditer(r"((?:\b(?:torch|F)|[\w\])])\.(\w+))\(", case["expr"])}


def cases_of(name, cases):
    found = []
    for case in cases:
        calls = {c.split(".")[-1] for c in called(case)}
        operator = OPERATORS.get(name)
        if name in calls or name == case["op"] or operator and f" {operator} " in case["expr"]:
            found.append(case)
    return found


# Check -> the golden test that makes it.
FAMILIES = {"ops": "ops", "gradient": "ops_gradient", "bf16": "ops_bf16"}


def run_tests(programs, folder):
    """Leaves in `folder` what ctest does."""
    for family in FAMILIES.values():
        traces = {"KILN_DUMP": "trace", "KILN_DUMP_DIR": str(folder / "ops-traces")}
        env = traces if family == "ops" else {}
        (folder / f"{family}.txt").write_text(run([programs / f"golden.{family}_golden_test"], **env),
                                              encoding="utf-8")


class Facts:
    """What the programs of ops.json said: id -> outcome, by check and mode; id -> rows of its programs."""

    def __init__(self, folder):
        self.outcome = {}
        self.rows = {}
        for check, family in FAMILIES.items():
            self._read(check, (folder / f"{family}.txt").read_text(encoding="utf-8"))
        for path in sorted(folder.glob("ops-traces/*/*-trace.txt")):
            names = re.findall(r"= \S+ ([a-z0-9_]+)", path.read_text(encoding="utf-8"))
            self.rows.setdefault(path.parent.name, set()).update(names)

    def _read(self, check, text):
        for line in text.splitlines():
            words = line.split()
            if words[:1] == ["GOLDEN"]:
                self.outcome[check, words[2], words[3]] = words[4]

    def passing(self, check, mode, cases):
        return sum(self.outcome.get((check, c["id"], mode)) == "pass" for c in cases)

    def applies(self, check, cases):
        return sum(self.outcome.get((check, c["id"], "eager")) not in (None, "exempt") for c in cases)


class Reasons:
    """tests/golden/op_reasons.txt: lines of a name (or a pattern), a column and why there is no such test.

    What PyTorch's file has no row for has nothing in the columns that are made of rows: one reason, for the
    first, says what tests it instead.
    """

    def __init__(self):
        self.rules, self.used, self.missing = [], set(), []
        for number, line in enumerate(REASONS.read_text(encoding="utf-8").splitlines(), 1):
            if line and not line.startswith("#"):
                self.rules.append((number, *line.split(None, 2)))

    def find(self, name, column):
        for number, pattern, what, why in self.rules:
            if what == column and any(fnmatch.fnmatchcase(name, p) for p in pattern.split(",")):
                self.used.add(number)
                return why
        self.missing.append(f"{name} {column}: no test, and no reason in {REASONS.relative_to(ROOT)}")
        return "none"

    def faults(self):
        stale = [f"{REASONS.relative_to(ROOT)}:{n}: nothing is without such a test any more"
                 for n, *_ in self.rules if n not in self.used]
        return self.missing + stale


def count(passed, of):
    return f"{passed}" if passed == of else f"{passed} of {of}"


def row_facts(rows, facts, reasons):
    lines = ["## Rows of the table", "",
             "Golden: rows of ops.json whose program, with its backward, has the op and passes compiled.",
             "Gradient: uses whose first and second derivative `ir/autodiff_test` compares with differences",
             "in f64. Fuzzed: `codegen/program_fuzz_test` draws it. bf16: of the golden rows, those that",
             "pass with bf16 inputs, eager.", "",
             "| op | golden | gradient | fuzzed | bf16 |", "| --- | --- | --- | --- | --- |"]
    for r in rows.values():
        inside = [{"id": i} for i, names in facts.rows.items() if r.name in names]
        golden, bf16 = facts.passing("ops", "compiled", inside), facts.passing("bf16", "eager", inside)
        name = f"row:{r.name}"
        if golden and not facts.applies("bf16", inside):
            bf16 = "no floats"
        if golden:
            bf16 = bf16 or reasons.find(name, "bf16")
        gradient = r.derivative if r.derivative == "zero" else r.gradient
        lines.append(f"| `{r.name}` | {golden or reasons.find(name, 'golden')} | "
                     f"{gradient or reasons.find(name, 'gradient')} | "
                     f"{'yes' if r.fuzzed else reasons.find(name, 'fuzzed')} | {bf16 or ''} |")
    return lines


def function_facts(function, cases, rows, facts, reasons):
    mine = cases_of(function.name, cases)
    ran = [c for c in mine if facts.outcome.get(("ops", c["id"], "eager")) != "unsupported"]
    if not ran:
        return f"| `{function.name}` | {reasons.find(function.name, 'golden')} | | | |"
    eager, compiled = (facts.passing("ops", mode, ran) for mode in ("eager", "compiled"))
    golden = f"{count(eager, len(mine))} / {count(compiled, len(mine))}"
    slopes = [c for c in ran if not c.get("error") and c["upstream"]]
    gradient = facts.passing("gradient", "eager", slopes)
    if not gradient:
        gradient = "no gradient" if not slopes else reasons.find(function.name, "gradient")
    bf16 = facts.passing("bf16", "eager", ran)
    if bf16:
        bf16 = f"{bf16} / {facts.passing('bf16', 'compiled', ran)}"
    else:
        bf16 = "no floats" if not facts.applies("bf16", ran) else reasons.find(function.name, "bf16")
    inside = set().union(*(facts.rows.get(c["id"], set()) for c in ran)) & set(rows)
    if function.name in rows:
        inside.add(function.name)
    drawn = inside and all(rows[n].fuzzed for n in inside)
    through = "yes" if drawn else reasons.find(function.name, "fuzzed")
    return f"| `{function.name}` | {golden} | {gradient} | {through} | {bf16} |"


def tests_page(rows, headers, cases, facts, reasons):
    lines = ["# What tests each op", "",
             "Made by `scripts/op_docs.py` from the programs that test; it fails where a test is missing and",
             "`tests/golden/op_reasons.txt` has no reason.", ""]
    lines += row_facts(rows, facts, reasons)
    lines += ["", "## Functions", "",
              "Golden: rows of ops.json that call it and pass, eager / compiled. Gradient: of these, those",
              "whose backward `golden.ops_gradient_golden_test` compares with differences in f64. Fuzzed:",
              "all rows of the table that it is made of are drawn. bf16: those that pass",
              "`golden.ops_bf16_golden_test`, eager / compiled."]
    for header in headers:
        lines += ["", f"### {header.name}", "", "| function | golden | gradient | fuzzed | bf16 |",
                  "| --- | --- | --- | --- | --- |"]
        for f in header.functions.values():
            lines.append(function_facts(f, cases, rows, facts, reasons))
    return "\n".join(lines) + "\n"


def settle(path, text, check):
    """Writes the page, or says that it is stale."""
    if not check:
        path.write_text(text, encoding="utf-8")
        return []
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return []
    return [f"{path.relative_to(ROOT)} is stale: scripts/op_docs.py build/release/bin"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--ops", action="store_true")
    parser.add_argument("--lines", type=pathlib.Path)
    parser.add_argument("programs", type=pathlib.Path)
    args = parser.parse_args()
    programs = args.programs.resolve()
    rows, headers, cases = read_rows(programs), read_headers(), golden_cases()
    golden_names = set().union(*(called(c) for c in cases))
    faults = settle(OPS, ops_page(rows, headers, golden_names), args.check)
    if not args.ops:
        with tempfile.TemporaryDirectory() as made:
            folder = args.lines or pathlib.Path(made)
            if not args.lines:
                run_tests(programs, folder)
            facts = Facts(folder)
        reasons = Reasons()
        faults += settle(TESTS, tests_page(rows, headers, cases, facts, reasons), args.check)
        faults += reasons.faults()
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
