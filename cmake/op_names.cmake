# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.25)
# Writes op_names.h (names only) and op_table.cpp (families in order) from the rows in ir/ops/*.cpp.
# Run by the build: cmake -DFILES="a.cpp;b.cpp" -DOUT_DIR=... -P op_names.cmake
set(names "")
set(decls "")
set(calls "")
foreach(file IN LISTS FILES)
  get_filename_component(family ${file} NAME_WE)
  file(STRINGS ${file} rows REGEX "\\.name = \"[a-z0-9_]+\"")
  foreach(row IN LISTS rows)
    string(REGEX MATCH "\\.name = \"([a-z0-9_]+)\"" unused "${row}")
    list(APPEND names ${CMAKE_MATCH_1})
  endforeach()
  string(APPEND decls "std::span<const OpDef> ${family}_ops();\n")
  string(APPEND calls "  for (const OpDef& d : ${family}_ops()) rows.push_back(&d);\n")
endforeach()
list(LENGTH names count)
list(JOIN names "\",\n    \"" joined)
file(CONFIGURE OUTPUT ${OUT_DIR}/ir/op_names.h CONTENT "// Generated from ir/ops/*.cpp; do not edit.
#pragma once
#include <string_view>
namespace kiln {
inline constexpr int kOpCount = @count@;
inline constexpr std::string_view kOpNames[kOpCount] = {
    \"@joined@\"};
}  // namespace kiln
" @ONLY)
file(CONFIGURE OUTPUT ${OUT_DIR}/ir/op_table.cpp CONTENT "// Generated from ir/ops/*.cpp; do not edit.
#include \"ir/op.h\"
namespace kiln {
@decls@
namespace detail {
std::vector<const OpDef*> collect_ops() {
  std::vector<const OpDef*> rows;
@calls@  return rows;
}
}  // namespace detail
}  // namespace kiln
" @ONLY)
