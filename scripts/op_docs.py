#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/OPS.md, every op and every function on tensors, and docs/OP_TESTS.md, what tests each of them.

The first is made of the rows (tests/ir/op_facts), the comments above their rules of types, and those in the
headers of frontend/ (op_headers.py): it fails where a function or a row has no description, shapes or errors.
The second also runs the tests of ops.json, and asks for a reason in tests/golden/op_reasons.txt where a test
is missing. With --check it compares the pages instead. --ops: only the first page, which takes no time.
--lines: takes what the tests printed, and the traces of the first, from a folder of their files, as ctest
leaves them.
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

import op_headers
from op_headers import ROOT

OPS, TESTS = ROOT / "docs/OPS.md", ROOT / "docs/OP_TESTS.md"
REASONS = ROOT / "tests/golden/op_reasons.txt"
AS_IS = "the gradient, in the operand's dtype"
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


# --- the first page ---

def cell(text):
    return text.replace("|", "\\|")


HEAD = """# Ops

Made by `scripts/op_docs.py` from the rows in `ir/ops/` and the headers in `frontend/`; a test says when it
is stale, and where something is left out. [OP_TESTS.md](OP_TESTS.md) tells what tests each of them.

**Shapes.** `[...]` is any shape, `[n, c]` one of two dims, `->` the result; without an arrow the result has
the shape that operands broadcast to, aligned at the right as in PyTorch. Negative dims count from the end.

**Derivatives.** That of a row is in the table below. Functions that are no row differentiate through the rows
that they are made of; where a gradient is chosen, or there is none, the text says so.

**Errors.** Every function takes the caller's line as its last argument, which is left out here, and throws
`kiln::Error`, with that line. All throw: `invalid`, on an undefined tensor where one is needed, tensors on
different devices, a dim that is out of range or given twice, operands that broadcast and do not fit, and a
number that the integers of a dtype do not hold; `device`, where there is no such GPU. `Throws` names what is
said beyond that; `nothing else`: there is none.

**Arguments.** `TensorArg`: a tensor or a number. `Dims`: one number or a list. `SpatialArg`: one number for
every dim of space, or one for each. `ConvPadding`: the same, or `ConvPadding::same_size()`. `TensorIndex`: a
number, a `Slice`, `Ellipsis{}`, `NewDim{}`, a tensor of indices or a mask. Many functions are methods of
`Tensor` too (`frontend/tensor_methods.h`); some have one that writes in place (`add_`: `frontend/tensor.h`).
"""


def row_lines(rows, rules):
    lines = ["## Rows of the table", "",
             "What the compiler knows: everything else is made of these. Operands of a row are not broadcast",
             "or cast: functions do that before. The derivative names the rows that its rule emits; `zero`:",
             "nothing flows, and that is no error. Errors are of kind `invalid`.", "",
             "| op | kind | operands | attributes | what it is | shapes | errors | derivative | source |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows.values():
        shapes, throws = rules.get(r.name, ("", ""))
        lines.append("| " + " | ".join(cell(c) for c in (
            f"`{r.name}`", r.kind, r.operands, r.attributes, r.doc, shapes, throws.replace("invalid, ", ""),
            r.derivative or AS_IS, r.source)) + " |")
    return lines


def row_faults(rows, rules):
    return [f"ir/ops: {name} has no {what} above its rule of types" for name in rows
            for what, said in zip(("Shapes", "Throws"), rules.get(name, ("", ""))) if not said]


def function_lines(function, rows, types):
    lines = [f"### {function.name}", ""]
    named = op_headers.types_of(function, types)
    for block in function.blocks:
        lines += ["```cpp", *(s + ";" for s in block.signatures)]
        lines += ["", *named] if named else []
        lines += ["```", block.text, f"- Shapes: {block.shapes}", f"- Throws: {block.throws}"]
        lines += [*(f"- {what}: {said}" for what, said in block.rest.items()), ""]
        named = []
    lines.pop()
    names, sources = function.torch()
    lines.append(f"- PyTorch: {names}")
    if sources:
        lines.append(f"- Source: {'; '.join(sources)}.")
    row = rows.get(function.name)
    if row:
        lines.append(f"- Row: `{row.name}`; derivative: {row.derivative or AS_IS}")
    return lines + [""]


def ops_page(rows, rules, headers):
    lines = [HEAD, *row_lines(rows, rules)]
    types = op_headers.argument_types(headers)
    for header in headers:
        lines += ["", f"## {header.name}", "", header.intro, ""]
        group = ""
        for f in header.functions.values():
            if f.group and f.group != group:
                lines += [f"*{f.group}*", ""]
            group = f.group
            lines += function_lines(f, rows, types)
        lines.pop()
    return "\n".join(lines).rstrip() + "\n"


def doc_faults(rows, rules, headers):
    """What the page would leave out. Completes overloads."""
    faults = row_faults(rows, rules)
    for h in headers:
        for f in h.functions.values():
            faults += f.complete(rows[f.name].doc if f.name in rows else "")
    return faults


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
    """tests/golden/op_reasons.txt: lines of names (or patterns), a column and why there is no such test."""

    def __init__(self):
        self.rules, self.used, self.missing = [], set(), []
        for number, line in enumerate(REASONS.read_text(encoding="utf-8").splitlines(), 1):
            if line and not line.startswith("#"):
                self.rules.append((number, *line.split(None, 2)))

    def known(self, name, column):
        """The reason, or "" if there is none."""
        for number, pattern, what, why in self.rules:
            if what == column and any(fnmatch.fnmatchcase(name, p) for p in pattern.split(",")):
                self.used.add(number)
                return why
        return ""

    def find(self, name, column):
        why = self.known(name, column)
        if not why:
            self.missing.append(f"{name} {column}: no test, and no reason in {REASONS.relative_to(ROOT)}")
        return why or "none"

    def faults(self):
        stale = [f"{REASONS.relative_to(ROOT)}:{n}: nothing is without such a test any more"
                 for n, *_ in self.rules if n not in self.used]
        return self.missing + stale


def count(passed, of):
    return f"{passed}" if passed == of else f"{passed} of {of}"


def row_facts(rows, facts, reasons):
    """The lines of a row, by name."""
    lines = {}
    for r in rows.values():
        inside = [{"id": i} for i, names in facts.rows.items() if r.name in names]
        golden, bf16 = facts.passing("ops", "compiled", inside), facts.passing("bf16", "eager", inside)
        name = f"row:{r.name}"
        if golden and not facts.applies("bf16", inside):
            bf16 = "no floats"
        gradient = r.derivative if r.derivative == "zero" else r.gradient
        lines[r.name] = (f"| `{r.name}` | {golden or reasons.find(name, 'golden')} | "
                         f"{gradient or reasons.find(name, 'gradient')} | "
                         f"{'yes' if r.fuzzed else reasons.find(name, 'fuzzed')} | "
                         f"{bf16 or reasons.find(name, 'bf16')} |")
    return lines


def without_golden(function, rows, reasons):
    """Of a function that no row of ops.json calls: what holds for all rows of the table holds for it."""
    drawn = all(r.fuzzed for r in rows.values())
    derived = all(r.gradient or r.derivative == "zero" for r in rows.values())
    gradient = reasons.known(function.name, "gradient") or derived and "rows"
    return (f"| `{function.name}` | {reasons.find(function.name, 'golden')} | "
            f"{gradient or reasons.find(function.name, 'gradient')} | "
            f"{'yes' if drawn else reasons.find(function.name, 'fuzzed')} | "
            f"{reasons.known(function.name, 'bf16') or 'rows'} |")


def function_facts(function, cases, rows, facts, reasons):
    mine = cases_of(function.name, cases)
    ran = [c for c in mine if facts.outcome.get(("ops", c["id"], "eager")) != "unsupported"]
    if not ran:
        return without_golden(function, rows, reasons)
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


TESTS_HEAD = """# What tests each op

Made by `scripts/op_docs.py` from the programs that test; it fails where a test is missing and
`tests/golden/op_reasons.txt` has no reason.

## Rows of the table

Golden: rows of ops.json whose program, with its backward, has the op and passes compiled.
Gradient: uses whose first and second derivative `ir/autodiff_test` compares with differences
in f64. Fuzzed: `codegen/program_fuzz_test` draws it. bf16: of the golden rows, those that
pass with bf16 inputs, eager.

| op | golden | gradient | fuzzed | bf16 |
| --- | --- | --- | --- | --- |"""
FUNCTIONS_HEAD = """
## Functions

Golden: rows of ops.json that call it and pass, eager / compiled. Gradient: of these, those
whose backward `golden.ops_gradient_golden_test` compares with differences in f64. Fuzzed:
all rows of the table that it is made of are drawn. bf16: those that pass
`golden.ops_bf16_golden_test`, eager / compiled. `rows`: ops.json has none that calls it, but
every row of the table, of which it must be made, has such a test, or a reason, above."""


def tests_page(rows, headers, cases, facts, reasons):
    lines = [TESTS_HEAD, *row_facts(rows, facts, reasons).values(), FUNCTIONS_HEAD]
    for header in headers:
        lines += ["", f"### {header.name}", "", "| function | golden | gradient | fuzzed | bf16 |",
                  "| --- | --- | --- | --- | --- |"]
        for f in header.functions.values():
            lines.append(function_facts(f, cases, rows, facts, reasons))
    return "\n".join(lines) + "\n"


def blanks(page):
    """Cells of the page that say nothing."""
    return [f"{TESTS.relative_to(ROOT)}: an empty cell in {line}" for line in page.splitlines()
            if re.search(r"\|\s*\|", line)]


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
    rows, headers, cases = read_rows(programs), op_headers.read_headers(), golden_cases()
    rules = op_headers.row_rules()
    faults = doc_faults(rows, rules, headers)
    faults += settle(OPS, ops_page(rows, rules, headers), args.check)
    if not args.ops:
        with tempfile.TemporaryDirectory() as made:
            folder = args.lines or pathlib.Path(made)
            if not args.lines:
                run_tests(programs, folder)
            facts = Facts(folder)
        reasons = Reasons()
        page = tests_page(rows, headers, cases, facts, reasons)
        faults += settle(TESTS, page, args.check) + reasons.faults() + blanks(page)
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
