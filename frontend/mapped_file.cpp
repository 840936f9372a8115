// SPDX-License-Identifier: Apache-2.0
#include "frontend/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ir/base/error.h"

namespace kiln {

MappedFile::MappedFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  KILN_CHECK(fd >= 0, io, "open {}: cannot read the file; {}", path, std::strerror(errno));
  struct stat st;
  const bool regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  size_ = regular ? static_cast<size_t>(st.st_size) : 0;
  void* p = size_ ? mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) : nullptr;
  const int error = errno;
  close(fd);
  KILN_CHECK(regular, io, "open {}: not a regular file", path);
  KILN_CHECK(p != MAP_FAILED, io, "open {}: cannot map the file; {}", path, std::strerror(error));
  data_ = static_cast<std::byte*>(p);
}

MappedFile::~MappedFile() {
  if (data_) munmap(data_, size_);
}

}  // namespace kiln
