// SPDX-License-Identifier: Apache-2.0
#include "codegen/program_entry.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "codegen/program_key.h"

namespace kiln::detail {

namespace {

/// Counted strings, one after the other.
class Out {
 public:
  void put(std::string_view s) {
    const uint64_t n = s.size();
    bytes_.append(reinterpret_cast<const char*>(&n), sizeof n).append(s);
  }
  void put(int64_t n) { put(std::to_string(n)); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads them back; remembers whether all was there.
class In {
 public:
  explicit In(std::string_view bytes) : bytes_(bytes) {}
  std::string_view text() {
    uint64_t n = 0;
    ok_ = ok_ && bytes_.size() >= sizeof n;
    if (!ok_) return {};
    std::copy_n(bytes_.data(), sizeof n, reinterpret_cast<char*>(&n));
    bytes_.remove_prefix(sizeof n);
    ok_ = bytes_.size() >= n;
    if (!ok_) return {};
    const std::string_view out = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return out;
  }
  int number() {
    const std::string_view s = text();
    int n = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
    ok_ = ok_ && error == std::errc() && end == s.data() + s.size();
    return n;
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

void put_module(Out& out, const CudaModule& m) {
  out.put(m.name);
  out.put(m.source);
  out.put(m.cubin);
  out.put(static_cast<int64_t>(m.kernels.size()));
  for (const CudaKernel& k : m.kernels) {
    out.put(k.symbol);
    for (const int n :
         {k.threads, k.buffer_count, k.dim_count, k.parts, k.registers, k.spill_bytes, k.static_shared})
      out.put(int64_t{n});
  }
}

CudaModule take_module(In& in) {
  CudaModule m;
  m.name = in.text();
  m.source = in.text();
  m.cubin = in.text();
  const int count = in.number();
  for (int i = 0; i < count && in.ok(); ++i) {
    CudaKernel k;
    k.symbol = in.text();
    for (int* n : {&k.threads, &k.buffer_count, &k.dim_count, &k.parts, &k.registers, &k.spill_bytes,
                   &k.static_shared})
      *n = in.number();
    m.kernels.push_back(std::move(k));
  }
  return m;
}

}  // namespace

std::string pack_program(const CompiledProgram& p) {
  Out out;
  out.put(serialize(p.plan));
  out.put(p.image.target);
  out.put(p.image.bytes);
  out.put(int64_t{p.stats.kernels});
  out.put(static_cast<int64_t>(p.image.symbols.size()));
  for (const std::string& s : p.image.symbols) out.put(s);
  out.put(static_cast<int64_t>(p.image.modules.size()));
  for (const CudaModule& m : p.image.modules) put_module(out, m);
  return out.take();
}

bool unpack_program(std::string_view bytes, CompiledProgram& out) {
  In in(bytes);
  const std::string_view plan = in.text();
  out.image.target = in.text();
  out.image.bytes = in.text();
  out.stats.kernels = in.number();
  for (int n = in.number(); n > 0 && in.ok(); --n) out.image.symbols.emplace_back(in.text());
  for (int n = in.number(); n > 0 && in.ok(); --n) out.image.modules.push_back(take_module(in));
  if (!in.done()) return false;
  out.plan = deserialize_plan(plan);
  return true;
}

bool load_program(DiskCache& cache, const std::string& key, bool again, CompiledProgram& out) {
  const auto hit = cache.load(kPlanKind, key, again);
  CompiledProgram found;
  if (!hit || !unpack_program(*hit, found)) return false;
  found.stats.launches = static_cast<int>(found.plan.launches.size());
  found.stats.cached = found.stats.kernels;
  out = std::move(found);
  return true;
}

}  // namespace kiln::detail
