// SPDX-License-Identifier: Apache-2.0
#include "runtime/image.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "ir/base/error.h"

namespace kiln {

namespace {

int make_memory_file() {
  // Kernels with vm.memfd_noexec refuse to map code from a file that does not ask for it; older ones do not
  // know the flag.
  constexpr unsigned kExec = 0x0010;
  int fd = memfd_create("kiln-image", MFD_CLOEXEC | kExec);
  if (fd < 0 && errno == EINVAL) fd = memfd_create("kiln-image", MFD_CLOEXEC);
  return fd;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

// The loader maps what the headers promise and would die touching pages that a cut file does not have.
bool is_complete(std::string_view elf) {
  Elf64_Ehdr header;
  if (elf.size() < sizeof header) return false;
  std::memcpy(&header, elf.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    return false;
  if (header.e_phoff > elf.size() || (elf.size() - header.e_phoff) / sizeof(Elf64_Phdr) < header.e_phnum)
    return false;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, elf.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_offset > elf.size() || elf.size() - segment.p_offset < segment.p_filesz) return false;
  }
  return header.e_phnum > 0;
}

}  // namespace

LoadedImage::LoadedImage(std::string_view elf) {
  KILN_CHECK(is_complete(elf), device, "kernel image: {} bytes are no complete shared object", elf.size());
  fd_ = make_memory_file();
  const bool written = fd_ >= 0 && write_all(fd_, elf);
  std::string why = written ? "" : std::strerror(errno);
  std::optional<DynLib> library;
  // The file stays open: the loader knows objects by path, and a reused number would give it an older image.
  if (written) library = DynLib::open(fmt::format("/proc/self/fd/{}", fd_), why);
  if (!library) {
    if (fd_ >= 0) close(fd_);
    throw Error(ErrorKind::device,
                fmt::format("kernel image: {} bytes cannot be mapped: {}", elf.size(), why));
  }
  library_ = std::move(*library);
}

LoadedImage::LoadedImage(LoadedImage&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), library_(std::move(other.library_)) {}

LoadedImage& LoadedImage::operator=(LoadedImage&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(library_, other.library_);
  return *this;
}

LoadedImage::~LoadedImage() {
  library_ = DynLib();
  if (fd_ >= 0) close(fd_);
}

KernelFn LoadedImage::kernel(const std::string& name) const {
  return reinterpret_cast<KernelFn>(address(name));
}

void* LoadedImage::address(const std::string& name) const {
  void* found = library_.symbol(name.c_str());
  KILN_ASSERT(found, "kernel image: no kernel named '{}'", name);
  return found;
}

}  // namespace kiln
