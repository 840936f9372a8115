// SPDX-License-Identifier: Apache-2.0
// Groups, hyper-parameters by name, and the event of a step. Loading and saving: optimizer_state.cpp.
#include "frontend/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "frontend/dispatch.h"
#include "frontend/frozen.h"
#include "frontend/ops_detail.h"
#include "frontend/state.h"

namespace kiln::optim {

using namespace kiln::detail;  // NOLINT: the update bodies are written in its vocabulary

LearningRate& LearningRate::operator=(double rate) {
  for (size_t g = 0; g < owner_.group_count(); ++g) owner_.set(g, "lr", rate);
  return *this;
}

LearningRate::operator double() const {
  const double first = owner_.get(0, "lr");
  for (size_t g = 1; g < owner_.group_count(); ++g) {
    const double other = owner_.get(g, "lr");
    KILN_CHECK(other == first, invalid,
               "Optimizer::lr: groups have learning rates of their own; got {} and {} (read them by "
               "get(group, \"lr\"))",
               first, other);
  }
  return first;
}

double Hyper::get() const {
  return std::visit([](auto* m) { return static_cast<double>(*m); }, member);
}

bool Hyper::takes(double value) const {
  if (std::holds_alternative<double*>(member)) return true;
  if (std::holds_alternative<bool*>(member)) return value == 0 || value == 1;
  return std::abs(value) < 0x1p53 && value == std::trunc(value);
}

const char* Hyper::expected() const {
  return std::holds_alternative<bool*>(member) ? "0 or 1" : "a whole number";
}

void Hyper::set(double value) const {
  std::visit([&](auto* m) { *m = static_cast<std::remove_reference_t<decltype(*m)>>(value); }, member);
}

Optimizer::Optimizer(const char* event)
    : event_(event),
      state_(std::make_shared<std::vector<std::vector<Tensor>>>()),
      progress_(std::make_shared<std::vector<Progress>>()),
      counts_(std::make_shared<std::vector<DeviceCounts>>()) {}

std::string_view Optimizer::name() const {
  const std::string_view event = event_;
  return event.substr(0, event.find('.'));
}

void Optimizer::add_group(std::vector<Tensor> params) {
  KILN_CHECK(!params.empty(), invalid,
             "{}: no parameters; a module's parameters() has those given to register_parameter, and those of "
             "modules given to register_module",
             name());
  std::vector<Tensor> all = params_;
  all.insert(all.end(), params.begin(), params.end());
  for (const Tensor& p : params) {
    KILN_CHECK(p.defined() && p.is_leaf() && is_floating(p.dtype()), invalid,
               "Optimizer: got {}, expected leaf tensors of a floating dtype", p.type_str());
    const auto same = [&](const Tensor& q) { return q.impl() == p.impl(); };
    KILN_CHECK(std::count_if(all.begin(), all.end(), same) == 1, invalid,
               "Optimizer: parameter {} '{}' is given twice", p.type_str(), p.name());
  }
  groups_.push_back({params_.size(), params.size(), {}});
  params_ = std::move(all);
  state_->resize(params_.size());
  progress_->resize(params_.size());
}

void Optimizer::zero_grad(bool set_to_none) {
  for (Tensor& p : params_) {
    if (set_to_none) p.set_grad({});
    else if (p.grad().defined()) p.grad().zero_();
  }
}

void Optimizer::check_group(size_t group, const char* what, Loc loc) const {
  KILN_CHECK(group < groups_.size(), invalid, "Optimizer::{} ({}): no group {}; there are {}", what,
             loc.str(), group, groups_.size());
}

std::optional<double>& Optimizer::initial_lr(size_t group, Loc loc) {
  check_group(group, "initial_lr", loc);
  return groups_[group].initial_lr;
}

int64_t Optimizer::step_count(size_t param, Loc loc) const {
  KILN_CHECK(param < params_.size(), invalid, "Optimizer::step_count ({}): no parameter {}; there are {}",
             loc.str(), param, params_.size());
  read_counts();
  return (*progress_)[param].step;
}

void Optimizer::check_options_of(size_t group, const char* what, Loc loc) const {
  try {
    check_options(group);
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("{} ({}): {}", what, loc.str(), e.what()), loc);
  }
}

std::span<const Tensor> Optimizer::group_params(size_t group, Loc loc) const {
  check_group(group, "group_params", loc);
  const Group& g = groups_[group];
  return std::span<const Tensor>(params_).subspan(g.first, g.count);
}

size_t Optimizer::group_of(size_t param) const {
  size_t g = 0;
  while (param >= groups_[g].first + groups_[g].count) ++g;
  return g;
}

std::vector<Hyper> Optimizer::const_hypers(size_t group) const {
  // Reading through it changes nothing.
  return const_cast<Optimizer*>(this)->hypers(group);  // NOLINT
}

namespace {
const Hyper* find_hyper(const std::vector<Hyper>& all, std::string_view name) {
  const auto it = std::find_if(all.begin(), all.end(), [&](const Hyper& h) { return h.name == name; });
  return it == all.end() ? nullptr : &*it;
}

const Hyper& checked_hyper(const std::vector<Hyper>& all, std::string_view name, const char* what,
                           std::string_view optimizer, Loc loc) {
  const Hyper* h = find_hyper(all, name);
  if (h) return *h;
  std::vector<const char*> names;
  names.reserve(all.size());
  for (const Hyper& x : all) names.push_back(x.name);
  throw Error(ErrorKind::invalid, fmt::format("Optimizer::{} ({}): {} has no hyper-parameter '{}'; it has {}",
                                              what, loc.str(), optimizer, name, fmt::join(names, ", ")));
}

/// Ops run at once while it lives, also inside a compiled callable.
class AtOnce {
 public:
  AtOnce() : cursor_(std::exchange(state().cursor, nullptr)) {}
  ~AtOnce() { state().cursor = cursor_; }
  AtOnce(const AtOnce&) = delete;
  AtOnce& operator=(const AtOnce&) = delete;

 private:
  Cursor* cursor_;
};
}  // namespace

double Optimizer::get(size_t group, std::string_view name, Loc loc) const {
  check_group(group, "get", loc);
  return checked_hyper(const_hypers(group), name, "get", this->name(), loc).get();
}

void Optimizer::set(size_t group, std::string_view name, double value, Loc loc) {
  check_group(group, "set", loc);
  const std::vector<Hyper> all = hypers(group);
  const Hyper& hyper = checked_hyper(all, name, "set", this->name(), loc);
  KILN_CHECK(hyper.takes(value), invalid, "Optimizer::set ({}): {} is {}, expected {}", loc.str(), name,
             value, hyper.expected());
  const double before = hyper.get();
  hyper.set(value);
  try {
    check_options_of(group, "Optimizer::set", loc);
  } catch (const Error&) {
    hyper.set(before);
    throw;
  }
}

bool Optimizer::has(std::string_view name) const { return find_hyper(const_hypers(0), name) != nullptr; }

/// A parameter that takes the step: where its operands are (parameter, gradient, state), and by which numbers
/// it steps, a place in Step::paces.
struct Optimizer::Row {
  size_t group, param, first_operand, pace = 0;
};

/// Parameters that take the step by the same numbers. Those are the event's, or, where the device counts, are
/// computed from its counts and the event's numbers, which are the hyper-parameters.
struct Optimizer::Paced {
  size_t group, first_number, number_count;
  DeviceCounts counts = {};
  bool with_state = false;
};

struct Optimizer::Step {
  Step(const Tensor& skip, size_t params) : skip(skip) {
    rows.reserve(params);
    gradients.reserve(params);
    operands.reserve(5 * params);
    after.reserve(params);
  }
  Tensor skip;
  std::vector<Row> rows;
  std::vector<Tensor> gradients;        ///< of each row; never more than what is reserved
  std::vector<const Tensor*> operands;  ///< of all rows, and then those of all
  std::vector<Progress> after;          ///< of each row, where the host counts
  std::vector<Paced> paces;
  std::vector<int64_t> ints;
  std::vector<Scalar> numbers;
};

void Optimizer::make_state(size_t group, size_t param, Loc loc) {
  const Tensor& p = params_[param];
  const std::vector<StateSpec> all = specs(group, p);
  std::vector<Tensor>& own = state_of(param);
  own.resize(all.size());
  for (size_t k = 0; k < all.size(); ++k) {
    const StateSpec& spec = all[k];
    const Tensor& t = own[k];
    if (t.defined()) {
      KILN_CHECK(
          t.dtype() == p.dtype() && t.sizes() == (spec.sizes ? *spec.sizes : p.sizes()) &&
              t.device() == p.device(),
          invalid,
          "{} ({}): parameter {} is {}, but its state '{}' is {}{} (make the optimizer after Module::to)",
          event_, loc.str(), param, describe(*p.impl()), spec.name, t.type_str(),
          p.is_cuda() && !t.is_cuda() ? " on cpu" : "");
    } else if (spec.needed) {
      note_count([state = state_, param, k] { (*state)[param][k] = {}; });
      const AtOnce now;
      own[k] = full(spec.sizes.value_or(p.sizes()), spec.initial, {p.dtype(), false, p.device()});
    }
  }
}

void Optimizer::gather(size_t group, Step& step, Loc loc) {
  const size_t begin = step.rows.size();
  const Group& g = groups_[group];
  for (size_t i = g.first; i < g.first + g.count; ++i) {
    Tensor gradient = params_[i].grad();
    if (!gradient.defined()) continue;
    make_state(group, i, loc);
    step.rows.push_back({group, i, step.operands.size()});
    step.gradients.push_back(std::move(gradient));
    step.operands.insert(step.operands.end(), {&params_[i], &step.gradients.back()});
    for (const Tensor& t : state_of(i)) step.operands.push_back(&t);
  }
  step.ints.push_back(static_cast<int64_t>(step.rows.size() - begin));
  if (counts_->empty()) pace_on_host(group, begin, step);
  else pace_on_device(group, begin, step);
  const std::vector<int64_t> how = modes(group);
  step.ints.insert(step.ints.end(), how.begin(), how.end());
}

namespace {
bool any_defined(const std::vector<Tensor>& state) {
  return std::any_of(state.begin(), state.end(), [](const Tensor& t) { return t.defined(); });
}
}  // namespace

void Optimizer::pace_on_host(size_t group, size_t begin, Step& step) const {
  // Parameters that have come equally far share their numbers; if some have not, each has its own, so that
  // what is recorded does not depend on how far each one is.
  const auto before = [&](size_t r) -> const Progress& { return (*progress_)[step.rows[r].param]; };
  bool shared = true;
  step.after.reserve(step.rows.size());
  for (size_t r = begin; r < step.rows.size(); ++r) shared = shared && alike(group, before(r), before(begin));
  for (size_t r = begin; r < step.rows.size(); ++r) {
    Row& row = step.rows[r];
    Progress next = before(r);
    ++next.step;
    if (any_defined(state_of(row.param))) ++next.with_state;
    if (shared && r > begin) {
      next.numbers = step.after[begin].numbers;
    } else {
      Pace pace{static_cast<double>(next.step),
                static_cast<double>(next.with_state),
                {next.numbers[0], next.numbers[1]}};
      const std::vector<Number> numbers = take_step(group, pace);
      step.paces.push_back({group, step.numbers.size(), numbers.size()});
      for (const Number& n : numbers) step.numbers.emplace_back(n.value);
      next.numbers = {pace.numbers[0].value, pace.numbers[1].value};
    }
    row.pace = step.paces.size() - 1;
    step.after.push_back(next);
  }
  step.ints.push_back(shared);
}

void Optimizer::pace_on_device(size_t group, size_t begin, Step& step) {
  const size_t first_number = step.numbers.size(), first_pace = step.paces.size();
  for (const Hyper& h : const_hypers(group)) step.numbers.emplace_back(h.get());
  std::map<DeviceCounts, size_t> stepping;
  for (size_t r = begin; r < step.rows.size(); ++r) ++stepping[(*counts_)[step.rows[r].param]];
  std::map<DeviceCounts, size_t> places;
  for (size_t r = begin; r < step.rows.size(); ++r) {
    Row& row = step.rows[r];
    DeviceCounts& counts = (*counts_)[row.param];
    const auto [at, is_new] = places.emplace(counts, step.paces.size());
    row.pace = at->second;
    step.ints.push_back(static_cast<int64_t>(row.pace - first_pace));
    if (is_new) {
      Paced paced{group, first_number, step.numbers.size() - first_number, counts};
      paced.with_state = any_defined(state_of(row.param));
      if (static_cast<size_t>(std::count(counts_->begin(), counts_->end(), counts)) > stepping[counts]) {
        // The others stay behind: these count on by themselves.
        const AtOnce now;
        std::vector<Tensor> own;
        for (const Tensor& t : *counts) own.push_back(t.clone());
        paced.counts = std::make_shared<const std::vector<Tensor>>(std::move(own));
      }
      step.paces.push_back(paced);
    }
    counts = step.paces[row.pace].counts;
  }
}

namespace {
/// `now`, or `before` where the step is skipped.
Tensor unless(const Tensor& skipped, const Tensor& before, const Tensor& now) {
  return skipped.defined() ? select3(expand_to(skipped, before.sizes()), before, now) : now;
}
}  // namespace

void Optimizer::apply_update(const Row& row, const Step& step, const std::vector<Tensor>& numbers,
                             const Tensor& skipped) const {
  const size_t count = 2 + state_of(row.param).size();
  const Operands operands = Operands(step.operands).subspan(row.first_operand, count);
  const DType stored = operands[0]->dtype();
  const DType wide = stored == DType::f16 || stored == DType::bf16 ? DType::f32 : stored;
  std::vector<Tensor> in;
  for (const Tensor* t : operands) in.push_back(t->defined() ? cast_to(*t, wide) : Tensor());
  Update u{in[0], in[1], {in.begin() + 2, in.end()}, {}};
  for (const Tensor& n : numbers) u.numbers.push_back(cast_to(n, wide));
  update(row.group, u);
  const auto store = [&](const Tensor& to, const Tensor& from, const Tensor& now) {
    if (now.impl() != from.impl()) assign(to, unless(skipped, to, cast_to(now, stored)));
  };
  for (size_t k = 0; k < u.state.size(); ++k)
    if (u.state[k].defined()) store(*operands[2 + k], in[2 + k], u.state[k]);
  store(*operands[0], in[0], u.param);
}

Pace Optimizer::pace_of(const Paced& paced, const std::vector<Tensor>& scalars) const {
  const std::vector<Tensor>& counts = *paced.counts;
  const Number with_state(counts[1]);
  Pace p{Number(counts[0]) + 1, paced.with_state ? with_state + 1 : with_state, {}};
  for (size_t k = 2; k < counts.size(); ++k) p.numbers.at(k - 2) = Number(counts[k]);
  const std::vector<Hyper> all = const_hypers(paced.group);
  for (size_t k = 0; k < all.size(); ++k)
    if (const auto* member = std::get_if<double*>(&all[k].member))
      p.hypers.emplace_back(*member, scalars[paced.first_number + k]);
  return p;
}

void Optimizer::run(const Step& step, const std::vector<Tensor>& scalars) const {
  const Tensor skipped = step.skip.defined() ? binary(op("ne"), step.skip, lit(step.skip, 0)) : Tensor();
  std::vector<std::vector<Tensor>> numbers;
  std::vector<Pace> after;
  for (const Paced& paced : step.paces) {
    const auto first = scalars.begin() + static_cast<std::ptrdiff_t>(paced.first_number);
    numbers.emplace_back(first, first + static_cast<std::ptrdiff_t>(paced.number_count));
    if (!paced.counts) continue;
    after.push_back(pace_of(paced, scalars));
    numbers.back().clear();
    for (const Number& n : take_step(paced.group, after.back())) {
      KILN_ASSERT(!n.on_host(), "{}: a number of the step is a constant", event_);
      numbers.back().push_back(n.tensor);
    }
  }
  for (const Row& row : step.rows) apply_update(row, step, numbers[row.pace], skipped);
  for (size_t i = 0; i < after.size(); ++i) {
    const std::vector<Tensor>& counts = *step.paces[i].counts;
    const Number now[] = {after[i].step, after[i].with_state, after[i].numbers[0], after[i].numbers[1]};
    for (size_t k = 0; k < counts.size(); ++k)
      if (now[k].tensor.impl() != counts[k].impl())
        assign(counts[k], unless(skipped, counts[k], now[k].tensor));
  }
}

void Optimizer::count_on_device() {
  const size_t known = counts_->size();
  if (known == params_.size()) return;
  note_count([counts = counts_, known] { counts->resize(known); });
  const AtOnce now;
  for (size_t i = known; i < params_.size(); ++i) {
    const Progress& p = (*progress_)[i];
    const size_t begin = std::max(groups_[group_of(i)].first, known);
    size_t same = begin;
    while (!((*progress_)[same] == p)) ++same;
    if (same < i) {
      counts_->push_back((*counts_)[same]);
      continue;
    }
    std::vector<double> values{static_cast<double>(p.step), static_cast<double>(p.with_state)};
    values.insert(values.end(), p.numbers.begin(), p.numbers.begin() + host_state().size());
    std::vector<Tensor> counts;
    for (const double v : values) counts.push_back(full({}, v, {DType::f64, false, params_[i].device()}));
    counts_->push_back(std::make_shared<const std::vector<Tensor>>(std::move(counts)));
  }
}

void Optimizer::read_counts() const {
  std::map<DeviceCounts, Progress> known;
  for (size_t i = 0; i < counts_->size(); ++i) {
    const auto [at, is_new] = known.emplace((*counts_)[i], Progress{});
    if (is_new) {
      const std::vector<Tensor>& counts = *at->first;
      at->second.step = static_cast<int64_t>(counts[0].item<double>());
      at->second.with_state = static_cast<int64_t>(counts[1].item<double>());
      for (size_t k = 2; k < counts.size(); ++k) at->second.numbers.at(k - 2) = counts[k].item<double>();
    }
    (*progress_)[i] = at->second;
  }
}

void Optimizer::step(Loc loc) { take({}, loc); }

void Optimizer::step_unless(const Tensor& skip, Loc loc) {
  if (counts_->empty()) count_on_device();
  take(skip, loc);
}

void Optimizer::take(const Tensor& skip, Loc loc) {
  for (size_t g = 0; g < groups_.size(); ++g) check_options_of(g, event_, loc);
  ++step_calls_;
  const NoGrad guard;
  Step step(skip, params_.size());
  const bool on_device = !counts_->empty();
  if (on_device) count_on_device();
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!on_device && !may_freeze(g)) forbid_frozen("steps of ", name());
    gather(g, step, loc);
  }
  if (step.rows.empty()) return;
  for (const Paced& paced : step.paces)
    if (paced.counts)
      for (const Tensor& t : *paced.counts) step.operands.push_back(&t);
  if (skip.defined()) step.operands.push_back(&skip);
  call_many(event_, loc, step.operands, step.ints, step.numbers, [&](const std::vector<Tensor>& scalars) {
    run(step, scalars);
    return std::vector<Tensor>{};
  });
  if (on_device) return;
  note_count(
      [all = progress_, before = *progress_] { std::copy(before.begin(), before.end(), all->begin()); });
  for (size_t r = 0; r < step.rows.size(); ++r) (*progress_)[step.rows[r].param] = step.after[r];
}

}  // namespace kiln::optim
