// SPDX-License-Identifier: Apache-2.0
// A linked batch of kernels, mapped into this process.
#pragma once

#include <string>
#include <string_view>

#include "ir/base/dynlib.h"
#include "ir/kernel_image.h"

namespace kiln {

/// Maps an ELF shared object from memory and looks up its kernels; unmaps it when destroyed, so it must
/// outlive every call of its kernels. The bytes given are the bytes mapped: no file is read again.
class LoadedImage {
 public:
  /// Throws: device, with the loader's own reason, if the bytes cannot be mapped.
  explicit LoadedImage(std::string_view elf);
  LoadedImage(LoadedImage&& other) noexcept;
  LoadedImage& operator=(LoadedImage&& other) noexcept;
  ~LoadedImage();

  /// Throws: internal, if the image has no kernel of that name.
  KernelFn kernel(const std::string& name) const;
  /// Of a symbol that is no CPU kernel. Throws: internal, if there is none of that name.
  void* address(const std::string& name) const;

 private:
  int fd_ = -1;
  DynLib library_;
};

}  // namespace kiln
