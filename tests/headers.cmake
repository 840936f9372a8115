# SPDX-License-Identifier: Apache-2.0
# kiln_header_check: compiles every public header alone, twice in a row, so that each includes what it uses.
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
set_target_properties(kiln_header_check PROPERTIES UNITY_BUILD OFF)
target_compile_options(kiln_header_check PRIVATE -O0)
target_link_libraries(kiln_header_check PRIVATE kiln)
