# SPDX-License-Identifier: Apache-2.0
"""What op_docs.py reads of the sources: the functions of the headers of frontend/ with their comments, and
the rules of types of the rows in ir/ops/.

A comment `///` serves the declaration below it and those after that, up to a blank line or another comment. A
comment `//` begins a group, which ends with a blank line. `Shapes:` and `Throws:` come from a function's own
comment, the group's or the header's: the nearest Shapes, and all Throws. An overload without them has those
of the first one. `Source:` names PyTorch's function where it has another name or place than the others of its
header.
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Headers of kiln.h that have no functions on tensors, or are about files, devices and programs.
NOT_OPS = {"amp", "checkpoint", "compile", "cuda", "distributed", "dlpack", "npy", "safetensors", "serialize",
           "sharded_safetensors", "tensor"}
# Headers that kiln.h has through others.
MORE = ["packed_sequence", "rnn"]
PLACES = ("torch.nn.utils.rnn", "torch.nn.functional")
NOTHING = "nothing else"


def parts_of(doc):
    """The comment's text, and its Shapes:, Throws: and other sentences by name."""
    pieces = re.split(r"\b(Shapes|Throws|Source|Units|Threads|Blocks): ", doc)
    parts = {}
    for what, said in zip(pieces[1::2], pieces[2::2]):
        parts[what] = (parts[what] + " " if what in parts else "") + said.strip()
    return pieces[0].strip(), parts


def joined(throws):
    """Several Throws as one, the kind of error once."""
    text = ""
    for t in throws:
        kind, rest = t.rstrip(".").split(", ", 1)
        said = rest if text.startswith(kind) else f"{kind}, {rest}"
        text += f"; {said}" if text else said
    return text


# --- the functions ---

class Block:
    """Overloads under one comment."""

    def __init__(self, signature, doc, shared, group, about):
        self.signatures, self.doc, self.shared = [signature], doc, shared
        levels = [parts_of(t) for t in (doc, group, about)]
        self.text = levels[0][0]
        self.group_text = levels[1][0]
        self.shapes = next((parts["Shapes"] for _, parts in levels if "Shapes" in parts), "")
        throws = [parts["Throws"] for _, parts in levels if "Throws" in parts]
        said = [t for t in throws if t.rstrip(".") != NOTHING]
        self.throws = joined(said) + "." if said else "".join(throws[:1])
        self.source = levels[0][1].get("Source", "")
        self.rest = {k: v for k, v in levels[0][1].items() if k not in ("Shapes", "Throws", "Source")}


class Function:
    def __init__(self, name, header):
        self.name, self.header, self.blocks, self.group = name, header, [], ""

    def complete(self, row_doc):
        """Overloads take what they lack from the first; faults are what that one lacks."""
        first = self.blocks[0]
        if not first.text or (first.shared and row_doc):
            first.text = row_doc or first.text
        for block in self.blocks[1:]:
            block.text = block.text or block.group_text
            block.shapes = block.shapes or first.shapes
            block.throws = block.throws or first.throws
        where = f"{self.header.name}: {self.name}"
        return [f"{where} has no {what}" for what, said in
                (("description", first.text), ("Shapes", first.shapes), ("Throws", first.throws)) if not said]

    def torch(self):
        """PyTorch's name for it, in Markdown, and the sources that are none of PyTorch's."""
        names, others = [], []
        for block in self.blocks:
            for piece in re.split(r"; ", block.source.rstrip(".")):
                known = names if piece.startswith(("torch.", "none")) else others
                if piece and piece not in known:
                    known.append(piece)
        if not names:
            names = [f"{self.header.place}.{self.name}"]
        marked = [re.sub(r"^(torch(?:\.\w+)+(?:\([^()]*\))?)", r"`\1`", n) for n in names]
        return "; ".join(marked), others


class Header:
    """The functions in namespace kiln that a header declares, with their comments."""

    def __init__(self, path):
        self.name = f"frontend/{path.name}"
        lines = path.read_text(encoding="utf-8").splitlines()
        about = []
        for line in lines[1:]:
            if not line.startswith("//"):
                break
            about.append(line[2:].strip())
        self.about = " ".join(about)
        self.intro = self.about.split(" Shapes: ")[0].split(" Throws: ")[0]
        self.place = next((p for p in PLACES if p in self.about), "torch")
        self.functions, self.types = {}, {}
        self._read(lines)

    def _read(self, lines):
        depth, inside = 0, False
        self._forget()
        for line in lines:
            stripped = line.strip()
            if not inside:
                inside = stripped == "namespace kiln {"
            elif depth == 0 and stripped.startswith("}  // namespace kiln"):
                inside = False
            elif depth == 0 and not self.statement and self._comment(stripped):
                continue
            elif stripped:
                self.raw.append(line)
                code = re.sub(r"\s*//.*", "", line)
                self.statement += " " + code.strip()
                flat = re.sub(r"\([^()]*\)", "", re.sub(r"= \{[^{}]*\}", "", re.sub(r"\{\}", "", code)))
                depth += flat.count("{") - flat.count("}")
                if depth == 0 and code.rstrip().endswith((";", "}")):
                    self._end(self.statement.strip())

    def _forget(self):
        self.doc, self.family, self.group, self.statement, self.raw, self.in_group = [], "", "", "", [], False

    def _comment(self, stripped):
        """Whether the line is a comment or blank."""
        if stripped.startswith("///"):
            self.doc.append(stripped[3:].strip())
            self.in_group = False
        elif stripped.startswith("//") and not stripped.startswith("// NOLINT"):
            self.group = (self.group + " " if self.in_group else "") + stripped[2:].strip()
            self.doc, self.family, self.in_group = [], "", True
        elif not stripped:
            self._forget()
        else:
            return False
        return True

    def _end(self, statement):
        doc, raw = " ".join(self.doc), self.raw
        self.doc, self.statement, self.raw, self.in_group = [], "", [], False
        self.family = doc or self.family
        if not self._add(statement, doc):
            self.family = ""
            self._add_type(statement, raw)

    def _add_type(self, statement, raw):
        """A struct whose fields, or an enum whose values, an argument may be given."""
        match = re.match(r"(?:struct|enum class) (\w+)", statement)
        if match and not re.search(rf"\b{match[1]}\(|\bvirtual\b|operator", statement):
            self.types[match[1]] = [re.sub(r"//+<? ?", "// ", line) for line in raw]

    def _add(self, statement, doc):
        match = re.match(r"(?:inline |template <[^>]*> |requires \S+ )*([\w:<>, &*]+?) ?[&*]?\b(\w+)\(",
                         statement)
        if not match or re.match(r"(struct|class|enum|using|namespace|operator)\b", statement):
            return False
        name = match[2]
        if "operator" in (name, *match[1].split()) or not re.search(r"Loc loc|Arg&", statement):
            return False
        head = statement.split(" {")[0] if statement.endswith("}") else statement
        signature = re.sub(r",? ?Loc loc = Loc::current\(\)", "", head.rstrip(";")).replace("( ", "(")
        function = self.functions.setdefault(name, Function(name, self))
        if function.blocks and not doc and function.blocks[-1].doc == self.family and self.family:
            function.blocks[-1].signatures.append(signature)
            return True
        if not function.blocks:
            function.group = parts_of(self.group)[0]
        function.blocks.append(Block(signature, self.family, not doc, self.group, self.about))
        return True


def read_headers():
    text = (ROOT / "frontend/kiln.h").read_text(encoding="utf-8")
    stems = [s for s in re.findall(r'#include "frontend/(\w+)\.h"', text) if s not in NOT_OPS]
    headers = [Header(ROOT / f"frontend/{stem}.h") for stem in sorted({*stems, *MORE})]
    return [h for h in headers if h.functions]


def argument_types(headers):
    """Structs and enums of arguments and results, by name: their lines."""
    types = dict(Header(ROOT / "frontend/tensor_args.h").types)
    for h in headers:
        types.update(h.types)
    return {name: lines for name, lines in types.items() if name not in ("TensorArg", "Scalar", "Dims")}


def types_of(function, types):
    """Lines that declare the types which the signatures name, and those that these name."""
    found, text = [], " ".join(s for b in function.blocks for s in b.signatures)
    while True:
        new = [n for n in types if n not in found and re.search(rf"\b{n}\b", text)]
        if not new:
            return [line for name in found for line in types[name]]
        found += new
        text = " ".join(line.split("//")[0] for name in new for line in types[name])


# --- the rows ---

def row_rules():
    """Row -> (Shapes, Throws) in the comment above its rule of types, in its file or in rules.h."""
    shared = _rules((ROOT / "ir/ops/rules.h").read_text(encoding="utf-8"))
    found = {}
    for path in sorted((ROOT / "ir/ops").glob("*.cpp")):
        text = path.read_text(encoding="utf-8")
        rules = {**shared, **_rules(text)}
        for row in re.split(r"\{\.name = ", text)[1:]:
            name, infer = re.match(r'"(\w+)"', row)[1], re.search(r"\.infer = (\w+)", row)[1]
            parts = rules.get(infer, {})
            kernel = re.search(r"\.eval = (\w+)", row)
            more = rules.get(kernel[1], {}).get("Throws", "") if kernel else ""
            throws = joined([t for t in (parts.get("Throws", ""), more) if t])
            found[name] = parts.get("Shapes", "").rstrip("."), throws
    return found


def _rules(text):
    """Function -> the parts of the comment above it."""
    found = {}
    pattern = r"((?:^///.*\n)+)(?:template .*\n)?\w+ (\w+)\(const (?:Infer|Eval)Args&"
    for match in re.finditer(pattern, text, re.M):
        doc = " ".join(line.strip()[3:].strip() for line in match[1].splitlines())
        found[match[2]] = parts_of(doc)[1]
    return found

