# SPDX-License-Identifier: Apache-2.0
# Headers, export set, package files. The libraries install themselves in kiln_library(); included last.
include(CMakePackageConfigHelpers)
set(KILN_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kiln)

foreach(folder ir codegen runtime autotune frontend)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kiln
    FILES_MATCHING PATTERN "*.h" PATTERN "prelude" EXCLUDE PATTERN "clang" EXCLUDE PATTERN "rpc" EXCLUDE)
endforeach()
install(DIRECTORY ${PROJECT_BINARY_DIR}/generated/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kiln
  OPTIONAL FILES_MATCHING PATTERN "*.h" PATTERN "prelude" EXCLUDE)

install(EXPORT kilnTargets NAMESPACE kiln:: DESTINATION ${KILN_PACKAGE_DIR})
configure_package_config_file(${PROJECT_SOURCE_DIR}/frontend/kiln-config.cmake.in
  ${PROJECT_BINARY_DIR}/kiln-config.cmake
  INSTALL_DESTINATION ${KILN_PACKAGE_DIR} PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kiln-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kiln-config.cmake ${PROJECT_BINARY_DIR}/kiln-config-version.cmake
  DESTINATION ${KILN_PACKAGE_DIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
  FILES_MATCHING PATTERN "*.md")
