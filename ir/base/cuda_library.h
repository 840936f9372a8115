// SPDX-License-Identifier: Apache-2.0
// Where NVIDIA's libraries lie: NVRTC, cuBLASLt, NCCL. Kiln links none of them; a toolkit and the packages
// that pip installs with PyTorch serve alike. Not for the driver, which the system's own search finds.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/dynlib.h"

namespace kiln {

/// Folders that may hold them, in the order they are looked into: those of KILN_CUDA_PATH alone if it is set
/// (a toolkit, a site-packages folder, or the folder of the library itself), else of $CUDA_HOME, of
/// /usr/local/cuda, and of pip's packages in the Python environments of $VIRTUAL_ENV and $PATH. Never those
/// of libraries that are there to be linked with alone.
std::vector<std::string> cuda_library_folders();

/// Opens the first library of one of these names ("libnvrtc.so.13", ...; the first is liked best) in those
/// folders, or where the system looks; `path` is then its file. Nothing if there is none: `tried` then says
/// in words where it was looked for.
std::optional<DynLib> open_cuda_library(std::initializer_list<const char*> names, std::string& path,
                                        std::string& tried);

}  // namespace kiln
