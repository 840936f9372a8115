# SPDX-License-Identifier: Apache-2.0
# Writes OUT: a header with the digest of FILES, so that what they generated is not taken for what they
# would generate now. Run with cmake -DFILES=a;b -DOUT=file -P.
set(all "")
foreach(file ${FILES})
  file(SHA256 ${file} digest)
  string(APPEND all "${digest}")
endforeach()
string(SHA256 all "${all}")
string(SUBSTRING "${all}" 0 32 all)
file(CONFIGURE OUTPUT ${OUT} CONTENT "// Written by cmake/source_digest.cmake.
#pragma once
namespace kiln::detail {
/// Digest of the sources that decide what a graph is compiled to.
inline constexpr char kSourceDigest[] = \"@all@\";
}
" @ONLY)
