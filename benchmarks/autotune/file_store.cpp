// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/autotune/file_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "ir/base/error.h"
#include "ir/base/hash.h"

namespace kiln::bench {

namespace {
constexpr Seconds kLook{0.001};
}

FileStore::FileStore(std::string folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  KILN_CHECK(!error, comm, "store: folder {} cannot be made: {}", folder_, error.message());
}

std::string FileStore::path_of(const std::string& key) const { return folder_ + "/" + hash128(key).hex(); }

std::string FileStore::write_temporary(const std::string& value) const {
  std::string path = folder_ + "/new.XXXXXX";
  const int fd = mkstemp(path.data());
  KILN_CHECK(fd >= 0, comm, "store: cannot write to {}: {}", folder_, std::strerror(errno));
  const ssize_t written = write(fd, value.data(), value.size());
  close(fd);
  KILN_CHECK(written == static_cast<ssize_t>(value.size()), comm, "store: cannot write to {}", folder_);
  return path;
}

void FileStore::set(const std::string& key, const std::string& value) {
  std::filesystem::rename(write_temporary(value), path_of(key));
}

std::string FileStore::set_once(const std::string& key, const std::string& value) {
  const std::string mine = write_temporary(value);
  const bool first = link(mine.c_str(), path_of(key).c_str()) == 0;
  unlink(mine.c_str());
  return first ? value : get(key).value_or(value);
}

std::optional<std::string> FileStore::get(const std::string& key) {
  std::ifstream in(path_of(key), std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::optional<std::string> FileStore::wait(const std::string& key, Seconds timeout,
                                           const std::string& known) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (true) {
    auto value = get(key);
    if (value && *value != known) return value;
    if (std::chrono::steady_clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(kLook);
  }
}

int64_t FileStore::add(const std::string& key, int64_t n) {
  const int lock = open((folder_ + "/lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  KILN_CHECK(lock >= 0 && flock(lock, LOCK_EX) == 0, comm, "store: cannot lock {}", folder_);
  const int64_t sum = std::stoll(get(key).value_or("0")) + n;
  set(key, std::to_string(sum));
  close(lock);
  return sum;
}

void FileStore::erase(const std::string& key) { unlink(path_of(key).c_str()); }

}  // namespace kiln::bench
