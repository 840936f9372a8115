# SPDX-License-Identifier: Apache-2.0
# Run with -DBUILD= -DSOURCE= -DWORK=: install, configure the consumer against the copy, build it,
# run it. The installed copy is moved first, so that nothing works by leading back to the build tree.
function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${status}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
step("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/prefix)
# The first C++ block of the README, and the one of the page on weights and data that is a program: they must
# be right as they stand there.
file(READ ${SOURCE}/README.md readme)
file(READ ${SOURCE}/docs/DATA.md data)
string(REGEX MATCH "```cpp\n([^`]*)```" unused "${readme}")
if(NOT CMAKE_MATCH_1)
  message(FATAL_ERROR "README.md has no C++ example")
endif()
file(WRITE ${WORK}/readme.cpp "${CMAKE_MATCH_1}")
string(REGEX MATCH "```cpp\n(#include[^`]*)```" unused "${data}")
if(NOT CMAKE_MATCH_1)
  message(FATAL_ERROR "docs/DATA.md has no program")
endif()
file(WRITE ${WORK}/checkpoint.cpp "${CMAKE_MATCH_1}")

# The pages that the README names come with it.
file(GLOB_RECURSE installed ${WORK}/prefix/*/README.md)
get_filename_component(pages "${installed}" DIRECTORY)
string(REGEX MATCHALL "docs/[A-Za-z_]+\\.md" named "${readme}")
foreach(page ${named})
  if(NOT EXISTS ${pages}/${page})
    message(FATAL_ERROR "README.md names ${page}, which is not installed in ${pages}")
  endif()
endforeach()

step("configure" ${CMAKE_COMMAND} -S ${SOURCE}/tests/install/consumer -B ${WORK}/build -G Ninja
  -DREADME_EXAMPLE=${WORK}/readme.cpp -DCHECKPOINT_EXAMPLE=${WORK}/checkpoint.cpp
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=${WORK}/prefix)
step("build" ${CMAKE_COMMAND} --build ${WORK}/build)
step("the consumer" ${WORK}/build/consumer)
if(NOT output MATCHES "^kiln [0-9.]+ 128\\*B objects 1\n$")
  message(FATAL_ERROR "the consumer printed: ${output}")
endif()
step("the example of the README" ${CMAKE_COMMAND} -E env KILN_CACHE_DIR=${WORK}/cache ${WORK}/build/readme)
# It fits a smooth function of two variables: far below the variance of its values, which is 0.43.
if(NOT output MATCHES "^loss ([0-9.e-]+)\n$" OR CMAKE_MATCH_1 GREATER 0.02)
  message(FATAL_ERROR "the example of the README printed: ${output}")
endif()

# A run that stops and goes on, and one that does not.
set(lines)
foreach(run stopped whole)
  file(MAKE_DIRECTORY ${WORK}/${run})
  foreach(epochs 10 20)
    if(epochs EQUAL 20 OR run STREQUAL stopped)
      step("the example of docs/DATA.md" ${CMAKE_COMMAND} -E chdir ${WORK}/${run} ${CMAKE_COMMAND} -E env
        KILN_CACHE_DIR=${WORK}/cache ${WORK}/build/checkpoint ${epochs})
    endif()
  endforeach()
  list(APPEND lines "${output}")
endforeach()
list(REMOVE_DUPLICATES lines)
if(NOT lines MATCHES "^loss [0-9.e-]+\n$")
  message(FATAL_ERROR "the example of docs/DATA.md printed, stopped and whole: ${lines}")
endif()
step("the installed program" ${WORK}/prefix/bin/kiln --version)
