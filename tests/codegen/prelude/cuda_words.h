// SPDX-License-Identifier: Apache-2.0
// For tests of the CUDA prelude: the words of values, as expressions that both preludes read the same way.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::testing {

/// An expression of a and c, packs of W lanes of `in`, that gives lanes of `out`.
struct ValueWord {
  std::string text, in, out;
};

inline const std::vector<std::string>& value_types() {
  static const std::vector<std::string> t = {"f32", "f64", "i32", "i64", "u8"};
  return t;
}

/// Words whose bits are the same on every target.
inline std::vector<ValueWord> exact_words(const std::string& in) {
  const bool real = in[0] == 'f';
  std::vector<std::string> texts = {"kn::add(a, c)",
                                    "kn::sub(a, c)",
                                    "kn::mul(a, c)",
                                    "kn::neg(a)",
                                    "kn::abs(a)",
                                    "kn::sign(a)",
                                    "kn::max(a, c)",
                                    "kn::min(a, c)",
                                    "kn::fmod(a, c)",
                                    "kn::remainder(a, c)",
                                    "kn::floor_divide(a, c)",
                                    "kn::trunc_divide(a, c)",
                                    "kn::select(kn::lt(a, c), a, c)",
                                    "kn::broadcast<W>(kn::reduce_max(kn::min(a, a)))"};
  for (const char* t :
       {"a + c", "a - c", "a * c", "a / c", "T(1) / a", "-a", "kn::floor(a)", "kn::ceil(a)", "kn::trunc(a)",
        "kn::round(a)", "kn::sqrt(a)", "kn::rsqrt(a)", "kn::copysign(a, c)", "kn::fma(a, c, a)"})
    if (real) texts.emplace_back(t);
  for (const char* t :
       {"kn::shift_left(a, c)", "kn::shift_right(a, c)", "kn::pow(a, c)", "a & c", "a | c", "a ^ c", "~a"})
    if (!real) texts.emplace_back(t);
  if (texts.back() == "~a")  // scalars of u8 promote
    for (std::string& t : texts)
      if (t[0] == 'a' || t[0] == '~') t = "V(" + t + ")";
  std::vector<ValueWord> words;
  for (const std::string& t : texts) words.push_back({t, in, in});
  for (const char* compare : {"eq", "ne", "lt", "le", "gt", "ge"})
    words.push_back({fmt::format("kn::convert<kn::u8>(kn::{}(a, c))", compare), in, "u8"});
  for (const char* mask :
       {"kn::to_mask(a) & kn::to_mask(c)", "kn::to_mask(a) | kn::to_mask(c)",
        "kn::to_mask(a) ^ kn::to_mask(c)", "!kn::to_mask(a)", "kn::isnan(a)",
        "kn::select(kn::to_mask(a), kn::to_mask(c), kn::ge(a, c))", "kn::max(kn::to_mask(a), kn::to_mask(c))",
        "kn::lt(kn::to_mask(a), kn::to_mask(c))", "kn::le(kn::to_mask(a), kn::to_mask(c))",
        "kn::broadcast_mask<W>(true)"})
    words.push_back({fmt::format("kn::convert<kn::i32>({})", mask), in, "i32"});
  if (real)
    for (const char* mask : {"kn::isinf(a)", "kn::isfinite(a)", "kn::isnan(kn::max(a, V(kn::nan<T>)))",
                             "kn::lt(a, V(kn::inf<T>))"})
      words.push_back({fmt::format("kn::convert<kn::i32>({})", mask), in, "i32"});
  for (const std::string& to : value_types())  // out of range, a machine may say what it likes
    if (!real || to[0] == 'f') words.push_back({fmt::format("kn::convert<kn::{}>(a)", to), in, to});
  return words;
}

/// Statements that store every word of lanes [i, i + W): word w of a and c from b[0] and b[1] into b[2 + w].
inline std::string store_words(const std::vector<ValueWord>& words, int width) {
  std::string s = fmt::format(
      "constexpr int W = {0};\nusing T = kn::{1};\nusing V = kn::Vec<T, W>;\n"
      "const V a = kn::load<W>((const T*)b[0] + i), c = kn::load<W>((const T*)b[1] + i);\n(void)c;\n",
      width, words[0].in);
  for (size_t w = 0; w < words.size(); ++w)
    s += fmt::format("kn::store<W>((kn::{}*)b[{}] + i, {});\n", words[w].out, 2 + w, words[w].text);
  return s;
}

/// A CUDA kernel of that name around a body whose buffers are `b` and dims `d`.
inline std::string cuda_kernel(const std::string& name, int threads, size_t buffers, size_t dims,
                               const std::string& body) {
  return fmt::format(
      "KILN_CUDA_KERNEL({}, {}, {}, {}) {{\nvoid* const* const b = buffers;\nconst kn::i64* const d = dims;\n"
      "(void)b;\n(void)d;\n{}\n}}\n",
      name, threads, buffers, dims, body);
}

}  // namespace kiln::testing
