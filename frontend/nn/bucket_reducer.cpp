// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/bucket_reducer.h"

#include "frontend/communication.h"
#include "frontend/ops_detail.h"
#include "frontend/state.h"
#include "ir/bucket_layout.h"

namespace kiln::nn {

namespace {

std::vector<Type> types_of(const std::vector<size_t>& bucket, const std::vector<Tensor>& parameters) {
  std::vector<Type> types;
  for (size_t p : bucket) types.push_back(parameters[p].impl()->type());
  return types;
}

}  // namespace

BucketReducer::BucketReducer(std::shared_ptr<Communicator> communicator, std::vector<Tensor> parameters,
                             std::optional<DType> wire)
    : communicator_(std::move(communicator)),
      parameters_(std::move(parameters)),
      wire_(wire),
      totals_(parameters_.size()) {}

BucketReducer::~BucketReducer() { wait_all(); }

void BucketReducer::arrange(const std::vector<std::vector<size_t>>& buckets, Loc loc) {
  bucket_of_.resize(parameters_.size());
  for (const std::vector<size_t>& parameters : buckets) {
    Bucket b{parameters, 0, {}, {}, nullptr};
    for (size_t p : parameters) {
      bucket_of_[p] = buckets_.size();
      if (!totals_[p].defined()) ++b.missing;
    }
    buckets_.push_back(std::move(b));
  }
  start_complete(loc);
}

void BucketReducer::add(size_t parameter, const Tensor& gradient, Loc loc) {
  NoGrad guard;
  const Tensor before = parameters_[parameter].grad();
  totals_[parameter] = before.defined() ? detail::apply(op("add"), {&before, &gradient}) : gradient;
  if (buckets_.empty()) return;
  --buckets_[bucket_of_[parameter]].missing;
  start_complete(loc);
}

void BucketReducer::start_complete(Loc loc) {
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) {
    if (next_ == 0) agree(loc);
    start(buckets_[next_], loc);
    ++next_;
  }
}

/// All buckets of a step are one call of the ranks: what the later ones will hold is known.
void BucketReducer::agree(Loc loc) {
  std::vector<detail::SentBucket> sent;
  for (const Bucket& b : buckets_) sent.push_back({types_of(b.parameters, parameters_), wire_of(b)});
  communicator_->begin_call(detail::plan_of(sent, loc), {"agreement", loc});
}

void BucketReducer::lay_out(Bucket& b) {
  const BucketLayout layout = bucket_layout(types_of(b.parameters, parameters_));
  const Device side = detail::side_of(communicator_->group(), parameters_[b.parameters[0]].device());
  b.flat = zeros({layout.total.value()}, {.dtype = dtype_of(b), .device = side});
  for (size_t i = 0; i < b.parameters.size(); ++i)
    b.pieces.push_back(detail::piece_of(b.flat, layout.offsets[i], parameters_[b.parameters[i]]));
}

void BucketReducer::start(Bucket& b, Loc loc) {
  NoGrad guard;
  if (!b.flat.defined()) lay_out(b);
  const Scalar mean[] = {1.0 / communicator_->group().size()};
  const Tensor scale = detail::call_scalars(mean)[0];
  const DType wire = wire_of(b);
  for (size_t i = 0; i < b.parameters.size(); ++i) {
    Tensor& total = totals_[b.parameters[i]];
    const Tensor here = total.to(b.flat.device(), loc);
    detail::assign(b.pieces[i], wire == dtype_of(b) ? detail::scaled(here, scale) : here);
    total = {};
  }
  b.work = all_reduce_as(communicator_->group(), b.flat.impl()->device_ref().data, b.flat.numel(),
                         dtype_of(b), wire, {"backward", loc, true});
}

/// Nothing runs afterwards, and a new step can begin. Returns the first error.
std::exception_ptr BucketReducer::wait_all() {
  std::exception_ptr error;
  for (Bucket& b : buckets_) {
    try {
      if (b.work) b.work->wait();
    } catch (const Error&) {
      if (!error) error = std::current_exception();
    }
    b.work.reset();
    b.missing = b.parameters.size();
  }
  next_ = 0;
  return error;
}

void BucketReducer::finish() {
  NoGrad guard;
  KILN_ASSERT(next_ == buckets_.size() && next_ > 0, "{} of {} buckets were started", next_, buckets_.size());
  if (const std::exception_ptr error = wait_all()) std::rethrow_exception(error);
  communicator_->end_call();
  for (const Bucket& b : buckets_)
    for (size_t i = 0; i < b.parameters.size(); ++i) {
      Tensor parameter = parameters_[b.parameters[i]];
      const Tensor mean = b.pieces[i].to(parameter.device());
      const bool own = mean.impl()->storage != b.flat.impl()->storage;
      if (parameter.grad().defined()) detail::assign(parameter.grad(), mean);
      else parameter.set_grad(own ? mean : mean.clone());  // dropped between two backwards of the step
    }
}

void BucketReducer::abandon(const std::string& why) {
  try {
    if (next_ > 0) communicator_->group().abort(why);
    communicator_->failed(why);  // for ranks that are not in the collectives yet, and will not see this one
  } catch (const Error&) {       // they find out when they cannot reach this rank either
  }
  wait_all();
  totals_.assign(parameters_.size(), {});
}

}  // namespace kiln::nn
