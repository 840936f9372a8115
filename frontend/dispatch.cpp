// SPDX-License-Identifier: Apache-2.0
#include "frontend/dispatch.h"

#include "frontend/cursor.h"
#include "frontend/device.h"
#include "frontend/state.h"
#include "frontend/views.h"

namespace kiln::detail {

namespace {
/// "f32[2,3] 'fc1.weight' on cpu".
std::string with_device(const TensorImpl& t) {
  return t.type().str() + (t.name.empty() ? "" : fmt::format(" '{}'", t.name)) + " on " + t.device.str();
}
}  // namespace

Device device_of(const CallInfo& info) {
  const TensorImpl* lead = nullptr;
  for (const Tensor* t : info.operands) {
    if (!t || !t->defined()) continue;
    const TensorImpl& x = *t->impl();
    if (!lead || (is_number(*lead) && !is_number(x))) lead = &x;
    const int gpu = lead->device.is_cuda() ? lead->device.index : x.device.index;
    KILN_CHECK(x.device == lead->device || is_number(x), invalid,
               "{} ({}): the tensors are on different devices; got {} and {} (move one, e.g. with "
               ".to(Device::cuda({})))",
               info.name, info.loc.str(), with_device(*lead), with_device(x), gpu);
  }
  return lead ? lead->device : info.device;
}

DeviceScope::DeviceScope(Device device) : previous_(state().device) {
  if (!previous_ || device.is_cuda()) state().device = device;
}
DeviceScope::~DeviceScope() { state().device = previous_; }

const Tensor& operand(Operands operands, size_t i) {
  static const Tensor absent;
  KILN_ASSERT(i < operands.size(), "a body takes more operands than the {} of its call", operands.size());
  return operands[i] ? *operands[i] : absent;
}

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

void fail_call(const CallInfo& info) {
  end_call({}, true);
  try {
    throw;
  } catch (const SizeOverflow& e) {
    if (e.where().known()) throw;
    std::string given;
    for (const Tensor* t : info.operands)
      if (t && t->defined()) given += (given.empty() ? "; got " : " and ") + describe(*t->impl());
    throw Error(e.kind(), fmt::format("{}: {}{}", state().place(), e.what(), given), state().user_loc());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::device, fmt::format("{}: out of memory", state().place()), state().user_loc());
  }
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
  KILN_CHECK(!shares_elements(*target.impl()), invalid,
             "{}: more than one element of {} refers to a single memory location (write to a copy of it)",
             state().place(), describe(*target.impl()));
  if (Cursor* c = state().cursor) return c->assign(target, value);
  eager_assign(target, value);
}

void ValueCheck::require(int64_t found, const std::string& late) const {
  if (found == kNothingWrong) return;
  const Error wrong(ErrorKind::invalid,
                    fmt::format("{}{}{}{}", before, found == least ? INT64_MIN : found, after, late));
  throw module.empty() ? wrong : wrong.in(module);
}

void check_value(const Tensor& worst, std::string before, std::string after, std::optional<int64_t> least) {
  ValueCheck check{{}, std::move(before), std::move(after), least, state().module_path()};
  if (Cursor* c = state().cursor) return c->check_later(worst, std::move(check));
  check.require(worst.item<int64_t>());
}

void note_count(std::function<void()> undo) {
  if (Cursor* c = state().cursor) c->note_count(std::move(undo));
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
