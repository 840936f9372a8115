// SPDX-License-Identifier: Apache-2.0
// DataLoader: batches of a dataset's examples, made ahead by worker threads, in an order that follows from
// the seed alone. Names of torch.utils.data.DataLoader.
#pragma once

#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "frontend/data/dataset.h"

namespace kiln::data {

/// Examples to a batch. Threads: workers call it at the same time.
using Collate = std::function<Example(const std::vector<Example>&)>;
/// Stacks every field. Throws: invalid, when examples differ in their fields.
Example stack_fields(const std::vector<Example>& examples);

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;    ///< every epoch in another order
  uint64_t seed = 0;       ///< of the orders
  bool drop_last = false;  ///< leave out a last batch that is smaller, and what does not divide into ranks
  Collate collate = stack_fields;
  int num_workers = 0;      ///< threads that make batches ahead; 0: the caller's makes each when asked
  int prefetch_factor = 2;  ///< batches that each worker may be ahead
  /// Of the ranks of a job, each takes its share of every epoch: the rank'th of num_replicas.
  int64_t num_replicas = 1, rank = 0;
  /// The examples of an epoch, in order, instead of what shuffle, seed and ranks say.
  std::function<std::vector<int64_t>(int64_t epoch)> sampler = {};
};

/// `for (const Example& batch : loader)` is one epoch. An epoch that is left early counts as one.
/// Where examples follow from their numbers, batches are the same for any number of workers.
class DataLoader {
  class Epoch;

 public:
  /// Throws: invalid, on options out of range.
  explicit DataLoader(DatasetPtr dataset, DataLoaderOptions options = {}, Loc loc = Loc::current());
  ~DataLoader();  ///< Blocks: until workers have made the batches that they are at.
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// A place in an epoch; must not outlive the loader.
  class Iterator {
   public:
    using difference_type = ptrdiff_t;
    using value_type = Example;
    const Example& operator*() const { return *batch_; }
    const Example* operator->() const { return &*batch_; }
    /// Throws: what the dataset threw for an example of the next batch, at that batch, and once: the epoch is
    /// over then. invalid, when another epoch has been begun since.
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !batch_; }

   private:
    friend class DataLoader;
    explicit Iterator(DataLoader& loader) : loader_(&loader), epoch_(loader.running_) { ++*this; }
    DataLoader* loader_;
    std::shared_ptr<Epoch> epoch_;
    std::optional<Example> batch_;
  };

  /// Begins the next epoch, or goes on in one whose state was loaded. Throws: as Iterator; unsupported,
  /// inside a compiled callable.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  /// Batches of an epoch (of the next one, where there is a sampler).
  int64_t size() const;
  /// Number of the epoch that runs, or else of the next.
  int64_t epoch() const { return epoch_; }
  /// The next begin() begins this epoch.
  void set_epoch(int64_t epoch);

  /// Where it is, also between two batches of an epoch, and what the order follows from.
  NamedTensors state_dict() const;
  /// The next begin() goes on behind the last batch that had been given. Throws: invalid, when the order
  /// would be another one, since the dataset's size or an option differs.
  void load_state_dict(const NamedTensors& state, Loc loc = Loc::current());

 private:
  std::vector<int64_t> order() const;
  int64_t batches(int64_t examples) const;
  void stop();

  DatasetPtr dataset_;
  DataLoaderOptions options_;
  int64_t epoch_ = 0;
  int64_t given_ = 0;  ///< batches of that epoch
  bool left_ = false;  ///< the epoch was begun: another begin() is about the next
  std::shared_ptr<Epoch> running_;
};

}  // namespace kiln::data
