// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/distributed_data_parallel.h"

#include <algorithm>
#include <utility>

#include "frontend/communication.h"
#include "frontend/device.h"
#include "frontend/dispatch.h"
#include "frontend/nn/bucket_reducer.h"
#include "frontend/state.h"
#include "ir/base/log.h"
#include "ir/base/text.h"
#include "ir/buckets.h"

namespace kiln::nn {

namespace {

/// Source: DistributedDataParallel's constructor: a cap of one's own is the first bucket's, too.
BucketCaps caps_of(const DistributedDataParallelOptions& o, Loc loc) {
  const auto bytes = [&](double mb) {
    KILN_CHECK(mb > 0 && mb < 0x1p40, invalid,
               "DistributedDataParallel ({}): a bucket cap of {} MiB, expected one above 0", loc.str(), mb);
    return std::max(int64_t{1}, static_cast<int64_t>(mb * (1 << 20)));
  };
  BucketCaps caps;
  if (o.bucket_cap_mb) caps.first = caps.others = bytes(*o.bucket_cap_mb);
  for (double mb : o.bucket_cap_mb_list) caps.list.push_back(bytes(mb));
  return caps;
}

std::optional<DType> wire_of(GradientCompression c) {
  switch (c) {
    case GradientCompression::none: break;
    case GradientCompression::fp16: return DType::f16;
    case GradientCompression::bf16: return DType::bf16;
  }
  return std::nullopt;
}

std::vector<GradientBucket> listed(const Buckets& buckets, const std::vector<BucketParam>& sizes) {
  std::vector<GradientBucket> out;
  for (const std::vector<size_t>& b : buckets.params) {
    out.push_back({0, b});
    for (size_t i : b) out.back().bytes += sizes[i].bytes;
  }
  return out;
}

// What a rank tells the others of its model: lines, of which those that are no parameters begin with a mark.
constexpr char kOther = '+', kFault = '!';
constexpr const char* kTurn = "the constructor";  // of a communicator's
constexpr const char* kRead = "/read";  // behind a rank's key: it has read what it wants to of the others
constexpr Seconds kReading{5};          // that ranks whose models differ give each other for that

/// "fc1.weight f32[4,8]" and "fc1.bias f32[8], frozen", then what else must be equal, then "+buffer steps
/// i64[]" of those that are sent.
std::string text_of(const NamedTensors& parameters, const NamedTensors& buffers,
                    const DistributedDataParallelOptions& o) {
  std::string out;
  for (const auto& [name, t] : parameters)
    out += fmt::format("{} {}{}\n", name, t.impl()->type().str(), t.requires_grad() ? "" : ", frozen");
  out += fmt::format("{}init_sync = {}\n", kOther, o.init_sync);
  out += fmt::format("{}compression = {}\n", kOther, to_string(o.compression));
  const bool on_gpu = !parameters.empty() && parameters[0].second.is_cuda();
  out += fmt::format("{}parameters on {}\n", kOther, on_gpu ? "a GPU" : "the CPU");
  for (const auto& [name, t] : buffers)
    out += fmt::format("{}buffer {} {}\n", kOther, name, t.impl()->type().str());
  return out;
}

/// How two such texts differ.
std::string difference(int rank, const std::string& mine, int peer, const std::string& theirs) {
  const std::vector<std::string> a = kiln::split(mine, '\n'), b = kiln::split(theirs, '\n');
  const auto at =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const auto parameters = [](const std::vector<std::string>& lines) {
    return static_cast<size_t>(
        std::count_if(lines.begin(), lines.end(), [](const std::string& line) { return line[0] != kOther; }));
  };
  const auto say = [&](const std::vector<std::string>& lines) -> std::string {
    if (at < parameters(lines)) return lines[at];
    return at < lines.size() && at >= std::max(parameters(a), parameters(b)) ? lines[at].substr(1)
                                                                             : "nothing";
  };
  if (at >= std::max(parameters(a), parameters(b)))
    return fmt::format("the models differ: rank {} has {}, rank {} has {}", rank, say(a), peer, say(b));
  return fmt::format(
      "the names or sizes of params[{}] differ: rank {} has {} ({} in all), rank {} has {} ({} in all)", at,
      rank, say(a), parameters(a), peer, say(b), parameters(b));
}

std::string ints_text(const std::vector<size_t>& values) { return fmt::format("{}", fmt::join(values, " ")); }

std::vector<size_t> parse_ints(const std::string& text) {
  std::vector<size_t> out;
  for (const std::string& number : kiln::split(text, ' ')) out.push_back(std::stoul(number));
  return out;
}

}  // namespace

const char* to_string(GradientCompression c) {
  switch (c) {
    case GradientCompression::none: return "none";
    case GradientCompression::fp16: return "fp16";
    case GradientCompression::bf16: return "bf16";
  }
  return "compression";
}

/// The parameters' way back to the wrapper.
struct DistributedDataParallel::Observer : detail::GradObserver {
  explicit Observer(DistributedDataParallel& d) : ddp(d) {}
  void ready(const detail::ImplPtr& leaf, const Tensor& gradient, SourceLoc loc) override {
    ddp.ready(*leaf, gradient, loc);
  }
  void compiles(bool begins, SourceLoc loc) override { ddp.compiles(begins, loc); }
  void end(SourceLoc loc) override { ddp.end(loc); }
  void failed(const std::string& why, SourceLoc loc) override { ddp.failed(why, loc); }
  DistributedDataParallel& ddp;
};

DistributedDataParallel::DistributedDataParallel(Module& module, std::shared_ptr<ProcessGroup> group,
                                                 DistributedDataParallelOptions options, Loc loc)
    : module_(module), options_(std::move(options)), wire_(wire_of(options_.compression)) {
  KILN_CHECK(
      group, invalid,
      "DistributedDataParallel ({}): no process group was given, and none has been initialized (join one "
      "first: distributed::init_process_group)",
      loc.str());
  communicator_ = std::make_shared<Communicator>(group);
  NamedTensors all = module.named_parameters(), buffers = module.named_buffers();
  const auto ignored = [&](const auto& p) { return options_.ignore.count(p.first) > 0; };
  std::erase_if(all, ignored);
  std::erase_if(buffers, ignored);
  if (!options_.init_sync) buffers.clear();
  try {
    caps_ = caps_of(options_, loc);
    choose(all, loc);
  } catch (const Error& e) {
    tell_fault(e.what(), loc);
    throw;
  }
  verify(text_of(all, buffers, options_), loc);
  if (const auto gpus = group_of_gpus(*group)) communicator_ = std::make_shared<Communicator>(gpus);
  if (options_.init_sync) {
    all.insert(all.end(), buffers.begin(), buffers.end());
    broadcast(all, loc);
  }
  for (const Tensor& p : parameters_)
    sizes_.push_back({p.numel() * static_cast<int64_t>(dtype_size(p.dtype())), p.dtype()});
  initial_ = listed(kiln::initial_buckets(sizes_, caps_, true), sizes_);
  observer_ = std::make_shared<Observer>(*this);
  reducer_ = std::make_unique<BucketReducer>(communicator_, parameters_, wire_);
  begin_step();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    places_[parameters_[i].impl().get()] = i;
    parameters_[i].impl()->observer = observer_;
  }
  register_module("module", module);
}

DistributedDataParallel::~DistributedDataParallel() {
  for (const Tensor& p : parameters_) p.impl()->observer.reset();
}

/// The parameters whose gradients are reduced.
void DistributedDataParallel::choose(const NamedTensors& tensors, Loc loc) {
  for (const auto& [name, t] : tensors) {
    if (!t.requires_grad()) continue;
    KILN_CHECK(!t.impl()->observer, invalid,
               "DistributedDataParallel ({}): '{}' is reduced by another DistributedDataParallel already",
               loc.str(), name);
    names_.push_back(name);
    parameters_.push_back(t);
  }
  KILN_CHECK(
      !parameters_.empty(), invalid,
      "DistributedDataParallel ({}): not needed, for no parameter requires a gradient ({} parameters, {} "
      "ignored)",
      loc.str(), module_.named_parameters().size(), options_.ignore.size());
  for (size_t i = 1; i < parameters_.size(); ++i)
    KILN_CHECK(parameters_[i].device() == parameters_[0].device(), invalid,
               "DistributedDataParallel ({}): '{}' is on {}, '{}' on {} (move the module to one device)",
               loc.str(), names_[0], parameters_[0].device().str(), names_[i], parameters_[i].device().str());
}

/// The group for the parameters' memory, where they are on a GPU and it has one.
std::shared_ptr<ProcessGroup> DistributedDataParallel::group_of_gpus(ProcessGroup& group) const {
  const Device device = parameters_[0].device();
  return device.is_cuda() ? group.device_group(device.index) : nullptr;
}

std::string DistributedDataParallel::model_key(int rank) const {
  return fmt::format("{}/parameters/{}", communicator_->prefix(), rank);
}

/// The others wait for this rank in their turn.
void DistributedDataParallel::tell_fault(const std::string& why, Loc loc) {
  const std::string key = model_key(communicator_->group().rank());
  const auto tell = [&] {
    communicator_->group().store()->set(key, kFault + why);
    communicator_->group().store()->set(key + kRead, "yes");
  };
  try {
    communicator_->together(kTurn, tell, {"", loc});
  } catch (const Error&) {  // nobody can come
  }
  let_others_read();
}

/// What is wrong with another rank's model, or with this one's in its eyes. In a turn of the ranks.
std::string DistributedDataParallel::compare(const std::string& mine, Loc loc) const {
  ProcessGroup& group = communicator_->group();
  group.store()->set(model_key(group.rank()), mine);
  std::string wrong;
  for (int peer = 0; peer < group.size() && wrong.empty(); ++peer) {
    const auto theirs = communicator_->await(model_key(peer), fmt::format("{} ({})", kTurn, loc.str()));
    KILN_CHECK(theirs, comm,
               "DistributedDataParallel ({}): rank {} waited {:.3g} s for rank {}, which has not come here",
               loc.str(), group.rank(), group.timeout().count(), peer);
    if ((*theirs)[0] == kFault) wrong = fmt::format("rank {} has failed: {}", peer, theirs->substr(1));
    else if (*theirs != mine) wrong = difference(group.rank(), mine, peer, *theirs);
  }
  group.store()->set(model_key(group.rank()) + kRead, "yes");
  return wrong;
}

/// All ranks must have the same model: each reads what the others have, so that all of them raise.
void DistributedDataParallel::verify(const std::string& mine, Loc loc) {
  std::string wrong;
  communicator_->together(kTurn, [&] { wrong = compare(mine, loc); }, {"", loc});
  if (wrong.empty()) return;
  let_others_read();
  throw Error(ErrorKind::comm, fmt::format("DistributedDataParallel ({}): {}", loc.str(), wrong), loc);
}

/// Whoever ends now may take the store away from those that are reading.
void DistributedDataParallel::let_others_read() const {
  ProcessGroup& group = communicator_->group();
  try {
    for (int peer = 0; peer < group.size(); ++peer)
      if (peer != group.rank() && !group.store()->wait(model_key(peer) + kRead, kReading)) return;
  } catch (const Error&) {  // one is lost
  }
}

void DistributedDataParallel::broadcast(const NamedTensors& tensors, Loc loc) {
  NoGrad guard;
  // Of those that are strided, or not where the group reads them: dense copies there.
  std::vector<std::pair<Tensor, Tensor>> copies;
  std::vector<WorkPtr> works;
  for (const auto& [name, t] : tensors) {
    const Device side = detail::side_of(communicator_->group(), t.device());
    Tensor dense = t;
    if (!t.is_contiguous() || t.device() != side) {
      dense = t.device() != side ? t.detach().to(side) : t.detach().clone();
      copies.emplace_back(t, dense);
    }
    detail::let_write(*dense.impl()->storage);
    works.push_back(communicator_->group().broadcast(dense.impl()->device_ref().data, dense.numel(),
                                                     dense.dtype(), 0, {"parameters of rank 0", loc, true}));
    ++dense.impl()->storage->version;
  }
  for (const WorkPtr& w : works) w->wait();
  for (auto& [t, dense] : copies) Tensor(t).copy_(dense);
}

SplitOptions DistributedDataParallel::split_options() const {
  SplitOptions split;
  split.cap = caps_.list.empty() ? caps_.others : caps_.list.back();
  for (const std::string& name : options_.ignore) split.ignored.push_back("module." + name);
  return split;
}

Tensor DistributedDataParallel::forward(const Tensor& x) {
  prepare(detail::caller_loc());
  return module_(x, detail::caller_loc());
}
Tensor DistributedDataParallel::forward(const Tensor& a, const Tensor& b) {
  prepare(detail::caller_loc());
  return module_(a, b, detail::caller_loc());
}
Tensor DistributedDataParallel::forward(const Tensor& a, const Tensor& b, const Tensor& c) {
  prepare(detail::caller_loc());
  return module_(a, b, c, detail::caller_loc());
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp) : ddp_(ddp), before_(ddp.sync_) {
  ddp.sync_ = false;
}
DistributedDataParallel::NoSync::~NoSync() { ddp_.sync_ = before_; }

std::string DistributedDataParallel::names_of_missing() const {
  std::string out;
  for (size_t i = 0; i < names_.size(); ++i)
    if (!is_ready_[i]) out += (out.empty() ? "" : ", ") + names_[i];
  return out;
}

void DistributedDataParallel::begin_step() {
  ready_.clear();
  is_ready_.assign(parameters_.size(), false);
}

/// A forward begins a step.
void DistributedDataParallel::prepare(Loc loc) {
  if (!detail::state().grad_enabled) return;
  if (phase_ == Phase::armed && !ready_.empty()) {
    const std::string text = fmt::format(
        "DistributedDataParallel ({}): expected to have finished reduction in the prior iteration, begun by "
        "the forward at {}: no gradient came for {}, which were not used in producing loss (freeze them, "
        "with requires_grad_(false), before wrapping; there is no find_unused_parameters)",
        loc.str(), forward_loc_.str(), names_of_missing());
    reducer_->abandon(text);  // ranks that used them wait for this one
    throw Error(ErrorKind::invalid, text, loc);
  }
  forward_loc_ = loc;
  begin_step();
  phase_ = sync_ ? Phase::armed : Phase::idle;
  if (sync_) detail::note_communicator(communicator_);
}

/// A parameter has its gradient.
void DistributedDataParallel::ready(const detail::TensorImpl& leaf, const Tensor& gradient, Loc loc) {
  if (phase_ == Phase::idle) {
    if (sync_ && !forward_loc_.known() && !std::exchange(passed_by_, true))
      log(LogLevel::warn,
          "backward ({}): gradients of a DistributedDataParallel stay this rank's own, since no forward has "
          "gone through it (call it, not the module that it wraps)",
          loc.str());
    return;
  }
  KILN_CHECK(
      phase_ != Phase::done, invalid,
      "backward ({}): the gradients of the forward at {} have been reduced by DistributedDataParallel "
      "already; this second backward's would be this rank's alone (add the losses up and call backward once, "
      "or use no_sync)",
      loc.str(), forward_loc_.str());
  const size_t index = places_.at(&leaf);
  KILN_CHECK(
      !is_ready_[index], invalid,
      "backward ({}): expected to mark a variable ready only once, but '{}' got a gradient twice since "
      "the forward at {} (it is used by two backwards; use no_sync, or one backward)",
      loc.str(), names_[index], forward_loc_.str());
  if (ready_.empty()) in_trace_ = detail::tracing();
  KILN_CHECK(in_trace_ == detail::tracing(), invalid,
             "backward ({}): gradients of the forward at {} come from backwards inside and outside of a "
             "compiled callable, which are not reduced together (call both on one side, or use no_sync)",
             loc.str(), forward_loc_.str());
  is_ready_[index] = true;
  ready_.push_back(index);
  if (!in_trace_) reducer_->add(index, gradient, loc);
  if (ready_.size() == parameters_.size() && rebuilt_.empty()) rebuild(loc);
}

void DistributedDataParallel::end(Loc loc) {
  if (phase_ != Phase::armed || ready_.size() < parameters_.size()) return;
  phase_ = Phase::done;
  if (in_trace_) reduce_in_trace(loc);
  else reducer_->finish();
  reductions_ += static_cast<int64_t>(rebuilt_.size());
}

/// The backward can be tried again, unless collectives had been started. In a trace nothing has run yet.
void DistributedDataParallel::compiles(bool begins, Loc loc) {
  if (begins) communicator_->building(fmt::format("the backward at {}", loc.str()));
  else communicator_->built();
}

void DistributedDataParallel::failed(const std::string& why, Loc loc) {
  if (phase_ != Phase::armed || detail::tracing()) return;
  reducer_->abandon(fmt::format("the backward at {} failed: {}", loc.str(), why));
  begin_step();
}

/// Buckets in the order in which rank 0's gradients are ready, before anything is reduced: agreement makes
/// sure that no rank uses others.
void DistributedDataParallel::rebuild(Loc loc) {
  const std::string order =
      communicator_->from_first("ready", ints_text(ready_), "the first backward", {"", loc});
  const Buckets buckets = rebuild_buckets(sizes_, caps_, parse_ints(order));
  rebuilt_ = listed(buckets, sizes_);
  reducer_->arrange(buckets.params, loc);
}

void DistributedDataParallel::reduce_in_trace(Loc loc) {
  NoGrad guard;
  std::vector<const Tensor*> operands;
  std::vector<std::vector<Tensor>> buckets;
  // A trace holds what it communicates by, so that no other can have this address.
  std::vector<int64_t> ints = {reinterpret_cast<intptr_t>(communicator_.get())};
  std::vector<Tensor> grads;
  for (const GradientBucket& b : rebuilt_) {
    ints.push_back(static_cast<int64_t>(b.parameters.size()));
    buckets.emplace_back();
    for (size_t i : b.parameters) buckets.back().push_back(parameters_[i].grad());
    grads.insert(grads.end(), buckets.back().begin(), buckets.back().end());
  }
  for (const Tensor& g : grads) operands.push_back(&g);
  const Scalar scalars[] = {1.0 / communicator_->group().size()};
  detail::call_many("DistributedDataParallel.reduce", loc, operands, ints, scalars, [&](const auto& s) {
    std::vector<Tensor> means;
    for (const std::vector<Tensor>& bucket : buckets)
      for (const Tensor& mean :
           detail::all_reduce(communicator_, bucket, wire_.value_or(bucket[0].dtype()), s[0]))
        means.push_back(mean);
    for (size_t i = 0; i < grads.size(); ++i) detail::assign(grads[i], means[i]);
    return std::vector<Tensor>{};
  });
}

}  // namespace kiln::nn
