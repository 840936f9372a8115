# SPDX-License-Identifier: Apache-2.0
# kiln_library(NAME): a static library, installed and exported, with Kiln's flags and the alias kiln::NAME.
# kiln_program(NAME DIR): an executable that lands in build/<preset>/bin.
include(GNUInstallDirs)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# kiln_flags(TARGET): C++20, warnings, sanitizers. Sources are compiled eight at a time, for most of
# the time is spent reading headers.
function(kiln_flags target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON
    UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  # No contraction on the host: the reference evaluation must not depend on the compiler's choice of FMA.
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
    # A class of a source file may use what is that file's own; in a batch it seems to be a header's.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>
    $<$<BOOL:${KILN_WERROR}>:-Werror>)
  if(KILN_SANITIZE)
    # GCC sees uninitialised values in the standard library's code when it is instrumented.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_compile_options(${target} PUBLIC -fsanitize=${KILN_SANITIZE} -fno-omit-frame-pointer)
    if(KILN_SANITIZE MATCHES "address.*undefined")
      # What the address sanitizer reports by itself, and two whose checks of every pointer are more than half
      # of the code and a third of the time to build: x86 reads at any address, casts down are dynamic.
      target_compile_options(${target} PRIVATE -fno-sanitize=null,object-size,alignment,vptr)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${KILN_SANITIZE})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:kiln_sanitizer_options>)
    endif()
  endif()
endfunction()

if(KILN_SANITIZE)
  add_library(kiln_sanitizer_options OBJECT ${PROJECT_SOURCE_DIR}/cmake/sanitizer_options.cpp)
  kiln_flags(kiln_sanitizer_options)
endif()

# Kiln's own programs are linked by the lld that comes with LLVM's library of it, in a quarter of GNU ld's
# time. It also takes libraries in an order that GNU ld, which users may have, would not: that is an error.
if(PROJECT_IS_TOP_LEVEL AND KILN_CPU_JIT)
  find_program(KILN_LLD ld.lld PATHS /usr/lib/llvm-19/bin NO_DEFAULT_PATH)
  mark_as_advanced(KILN_LLD)
  if(KILN_LLD)
    cmake_path(GET KILN_LLD PARENT_PATH folder)
    add_link_options(-B${folder} -fuse-ld=lld -Wl,--warn-backrefs,--fatal-warnings)
  endif()
endif()

function(kiln_library name)
  add_library(${name} STATIC ${ARGN})
  add_library(kiln::${name} ALIAS ${name})
  kiln_flags(${name})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/kiln>)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
    OUTPUT_VARIABLE folder)
  if(folder MATCHES "^(ir|codegen|runtime|autotune|frontend)")  # not helpers of tests and programs
    install(TARGETS ${name} EXPORT kilnTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endfunction()

function(kiln_program name)
  add_executable(${name} ${ARGN})
  kiln_flags(${name})
  target_link_libraries(${name} PRIVATE kiln)
endfunction()
