# SPDX-License-Identifier: Apache-2.0
"""What the page of ops takes from a header: whom a comment serves, and what it says is missing."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import op_headers  # noqa: E402


def header(text, about="Functions of torch.nn.functional."):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "some.h"
        path.write_text(f"// SPDX\n// {about}\n#pragma once\n\nnamespace kiln {{\n\n{text}\n"
                        "}  // namespace kiln\n", encoding="utf-8")
        return op_headers.Header(path)


def declaration(name, arguments="const Tensor& x"):
    return f"Tensor {name}({arguments}, Loc loc = Loc::current());\n"


class Comments(unittest.TestCase):
    def test_a_comment_serves_what_stands_below_it(self):
        functions = header("/// Both. Shapes: [n] -> [n]. Throws: invalid, on bool.\n" + declaration("f") +
                           declaration("g") + "\n" + declaration("h")).functions
        for name in "fg":
            self.assertEqual(functions[name].complete(""), [])
            self.assertEqual(functions[name].blocks[0].shapes, "[n] -> [n].")
        self.assertEqual(functions["h"].complete(""), [f"frontend/some.h: h has no {what}"
                                                       for what in ("description", "Shapes", "Throws")])

    def test_the_nearest_shapes_and_all_throws(self):
        functions = header("// Group. Shapes: [g]. Throws: invalid, on bool.\n"
                           "/// One. Throws: invalid, on ints.\n" + declaration("f") +
                           "/// Two. Shapes: [own].\n" + declaration("g") + "\n/// Three.\n" +
                           declaration("h"), "Names. Throws: device, without one.").functions
        self.assertEqual(functions["f"].blocks[0].throws, "invalid, on ints; on bool; device, without one.")
        self.assertEqual(functions["f"].blocks[0].shapes, "[g].")
        self.assertEqual(functions["g"].blocks[0].shapes, "[own].")
        self.assertEqual(functions["h"].complete(""), ["frontend/some.h: h has no Shapes"])

    def test_overloads_take_what_they_lack_from_the_first(self):
        f = header("/// One. Shapes: [n]. Throws: nothing else.\n" + declaration("f") + "\n/// Two.\n" +
                   declaration("f", "const Tensor& x, int64_t n")).functions["f"]
        self.assertEqual(f.complete(""), [])
        self.assertEqual([(b.text, b.shapes, b.throws) for b in f.blocks],
                         [("One.", "[n].", "nothing else."), ("Two.", "[n].", "nothing else.")])

    def test_a_row_says_what_its_function_computes(self):
        f = header("// Group. Shapes: [n]. Throws: nothing else.\n" + declaration("f")).functions["f"]
        self.assertEqual(f.complete("e^x."), [])
        self.assertEqual(f.blocks[0].text, "e^x.")

    def test_names_of_pytorch(self):
        two = "/// Two. Source: torch.g with lists; Someone 1999.\n"
        functions = header("/// One.\n" + declaration("f") + two + declaration("g")).functions
        self.assertEqual(functions["f"].torch(), ("`torch.nn.functional.f`", []))
        self.assertEqual(functions["g"].torch(), ("`torch.g` with lists", ["Someone 1999"]))


class Types(unittest.TestCase):
    def test_options_and_what_they_name(self):
        h = header("enum class Mode : uint8_t { a, b };\n"
                   "struct FOptions {\n  Mode mode = Mode::a;  ///< how\n};\n"
                   "struct Other {\n  int n = 0;\n};\n" + declaration("f", "const FOptions& options = {}"))
        self.assertEqual(op_headers.types_of(h.functions["f"], op_headers.argument_types([h])),
                         ["struct FOptions {", "  Mode mode = Mode::a;  // how", "};",
                          "enum class Mode : uint8_t { a, b };"])


class Rows(unittest.TestCase):
    def test_errors_of_a_rule_and_of_its_evaluation(self):
        shapes, throws = op_headers.row_rules()["fmod"]
        self.assertEqual(shapes, "[...] twice -> [...]")
        self.assertEqual(throws, "invalid, on different types, and bool; on integer division by zero")


if __name__ == "__main__":
    unittest.main()
