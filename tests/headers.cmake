# SPDX-License-Identifier: Apache-2.0
# kiln_header_check: compiles every public header alone, twice in a row, so that each includes what it uses of
# ours. The standard headers are read once for all; that each is included is what tests/lint/includes.py says.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/ir/*.h ${PROJECT_SOURCE_DIR}/codegen/*.h ${PROJECT_SOURCE_DIR}/runtime/*.h
  ${PROJECT_SOURCE_DIR}/autotune/*.h ${PROJECT_SOURCE_DIR}/frontend/*.h)
# Kernel text and the own headers of libraries opened at run time are not public.
list(FILTER headers EXCLUDE REGEX "/(prelude|clang|rpc)/")

set(sources)
foreach(header ${headers})
  string(REPLACE "/" "." name ${header})
  set(file ${CMAKE_BINARY_DIR}/header_check/${name}.cpp)
  file(CONFIGURE OUTPUT ${file} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
  list(APPEND sources ${file})
endforeach()
add_library(kiln_header_check OBJECT ${sources})
kiln_flags(kiln_header_check)
# Each takes less time than asking ccache for it.
set_target_properties(kiln_header_check PROPERTIES UNITY_BUILD OFF CXX_COMPILER_LAUNCHER "")
target_compile_options(kiln_header_check PRIVATE -O0)
target_precompile_headers(kiln_header_check PRIVATE
  <fmt/format.h> <array> <functional> <map> <memory> <optional> <set> <span> <string> <string_view> <utility>
  <variant> <vector>)
target_link_libraries(kiln_header_check PRIVATE kiln)
