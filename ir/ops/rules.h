// SPDX-License-Identifier: Apache-2.0
// Helpers that the rows share: attribute access, type rules that many ops have, short emitters for
// derivatives. Must not name families or rows.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "ir/op.h"

namespace kiln::rules {

inline int64_t integer(const Attrs& a, size_t i) { return std::get<int64_t>(a[i]); }
inline double real(const Attrs& a, size_t i) { return std::get<double>(a[i]); }
inline DType dtype(const Attrs& a, size_t i) { return std::get<DType>(a[i]); }
inline const std::vector<int64_t>& ints(const Attrs& a, size_t i) {
  return std::get<std::vector<int64_t>>(a[i]);
}
inline const Shape& dims(const Attrs& a, size_t i) { return std::get<Shape>(a[i]); }
/// The dims as integers. Throws: internal, if one is symbolic.
std::vector<int64_t> values(const Shape& s);

// --- type rules ---

/// Throws unless input i is floating / an integer type / anything but bool / bool.
void want_floating(const InferArgs& a, size_t i);
void want_integer(const InferArgs& a, size_t i);
void want_number(const InferArgs& a, size_t i);
void want_bool(const InferArgs& a, size_t i);
/// Throws unless inputs i and j have equal dtypes and shapes.
void want_equal(const InferArgs& a, size_t i, size_t j);
/// Throws unless every entry is a dim of a value of that rank, each at most once.
void want_dims(const InferArgs& a, std::span<const int64_t> dims, int rank, std::string_view what = "dims");

/// The type of the one input. Shapes: [...] -> [...]. Throws: invalid, unless it is floating.
Type same_floating(const InferArgs& a);
/// The type of the one input. Shapes: [...] -> [...]. Throws: invalid, on bool.
Type same_number(const InferArgs& a);
/// The type of the one input. Shapes: [...] -> [...]. Throws: invalid, unless it is of integers.
Type same_integer(const InferArgs& a);
/// The type of the one input. Shapes: [...] -> [...]. Throws: invalid, unless it is bool.
Type same_bool(const InferArgs& a);
/// The type of both inputs. Shapes: [...] twice -> [...]. Throws: invalid, on different types, and unless
/// they are floating.
Type pair_floating(const InferArgs& a);
/// The type of both inputs. Shapes: [...] twice -> [...]. Throws: invalid, on different types, and bool.
Type pair_number(const InferArgs& a);
/// The type of both inputs. Shapes: [...] twice -> [...]. Throws: invalid, on different types, and unless
/// they are of integers.
Type pair_integer(const InferArgs& a);
/// The type of both inputs. Shapes: [...] twice -> [...]. Throws: invalid, on different types, and unless
/// they are bool.
Type pair_bool(const InferArgs& a);
/// The type of both inputs. Shapes: [...] twice -> [...]. Throws: invalid, on different types.
Type pair_any(const InferArgs& a);

// --- derivatives ---

inline Value add(Builder& b, Value x, Value y) { return b.emit(op("add"), {x, y}); }
inline Value sub(Builder& b, Value x, Value y) { return b.emit(op("sub"), {x, y}); }
inline Value mul(Builder& b, Value x, Value y) { return b.emit(op("mul"), {x, y}); }
inline Value div(Builder& b, Value x, Value y) { return b.emit(op("div"), {x, y}); }
inline Value neg(Builder& b, Value x) { return b.emit(op("neg"), {x}); }
inline Value scale(Builder& b, Value x, double by) { return mul(b, x, b.constant_like(by, x)); }
inline Value plus(Builder& b, Value x, double c) { return add(b, x, b.constant_like(c, x)); }
inline Value where(Builder& b, Value c, Value x, Value y) { return b.emit(op("where"), {c, x, y}); }
inline Value zeros_like(Builder& b, Value x) { return b.constant_like(0, x); }
/// Derivative of steps (floor, sign): zero, but there, as in PyTorch.
std::vector<Value> zero_grad(const GradArgs& a);
/// Puts back the dims that a reduction of `like` removed, and broadcasts to its shape.
Value unreduce(Builder& b, Value reduced, Value like, std::span<const int64_t> dims);

}  // namespace kiln::rules
