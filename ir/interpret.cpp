// SPDX-License-Identifier: Apache-2.0
#include "ir/interpret.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <new>

#include "ir/base/options.h"
#include "ir/host_memory.h"
#include "ir/ops/loops.h"
#include "ir/plan.h"

namespace kiln {

namespace {

template <typename T, typename Sum>
void plain_matmul(const TensorRef& a, const TensorRef& b, const TensorRef& c) {
  const T *pa = static_cast<const T*>(a.data), *pb = static_cast<const T*>(b.data);
  T* pc = static_cast<T*>(c.data);
  for (int64_t n = 0; n < c.shape[0]; ++n)
    for (int64_t i = 0; i < c.shape[1]; ++i)
      for (int64_t j = 0; j < c.shape[2]; ++j) {
        Sum sum = 0;
        for (int64_t k = 0; k < a.shape[2]; ++k)
          sum += static_cast<Sum>(pa[n * a.strides[0] + i * a.strides[1] + k * a.strides[2]]) *
                 static_cast<Sum>(pb[n * b.strides[0] + k * b.strides[1] + j * b.strides[2]]);
        pc[n * c.strides[0] + i * c.strides[1] + j * c.strides[2]] = static_cast<T>(sum);
      }
}
void default_matmul(const TensorRef& a, const TensorRef& b, const TensorRef& c) {
  switch (c.dtype) {
    case DType::f64: return plain_matmul<double, double>(a, b, c);
    case DType::f16: return plain_matmul<Half, float>(a, b, c);
    case DType::bf16: return plain_matmul<BFloat16, float>(a, b, c);
    default: return plain_matmul<float, float>(a, b, c);
  }
}
void default_all_reduce(int64_t, DType wire, const TensorRef& t) {
  if (wire == t.dtype) return;
  const HostTensor given{t, nullptr}, sent = evaluate(op("cast"), {&given, 1}, {wire});
  copy_elements(evaluate(op("cast"), {&sent, 1}, {t.dtype}).ref, t);
}
void default_parallel_for(int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& f) { f(0, n); }

/// NaN, or all ones for integers.
void poison(const TensorRef& t) {
  dispatch(t.dtype, [&](auto zero) {
    using T = decltype(zero);
    T mark;
    if constexpr (std::is_same_v<T, bool>) mark = true;
    else if constexpr (std::is_integral_v<T>) mark = T(~T(0));
    else mark = T(std::numeric_limits<float>::quiet_NaN());
    std::fill_n(static_cast<T*>(t.data), t.numel(), mark);
  });
}

using Symbols = std::map<std::string, int64_t, std::less<>>;

std::vector<int64_t> evaluated(const Shape& s, const Symbols& symbols) {
  std::vector<int64_t> out;
  for (const Dim& d : s) out.push_back(d.eval(symbols));
  return out;
}

/// Dims that are a bare symbol bind it; then every input must have exactly the type the graph declares.
Symbols bind(const Graph& g, std::span<const HostTensor> inputs) {
  KILN_CHECK(inputs.size() == g.inputs.size(), invalid, "interpret: {} takes {} inputs, got {}", g.name,
             g.inputs.size(), inputs.size());
  Symbols symbols;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& s = g.type(g.inputs[i].value).shape;
    for (size_t d = 0; d < std::min(s.size(), inputs[i].ref.shape.size()); ++d) {
      std::vector<std::string> names;
      s[d].collect_symbols(names);
      if (names.size() == 1 && s[d] == Dim::symbol(names[0]))
        symbols.emplace(names[0], inputs[i].ref.shape[d]);
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type& t = g.type(g.inputs[i].value);
    const TensorRef& r = inputs[i].ref;
    KILN_CHECK(r.dtype == t.dtype && r.shape == evaluated(t.shape, symbols), invalid,
               "interpret: input {} '{}' has the wrong type; got {}[{}], expected {}", i, g.inputs[i].name,
               dtype_name(r.dtype), fmt::join(r.shape, ","), t.str());
  }
  return symbols;
}

Attrs without_symbols(const Attrs& attrs, const Symbols& symbols) {
  Attrs out = attrs;
  for (AttrValue& a : out)
    if (Shape* s = std::get_if<Shape>(&a))
      for (Dim& d : *s) d = d.eval(symbols);
  return out;
}

/// For each value, the last node that reads it; outputs are read after all nodes.
std::vector<int> last_uses(const Graph& g) {
  std::vector<int> last(static_cast<size_t>(g.value_count()), -1);
  for (size_t i = 0; i < g.nodes.size(); ++i)
    for (Value v : g.nodes[i].in) last[static_cast<size_t>(v.id)] = static_cast<int>(i);
  for (const GraphOutput& o : g.outputs)
    last[static_cast<size_t>(o.value.id)] = static_cast<int>(g.nodes.size());
  return last;
}

std::vector<bool> guard_values(const Graph& g) {
  std::vector<bool> guards(static_cast<size_t>(g.value_count()), false);
  for (const GraphOutput& o : g.outputs)
    if (o.guard) guards[static_cast<size_t>(o.value.id)] = true;
  return guards;
}
bool holds(const HostTensor& guard) { return *static_cast<const int64_t*>(guard.ref.data) == kNothingWrong; }

}  // namespace

bool guards_hold(const Graph& g, std::span<const HostTensor> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (g.outputs[i].guard && outputs[i].ref.data && !holds(outputs[i])) return false;
  return true;
}

HostFunctions& host_functions() {
  static HostFunctions functions{default_matmul, default_parallel_for, default_all_reduce};
  return functions;
}

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) {
  if (n <= 0) return;
  if (n <= grain) return f(0, n);
  host_functions().parallel_for(n, grain, f);
}

std::vector<int64_t> contiguous_strides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  uint64_t next = 1;  // an empty tensor may have sizes whose product is out of range
  for (size_t d = shape.size(); d-- > 0; next *= static_cast<uint64_t>(std::max<int64_t>(1, shape[d])))
    strides[d] = static_cast<int64_t>(next);
  return strides;
}

size_t byte_count(DType dtype, std::span<const int64_t> shape) {
  size_t bytes = dtype_size(dtype);
  bool many = false;
  for (int64_t d : shape) {
    if (d == 0) return 0;
    many = many || __builtin_mul_overflow(bytes, static_cast<size_t>(d), &bytes);
  }
  return many ? std::numeric_limits<size_t>::max() : bytes;
}

HostTensor make_host_tensor(DType dtype, std::vector<int64_t> shape) {
  static const bool poisoned = option_flag("KILN_POISON");
  HostTensor t{{dtype, nullptr, std::move(shape), {}}, nullptr};
  const size_t bytes = byte_count(dtype, t.ref.shape);
  try {
    t.storage = host_block(bytes);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::device, fmt::format("out of memory: no {} bytes for {}[{}]", bytes,
                                               dtype_name(dtype), fmt::join(t.ref.shape, ",")));
  }
  t.ref.data = t.storage.get();
  t.ref.strides = contiguous_strides(t.ref.shape);
  if (poisoned) poison(t.ref);
  return t;
}

bool is_contiguous(const TensorRef& t) {
  int64_t next = 1;
  for (size_t d = t.shape.size(); d-- > 0; next *= t.shape[d]) {
    if (t.shape[d] == 0) return true;
    if (t.shape[d] != 1 && t.strides[d] != next) return false;
  }
  return true;
}

HostTensor contiguous(const HostTensor& t) {
  if (is_contiguous(t.ref)) {
    HostTensor same = t;
    same.ref.strides = contiguous_strides(t.ref.shape);
    return same;
  }
  HostTensor copy = make_host_tensor(t.ref.dtype, t.ref.shape);
  copy_elements(t.ref, copy.ref);
  return copy;
}

void copy_elements(const TensorRef& src, const TensorRef& dst) {
  KILN_ASSERT(src.dtype == dst.dtype && src.shape == dst.shape, "copy between different types");
  if (src.numel() == 0) return;
  const std::vector<int64_t>* strides[] = {&src.strides, &dst.strides};
  const loops::Loops l = loops::collapse(src.shape, strides);
  loops::copy(static_cast<const char*>(src.data), static_cast<char*>(dst.data), l,
              loops::raw_of(src.dtype).from);
}

HostTensor evaluate(Op o, std::span<const HostTensor> in, const Attrs& attrs) {
  const OpDef& d = def(o);
  std::vector<Type> types;
  types.reserve(in.size());
  for (const HostTensor& t : in)
    types.push_back({t.ref.dtype, Shape(t.ref.shape.begin(), t.ref.shape.end())});
  const Type type = infer_type(o, types, attrs);
  if (d.view) {
    if (std::optional<ViewLayout> v = d.view(in[0].ref, attrs)) {
      char* data =
          static_cast<char*>(in[0].ref.data) + v->offset * static_cast<int64_t>(dtype_size(type.dtype));
      return {{type.dtype, data, std::move(v->shape), std::move(v->strides)}, in[0].storage};
    }
  }
  KILN_CHECK(d.eval, unsupported, "{}: cannot be evaluated on the host", d.name);
  std::vector<int64_t> shape;
  shape.reserve(type.shape.size());
  for (const Dim& n : type.shape) shape.push_back(n.value());
  HostTensor out = make_host_tensor(type.dtype, std::move(shape));
  std::vector<TensorRef> refs;
  refs.reserve(in.size());
  for (const HostTensor& t : in) refs.push_back(t.ref);
  d.eval({refs, {&out.ref, 1}, attrs});
  return out;
}

std::vector<HostTensor> interpret(const Graph& g, std::span<const HostTensor> inputs,
                                  const std::function<void(int, const HostTensor&)>& observe) {
  const Symbols symbols = bind(g, inputs);
  const std::vector<int> last = last_uses(g);
  const std::vector<bool> guards = guard_values(g);
  std::vector<HostTensor> values(static_cast<size_t>(g.value_count()));
  for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(g.inputs[i].value.id)] = inputs[i];
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    std::vector<HostTensor> in;
    for (Value v : n.in) in.push_back(values[static_cast<size_t>(v.id)]);
    HostTensor& out = values[static_cast<size_t>(n.out.id)];
    try {
      out = evaluate(n.op, in, symbols.empty() ? n.attrs : without_symbols(n.attrs, symbols));
    } catch (const Error& e) {
      if (!n.origin.loc.known()) throw;
      throw Error(e.kind(), fmt::format("{} (at {})", e.what(), n.origin.loc.str()), n.origin.loc);
    }
    if (observe) observe(static_cast<int>(i), out);
    if (guards[static_cast<size_t>(n.out.id)] && !holds(out)) break;
    for (Value v : n.in)
      if (last[static_cast<size_t>(v.id)] == static_cast<int>(i)) values[static_cast<size_t>(v.id)] = {};
    if (last[static_cast<size_t>(n.out.id)] < 0) out = {};
  }
  std::vector<HostTensor> results;
  for (const GraphOutput& o : g.outputs) results.push_back(values[static_cast<size_t>(o.value.id)]);
  return results;
}

}  // namespace kiln
