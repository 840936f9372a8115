// SPDX-License-Identifier: Apache-2.0
// Compiled callables for a CPU that this machine is not: their kernels run in a process of runner.cpp under
// an emulator, call by call, and everything else stays here.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/cpu_target.h"
#include "ir/kernel_image.h"

namespace kiln::emulated {

/// The emulator's process, which is started again after it ended. Threads: one.
class Cpu {
 public:
  /// What was done so far.
  struct Counts {
    int64_t programs = 0, kernels = 0, runs = 0, launches = 0;
  };

  /// `command`: the emulator, its arguments, and the runner.
  explicit Cpu(std::vector<std::string> command);
  ~Cpu();
  Cpu(const Cpu&) = delete;
  Cpu& operator=(const Cpu&) = delete;

  /// Sends a request of protocol.h, and begins to read its answer. Throws: device, with what the runner said
  /// or how it ended.
  void ask(std::string_view request);
  /// More of the answer. Throws: as ask().
  void read(void* to, size_t size);
  /// Which process it is: images that another one has loaded are gone.
  int64_t process() const { return process_; }
  /// The number of an image that the process does not have yet. Throws: as ask().
  int64_t load(const KernelImage& image);

  Counts counts;

 private:
  void start();
  [[noreturn]] void ended();

  const std::vector<std::string> command_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  int64_t process_ = 0, images_ = 0;
};

/// From now on callables are compiled for `target` and run by `cpu`, which must outlive them.
void use(Cpu& cpu, const CpuTarget& target);

}  // namespace kiln::emulated
