// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/base/error.h"
#include "ir/base/hash.h"

namespace kiln {

namespace {

constexpr const char* kForm = "kiln-rendezvous-1";

/// When process `pid` began, in the kernel's ticks, so that a number used again is not taken for it; empty,
/// if there is none.
std::string birth_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream rest(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) {
    rest >> field;
    if (i == 3 && (field == "Z" || field == "X")) return "";
  }
  return field;
}

/// The bytes of a file that this user owns and that is no link; empty, if it is not so.
std::string own_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return "";
  struct stat st;
  char bytes[1024];
  ssize_t n = 0;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()) n = read(fd, bytes, sizeof bytes);
  close(fd);
  return {bytes, n > 0 ? static_cast<size_t>(n) : 0};
}

}  // namespace

std::string rendezvous_path(const std::string& world) {
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  KILN_CHECK(!error, io, "rendezvous: there is no temporary folder; {} (TMPDIR)", error.message());
  return (folder / fmt::format("kiln-{}-{}", geteuid(), hash128(world).hex())).string();
}

RendezvousFile::RendezvousFile(const std::string& world, int port, const std::string& token)
    : path_(rendezvous_path(world)) {
  std::string temporary = path_ + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);  // mode 0600
  KILN_CHECK(fd >= 0, io, "rendezvous: cannot write {}; {} (TMPDIR)", path_, std::strerror(errno));
  const std::string text = fmt::format("{} {} {} {} {}\n", kForm, port, token, getpid(), birth_of(getpid()));
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (close(fd) == 0 && written && rename(temporary.c_str(), path_.c_str()) == 0) return;
  const int error = errno;
  unlink(temporary.c_str());
  throw Error(ErrorKind::io,
              fmt::format("rendezvous: cannot write {}; {} (TMPDIR)", path_, std::strerror(error)));
}

RendezvousFile::~RendezvousFile() { unlink(path_.c_str()); }

std::optional<Published> read_rendezvous_file(const std::string& world) {
  std::istringstream text(own_file(rendezvous_path(world)));
  std::string form, birth;
  Published published;
  pid_t pid = 0;
  if (!(text >> form >> published.port >> published.token >> pid >> birth) || form != kForm)
    return std::nullopt;
  if (birth != birth_of(pid)) return std::nullopt;
  return published;
}

}  // namespace kiln
