# SPDX-License-Identifier: Apache-2.0
"""Each lint against tiny trees: a good one that passes and bad ones with the exact faults. A lint that cannot
fail is a defect."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import getenv  # noqa: E402
import globals as global_state  # noqa: E402
import includes  # noqa: E402
import layers  # noqa: E402
import mirror  # noqa: E402
import size  # noqa: E402
import source  # noqa: E402
import words  # noqa: E402


def faults(lint, tree):
    """What `lint` says about a tree given as {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in tree.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)
        return lint.check(root)


class Includes(unittest.TestCase):
    def test_good(self):
        self.assertEqual(faults(includes, {
            "ir/a.h": "#include <string>\nstd::string_view f(std::string);  // std::map\n",
            "ir/b.h": '#include "ir/a.h"\nstd::string g();\n',
            "codegen/prelude/c.h": "std::string h();\n",
        }), [])

    def test_missing(self):
        self.assertEqual(faults(includes, {
            "ir/a.h": '#include "ir/b.h"\nstd::map<int, std::string> f();\n',
            "ir/b.h": '#include <map>\n#include "ir/a.h"\nstd::span<int> g();\nstd::barrier h();\n',
        }), ["ir/a.h: std::string needs #include <string>",
             "ir/b.h: std::barrier is in no line of NAMES in tests/lint/includes.py",
             "ir/b.h: std::span needs #include <span>"])


class Layers(unittest.TestCase):
    def test_good(self):
        self.assertEqual(faults(layers, {
            "ir/base/dim.h": "#include <fmt/format.h>\n#include <map>\n",
            "ir/base/log.cpp": "#include <spdlog/spdlog.h>\n",
            "runtime/a.cpp": '#include "ir/plan.h"\n#include "ir/base/dim.h"\n#include <sys/mman.h>\n',
            "codegen/clang/compile.cpp": "#include <clang/Basic/X.h>\n",
            "cli/main.cpp": '#include <CLI/CLI.hpp>\n#include "frontend/kiln.h"\n',
        }), [])

    def test_upward(self):
        self.assertEqual(faults(layers, {"ir/base/a.h": '\n#include "ir/graph.h"\n'}),
                         ['ir/base/a.h:2: ir/base may not include "ir/graph.h"'])
        text = '# include "ir/graph.h"\n#include "codegen/x.h"\n'
        self.assertEqual(faults(layers, {"runtime/a.cpp": text}),
                         ['runtime/a.cpp:1: runtime may not include "ir/graph.h"',
                          'runtime/a.cpp:2: runtime may not include "codegen/x.h"'])
        self.assertEqual(faults(layers, {"codegen/a.cpp": '#include "runtime/x.h"\n'}),
                         ['codegen/a.cpp:1: codegen may not include "runtime/x.h"'])
        self.assertEqual(faults(layers, {"examples/gpt/a.cpp": '#include "ir/graph.h"\n'}),
                         ['examples/gpt/a.cpp:1: examples may not include "ir/graph.h"'])

    def test_foreign(self):
        self.assertEqual(faults(layers, {"codegen/a.cpp": "#include <llvm/IR/X.h>\n",
                                         "ir/a.h": "#include <nlohmann/json.hpp>\n#include <boost/x.hpp>\n"}),
                         ["codegen/a.cpp:1: <llvm/IR/X.h> may not be included here",
                          "ir/a.h:1: <nlohmann/json.hpp> may not be included here",
                          "ir/a.h:2: <boost/x.hpp> is in no row of FOREIGN in layers.py"])

    def test_relative_and_cycle(self):
        self.assertEqual(faults(layers, {"ir/a.h": '#include "b.h"\n'}),
                         ['ir/a.h:1: "b.h" is not relative to the root'])
        self.assertEqual(faults(layers, {"ir/a.h": '#include "ir/b.h"\n', "ir/b.h": '#include "ir/a.h"\n'}),
                         ["include cycle: ir/a.h -> ir/b.h -> ir/a.h"])


class Size(unittest.TestCase):
    def test_good(self):
        self.assertEqual(faults(size, {
            "ir/a.h": "int f();\n" * 300, "ir/a.cpp": "\n" * 600, "ir/b.cpp": "x" * 110 + "\n",
            "ir/c.cpp": "int f() {\n" + "  x;\n" * 58 + "}\n",
            "ir/d.cpp": "int t[] = {\n" + "1,\n" * 90 + "};\n",
        }), [])

    def test_bad(self):
        self.assertEqual(faults(size, {
            "ir/a.h": "int f();\n" * 301, "ir/a.cpp": "\n" * 601, "ir/b.cpp": "x" * 111 + "\n",
        }), ["ir/a.cpp: 601 lines; limit 600", "ir/a.h: 301 lines; limit 300",
             "ir/b.cpp:1: 111 columns; limit 110"])

    def test_long_functions(self):
        body = "  if (x) { y('{', \"}\"); }  // {\n" * 59
        heads = ["int f(int a = 3)", "template <class T>\nauto C<T>::g() const -> std::vector<T>",
                 "C::C() : a_{1}, b_(2)", "bool operator==(const A& a, const A& b)", "TEST(A, B)"]
        for head in heads:
            text = f"namespace k {{\nint a;\n{head} {{\n{body}}}\n}}\n"
            found = faults(size, {"ir/a.cpp": text})
            lines = 61 + head.count("\n")
            self.assertEqual(len(found), 1, head)
            self.assertTrue(found[0].startswith(f"ir/a.cpp:3: {lines} lines in "), found)
        method = "class A {\n public:\n  void f() {\n" + body + "  }\n};\n"
        self.assertEqual(faults(size, {"ir/a.h": method}), ["ir/a.h:3: 61 lines in void f(); limit 60"])


class Globals(unittest.TestCase):
    GOOD = """
    #define X int hidden = 3;
    extern "C" { typedef void (*Fn)(int); int declared(int); }
    namespace k {
    constexpr int kA = 1; const std::map<int, int> kMap = {{1, 2}}; constinit const OpDef rows[] = {{"a"}};
    inline constexpr std::string_view kNames[] = {"x", "y"};
    using A = std::vector<int>; struct B; enum class E : int { a, b = 3 };
    class C final : public D { int x_ = 3; static const int kY; Fn fn_{}; static C make(int a = 3);
     enum class K { a } k = K::a; struct { int u; } v_;
     public: bool operator==(const C&) const = default; };
    template <class T> struct F { T t; };
    int f(int a = 3, T b = {}); static_assert(sizeof(int) == 4);
    int g() { static const int x = 1; static constexpr int y[] = {1}; static_cast<int>(x); int z = 3; }
    const char* const kName = "static int x;";
    }
    """
    BAD = {
        "int counter;": "int counter", "static std::mutex m;": "static std::mutex m",
        "std::map<int, int> cache{};": "std::map<int, int> cache{}",
        "const char* name = \"x\";": "const char* name",
        "struct S { static inline int n = 0; };": "static inline int n = 0",
        "void f() { static int calls = 0; }": "static int calls",
        "thread_local bool on = true;": "thread_local bool on = true",
        "struct { int x; } state;": "class{} state",
    }

    def test_good(self):
        self.assertEqual(faults(global_state, {"ir/a.cpp": self.GOOD}), [])

    def test_bad(self):
        for text, shown in self.BAD.items():
            found = faults(global_state, {"ir/a.cpp": f"namespace k {{\nnamespace {{\n{text}\n}}\n}}\n"})
            self.assertEqual(len(found), 1, text)
            self.assertTrue(found[0].startswith(f"ir/a.cpp:3: mutable state: {shown}"), found)

    def test_allowed(self):
        name = next(iter(global_state.ALLOWED))
        self.assertEqual(faults(global_state, {name: "int x;\n"}), [])
        self.assertEqual(faults(global_state, {name: "int f();\n"}),
                         [f"{name}: holds no mutable state; drop it from ALLOWED in globals.py"])


class Getenv(unittest.TestCase):
    def test_both(self):
        text = '// getenv\nconst char* a = "getenv";\nauto b = std::getenv("HOME");\n'
        self.assertEqual(faults(getenv, {"ir/base/options.cpp": text}), [])
        self.assertEqual(faults(getenv, {"runtime/a.cpp": text}),
                         ["runtime/a.cpp:3: getenv outside ir/base/options.cpp"])


class Words(unittest.TestCase):
    def test_both(self):
        self.assertEqual(faults(words, {"ir/a.cpp": "// stubborn todo list, issues remain\n"}), [])
        self.assertEqual(faults(words, {
            "ir/a.cpp": "// TODO: x\n", "docs/a.md": "\nA stub.\n", "README.md": "see /work/x\n",
            "tests/a_test.cpp": "// not implemented\n", "scripts/a.sh": "# issue #12\n",
        }), ["README.md:1: '/work/' is a path of one machine", "docs/a.md:2: 'stub' is unfinished work",
             "ir/a.cpp:1: 'TODO' is unfinished work",
             "scripts/a.sh:1: 'issue #12' is a number that leads nowhere in this tree",
             "tests/a_test.cpp:1: 'not implemented' is unfinished work"])


class Mirror(unittest.TestCase):
    def test_good(self):
        self.assertEqual(faults(mirror, {
            "ir/a.cpp": "", "tests/ir/a_test.cpp": "", "tests/ir/a_big_sizes_test.cpp": "", "ir/b.cpp": "",
            "ir/ops/x.cpp": "", "ir/ops/y.cpp": "", "tests/ir/ops_test.cpp": "",
            "ir/only.h": "", "tests/ir/only_test.cpp": "", "tests/golden/x_test.cpp": "",
            mirror.COVERED: "# comment\nir/b.cpp tests/ir/a_test.cpp\n",
        }), [])

    def test_bad(self):
        self.assertEqual(faults(mirror, {
            "ir/a.cpp": "", "ir/b.cpp": "", "tests/ir/b_test.cpp": "", "tests/ir/gone_test.cpp": "",
            mirror.COVERED: "ir/b.cpp tests/ir/nothing_test.cpp\nir/a.cpp\n",
        }), [f"{mirror.COVERED}:1: no file tests/ir/nothing_test.cpp",
             f"{mirror.COVERED}:2: expected '<source> <test>'",
             "tests/ir/gone_test.cpp: there is no ir/gone.cpp",
             f"ir/a.cpp: no test; write tests/ir/a_test.cpp or name its test in {mirror.COVERED}",
             f"ir/b.cpp: has a test of its name; drop it from {mirror.COVERED}"])


class Source(unittest.TestCase):
    def test_strip_keeps_places(self):
        text = 'a("//x\\"{"); /* {\n */ b(\'{\'); c = 1\'000; R"k({\n)k"; // }\n'
        stripped = source.strip(text)
        self.assertEqual(len(stripped), len(text))
        self.assertEqual(stripped.count("\n"), text.count("\n"))
        self.assertNotIn("{", stripped)
        self.assertIn("c = 1'000;", stripped)


if __name__ == "__main__":
    unittest.main()
