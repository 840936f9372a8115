// SPDX-License-Identifier: Apache-2.0
#include "frontend/data/data_loader.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "frontend/data/sampler.h"
#include "frontend/dispatch.h"
#include "frontend/ops.h"

namespace kiln::data {

namespace {
/// Throws: invalid, with the number of the example in its batch.
void check_fields(const std::vector<Example>& examples) {
  const Example& first = examples[0];
  for (size_t k = 0; k < examples.size(); ++k) {
    const Example& e = examples[k];
    KILN_CHECK(e.size() == first.size(), invalid,
               "DataLoader: examples of a batch have {} and {} fields; all need the same", first.size(),
               e.size());
    for (size_t field = 0; field < e.size(); ++field)
      KILN_CHECK(e[field].defined() && e[field].sizes() == first[field].sizes() &&
                     e[field].dtype() == first[field].dtype(),
                 invalid,
                 "DataLoader: field {} of example {} of a batch is {}, of example 0 {}; all need the same "
                 "(pad them in the dataset, or in a `collate`)",
                 field, k, e[field].type_str(), first[field].type_str());
  }
}

int64_t size_of(const Dataset& dataset) {
  const int64_t n = dataset.size();
  KILN_CHECK(n >= 0, invalid, "DataLoader: the dataset says that it has {} examples", n);
  return n;
}
}  // namespace

Example stack_fields(const std::vector<Example>& examples) {
  KILN_CHECK(!examples.empty(), invalid, "DataLoader: no examples to stack");
  check_fields(examples);
  Example out;
  for (size_t field = 0; field < examples[0].size(); ++field) {
    std::vector<Tensor> column;
    for (const Example& e : examples) column.push_back(e[field]);
    out.push_back(stack(column));
  }
  return out;
}

/// The batches of one epoch, from one on, in order.
class DataLoader::Epoch {
 public:
  Epoch(DatasetPtr dataset, const DataLoaderOptions& o, std::vector<int64_t> order, int64_t first,
        int64_t count)
      : dataset_(std::move(dataset)),
        collate_(o.collate),
        batch_size_(o.batch_size),
        order_(std::move(order)),
        count_(count),
        ahead_(int64_t{o.num_workers} * o.prefetch_factor),
        wanted_(first),
        claimed_(first) {
    try {
      for (int64_t i = 0; i < std::min<int64_t>(o.num_workers, count_ - first); ++i)
        workers_.emplace_back([this] { work(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Epoch() { stop(); }

  /// None: the epoch is over.
  std::optional<Example> next();
  /// Ends the workers; the next next() is an error.
  void stop();

 private:
  struct Made {
    Example batch;
    std::exception_ptr error;
  };
  Example make(int64_t batch) const;
  Made try_make(int64_t batch) const;
  void work();

  const DatasetPtr dataset_;
  const Collate collate_;
  const int64_t batch_size_;
  const std::vector<int64_t> order_;
  const int64_t count_, ahead_;

  std::mutex mutex_;
  std::condition_variable made_, room_;
  int64_t wanted_;   ///< by the caller, next
  int64_t claimed_;  ///< by workers: all below
  std::map<int64_t, Made> ready_;
  bool failed_ = false, stopped_ = false;
  std::vector<std::thread> workers_;
};

Example DataLoader::Epoch::make(int64_t batch) const {
  const NoGrad guard;
  std::vector<Example> examples;
  const int64_t first = batch * batch_size_, left = static_cast<int64_t>(order_.size()) - first;
  for (int64_t i = first; i < first + std::min(batch_size_, left); ++i)
    examples.push_back(dataset_->get(order_[static_cast<size_t>(i)]));
  return collate_(examples);
}

DataLoader::Epoch::Made DataLoader::Epoch::try_make(int64_t batch) const {
  try {
    return {make(batch), nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

void DataLoader::Epoch::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    room_.wait(lock,
               [&] { return stopped_ || failed_ || claimed_ == count_ || claimed_ < wanted_ + ahead_; });
    if (stopped_ || failed_ || claimed_ == count_) return;
    const int64_t batch = claimed_++;
    lock.unlock();
    Made made = try_make(batch);
    lock.lock();
    // Nobody gets to see the batches behind a failed one. Those before it are claimed.
    if (made.error) failed_ = true, room_.notify_all();
    ready_[batch] = std::move(made);
    made_.notify_one();
  }
}

std::optional<Example> DataLoader::Epoch::next() {
  std::unique_lock lock(mutex_);
  KILN_CHECK(!stopped_, invalid, "DataLoader: this epoch was ended, since another has been begun");
  if (wanted_ >= count_) return {};
  Made made;
  if (workers_.empty()) {
    made = try_make(wanted_);
  } else {
    made_.wait(lock, [&] { return ready_.contains(wanted_); });
    made = std::move(ready_.extract(wanted_).mapped());
  }
  ++wanted_;
  room_.notify_one();
  if (!made.error) return std::move(made.batch);
  wanted_ = count_;
  std::rethrow_exception(made.error);
}

void DataLoader::Epoch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  room_.notify_all();
  for (std::thread& t : workers_)
    if (t.joinable()) t.join();
}

DataLoader::DataLoader(DatasetPtr dataset, DataLoaderOptions options, Loc loc)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
  const DataLoaderOptions& o = options_;
  KILN_CHECK(dataset_, invalid, "DataLoader ({}): no dataset", loc.str());
  KILN_CHECK(o.batch_size > 0, invalid, "DataLoader ({}): batch_size must be positive; got {}", loc.str(),
             o.batch_size);
  KILN_CHECK(o.num_workers >= 0 && o.num_workers <= 1024, invalid,
             "DataLoader ({}): num_workers must be from 0 to 1024; got {}", loc.str(), o.num_workers);
  KILN_CHECK(o.prefetch_factor > 0, invalid, "DataLoader ({}): prefetch_factor must be positive; got {}",
             loc.str(), o.prefetch_factor);
  KILN_CHECK(o.num_replicas > 0 && o.rank >= 0 && o.rank < o.num_replicas, invalid,
             "DataLoader ({}): rank {} of {} replicas is out of range", loc.str(), o.rank, o.num_replicas);
  KILN_CHECK(!o.sampler || (!o.shuffle && o.num_replicas == 1), invalid,
             "DataLoader ({}): a sampler excludes shuffle and num_replicas (it makes the order)", loc.str());
  KILN_CHECK(o.collate, invalid, "DataLoader ({}): an empty collate", loc.str());
}

DataLoader::~DataLoader() { stop(); }

void DataLoader::stop() {
  if (running_) running_->stop();
  running_.reset();
}

std::vector<int64_t> DataLoader::order() const {
  const DataLoaderOptions& o = options_;
  const int64_t n = size_of(*dataset_);
  if (!o.sampler) return epoch_order(n, {o.shuffle, o.seed, o.num_replicas, o.rank, o.drop_last}, epoch_);
  std::vector<int64_t> order = o.sampler(epoch_);
  for (const int64_t i : order)
    KILN_CHECK(i >= 0 && i < n, invalid, "DataLoader: the sampler gave example {}; the dataset has {}", i, n);
  return order;
}

int64_t DataLoader::batches(int64_t examples) const {
  const int64_t whole = examples / options_.batch_size, rest = examples % options_.batch_size;
  return whole + (rest != 0 && !options_.drop_last ? 1 : 0);
}

int64_t DataLoader::size() const {
  const DataLoaderOptions& o = options_;
  if (o.sampler) return batches(static_cast<int64_t>(order().size()));
  return batches(share_of(size_of(*dataset_), {.num_replicas = o.num_replicas, .drop_last = o.drop_last}));
}

void DataLoader::set_epoch(int64_t epoch) {
  KILN_CHECK(epoch >= 0 && epoch < INT64_MAX, invalid,
             "set_epoch: got {}, expected a number >= 0 that has a next one", epoch);
  stop();
  epoch_ = epoch;
  given_ = 0;
  left_ = false;
}

DataLoader::Iterator DataLoader::begin() {
  KILN_CHECK(!detail::tracing(), unsupported,
             "DataLoader: batches cannot be made inside a compiled callable (pass them as arguments)");
  stop();
  if (left_) set_epoch(epoch_ + 1);
  std::vector<int64_t> examples = order();
  const int64_t count = batches(static_cast<int64_t>(examples.size()));
  running_ = std::make_shared<Epoch>(dataset_, options_, std::move(examples), given_, count);
  left_ = true;
  return Iterator(*this);
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  batch_ = epoch_->next();
  if (batch_) ++loader_->given_;
  else if (loader_->running_ == epoch_ && loader_->left_) loader_->set_epoch(loader_->epoch_ + 1);
  return *this;
}

namespace {

Tensor number(int64_t v) { return Tensor::from_vector(std::vector<int64_t>{v}, {}); }

}  // namespace

NamedTensors DataLoader::state_dict() const {
  const DataLoaderOptions& o = options_;
  return {{"batch_size", number(o.batch_size)},
          {"drop_last", number(o.drop_last)},
          {"epoch", number(epoch_)},
          {"given", number(given_)},
          {"num_replicas", number(o.num_replicas)},
          {"rank", number(o.rank)},
          {"seed", number(static_cast<int64_t>(o.seed))},
          {"shuffle", number(o.shuffle)},
          {"size", number(size_of(*dataset_))}};
}

void DataLoader::load_state_dict(const NamedTensors& state, Loc loc) {
  std::map<std::string, int64_t> got;
  for (const auto& [name, t] : state) {
    KILN_CHECK(t.defined() && t.numel() == 1 && t.dtype() == DType::i64, invalid,
               "DataLoader::load_state_dict ({}): '{}' is {}, expected i64[]", loc.str(), name, t.type_str());
    got[name] = t.item<int64_t>();
  }
  std::string faults;
  for (const auto& [name, t] : state_dict()) {
    const auto it = got.find(name);
    const int64_t own = t.item<int64_t>();
    if (it == got.end()) faults += fmt::format("\n  missing: {}", name);
    else if (name != "epoch" && name != "given" && it->second != own)
      faults += fmt::format("\n  {}: got {}, expected {}", name, it->second, own);
  }
  KILN_CHECK(faults.empty(), invalid, "DataLoader::load_state_dict ({}): the state is of another loader{}",
             loc.str(), faults);
  const int64_t epoch = got["epoch"], given = got["given"];
  const auto place = [&](bool good) {
    KILN_CHECK(good, invalid, "DataLoader::load_state_dict ({}): bad place; got epoch {}, batch {}",
               loc.str(), epoch, given);
  };
  place(epoch >= 0 && epoch < INT64_MAX && given >= 0);
  const auto& sampler = options_.sampler;
  place(given <= (sampler ? batches(static_cast<int64_t>(sampler(epoch).size())) : size()));
  set_epoch(epoch);
  given_ = given;
}

}  // namespace kiln::data
