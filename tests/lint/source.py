# SPDX-License-Identifier: Apache-2.0
"""Shared by the lints: which files there are, C++ text without comments, and a brace scan of its scopes.

The scan is not a parser. It knows enough of the house style to find namespaces, classes, functions and the
declarations between them; it must never need the compiler.
"""
import argparse
import os
import re
import sys

SOURCE_DIRS = ("ir", "codegen", "runtime", "autotune", "frontend", "cli", "examples", "benchmarks")
# The kind of quote, and the name.
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)
SKIPPED_DIRS = {".git", "build", ".cache", "goldens", "__pycache__"}


def files(root, dirs, suffixes):
    """Paths relative to `root`, sorted, of the files below `dirs` that end in one of `suffixes`."""
    found = []
    for top in dirs:
        for folder, names, entries in os.walk(os.path.join(root, top)):
            names[:] = sorted(n for n in names if n not in SKIPPED_DIRS and not n.startswith(".venv"))
            found += [os.path.relpath(os.path.join(folder, e), root) for e in entries if e.endswith(suffixes)]
    return sorted(f.replace(os.sep, "/") for f in found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


def main(check):
    """Runs `check(root) -> list of messages` as a program: prints them, exits 1 if there are any."""
    parser = argparse.ArgumentParser()
    default = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--root", default=default, help="the tree to check")
    faults = check(parser.parse_args().root)
    for fault in faults:
        print(fault)
    if faults:
        print(f"{len(faults)} fault(s)")
    sys.exit(1 if faults else 0)


TOKEN = re.compile(r"""
    //[^\n]* | /\*.*?\*/                                   # comments
  | R"(?P<delim>[^()\s"\\]{0,16})\(.*?\)(?P=delim)"        # raw strings
  | "(?:\\.|[^"\\\n])*"                                    # strings
  | (?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])*'                   # characters, not digit separators
""", re.X | re.S)


def strip(text):
    """`text` with comments blanked and literals emptied; every line and column stays where it was."""
    def blank(match):
        token = match.group(0)
        spaces = re.sub(r"[^\n]", " ", token)
        if token.startswith("/"):
            return spaces
        quote = token[-1]
        if len(token) < 2:
            return spaces
        return quote + spaces[1:-1] + quote
    return TOKEN.sub(blank, text)


def strip_directives(code):
    """Blanks preprocessor lines, continued ones too."""
    directive = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.M)
    return directive.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), code)


def without_angles(head):
    """`head` without template parameter lists, so that `template <class T>` names no class."""
    out = re.sub(r"\boperator\s*[^\w\s(]+", "operator", head)
    while True:
        shorter = re.sub(r"<[^<>;{}]*>", " ", out)
        if shorter == out:
            return out
        out = shorter


def without_parens(head):
    while True:
        shorter = re.sub(r"\([^()]*\)", "@", head)
        if shorter == head:
            return head
        head = shorter


def classify(head):
    """What the brace after `head` opens: namespace, class, function or init."""
    flat = without_parens(without_angles(head)).strip()
    if re.search(r"\bnamespace\b[^=]*$", flat) or re.match(r"extern\s*\"\s*\"$", flat):
        return "namespace"
    if "=" in flat:
        return "init"
    if re.match(r"(template\s+|typedef\s+|static\s+|\[\[.*?\]\]\s*)*(class|struct|union|enum)\b", flat) \
            and not flat.endswith("@"):
        return "class"
    if "@" in flat and re.search(r"(@|\}|\b(const|noexcept|override|final|try|mutable)|&|->[^;]*)$", flat):
        return "function"
    if "@" in flat and re.search(r"\brequires\b", flat):
        return "function"
    return "init"


class Scan:
    """Functions and declarations of one file.

    functions: (head, first offset, last offset, body text); declarations: (scope kind, text, offset).
    """

    def __init__(self, text):
        self.code = strip_directives(strip(text))
        self.functions = []
        self.declarations = []
        self._run()

    def line(self, offset):
        return self.code.count("\n", 0, offset) + 1

    def _run(self):
        code, at, size = self.code, 0, len(self.code)
        scopes, head, start = ["namespace"], "", 0
        while at < size:
            c = code[at]
            if c == "{":
                kind = classify(head)
                if kind in ("function", "init"):
                    end = self._matching(at)
                    if kind == "function":
                        self.functions.append((head.strip(), self._first(start, head), end, code[at:end + 1]))
                        head, start = "", end + 1
                    else:
                        head += "{}"
                    at = end + 1
                    continue
                scopes.append(kind)
                head, start = "", at + 1
            elif c == "}":
                kind = scopes.pop() if len(scopes) > 1 else "namespace"
                head, start = ("", at + 1) if kind == "namespace" else ("class{}", at + 1)
            elif c == ";":
                if head.strip():
                    self.declarations.append((scopes[-1], " ".join(head.split()), self._first(start, head)))
                head, start = "", at + 1
            elif c == ":" and re.fullmatch(r"\s*(public|private|protected)\s*", head) and code[at + 1] != ":":
                head, start = "", at + 1
            else:
                head += c
            at += 1

    def _matching(self, at):
        depth = 0
        for i in range(at, len(self.code)):
            if self.code[i] == "{":
                depth += 1
            elif self.code[i] == "}":
                depth -= 1
                if depth == 0:
                    return i
        return len(self.code) - 1

    @staticmethod
    def _first(start, head):
        return start + len(head) - len(head.lstrip())
