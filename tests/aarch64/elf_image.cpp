// SPDX-License-Identifier: Apache-2.0
#include "tests/aarch64/elf_image.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "codegen/kernel_imports.h"

// The functions of the C library, by address alone: what they take is the kernels' business.
#define KILN_DECLARE(name) extern "C" const char kiln_import_##name[] __asm__(#name);
KILN_KERNEL_IMPORTS(KILN_DECLARE)
#undef KILN_DECLARE

namespace kiln::emulated {

namespace {

struct Import {
  const char* name;
  const char* address;
};
#define KILN_ENTRY(name) {#name, kiln_import_##name},
constexpr Import kImports[] = {KILN_KERNEL_IMPORTS(KILN_ENTRY)};
#undef KILN_ENTRY

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("elf image: " + what); }

uint64_t page_size() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }
uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

void* imported(const std::string& name) {
  for (const Import& i : kImports)
    if (name == i.name) return const_cast<char*>(i.address);
  fail("kernels may not call " + name);
}

}  // namespace

ElfImage::ElfImage(const std::string& bytes) : bytes_(bytes) {
  const auto* header = at<Elf64_Ehdr>(0);
  if (bytes_.size() < sizeof *header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_machine != EM_AARCH64 || header->e_type != ET_DYN)
    fail("no shared object for AArch64");
  map();
  read_dynamic();
  protect();
}

void ElfImage::map() {
  const auto* header = at<Elf64_Ehdr>(0);
  const auto* segments = at<Elf64_Phdr>(header->e_phoff);
  uint64_t end = 0;
  for (int i = 0; i < header->e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD) end = std::max(end, segments[i].p_vaddr + segments[i].p_memsz);
  void* const room =
      mmap(nullptr, round_up(end, page_size()), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) fail("no memory");
  base_ = static_cast<char*>(room);
  for (int i = 0; i < header->e_phnum; ++i)
    if (segments[i].p_type == PT_LOAD)
      std::memcpy(base_ + segments[i].p_vaddr, at<char>(segments[i].p_offset), segments[i].p_filesz);
  const auto* sections = at<Elf64_Shdr>(header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    symbols_ = at<Elf64_Sym>(sections[i].sh_offset);
    symbol_count_ = sections[i].sh_size / sizeof(Elf64_Sym);
    names_ = at<char>(sections[sections[i].sh_link].sh_offset);
  }
}

void ElfImage::read_dynamic() {
  const auto* header = at<Elf64_Ehdr>(0);
  const auto* segments = at<Elf64_Phdr>(header->e_phoff);
  uint64_t table[2] = {}, bytes[2] = {};  // relocations of data and of calls
  for (int i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type != PT_DYNAMIC) continue;
    for (const auto* d = at<Elf64_Dyn>(segments[i].p_offset); d->d_tag != DT_NULL; ++d) {
      if (d->d_tag == DT_RELA) table[0] = d->d_un.d_ptr;
      if (d->d_tag == DT_RELASZ) bytes[0] = d->d_un.d_val;
      if (d->d_tag == DT_JMPREL) table[1] = d->d_un.d_ptr;
      if (d->d_tag == DT_PLTRELSZ) bytes[1] = d->d_un.d_val;
      if (d->d_tag == DT_NEEDED || d->d_tag == DT_INIT || d->d_tag == DT_INIT_ARRAY || d->d_tag == DT_REL ||
          d->d_tag == DT_TEXTREL)
        fail("unexpected entry " + std::to_string(d->d_tag) + " of the dynamic section");
    }
  }
  for (int t = 0; t < 2; ++t) {
    const auto* r = reinterpret_cast<const Elf64_Rela*>(base_ + table[t]);
    for (uint64_t i = 0; i < bytes[t] / sizeof *r; ++i) relocate(r[i]);
  }
}

void ElfImage::relocate(const Elf64_Rela& r) {
  const uint64_t index = ELF64_R_SYM(r.r_info), type = ELF64_R_TYPE(r.r_info);
  const char* target = nullptr;
  if (type == R_AARCH64_RELATIVE) target = base_;
  else if (type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT || type == R_AARCH64_ABS64)
    target = static_cast<const char*>(symbol_address(index));
  else fail("unexpected relocation " + std::to_string(type));
  target += r.r_addend;
  std::memcpy(base_ + r.r_offset, &target, sizeof target);
}

void ElfImage::protect() const {
  const auto* header = at<Elf64_Ehdr>(0);
  const auto* segments = at<Elf64_Phdr>(header->e_phoff);
  for (int i = 0; i < header->e_phnum; ++i) {
    const Elf64_Phdr& s = segments[i];
    if (s.p_type != PT_LOAD || (s.p_flags & PF_W)) continue;
    const uint64_t begin = s.p_vaddr / page_size() * page_size();
    const uint64_t end = round_up(s.p_vaddr + s.p_memsz, page_size());
    const int how = PROT_READ | (s.p_flags & PF_X ? PROT_EXEC : 0);
    if (mprotect(base_ + begin, end - begin, how) != 0) fail("no memory for code");
    if (s.p_flags & PF_X) __builtin___clear_cache(base_ + begin, base_ + end);
  }
}

void* ElfImage::symbol_address(uint64_t index) const {
  if (index >= symbol_count_) fail("a symbol out of range");
  const Elf64_Sym& s = symbols_[index];
  return s.st_shndx == SHN_UNDEF ? imported(names_ + s.st_name) : base_ + s.st_value;
}

void* ElfImage::find(const std::string& name) const {
  for (size_t i = 1; i < symbol_count_; ++i)
    if (symbols_[i].st_shndx != SHN_UNDEF && name == names_ + symbols_[i].st_name) return symbol_address(i);
  fail("no kernel named " + name);
}

}  // namespace kiln::emulated
