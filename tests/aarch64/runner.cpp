// SPDX-License-Identifier: Apache-2.0
// Runs plans of kernels on the CPU that it is built for, as protocol.h says: standard input to standard
// output, until the input ends. Linked statically and without Kiln, for qemu-user. Launches run one after the
// other, and each in two parts where it has two tasks. Every segment ends at a page that is not there, so
// that a kernel that leaves its memory ends the runner.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ir/kernel_image.h"
#include "tests/aarch64/elf_image.h"
#include "tests/aarch64/protocol.h"

namespace kiln::emulated {
namespace {

// ---- the pipe ----

void read_bytes(void* to, size_t size) {
  if (size > 0 && std::fread(to, size, 1, stdin) != 1) throw std::runtime_error("the request is cut short");
}

int64_t read_number() {
  int64_t n = 0;
  read_bytes(&n, sizeof n);
  return n;
}

std::string read_blob() {
  std::string s(static_cast<size_t>(read_number()), '\0');
  read_bytes(s.data(), s.size());
  return s;
}

std::vector<int64_t> read_numbers() {
  std::vector<int64_t> out(static_cast<size_t>(read_number()));
  read_bytes(out.data(), out.size() * sizeof(int64_t));
  return out;
}

void write_bytes(const void* from, size_t size) {
  if (size > 0 && std::fwrite(from, size, 1, stdout) != 1) std::exit(1);
}

void write_number(int64_t n) { write_bytes(&n, sizeof n); }

// ---- memory ----

/// Memory of a run, with nothing behind it.
class Segment {
 public:
  Segment(size_t size, size_t skew) : size_(size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t room = (size + skew + kAlignment + page - 1) / page * page;
    mapped_ = room + page;
    void* const at = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("no memory");
    base_ = static_cast<char*>(at);
    if (mprotect(base_ + room, page, PROT_NONE) != 0) throw std::runtime_error("no page to guard memory");
    data_ = base_ + (room - size - skew) / kAlignment * kAlignment + skew;
    std::memset(data_, 0xff, size_);
  }
  ~Segment() { munmap(base_, mapped_); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  size_t size_, mapped_ = 0;
  char *base_ = nullptr, *data_ = nullptr;
};

// ---- images and runs ----

struct Loaded {
  std::unique_ptr<ElfImage> image;
  std::vector<KernelFn> kernels;
};

struct Launch {
  int64_t symbol = 0, tasks = 0;
  std::vector<int64_t> buffers, starts, dims;
};

/// "copy" and "fill_zero": dims are {bytes, chunk}.
void copy(void* const* buffers, const int64_t* dims, int64_t begin, int64_t end, void*) {
  const int64_t from = begin * dims[1], to = std::min(end * dims[1], dims[0]);
  if (from >= to) return;
  std::memcpy(static_cast<char*>(buffers[1]) + from, static_cast<const char*>(buffers[0]) + from,
              static_cast<size_t>(to - from));
}
void fill_zero(void* const* buffers, const int64_t* dims, int64_t begin, int64_t end, void*) {
  const int64_t from = begin * dims[1], to = std::min(end * dims[1], dims[0]);
  if (from >= to) return;
  std::memset(static_cast<char*>(buffers[0]) + from, 0, static_cast<size_t>(to - from));
}
KernelFn kernel_of(int64_t symbol, const std::vector<KernelFn>& kernels) {
  if (symbol == kCopy) return copy;
  if (symbol == kFillZero) return fill_zero;
  return kernels.at(static_cast<size_t>(symbol));
}

Loaded load() {
  Loaded out;
  const std::string bytes = read_blob();
  std::vector<std::string> names(static_cast<size_t>(read_number()));
  for (std::string& n : names) n = read_blob();
  out.image = std::make_unique<ElfImage>(bytes);
  for (const std::string& n : names) out.kernels.push_back(reinterpret_cast<KernelFn>(out.image->find(n)));
  return out;
}

class Run {
 public:
  Run() {
    segments_.resize(static_cast<size_t>(read_number()));
    for (auto& s : segments_) {
      const auto size = static_cast<size_t>(read_number()), skew = static_cast<size_t>(read_number());
      wanted_.push_back(read_number() != 0);
      s = std::make_unique<Segment>(size, skew);
      const auto filled = static_cast<size_t>(read_number());
      if (filled > size) throw std::runtime_error("more content than a segment holds");
      read_bytes(s->data(), filled);
    }
    buffers_.resize(static_cast<size_t>(read_number()));
    for (void*& b : buffers_) {
      const int64_t segment = read_number(), offset = read_number();
      b = segment < 0 ? nullptr : segments_.at(static_cast<size_t>(segment))->data() + offset;
    }
    scratch_ = static_cast<size_t>(read_number());
    launches_.resize(static_cast<size_t>(read_number()));
    for (Launch& l : launches_) {
      l.symbol = read_number();
      l.tasks = read_number();
      l.buffers = read_numbers();
      l.starts = read_numbers();
      l.dims = read_numbers();
    }
    guards_ = read_numbers();
    guarded_from_ = static_cast<size_t>(read_number());
  }

  void launch_all(const std::vector<KernelFn>& kernels) const {
    for (size_t i = 0; i < launches_.size() && (i < guarded_from_ || guards_hold()); ++i) {
      const Launch& l = launches_[i];
      std::vector<void*> args;
      for (size_t b = 0; b < l.buffers.size(); ++b) {
        void* const from = buffers_.at(static_cast<size_t>(l.buffers[b]));
        args.push_back(from ? static_cast<char*>(from) + l.starts.at(b) : nullptr);
      }
      const KernelFn kernel = kernel_of(l.symbol, kernels);
      for (const auto& [begin, end] : {std::pair{int64_t{0}, l.tasks / 2}, {l.tasks / 2, l.tasks}}) {
        if (begin == end) continue;
        const Segment scratch(scratch_, 0);
        kernel(args.data(), l.dims.data(), begin, end, scratch.data());
      }
    }
  }

  void answer() const {
    write_number(0);
    for (size_t i = 0; i < segments_.size(); ++i)
      if (wanted_[i]) write_bytes(segments_[i]->data(), segments_[i]->size());
  }

 private:
  bool guards_hold() const {
    for (const int64_t g : guards_) {
      int64_t found = 0;
      std::memcpy(&found, buffers_.at(static_cast<size_t>(g)), sizeof found);
      if (found != kGuardHolds) return false;
    }
    return true;
  }

  std::vector<std::unique_ptr<Segment>> segments_;
  std::vector<bool> wanted_;
  std::vector<void*> buffers_;
  size_t scratch_ = 0, guarded_from_ = 0;
  std::vector<Launch> launches_;
  std::vector<int64_t> guards_;
};

void serve(int64_t request, std::vector<Loaded>& images) {
  if (request == kLoad) {
    images.push_back(load());
    return write_number(0);
  }
  if (request != kRun) throw std::runtime_error("unknown request " + std::to_string(request));
  const int64_t image = read_number();
  const Run run;
  static const std::vector<KernelFn> none;
  run.launch_all(image < 0 ? none : images.at(static_cast<size_t>(image)).kernels);
  run.answer();
}

int main_loop() {
  std::vector<Loaded> images;
  int64_t request = 0;
  while (std::fread(&request, sizeof request, 1, stdin) == 1) {
    try {
      serve(request, images);
    } catch (const std::exception& e) {
      write_number(static_cast<int64_t>(std::strlen(e.what())));
      write_bytes(e.what(), std::strlen(e.what()));
      std::fflush(stdout);
      return 1;  // what is left of the request cannot be told from the next
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace kiln::emulated

int main() { return kiln::emulated::main_loop(); }
