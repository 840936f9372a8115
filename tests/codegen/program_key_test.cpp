// SPDX-License-Identifier: Apache-2.0
#include "codegen/program_key.h"

#include <gtest/gtest.h>

namespace kiln {
namespace KILN_FILE {

constexpr const char* kGraph = R"(graph g {
  %0 = input f32[4,5] param
  %1 = f32[4,5] exp %0
  output %1
}
)";

ProgramKey key_of(const char* text, const ExternalLayout& layout, const char* target, bool fuse) {
  return program_key(parse_graph(text), {layout}, parse_target(target), {.fuse = fuse});
}

TEST(ProgramKey, ReadsBack) {
  const ProgramKey key = key_of(kGraph, {{Dim(5), Dim::symbol("B") + Dim(1)}, Dim(3)}, "x86-64-v3", true);
  EXPECT_EQ(key.graph, kGraph);
  EXPECT_EQ(key.layouts, "layout 3; 5; B+1\n");
  EXPECT_EQ(key.options, "fuse=true");
  ProgramKey read;
  ASSERT_TRUE(parse_program_key(key.str(), read));
  EXPECT_EQ(read, key);
  EXPECT_EQ(read.str(), key.str());
}

TEST(ProgramKey, EveryPartIsInTheText) {
  const ExternalLayout rows{{Dim(5), Dim(1)}, Dim(0)}, columns{{Dim(1), Dim(4)}, Dim(0)};
  const std::string key = key_of(kGraph, rows, "x86-64-v3", true).str();
  EXPECT_EQ(key, key_of(kGraph, rows, "x86-64-v3", true).str());
  EXPECT_NE(key, key_of(kGraph, columns, "x86-64-v3", true).str());
  EXPECT_NE(key, key_of(kGraph, rows, "x86-64-v4", true).str());
  EXPECT_NE(key, key_of(kGraph, rows, "x86-64-v3", false).str());
  ProgramKey other = key_of(kGraph, rows, "x86-64-v3", true);
  other.compiler += "x";
  EXPECT_NE(key, other.str());
  other.sources += "x";
  ProgramKey read;
  ASSERT_TRUE(parse_program_key(other.str(), read));
  EXPECT_EQ(read, other);
}

TEST(ProgramKey, NamesAndLinesAreNotInIt) {
  Graph named = parse_graph(kGraph);
  named.name = "mlp";
  named.inputs[0].name = "fc1.weight";
  named.outputs[0].name = "y";
  named.nodes[0].origin = {{"net.cpp", 42}, named.intern_scope("blocks.0/gelu")};
  EXPECT_EQ(program_key(named, {}, host_target(), {}),
            program_key(parse_graph(kGraph), {}, host_target(), {}));
}

TEST(ProgramKey, ForeignKeysAreNone) {
  ProgramKey read;
  for (const char* text : {"", "clang 19\n", "kiln program\n", "kiln program\nsources x\n",
                           "kiln program\nsources x\ncompiler y\ntarget z\noptions o\nno graph"})
    EXPECT_FALSE(parse_program_key(text, read)) << text;
}

}  // namespace KILN_FILE
}  // namespace kiln
