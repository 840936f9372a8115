// SPDX-License-Identifier: Apache-2.0
// CUDA source -> machine code, by NVRTC, which is opened at run time on the first call that needs it. Neither
// a toolkit at build time nor a GPU is needed.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "codegen/disk_cache.h"
#include "codegen/failed_source.h"
#include "codegen/kernel_cache.h"
#include "ir/kernel_image.h"

namespace kiln {

/// Whether NVRTC can be opened; if not, `why` (may be null) says where it was looked for. KILN_CUDA_PATH
/// names another folder to look in.
bool nvrtc_available(std::string* why = nullptr);
/// "13.0". Throws: unsupported, as nvrtc_available says.
std::string nvrtc_version();
/// The architectures that it compiles for: 80 for sm_80. Throws: unsupported.
std::vector<int> nvrtc_architectures();
/// Throws: invalid, for what is no architecture ("sm_90a"); unsupported, for one that this NVRTC does not
/// know or that Kiln's words do not work on (below sm_80), or without NVRTC.
void check_cuda_arch(const std::string& arch);

/// All that decides the machine code of a source besides its own text: NVRTC's version, architecture, flags,
/// prelude. Throws: unsupported, without NVRTC.
std::string nvrtc_key(const std::string& arch);

/// Fills in the machine code of each module for `arch` and what the compiler says of its kernels (registers,
/// spills, shared memory): from `cache` (may be null), or compiled by up to `threads` threads. `go_on`,
/// unless it is empty, is called before each compile, on the thread that compiles, and ends all by what it
/// throws. Throws: that; what check_cuda_arch throws; compile, with the log, the file the source was kept in,
/// and those of `lines` that are of its kernels.
void compile_cuda(std::span<CudaModule> modules, const std::string& arch, DiskCache* cache, int threads,
                  BuildCost* cost = nullptr, const std::function<void()>& go_on = {},
                  const KernelLines& lines = {});

namespace detail {
/// Fills in registers, spill_bytes and static_shared of the kernels that ptxas names in `log`.
void read_ptxas_log(std::string_view log, std::vector<CudaKernel>& kernels);
/// The text of a cache entry, and back; false for a payload that does not fit the module's kernels.
std::string pack_cubin(const CudaModule& module);
bool unpack_cubin(std::string_view payload, CudaModule& module);
}  // namespace detail

}  // namespace kiln
