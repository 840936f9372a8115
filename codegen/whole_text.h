// SPDX-License-Identifier: Apache-2.0
// Loops, index texts and elements of kernels of whole nodes, for all targets. Included by whole_*.cpp and
// whole_*.h only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/dim_table.h"
#include "codegen/source_text.h"
#include "codegen/source_values.h"
#include "ir/access.h"
#include "ir/fuse.h"
#include "ir/graph.h"

namespace kiln::detail {

class WholeText {
 public:
  WholeText(const Graph& g, const Node& n, const std::vector<Operand>& operands)
      : g_(g), n_(n), operands_(operands) {
    out_ = contiguous_dims(g.type(n.out).shape);
  }

 protected:
  using Names = std::vector<std::string>;

  // --- types ---

  static const char* type_name(DType t) {
    constexpr const char* kNames[] = {"u8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"};
    return kNames[static_cast<int>(t)];
  }
  static bool is_half(DType t) { return t == DType::bf16 || t == DType::f16; }
  /// What a load gives and a store takes.
  static const char* value_name(DType t) { return is_half(t) ? "f32" : type_name(t); }
  /// In what sums are made and elements compared.
  static const char* compute_name(DType t) { return is_floating(t) ? value_name(t) : "i64"; }
  DType dtype(size_t operand) const { return g_.type(n_.in[operand]).dtype; }
  DType dtype() const { return g_.type(n_.out).dtype; }

  std::string size(const Dim& d) { return dims_.text(d); }
  const Shape& shape(int operand) const {
    return operand < 0 ? g_.type(n_.out).shape : g_.type(n_.in[operand]).shape;
  }
  int64_t integer(size_t attr) const { return std::get<int64_t>(n_.attrs[attr]); }

  /// The result as [outer, size, inner] around attribute 0.
  size_t dim() const { return static_cast<size_t>(integer(0)); }
  Shape outer() const {
    const Shape& x = shape(0);
    return Shape(x.begin(), x.begin() + static_cast<ptrdiff_t>(dim()));
  }
  Shape inner() const {
    const Shape& x = shape(0);
    return Shape(x.begin() + static_cast<ptrdiff_t>(dim()) + 1, x.end());
  }
  /// All of it but the dim.
  Shape lines() const {
    Shape l = shape(0);
    l.erase(l.begin() + static_cast<ptrdiff_t>(dim()));
    return l;
  }
  /// `on` names the dims of a line: the element of it that `place` names.
  Names on_line(Names on, const std::string& place) const {
    on.insert(on.begin() + static_cast<ptrdiff_t>(dim()), place);
    return on;
  }

  // --- places ---

  /// offset + sum of names[d] * strides[d].
  std::string place(const Names& names, const std::vector<Dim>& strides, const Dim& offset) {
    std::string s = size(offset);
    for (size_t d = 0; d < names.size(); ++d) s += fmt::format(" + {} * {}", names[d], size(strides[d]));
    return s;
  }
  Names loop(const Shape& over, const char* prefix) {
    Names names;
    for (size_t d = 0; d < over.size(); ++d) {
      names.push_back(fmt::format("{}{}", prefix, d));
      text_.line("for (i64 {0} = 0; {0} < {1}; ++{0}) {{", names.back(), size(over[d]));
    }
    return names;
  }
  void end_loops(size_t n) {
    for (size_t i = 0; i < n; ++i) text_.line("}}");
  }
  /// Indices of a linear place over `over`.
  Names unravel(const std::string& linear, const Shape& over, const char* prefix) {
    Names names(over.size());
    if (over.empty()) return names;
    if (over.size() == 1 && linear.size() == 1) return {linear};
    text_.line("i64 {}_left = {};", prefix, linear);
    for (size_t d = over.size(); d-- > 0;) {
      names[d] = fmt::format("{}_{}", prefix, d);
      if (d == 0) text_.line("const i64 {} = {}_left;", names[d], prefix);
      else text_.line("const i64 {0} = {1}_left % {2}; {1}_left /= {2};", names[d], prefix, size(over[d]));
    }
    return names;
  }

  // --- elements ---

  std::string read(size_t operand, const Names& at) {
    const TensorLayout& l = operands_[operand].layout;
    return fmt::format("load<1>(in{} + ({}))", operand, place(at, l.strides, l.offset));
  }
  /// In the type that it is computed in.
  std::string element(size_t operand, const Names& at) {
    return fmt::format("convert<{}>({})", compute_name(dtype(operand)), read(operand, at));
  }
  void write(const Names& at, const std::string& value) {
    text_.line("store<1>(out + ({}), {});", place(at, out_, Dim(0)), value);
  }
  std::string constant(double v) const {
    const DType t = dtype();
    const DType computed = t == DType::boolean ? DType::u8 : is_half(t) ? DType::f32 : t;
    return fmt::format("{}({})", value_name(t), number_text(v, computed));
  }
  /// Begins the block that brings the base to the result, unless it is there: see scatters_in_place.
  void begin_base() { text_.line("{}{{", operands_[0].base.valid() ? "if (in0 != out) " : ""); }
  /// out = base of a scatter, or the constant that base is.
  void copy_base(const Names& at) {
    write(at, operands_[0].base.valid()
                  ? read(0, at)
                  : constant(std::get<double>(g_.nodes[g_.producer(n_.in[0])].attrs[0])));
  }
  /// What a scatter does with the element at `to` and a source.
  void combine(const Names& to, const Names& from) {
    text_.line("const i64 at = {};", place(to, out_, Dim(0)));
    text_.line("store<1>(out + at, {});",
               fmt::format(fmt::runtime(def(n_.op).body), "load<1>(out + at)", read(2, from)));
  }
  /// Where a scatter's sources do not lie on all lines: the test that they do on the line `on`; or "".
  std::string has_sources(const Names& on) {
    std::string s;
    const Shape all = lines();
    Shape there = shape(1);
    there.erase(there.begin() + static_cast<ptrdiff_t>(dim()));
    for (size_t d = 0; d < all.size(); ++d)
      if (there[d] != all[d]) s += fmt::format("{}{} < {}", s.empty() ? "" : " && ", on[d], size(there[d]));
    return s;
  }
  /// Binary search of the value at `at`: its place in the sorted line, stored.
  void search(const Names& at) {
    const bool own_line = shape(0).size() > 1;
    Names key(own_line ? at.begin() : at.end(), at.end());
    if (own_line) key.back() = "middle";
    else key.push_back("middle");
    text_.line("const auto value = {};", element(1, at));
    text_.line("i64 low = 0, high = {};", size(shape(0).back()));
    text_.line("while (low < high) {{");
    text_.line("const i64 middle = (low + high) / 2;");
    text_.line("const auto key = {};", element(0, key));
    text_.line("if ({}) low = middle + 1;",
               std::get<bool>(n_.attrs[0]) ? "!before<false>(value, key)" : "before<false>(key, value)");
    text_.line("else high = middle;");
    text_.line("}}");
    write(at, "low");
  }
  /// The struct of scan.h that says what is carried along a line.
  std::string carried() const { return fmt::format("{}<{}>", def(n_.op).body, compute_name(dtype(0))); }
  /// What `state` stands for, stored.
  void write_carried(const Names& at, const char* state) {
    write(at, fmt::format("convert<{}>(result({}))", value_name(dtype()), state));
  }

  const Graph& g_;
  const Node& n_;
  const std::vector<Operand>& operands_;
  std::vector<Dim> out_;
  DimTable dims_;
  SourceText text_;
};

}  // namespace kiln::detail
