// SPDX-License-Identifier: Apache-2.0
#include "frontend/dispatch.h"

#include "frontend/cursor.h"
#include "frontend/state.h"

namespace kiln::detail {

bool begin_call(const CallInfo& info, std::vector<Tensor>& out) {
  Cursor* c = state().cursor;
  return c && c->follow(info, &out, nullptr);
}

bool follow_single(const CallInfo& info, Tensor& out) {
  Cursor* c = state().cursor;
  return c && c->follow(info, nullptr, &out);
}

void end_call(std::span<const Tensor> results, bool failed) {
  if (Cursor* c = state().cursor) c->end_call(results, failed);
}

std::vector<Tensor> call_scalars(std::span<const Scalar> scalars) {
  if (Cursor* c = state().cursor) return c->call_scalars(scalars);
  std::vector<Tensor> out;
  for (const Scalar& s : scalars) {
    const ImplPtr t = make_impl(s.is_int ? DType::i64 : DType::f64, {});
    if (s.is_int) *static_cast<int64_t*>(t->ref().data) = s.i;
    else *static_cast<double*>(t->ref().data) = s.d;
    out.emplace_back(t);
  }
  return out;
}

Tensor apply(Op o, std::span<const Tensor* const> in, Attrs attrs) {
  if (Cursor* c = state().cursor) return c->emit(o, in, std::move(attrs));
  return eager_apply(o, in, std::move(attrs));
}

Tensor apply(Op o, std::initializer_list<const Tensor*> in, Attrs attrs) {
  return apply(o, std::span<const Tensor* const>(in.begin(), in.size()), std::move(attrs));
}

void assign(const Tensor& target, const Tensor& value) {
  if (Cursor* c = state().cursor) return c->assign(target, value);
  eager_assign(target, value);
}

void check_value(const Tensor& worst, std::string before, std::string after) {
  if (Cursor* c = state().cursor) return c->check_later(worst, std::move(before), std::move(after));
  const int64_t v = worst.item<int64_t>();
  KILN_CHECK(v == kNothingWrong, invalid, "{}{}{}", before, v, after);
}

void note_step(const std::shared_ptr<std::vector<int64_t>>& counts) {
  if (Cursor* c = state().cursor) c->note_step(counts);
}

void materialise(TensorImpl& t, const char* what, SourceLoc loc) {
  if (t.storage) {
    for (Cursor* c = state().open; c; c = c->outer()) c->host_read(t, what, loc);
    return;
  }
  KILN_CHECK(!t.dropped.known(), invalid,
             "dropped: the tensor made at {} was lost when the compiled callable threw", t.dropped.str());
  KILN_CHECK(t.cursor, invalid, "{} ({}): {} has no memory", what, loc.str(), describe(t));
  t.cursor->host_read(t, what, loc);
}

}  // namespace kiln::detail
