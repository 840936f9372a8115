# SPDX-License-Identifier: Apache-2.0
# Run with -DBUILD= -DSOURCE= -DWORK= -DLAUNCHER=: install, configure the consumer against the copy, build it,
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
step("configure" ${CMAKE_COMMAND} -S ${SOURCE}/tests/install/consumer -B ${WORK}/build -G Ninja
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=${WORK}/prefix "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")
step("build" ${CMAKE_COMMAND} --build ${WORK}/build)
step("the consumer" ${WORK}/build/consumer)
if(NOT output MATCHES "^kiln [0-9.]+ 128\\*B objects 1\n$")
  message(FATAL_ERROR "the consumer printed: ${output}")
endif()
step("the installed program" ${WORK}/prefix/bin/kiln --version)
