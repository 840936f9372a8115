# SPDX-License-Identifier: Apache-2.0
# kiln_embed(FILE HEADER SYMBOL): at build time, the text of FILE becomes
#   namespace kiln::detail { inline constexpr std::string_view SYMBOL }
# in <build>/generated/HEADER. Adds that header to KILN_EMBEDDED of the calling scope.
# Run as a script (cmake -P) this file does the work itself.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${INPUT}" text)
  string(FIND "${text}" ")KILN_TEXT\"" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "${INPUT} holds )KILN_TEXT\", which ends the string constant it is embedded in")
  endif()
  file(WRITE "${OUTPUT}" "// Made from ${NAME} by cmake/embed.cmake.
#pragma once

#include <string_view>

namespace kiln::detail {
inline constexpr std::string_view ${SYMBOL} = R\"KILN_TEXT(${text})KILN_TEXT\";
}  // namespace kiln::detail
")
  return()
endif()

set(KILN_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(kiln_embed file header symbol)
  set(input ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set(output ${PROJECT_BINARY_DIR}/generated/${header})
  cmake_path(GET output PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${output} DEPENDS ${input} ${KILN_EMBED_SCRIPT} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DNAME=${file} -DSYMBOL=${symbol}
            -P ${KILN_EMBED_SCRIPT})
  set(KILN_EMBEDDED ${KILN_EMBEDDED} ${output} PARENT_SCOPE)
endfunction()
