// SPDX-License-Identifier: Apache-2.0
#include "frontend/amp.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "frontend/autocast_ops.h"
#include "frontend/device.h"
#include "frontend/ops_detail.h"
#include "frontend/optim/optimizer.h"
#include "frontend/state.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

// --- autocast ---

namespace {

// By the names of events. Source: torch/aten/src/ATen/autocast_mode.h, whose ops for CUDA these are, and
// cuDNN's recurrent layers (ATen/native/cudnn/RNN.cpp). PyTorch composes some functions of its ops that are
// ops here; these take what most of their parts take, and are at the end of their lists.
constexpr std::string_view kLower[] = {"matmul",
                                       "linear",
                                       "mm",
                                       "bmm",
                                       "mv",
                                       "addmm",
                                       "addmv",
                                       "addr",
                                       "addbmm",
                                       "baddbmm",
                                       "einsum",
                                       "conv1d",
                                       "conv2d",
                                       "conv3d",
                                       "conv_transpose1d",
                                       "conv_transpose2d",
                                       "conv_transpose3d",
                                       "prelu",
                                       "attention",
                                       "lstm",
                                       "gru",
                                       "rnn_tanh",
                                       "rnn_relu",
                                       "lstm_cell",
                                       "gru_cell",
                                       "rnn_tanh_cell",
                                       "rnn_relu_cell",
                                       "multi_head_attention_forward"};
constexpr std::string_view kF32[] = {"acos",
                                     "asin",
                                     "cosh",
                                     "erfinv",
                                     "exp",
                                     "expm1",
                                     "log",
                                     "log10",
                                     "log2",
                                     "log1p",
                                     "reciprocal",
                                     "rsqrt",
                                     "sinh",
                                     "tan",
                                     "pow",
                                     "softplus",
                                     "layer_norm",
                                     "rms_norm",
                                     "group_norm",
                                     "cosine_similarity",
                                     "poisson_nll_loss",
                                     "cosine_embedding_loss",
                                     "nll_loss",
                                     "hinge_embedding_loss",
                                     "kl_div",
                                     "l1_loss",
                                     "smooth_l1_loss",
                                     "huber_loss",
                                     "mse_loss",
                                     "margin_ranking_loss",
                                     "multilabel_margin_loss",
                                     "soft_margin_loss",
                                     "triplet_margin_loss",
                                     "multi_margin_loss",
                                     "binary_cross_entropy_with_logits",
                                     "cdist",
                                     "logsumexp",
                                     "interpolate",
                                     "prod",
                                     "sum",
                                     "cumprod",
                                     "cumsum",
                                     "softmax",
                                     "log_softmax",
                                     "vector_norm",
                                     "matrix_norm",
                                     "cross_entropy",
                                     "gaussian_nll_loss",
                                     "multilabel_soft_margin_loss",
                                     "rdiv",  // div of a number by a tensor: torch.Tensor.__rdiv__
                                     "square",
                                     "gumbel_softmax",
                                     "local_response_norm"};
constexpr std::string_view kWidest[] = {"addcdiv", "addcmul",   "atan2",     "bilinear",   "cross",
                                        "dot",     "index_put", "tensordot", "scatter_add"};
constexpr std::string_view kRefused[] = {"binary_cross_entropy"};

const AutocastOp* autocast_op(std::string_view name) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const AutocastOp*> m;
    for (const AutocastOp& o : autocast_ops()) m.emplace(o.name, &o);
    return m;
  }();
  const auto at = by_name.find(name);
  return at == by_name.end() ? nullptr : at->second;
}

/// What autocast may cast: not f64, as in PyTorch.
bool may_cast(const Tensor* t) {
  return t && t->defined() && is_floating(t->dtype()) && t->dtype() != DType::f64;
}

}  // namespace

std::span<const AutocastOp> detail::autocast_ops() {
  static const auto all = [] {
    std::vector<AutocastOp> out;
    for (const std::string_view n : kLower) out.push_back({n, AutocastList::lower});
    for (const std::string_view n : kF32) out.push_back({n, AutocastList::f32});
    for (const std::string_view n : kWidest) out.push_back({n, AutocastList::widest});
    for (const std::string_view n : kRefused) out.push_back({n, AutocastList::refused});
    return out;
  }();
  return all;
}

void Taken::cast(CallInfo& info, bool from_call) {
  if (state().device) return;  // inside an op, whose list it is that counts
  const AutocastOp* op = autocast_op(info.name);
  if (!op) return;
  KILN_CHECK(
      op->list != AutocastList::refused, invalid,
      "{} ({}): its gradients overflow in a half; use binary_cross_entropy_with_logits without a sigmoid "
      "before it (or switch autocast off around it: Autocast(dtype, false))",
      info.name, info.loc.str());
  KILN_ASSERT(from_call, "{} is on a list of autocast, and its body does not take its operands from the call",
              info.name);
  DType to = op->list == AutocastList::f32 ? DType::f32 : *state().autocast;
  if (op->list == AutocastList::widest)
    for (const Tensor* t : info.operands)
      if (may_cast(t)) to = promote_types(to, t->dtype());
  std::vector<const Tensor*> wrong;
  for (const Tensor* t : info.operands)
    if (may_cast(t) && t->dtype() != to) wrong.push_back(t);
  if (wrong.empty()) return;
  // One event for all, so that what looks at ops finds an op's parameters together and in their order.
  const int64_t ints[] = {static_cast<int64_t>(to)};
  cast_ = call_many("autocast", info.loc, wrong, ints, {}, [&](const auto&) {
    std::vector<Tensor> out;
    for (const Tensor* t : wrong) out.push_back(cast_to(*t, to));
    return out;
  });
  operands_.assign(info.operands.begin(), info.operands.end());
  size_t next = 0;
  for (const Tensor*& t : operands_)
    if (next < wrong.size() && wrong[next] == t) t = &cast_[next++];
  info.operands = operands_;
}

Autocast::Autocast(DType dtype, bool enabled, Loc loc) : previous_(state().autocast) {
  KILN_CHECK(dtype == DType::bf16 || dtype == DType::f16, invalid,
             "Autocast ({}): got {}, expected bf16 or f16", loc.str(), dtype_name(dtype));
  state().autocast = enabled ? std::optional(dtype) : std::nullopt;
}
Autocast::~Autocast() { state().autocast = previous_; }
bool is_autocast_enabled() { return state().autocast.has_value(); }

// --- GradScaler ---

namespace {

/// No event of a compiled callable, which may run when it is made.
Tensor number_on(float value, Device device) {
  const Tensor t = Tensor::from_vector<float>({value}, {});
  return Tensor(transferred(*t.impl(), device));
}

/// Whether any element of `x` is infinite or NaN: 1 or 0, 0-d f32.
Tensor overflows(const Tensor& x, Loc loc) {
  const Tensor wide = cast_to(x, DType::f32);
  const Tensor finite = binary(op("lt"), unary(op("abs"), wide), lit(wide, INFINITY));
  const Tensor bad = cast_to(unary(op("logical_not"), finite), DType::f32);
  return reduce(op("amax"), bad, wrap_dims({}, bad.dim(), "GradScaler.unscale_", loc), false);
}

}  // namespace

namespace {
void check_scaling(const GradScalerOptions& o, const char* name, Loc loc) {
  KILN_CHECK(o.growth_factor > 1 && o.backoff_factor < 1 && o.growth_interval > 0 && o.init_scale > 0,
             invalid,
             "{} ({}): got growth_factor {}, backoff_factor {}, growth_interval {} and init_scale {}; "
             "expected more than 1, less than 1, and both above 0",
             name, loc.str(), o.growth_factor, o.backoff_factor, o.growth_interval, o.init_scale);
}
}  // namespace

GradScaler::GradScaler(const GradScalerOptions& o, std::optional<Device> device, Loc loc) : options_(o) {
  check_scaling(o, "GradScaler", loc);
  if (o.enabled && device) settle(*device, "constructor", loc);
}

void GradScaler::settle(Device device, const char* what, Loc loc) {
  if (!scale_.defined()) {
    scale_ = number_on(static_cast<float>(options_.init_scale), device);
    tracker_ = number_on(static_cast<float>(first_tracker_), device);
  }
  KILN_CHECK(scale_.device() == device, invalid,
             "GradScaler.{} ({}): got a tensor on {}, and this scaler is for {} (one scaler for each device)",
             what, loc.str(), device.str(), scale_.device().str());
}

Tensor GradScaler::scale(const Tensor& loss, Loc loc) {
  require(loss, "GradScaler.scale", loc, "loss");
  if (!options_.enabled) return loss;
  settle(loss.device(), "scale", loc);
  return mul({loss, loc}, {scale_, loc});
}

void GradScaler::unscale_(optim::Optimizer& optimizer, Loc loc) {
  if (!options_.enabled) return;
  Known& k = known_[&optimizer];
  KILN_CHECK(!k.stepped, invalid, "GradScaler.unscale_ ({}): comes after step() (call update() first)",
             loc.str());
  KILN_CHECK(!k.unscaled, invalid, "GradScaler.unscale_ ({}): was called before (call update() first)",
             loc.str());
  std::vector<Tensor> grads;
  for (const Tensor& p : optimizer.params())
    if (p.grad().defined()) grads.push_back(p.grad());
  KILN_CHECK(!grads.empty(), invalid, "GradScaler.unscale_ ({}): no parameter has a gradient", loc.str());
  for (const Tensor& g : grads) settle(g.device(), "unscale_", loc);
  if (!k.overflow.defined()) k.overflow = number_on(0, scale_.device());
  std::vector<const Tensor*> operands{&scale_, &k.overflow};
  for (const Tensor& g : grads) {
    KILN_CHECK(g.dtype() != DType::f16, invalid,
               "GradScaler.unscale_ ({}): got a gradient {}; gradients in f16 have lost what scaling is to "
               "keep (leave parameters in f32, under Autocast)",
               loc.str(), g.type_str());
    operands.push_back(&g);
  }
  NoGrad guard;
  call_many("GradScaler.unscale_", loc, operands, {}, {}, [&](const auto&) {
    const Tensor inverse = unary(op("reciprocal"), scale_);
    Tensor any = lit(scale_, 0);
    for (const Tensor& g : grads)
      if (g.numel() > 0) any = binary(op("maximum"), any, overflows(g, loc));
    for (const Tensor& g : grads) assign(g, cast_to(mul2(cast_to(g, DType::f32), inverse), g.dtype()));
    assign(k.overflow, any);
    return std::vector<Tensor>{};
  });
  k.unscaled = true;
}

void GradScaler::step(optim::Optimizer& optimizer, Loc loc) {
  if (!options_.enabled) return optimizer.step(loc);
  Known& k = known_[&optimizer];
  KILN_CHECK(!k.stepped, invalid, "GradScaler.step ({}): was called before (call update() first)", loc.str());
  if (!k.unscaled) unscale_(optimizer, loc);
  optimizer.step_unless(k.overflow, loc);
  k.stepped = true;
}

void GradScaler::end_iteration() {
  for (auto& [optimizer, k] : known_) k.unscaled = k.stepped = false;
}

void GradScaler::update(Loc loc) {
  if (!options_.enabled) return;
  std::vector<const Tensor*> operands{&scale_, &tracker_};
  std::vector<const Tensor*> found;
  for (const auto& [optimizer, k] : known_)
    if (k.unscaled) found.push_back(&k.overflow);
  KILN_CHECK(!found.empty(), invalid,
             "GradScaler.update ({}): no gradient was looked at since the last one (call step() first)",
             loc.str());
  operands.insert(operands.end(), found.begin(), found.end());
  const std::vector<Scalar> numbers{options_.growth_factor, options_.backoff_factor,
                                    static_cast<double>(options_.growth_interval)};
  NoGrad guard;
  call_many("GradScaler.update", loc, operands, {}, numbers, [&](const std::vector<Tensor>& s) {
    const auto number = [&](size_t i) { return cast_to(s[i], DType::f32); };
    Tensor any = *found[0];
    for (size_t i = 1; i < found.size(); ++i) any = binary(op("maximum"), any, *found[i]);
    const Tensor zero = lit(scale_, 0), bad = binary(op("gt"), any, zero);
    const Tensor clean = add2(tracker_, lit(tracker_, 1)), grown = mul2(scale_, number(0));
    const Tensor due = binary(op("ge"), clean, number(2));
    const Tensor finite = binary(op("lt"), grown, lit(grown, INFINITY));
    const Tensor larger = select3(binary(op("logical_and"), due, finite), grown, scale_);
    const Tensor next = select3(bad, mul2(scale_, number(1)), larger);
    const Tensor count = select3(binary(op("logical_or"), bad, due), zero, clean);
    assign(scale_, next);
    assign(tracker_, count);
    return std::vector<Tensor>{};
  });
  end_iteration();
}

void GradScaler::update(double new_scale, Loc loc) {
  if (!options_.enabled) return;
  KILN_CHECK(new_scale > 0, invalid, "GradScaler.update ({}): got scale {}, expected one above 0", loc.str(),
             new_scale);
  if (scale_.defined()) {
    NoGrad guard;
    scale_.fill_(new_scale, loc);
  } else {
    options_.init_scale = new_scale;
  }
  end_iteration();
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1;
  return scale_.defined() ? static_cast<double>(scale_.item<float>()) : options_.init_scale;
}
double GradScaler::tracker() const {
  return tracker_.defined() ? static_cast<double>(tracker_.item<float>()) : first_tracker_;
}

NamedTensors GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  const auto number = [](double v) { return Tensor::from_vector<double>({v}, {}); };
  return {{"scale", number(get_scale())},
          {"growth_factor", number(options_.growth_factor)},
          {"backoff_factor", number(options_.backoff_factor)},
          {"growth_interval", number(static_cast<double>(options_.growth_interval))},
          {"_growth_tracker", number(tracker())}};
}

void GradScaler::load_state_dict(const NamedTensors& state, Loc loc) {
  if (!options_.enabled) return;
  const NamedTensors own = state_dict();
  std::map<std::string, double> given;
  for (const auto& [name, t] : state) {
    KILN_CHECK(t.defined() && t.numel() == 1, invalid, "GradScaler.load_state_dict ({}): {} is {}, no number",
               loc.str(), name, t.type_str());
    given[name] = t.to(DType::f64).reshape({}).item<double>();
  }
  bool fits = given.size() == own.size();
  for (const auto& [name, t] : own) fits = fits && given.count(name) > 0;
  std::string names;
  for (const auto& [name, t] : own) names += (names.empty() ? "" : ", ") + name;
  KILN_CHECK(fits, invalid, "GradScaler.load_state_dict ({}): got {} names, expected {}", loc.str(),
             given.size(), names);
  GradScalerOptions loaded = options_;
  loaded.growth_factor = given["growth_factor"];
  loaded.backoff_factor = given["backoff_factor"];
  loaded.growth_interval = static_cast<int64_t>(given["growth_interval"]);
  loaded.init_scale = given["scale"];
  check_scaling(loaded, "GradScaler.load_state_dict", loc);
  const double tracker = given["_growth_tracker"];
  KILN_CHECK(tracker >= 0 && tracker == std::trunc(tracker), invalid,
             "GradScaler.load_state_dict ({}): _growth_tracker is {}, expected a whole number, at least 0",
             loc.str(), tracker);
  options_ = loaded;
  first_tracker_ = tracker;
  if (!scale_.defined()) return;
  NoGrad guard;
  scale_.fill_(options_.init_scale, loc);
  tracker_.fill_(first_tracker_, loc);
}

}  // namespace kiln
