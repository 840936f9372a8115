// SPDX-License-Identifier: Apache-2.0
// Ops that reach beyond this process: collectives. Their reference evaluation asks the host functions.
#include <cstring>

#include "ir/base/wire.h"
#include "ir/bucket_layout.h"
#include "ir/interpret.h"
#include "ir/ops/rules.h"

namespace kiln {

namespace {

using namespace rules;  // NOLINT: the rows are written in terms of its words

constexpr AttrDef group_attrs[] = {{"group", AttrKind::integer}, {"wire", AttrKind::dtype}};

/// Shapes: [...] of each -> [n], of all. Throws: invalid, on no operands, dtypes that differ or are not
/// floating, and a wire that is none.
Type all_reduce_infer(const InferArgs& a) {
  if (a.in.empty()) a.fail("needs at least one operand");
  for (size_t i = 0; i < a.in.size(); ++i) {
    want_floating(a, i);
    if (a.in[i].dtype != a.in[0].dtype)
      a.fail("operands of one dtype; got {} and {}", a.in[0].str(), a.in[i].str());
  }
  if (integer(a.attrs, 0) < 0)
    a.fail("group {}, expected a place in the list of groups", integer(a.attrs, 0));
  const DType wire = dtype(a.attrs, 1);
  if (wire != a.in[0].dtype && !is_wire(wire))
    a.fail("{} is sent as it is, or as f16 or bf16; got wire={}", a.in[0].str(), dtype_name(wire));
  return {a.in[0].dtype, {bucket_layout(a.in).total}};
}

void all_reduce_eval(const EvalArgs& a) {
  std::vector<Type> types;
  for (const TensorRef& t : a.in) types.push_back({t.dtype, Shape(t.shape.begin(), t.shape.end())});
  const BucketLayout layout = bucket_layout(types);
  const TensorRef& out = a.out[0];
  const size_t size = dtype_size(out.dtype);
  std::memset(out.data, 0, static_cast<size_t>(out.numel()) * size);
  for (size_t i = 0; i < a.in.size(); ++i) {
    char* at = static_cast<char*>(out.data) + layout.offsets[i].value() * static_cast<int64_t>(size);
    copy_elements(a.in[i], {out.dtype, at, a.in[i].shape, contiguous_strides(a.in[i].shape)});
  }
  host_functions().all_reduce(integer(a.attrs, 0), dtype(a.attrs, 1), out);
}

/// The sum's gradient at each rank is the sum of the ranks' gradients, the mean's their mean.
std::vector<Value> all_reduce_grad(const GradArgs& a) {
  std::vector<Type> types;
  for (Value v : a.in) types.push_back(a.b.type(v));
  const BucketLayout layout = bucket_layout(types);
  const auto pieces = [&](Value flat) {
    std::vector<Value> out;
    for (size_t i = 0; i < types.size(); ++i) {
      const Dim from = layout.offsets[i];
      const Value piece = a.b.emit(
          op("slice"), {flat}, {Shape{from}, Shape{from + numel(types[i].shape)}, std::vector<int64_t>{1}});
      out.push_back(a.b.reshape(piece, types[i].shape));
    }
    return out;
  };
  return pieces(a.b.emit(op("all_reduce"), pieces(a.grad[0]), a.attrs));
}

// clang-format off
constinit const OpDef rows[] = {
    {.name = "all_reduce", .kind = OpKind::effect, .attrs = group_attrs, .inputs = -1,
     .infer = all_reduce_infer, .grad = all_reduce_grad, .eval = all_reduce_eval,
     .doc = "Sum over the ranks of a group; where `wire` is another dtype than theirs, the mean, made in it: "
            "ProcessGroup::all_reduce_mean. The operands lie in the flat result as bucket_layout says; what "
            "is between them is unspecified.",
     .source = "torch.distributed.all_reduce_coalesced"},
};
// clang-format on

}  // namespace

std::span<const OpDef> effect_ops() { return rows; }

}  // namespace kiln
