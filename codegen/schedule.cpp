// SPDX-License-Identifier: Apache-2.0
#include "codegen/schedule.h"

#include <bit>
#include <charconv>
#include <span>

#include "ir/base/error.h"

namespace kiln {

namespace {

constexpr int64_t kMost = int64_t{1} << 40;  // of any number in a schedule
constexpr const char* kPackA[] = {"none", "rows", "cols"};
constexpr const char* kUnits[] = {"simt", "tensor"};  // of multiply-adds

/// Takes " name=value" and the like off the front of a text; remembers whether everything fitted.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  void word(std::string_view w) {
    ok_ = ok_ && text_.starts_with(w);
    if (ok_) text_.remove_prefix(w.size());
  }
  template <typename Int>
  void number(std::string_view before, Int& out, int64_t least, int64_t most) {
    word(before);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    ok_ = ok_ && error == std::errc() && value >= least && value <= most;
    if (!ok_) return;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    out = static_cast<Int>(value);
  }
  /// One of some words, as its number.
  template <typename Out>
  void choice(std::string_view before, std::span<const char* const> words, Out& out) {
    word(before);
    for (size_t i = 0; i < words.size(); ++i) {
      if (!ok_ || !text_.starts_with(words[i])) continue;
      text_.remove_prefix(std::string_view(words[i]).size());
      out = static_cast<Out>(i);
      return;
    }
    ok_ = false;
  }
  /// Whether the text goes on with `w`, which is taken off it.
  bool optional(std::string_view w) {
    const bool there = ok_ && text_.starts_with(w);
    if (there) text_.remove_prefix(w.size());
    return there;
  }
  bool done() const { return ok_ && text_.empty(); }

 private:
  std::string_view text_;
  bool ok_ = true;
};

}  // namespace

std::string str(const MatmulSchedule& s) {
  return fmt::format(
      "matmul{}{} split_k={}; width={} mr={} nv={} kc={} mc={} tile_m={} tile_n={} pack_a={} pack_b={}{}",
      s.pairs ? " pairs" : "", s.apart ? " apart" : "", s.split_k, s.width, s.mr, s.nv, s.kc, s.mc, s.tile_m,
      s.tile_n, kPackA[static_cast<int>(s.pack_a)], static_cast<int>(s.pack_b), s.by_rows ? " by_rows" : "");
}

std::string str(const BlisSchedule& s) { return fmt::format("blis tile={}x{};", s.tile_m, s.tile_n); }

std::string str(const CudaMatmulSchedule& s) {
  return fmt::format("cuda_matmul {} split_k={}; tile={}x{}x{} part={}x{} stages={}", kUnits[s.tensor],
                     s.split_k, s.tile_m, s.tile_n, s.tile_k, s.part_m, s.part_n, s.stages);
}

std::string str(const RowSchedule& s) {
  return fmt::format("rows width={} accumulators={}; rows={}", s.width, s.accumulators, s.rows);
}

std::optional<MatmulSchedule> parse_matmul_schedule(std::string_view text) {
  MatmulSchedule s;
  int pack_b = 0;
  Reader r(text);
  r.word("matmul");
  s.pairs = r.optional(" pairs");
  s.apart = r.optional(" apart");
  r.number(" split_k=", s.split_k, 1, 4096);
  r.number("; width=", s.width, 1, 64);
  r.number(" mr=", s.mr, 1, 64);
  r.number(" nv=", s.nv, 1, 64);
  r.number(" kc=", s.kc, 1, kMost);
  r.number(" mc=", s.mc, 1, kMost);
  r.number(" tile_m=", s.tile_m, 1, kMost);
  r.number(" tile_n=", s.tile_n, 1, kMost);
  r.choice(" pack_a=", kPackA, s.pack_a);
  r.number(" pack_b=", pack_b, 0, 1);
  s.pack_b = pack_b == 1;
  s.by_rows = r.optional(" by_rows");
  const bool whole = std::has_single_bit(static_cast<unsigned>(s.width)) && s.mc % s.mr == 0 &&
                     s.tile_m % s.mc == 0 && s.tile_n % (int64_t{s.nv} * s.width) == 0 &&
                     (!s.pairs || s.kc % 2 == 0) && !(s.by_rows && s.pack_b);
  if (!r.done() || !whole) return std::nullopt;
  return s;
}

std::optional<BlisSchedule> parse_blis_schedule(std::string_view text) {
  BlisSchedule s;
  Reader r(text);
  r.number("blis tile=", s.tile_m, 1, kMost);
  r.number("x", s.tile_n, 1, kMost);
  r.word(";");
  if (!r.done()) return std::nullopt;
  return s;
}

std::optional<CudaMatmulSchedule> parse_cuda_matmul_schedule(std::string_view text) {
  CudaMatmulSchedule s;
  Reader r(text);
  r.choice("cuda_matmul ", kUnits, s.tensor);
  r.number(" split_k=", s.split_k, 1, 4096);
  r.number("; tile=", s.tile_m, 1, 512);
  r.number("x", s.tile_n, 1, 512);
  r.number("x", s.tile_k, 8, 64);
  r.number(" part=", s.part_m, 1, 128);
  r.number("x", s.part_n, 1, 128);
  r.number(" stages=", s.stages, 2, 8);
  if (!r.done() || !is_sound(s)) return std::nullopt;
  return s;
}

std::optional<RowSchedule> parse_row_schedule(std::string_view text) {
  RowSchedule s;
  Reader r(text);
  r.number("rows width=", s.width, 0, 64);
  r.number(" accumulators=", s.accumulators, 0, 8);
  r.number("; rows=", s.rows, 0, kMost);
  if (!r.done() || (s.width & (s.width - 1)) != 0) return std::nullopt;
  return s;
}

bool has_epilogue_apart(std::string_view schedule) {
  const auto s = parse_matmul_schedule(schedule);
  return s && s->apart;
}

std::string_view numeric_part(std::string_view schedule) { return schedule.substr(0, schedule.find(';')); }

}  // namespace kiln
