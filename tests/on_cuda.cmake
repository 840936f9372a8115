# SPDX-License-Identifier: Apache-2.0
add_library(test_device OBJECT ${CMAKE_CURRENT_LIST_DIR}/test_device.cpp)
kiln_flags(test_device)
target_include_directories(test_device PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(test_device PRIVATE kiln)

# The test NAME once more, as NAME.cuda, with its tensors on the simulated GPU. FILTER: of GoogleTest.
# CASE: the one of a golden file to run, as NAME.cuda.CASE. GRAPHS: with CUDA graphs, as NAME.graphs.
function(kiln_test_on_cuda name)
  if(NOT TARGET ${name})  # left out under the thread sanitizer
    return()
  endif()
  cmake_parse_arguments(T "GRAPHS" "FILTER;CASE" "" ${ARGN})
  set(device cuda)
  if(T_GRAPHS)
    set(device graphs)
  endif()
  set(test ${name}.${device})
  set(arguments)
  target_sources(${name} PRIVATE $<TARGET_OBJECTS:test_device>)
  if(T_FILTER)
    list(APPEND arguments --gtest_filter=${T_FILTER})
  endif()
  if(T_CASE)
    set(test ${name}.${device}.${T_CASE})
    list(APPEND arguments =${T_CASE})
  endif()
  add_test(NAME ${test} COMMAND ${name} ${arguments} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${test} PROPERTIES LABELS cuda TIMEOUT 900
    ENVIRONMENT "KILN_CACHE_DIR=${CMAKE_BINARY_DIR}/test-cache/${test};${KILN_TEST_ENVIRONMENT}")
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "KILN_TEST_DEVICE=${device};KILN_CUDA_DRIVER=sim")
endfunction()
