// SPDX-License-Identifier: Apache-2.0
// Kernels of nodes that write at places they compute: scatters and pads with gaps. Each task owns a part of
// the result and adds in the order of the indices, so that the bits are the same for any number of threads.
#include <algorithm>

#include "codegen/dim_table.h"
#include "codegen/lower_parts.h"
#include "codegen/source_text.h"
#include "ir/access.h"
#include "ir/base/hash.h"

namespace kiln::detail {

namespace {

const char* type_name(DType t) {
  constexpr const char* kNames[] = {"u8", "u8", "i32", "i64", "f16", "bf16", "f32", "f64"};
  return kNames[static_cast<int>(t)];
}

/// Emits the loops and index texts of one kernel.
class Whole {
 public:
  Whole(const Graph& g, const Node& n, const std::vector<Operand>& operands)
      : g_(g), n_(n), operands_(operands) {
    out_ = contiguous_dims(g.type(n.out).shape);
  }

  WholeKernel write() {
    WholeKernel k;
    k.tasks = Dim(1);
    if (n_.op == op("index_add")) {
      index_add(k);
    } else if (n_.op == op("scatter_add")) {
      scatter_add();
    } else if (n_.op == op("pad")) {
      pad();
    } else {
      throw Error(
          ErrorKind::unsupported,
          fmt::format("{}{}: no kernel does it; got {}", def(n_.op).name,
                      n_.origin.loc.known() ? " (" + n_.origin.loc.str() + ")" : "", g_.type(n_.out).str()),
          n_.origin.loc);
    }
    const std::string name = "k_" + hash128(text_.str()).hex();
    std::string body = text_.str();
    k.source = {
        name + ".cpp",
        fmt::format("// {}\n#include \"kiln_cpu.h\"\nusing namespace kn;\n\nKILN_KERNEL void {}(void* const* "
                    "buffers, const i64* dims, i64 task_begin, i64 task_end, void*) {{\n{}}}\n",
                    def(n_.op).name, name, body),
        {name}};
    k.dims = dims_.dims();
    return k;
  }

 private:
  std::string size(const Dim& d) { return dims_.text(d); }
  const Shape& shape(int operand) const {
    return operand < 0 ? g_.type(n_.out).shape : g_.type(n_.in[operand]).shape;
  }

  /// Pointers in parameter order: operands in memory, then the result.
  void pointers() {
    int param = 0;
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i].base.valid()) continue;
      text_.line("const {0}* in{1} = static_cast<const {0}*>(buffers[{2}]);",
                 type_name(g_.type(n_.in[i]).dtype), i, param++);
    }
    text_.line("{0}* out = static_cast<{0}*>(buffers[{1}]);", type_name(g_.type(n_.out).dtype), param);
    text_.line("(void)dims, (void)task_begin, (void)task_end;");
  }

  /// offset + sum of names[d] * strides[d].
  std::string place(const std::vector<std::string>& names, const std::vector<Dim>& strides,
                    const Dim& offset) {
    std::string s = size(offset);
    for (size_t d = 0; d < names.size(); ++d) s += fmt::format(" + {} * {}", names[d], size(strides[d]));
    return s;
  }
  std::vector<std::string> loop(const Shape& over, const char* prefix) {
    std::vector<std::string> names;
    for (size_t d = 0; d < over.size(); ++d) {
      names.push_back(fmt::format("{}{}", prefix, d));
      text_.line("for (i64 {0} = 0; {0} < {1}; ++{0}) {{", names.back(), size(over[d]));
    }
    return names;
  }
  void end_loops(size_t n) {
    for (size_t i = 0; i < n; ++i) text_.line("}}");
  }

  /// out = base, or the constant that base is. The first `kept` names are bound outside.
  void copy_base(const std::vector<std::string>& at) {
    std::string from = "0";
    if (operands_[0].base.valid())
      from = fmt::format("in0[{}]", place(at, operands_[0].layout.strides, operands_[0].layout.offset));
    else from = constant_base();
    text_.line("out[{}] = {};", place(at, out_, Dim(0)), from);
  }
  std::string constant_base() const {
    const double v = std::get<double>(g_.nodes[g_.producer(n_.in[0])].attrs[0]);
    return fmt::format("{}({})", type_name(g_.type(n_.out).dtype), attr_str(AttrValue(v)));
  }

  /// Index `text` counted from the end when negative; skipped when out of range.
  void wrapped(const std::string& text, const Dim& extent) {
    text_.line("i64 to = i64({});", text);
    text_.line("if (to < 0) to += {};", size(extent));
    text_.line("if (to < 0 || to >= {}) continue;", size(extent));
  }

  /// x as [outer, size, inner]; a task owns a tile of inner columns of one outer block.
  void index_add(WholeKernel& k) {
    const auto dim = static_cast<size_t>(std::get<int64_t>(n_.attrs[0]));
    const Shape &x = shape(0), &idx = shape(1);
    Shape inner(x.begin() + static_cast<ptrdiff_t>(dim) + 1, x.end());
    const Dim cols = numel(inner);
    const Dim tile = cols.is_const() ? Dim(std::max<int64_t>(16, (cols.value() + 7) / 8)) : Dim(64);
    Shape outer(x.begin(), x.begin() + static_cast<ptrdiff_t>(dim));
    const Dim tiles = ceildiv(cols, tile);
    k.tasks = numel(outer) * tiles;
    pointers();
    text_.line("for (i64 task = task_begin; task < task_end; ++task) {{");
    text_.line("const i64 tiles = ({0} + {1} - 1) / {1}, first = task % tiles * {1};", size(cols),
               size(tile));
    text_.line("const i64 end = {0} - first < {1} ? {0} : first + {1};", size(cols), size(tile));
    std::vector<std::string> at = unravel("task / tiles", outer, "o");
    text_.line("for (i64 r = 0; r < {}; ++r) {{", size(x[dim]));
    text_.line("for (i64 c = first; c < end; ++c) {{");
    std::vector<std::string> in = unravel("c", inner, "c");
    std::vector<std::string> row = at;
    row.push_back("r");
    row.insert(row.end(), in.begin(), in.end());
    copy_base(row);
    end_loops(2);
    const std::vector<std::string> j = loop(idx, "j");
    wrapped(fmt::format("in1[{}]", place(j, operands_[1].layout.strides, operands_[1].layout.offset)),
            x[dim]);
    text_.line("for (i64 c = first; c < end; ++c) {{");
    in = unravel("c", inner, "c");
    std::vector<std::string> src = at;
    src.insert(src.end(), j.begin(), j.end());
    src.insert(src.end(), in.begin(), in.end());
    row = at;
    row.push_back("to");
    row.insert(row.end(), in.begin(), in.end());
    add(row, src);
    end_loops(1 + j.size() + 1);
  }
  void add(const std::vector<std::string>& to, const std::vector<std::string>& from) {
    const std::string at = place(to, out_, Dim(0));
    text_.line("out[{0}] = add(out[{0}], in2[{1}]);", at,
               place(from, operands_[2].layout.strides, operands_[2].layout.offset));
  }
  /// Indices of a linear place over `over`.
  std::vector<std::string> unravel(const std::string& linear, const Shape& over, const char* prefix) {
    std::vector<std::string> names(over.size());
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

  void scatter_add() {
    const auto dim = static_cast<size_t>(std::get<int64_t>(n_.attrs[0]));
    pointers();
    copy_base(loop(shape(0), "i"));
    end_loops(shape(0).size());
    const std::vector<std::string> j = loop(shape(1), "j");
    wrapped(fmt::format("in1[{}]", place(j, operands_[1].layout.strides, operands_[1].layout.offset)),
            shape(0)[dim]);
    std::vector<std::string> to = j;
    to[dim] = "to";
    add(to, j);
    end_loops(j.size());
  }

  void pad() {
    const Shape& low = std::get<Shape>(n_.attrs[0]);
    const auto& gaps = std::get<std::vector<int64_t>>(n_.attrs[2]);
    pointers();
    const std::vector<std::string> all = loop(shape(-1), "i");
    text_.line("out[{}] = {}({});", place(all, out_, Dim(0)), type_name(g_.type(n_.out).dtype),
               attr_str(AttrValue(std::get<double>(n_.attrs[3]))));
    end_loops(all.size());
    const std::vector<std::string> j = loop(shape(0), "j");
    Dim offset(0);
    std::vector<Dim> strides = out_;
    for (size_t d = 0; d < low.size(); ++d) {
      offset = offset + low[d] * out_[d];
      strides[d] = out_[d] * Dim(gaps[d] + 1);
    }
    text_.line("out[{}] = in0[{}];", place(j, strides, offset),
               place(j, operands_[0].layout.strides, operands_[0].layout.offset));
    end_loops(j.size());
  }

  const Graph& g_;
  const Node& n_;
  const std::vector<Operand>& operands_;
  std::vector<Dim> out_;
  DimTable dims_;
  SourceText text_;
};

}  // namespace

WholeKernel lower_whole(const Graph& g, const Node& n, const std::vector<Operand>& operands) {
  return Whole(g, n, operands).write();
}

}  // namespace kiln::detail
