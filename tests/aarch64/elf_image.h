// SPDX-License-Identifier: Apache-2.0
// Maps a shared object of kernels for this CPU, as the dynamic loader would: a static program has none.
#pragma once

#include <elf.h>

#include <cstddef>
#include <string>

namespace kiln::emulated {

/// A mapped shared object; stays mapped. Throws: std::runtime_error, saying what it cannot do.
class ElfImage {
 public:
  explicit ElfImage(const std::string& bytes);
  /// The address of a symbol that it defines.
  void* find(const std::string& name) const;

 private:
  void map();
  void read_dynamic();
  void relocate(const Elf64_Rela& r);
  void protect() const;
  template <typename T>
  const T* at(uint64_t offset) const {
    return reinterpret_cast<const T*>(bytes_.data() + offset);
  }
  void* symbol_address(uint64_t index) const;

  const std::string bytes_;
  char* base_ = nullptr;
  const Elf64_Sym* symbols_ = nullptr;
  const char* names_ = nullptr;
  size_t symbol_count_ = 0;
};

}  // namespace kiln::emulated
