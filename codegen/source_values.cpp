// SPDX-License-Identifier: Apache-2.0
#include "codegen/source_values.h"

#include <algorithm>
#include <cmath>

#include "ir/graph.h"

namespace kiln::detail {

using loop::Bound;
using loop::Index;
using loop::IndexTerm;
using loop::Instr;
using loop::InstrKind;

const char* storage_name(DType t) {
  constexpr const char* kNames[] = {"b8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"};
  return kNames[static_cast<int>(t)];
}

std::string number_text(double v, DType t) {
  t = loop::computed(t);
  if (t == DType::boolean) return v != 0 ? "{true}" : "{false}";
  if (t == DType::i64 && v == -0x1p63) return "(-9223372036854775807l - 1)";
  if (!is_floating(t)) return fmt::format("{}", static_cast<int64_t>(v));
  const char* suffix = t == DType::f32 ? "f" : "";
  if (std::isnan(v)) return fmt::format("kn::nan<{}>", storage_name(t));
  if (std::isinf(v)) return fmt::format("{}kn::inf<{}>", v < 0 ? "-" : "", storage_name(t));
  std::string s = t == DType::f32 ? fmt::format("{}", static_cast<float>(v)) : fmt::format("{}", v);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s + suffix;
}

std::string identity_text(Op o, DType t) {
  const std::string_view name = def(o).name;
  if (name == "sum") return number_text(0, t);
  if (name == "prod") return number_text(1, t);
  KILN_CHECK(name == "amax" || name == "amin", unsupported, "{}: no kernel combines by it", name);
  const bool lowest = name == "amax";
  if (is_floating(t)) return number_text(lowest ? -INFINITY : INFINITY, t);
  if (t == DType::u8) return lowest ? "0" : "255";
  if (t == DType::i32) return lowest ? "(-2147483647 - 1)" : "2147483647";
  return lowest ? "(-9223372036854775807l - 1)" : "9223372036854775807l";
}

std::string ValueText::value_type(DType t, bool vector) const {
  if (t == DType::boolean) return vector ? "Mask<W>" : "Mask<1>";
  t = loop::computed(t);
  return vector ? fmt::format("Vec<{}, W>", storage_name(t)) : storage_name(t);
}

std::string ValueText::vec(int v) const { return fmt::format("{}{}", p_.vector[v] ? 'v' : 'w', v); }

std::string ValueText::substitute(std::string_view body, const std::vector<std::string>& args, DType t) {
  std::string out;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '{') {
      out += body[i];
      continue;
    }
    const size_t end = body.find('}', i);
    const std::string_view name = body.substr(i + 1, end - i - 1);
    if (name == "flat") out += args.back();
    else if (name == "T") out += storage_name(t);
    else out += args[static_cast<size_t>(name[0] - '0')];
    i = end;
  }
  return out;
}

std::string ValueText::combine(Op o, DType t, const std::string& a, const std::string& b) const {
  return substitute(def(o).body, {a, b}, t);
}

std::string ValueText::index_text(const Index& x, bool vector) const {
  std::string s;
  const auto term = [&](const std::string& name, const Dim& stride) {
    s += s.empty() ? "" : " + ";
    s += stride.is(1)
             ? name
             : fmt::format("{} * {}", name,
                           stride.is_const() && stride.value() < 0 ? "(" + size(stride) + ")" : size(stride));
  };
  for (const IndexTerm& t : x.terms) {
    if (t.axis >= 0 && !(vector && t.axis == vec_axis_)) term(fmt::format("a{}", t.axis), t.stride);
    if (t.value >= 0 && !(vector && p_.vector[t.value])) term(fmt::format("v{}", t.value), t.stride);
  }
  if (s.empty()) return size(x.offset);
  if (x.offset.is_const() && x.offset.value() < 0)
    return fmt::format("{} - {}", s, size(Dim(-x.offset.value())));
  return x.offset.is(0) ? s : s + " + " + size(x.offset);
}

Dim ValueText::lane_stride(const Index& x) const {
  for (const IndexTerm& t : x.terms)
    if (t.axis >= 0 && t.axis == vec_axis_) return t.stride;
  return Dim(0);
}

bool ValueText::named_by_lanes(const Index& x) const {
  return std::any_of(x.terms.begin(), x.terms.end(),
                     [&](const IndexTerm& t) { return t.value >= 0 && p_.vector[t.value]; });
}

std::string ValueText::lane_indices(const Index& x) const {
  const Dim stride = lane_stride(x);
  std::string s = fmt::format("broadcast<W>(i64({}))", index_text(x, true));
  if (stride.is(1)) s = fmt::format("iota<W>(i64({} + a{}))", index_text(x, true), vec_axis_);
  else if (!stride.is(0))
    s += fmt::format(" + iota<W>(i64(a{})) * broadcast<W>(i64({}))", vec_axis_, size(stride));
  for (const IndexTerm& t : x.terms)
    if (t.value >= 0 && p_.vector[t.value])
      s += t.stride.is(1) ? fmt::format(" + v{}", t.value)
                          : fmt::format(" + v{} * broadcast<W>(i64({}))", t.value, size(t.stride));
  return s;
}

std::string ValueText::scalar_test(const std::vector<Bound>& bounds) const {
  std::string s;
  for (const Bound& b : bounds) {
    const std::string x = index_text(b.index, false);
    s += fmt::format("{}{} >= 0 && {} < {}", s.empty() ? "" : " && ", x, x, size(b.extent));
  }
  return s;
}

std::string ValueText::lane_test(const std::vector<Bound>& bounds) const {
  std::string s;
  for (const Bound& b : bounds) {
    const bool named = named_by_lanes(b.index);
    s += s.empty() ? "" : " & ";
    if (!named && lane_stride(b.index).is(0)) {
      s += fmt::format("broadcast_mask<W>({})", scalar_test({b}));
    } else if (!named && lane_stride(b.index).is(1)) {  // lanes [-x, extent - x)
      const std::string x = fmt::format("{} + a{}", index_text(b.index, true), vec_axis_);
      s += fmt::format("first<W>({} - ({})) & !first<W>(-({}))", size(b.extent), x, x);
    } else {
      const std::string x = lane_indices(b.index);
      s += fmt::format("ge({}, broadcast<W>(i64(0))) & lt({}, broadcast<W>(i64({})))", x, x, size(b.extent));
    }
  }
  return s;
}

void ValueText::compute(int v, bool vector, bool tail) {
  const Instr& i = k_.body[v];
  const std::string type = value_type(i.dtype, vector);
  switch (i.kind) {
    case InstrKind::load: return vector ? vector_load(v, tail) : scalar_load(v);
    case InstrKind::fold: return fold(v, vector, tail);
    case InstrKind::constant: line("const {} v{} = {};", type, v, number_text(i.number, i.dtype)); return;
    case InstrKind::index:
      if (vector) line("const {} v{} = {};", type, v, lane_indices(i.index));
      else line("const {} v{} = {};", type, v, index_text(i.index, false));
      return;
    case InstrKind::inside:
      if (vector) line("const Mask<W> v{} = {};", v, lane_test(i.bounds));
      else line("const Mask<1> v{} = {{{}}};", v, scalar_test(i.bounds));
      return;
    case InstrKind::elementwise: line("const {} v{} = {};", type, v, point_text(i, vector)); return;
    default: KILN_ASSERT(false, "instruction {} is no value", v);
  }
}

std::string ValueText::point_text(const Instr& i, bool vector) const {
  std::vector<std::string> args;
  for (int a : i.args) args.push_back(vector ? vec(a) : fmt::format("v{}", a));
  if (i.op == op("cast") && i.dtype == DType::boolean) return fmt::format("to_mask({})", args[0]);
  if (i.op == op("cast") && dtype_size(i.dtype) == 2)
    return fmt::format("round_to<{}>(convert<f32>({}))", storage_name(i.dtype), args[0]);
  KILN_CHECK(!def(i.op).body.empty(), unsupported, "{}: no kernel computes it", def(i.op).name);
  if (i.rounded) return fmt::format("kn::mul_rounded({}, {})", args[0], args[1]);
  return substitute(def(i.op).body, args, i.dtype);
}

void ValueText::scalar_load(int v) {
  const Instr& i = k_.body[v];
  const std::string at = fmt::format("p{} + {}", i.param, index_text(i.index, false));
  const std::string type = value_type(i.dtype, false);
  if (i.bounds.empty()) line("const {} v{} = load<1>({});", type, v, at);
  else line("const {0} v{1} = {2} ? load<1>({3}) : {0}{{}};", type, v, scalar_test(i.bounds), at);
}

void ValueText::vector_load(int v, bool tail) {
  const Instr& i = k_.body[v];
  const std::string type = value_type(i.dtype, true);
  const Dim stride = lane_stride(i.index);
  bool lanes_bound = false;
  for (const Bound& b : i.bounds) lanes_bound |= named_by_lanes(b.index) || !lane_stride(b.index).is(0);
  if (named_by_lanes(i.index) || lanes_bound) return masked_load(v, tail);
  const std::string base = fmt::format("p{} + {}", i.param, index_text(i.index, true));
  std::string x;
  if (stride.is(0)) {
    x = i.dtype == DType::boolean ? fmt::format("broadcast_mask<W>(load<1>({}).lanes)", base)
                                  : fmt::format("broadcast<W>(load<1>({}))", base);
  } else if (stride.is(1)) {
    const std::string at = fmt::format("{} + a{}", base, vec_axis_);
    x = tail ? fmt::format("load_n<W>({}, tail)", at) : fmt::format("load<W>({})", at);
  } else {
    const std::string at = fmt::format("{} + a{} * ({})", base, vec_axis_, size(stride));
    x = tail ? fmt::format("load_strided_n<W>({}, {}, tail)", at, size(stride))
             : fmt::format("load_strided<W>({}, {})", at, size(stride));
  }
  if (i.bounds.empty()) line("const {} v{} = {};", type, v, x);
  else line("const {0} v{1} = {2} ? {3} : {0}{{}};", type, v, scalar_test(i.bounds), x);
}

void ValueText::masked_load(int v, bool tail) {
  const Instr& i = k_.body[v];
  std::string mask = i.bounds.empty() ? "broadcast_mask<W>(true)" : lane_test(i.bounds);
  if (tail) mask += " & first<W>(tail)";
  const std::string gather =
      fmt::format("gather_if(p{}, Vec<i64, W>({}), m{})", i.param, lane_indices(i.index), v);
  line("const Mask<W> m{} = {};", v, mask);
  if (!named_by_lanes(i.index) && lane_stride(i.index).is(1)) {
    line("{} v{};", value_type(i.dtype, true), v);
    line("if (all(m{0})) v{0} = load<W>(p{1} + {2} + a{3});", v, i.param, index_text(i.index, true),
         vec_axis_);
    line("else if (any(m{0})) v{0} = {1};", v, gather);
    line("else v{} = {}{{}};", v, value_type(i.dtype, true));
  } else {
    line("const {} v{} = {};", value_type(i.dtype, true), v, gather);
  }
}

void ValueText::fold(int v, bool vector, bool tail) {
  const Instr& i = k_.body[v];
  // Floats are added up in f64: the error does not grow with their count.
  const bool wide = i.op == op("sum") && is_floating(i.dtype);
  const DType carried = wide ? DType::f64 : i.dtype;
  const std::string name = (wide ? "sum" : "v") + std::to_string(v);  // "f32" is a type
  const Dim stride = lane_stride(i.index);
  const std::string start = fmt::format("{}({})", storage_name(carried), identity_text(i.op, carried));
  line("{} {} = {};", value_type(carried, vector), name, vector ? "broadcast<W>(" + start + ")" : start);
  open(fmt::format("for (i64 i = 0; i < {}; ++i)", size(i.count)));
  const std::string at = fmt::format("p{} + {} + i * {}", i.param, index_text(i.index, vector), size(i.step));
  std::string x = fmt::format("load<1>({})", at);
  if (vector && stride.is(0)) x = fmt::format("broadcast<W>(load<1>({}))", at);
  if (vector && stride.is(1))
    x = tail ? fmt::format("load_n<W>({} + a{}, tail)", at, vec_axis_)
             : fmt::format("load<W>({} + a{})", at, vec_axis_);
  if (vector && !stride.is(0) && !stride.is(1)) {
    const std::string from = fmt::format("{} + a{} * ({}), {}", at, vec_axis_, size(stride), size(stride));
    x = tail ? fmt::format("load_strided_n<W>({}, tail)", from) : fmt::format("load_strided<W>({})", from);
  }
  if (wide) x = fmt::format("convert<f64>({})", x);
  line("{} = {};", name, combine(i.op, carried, name, x));
  close();
  if (wide)
    line("const {} v{} = convert<{}>({});", value_type(i.dtype, vector), v, storage_name(i.dtype), name);
}

void ValueText::vector_store(const Instr& i, bool tail) {
  const Dim stride = lane_stride(i.index);
  const std::string base = fmt::format("p{} + {}", i.param, index_text(i.index, true));
  const std::string x = vec(i.args[0]);
  if (stride.is(1)) {
    const std::string at = fmt::format("{} + a{}", base, vec_axis_);
    if (tail) line("store_n<W>({}, tail, {});", at, x);
    else line("store<W>({}, {});", at, x);
    return;
  }
  const std::string at = fmt::format("{} + a{} * ({}), {}", base, vec_axis_, size(stride), size(stride));
  if (tail) line("store_strided_n<W>({}, tail, {});", at, x);
  else line("store_strided<W>({}, {});", at, x);
}

}  // namespace kiln::detail
