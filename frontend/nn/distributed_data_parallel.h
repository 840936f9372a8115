// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel: every rank runs the same model on its own part of the batch, and a backward leaves
// the mean of the ranks' gradients in every `.grad`. Gradients are reduced in buckets, by PyTorch's rules,
// while the backward goes on; inside a compiled step its kernels write them where they are sent from, and the
// optimizer waits for them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/nn/module.h"
#include "ir/split_buckets.h"

namespace kiln {
class Communicator;
class ProcessGroup;
}  // namespace kiln

namespace kiln::nn {

class BucketReducer;

/// What gradients are rounded to on their way between ranks. Each is cast, divided there by the number of
/// ranks, and cast back after the sum, with one rounding in it (NCCL rounds at every rank on the way), in
/// PyTorch's order; half the bytes of f32 are sent. NaN and infinities stay what they are, and all ranks get
/// the same bits. A gradient of that very dtype is sent as without compression. Source:
/// torch.distributed.algorithms.ddp_comm_hooks.default_hooks.
enum class GradientCompression : uint8_t {
  none,
  fp16,  ///< fp16_compress_hook: 11 bits, infinite from 65520 on, and coarser below 6e-5, zero below 3e-8
  bf16,  ///< bf16_compress_hook: 8 bits, for all sizes that f32 has; the one to take
};
/// "none", ...
const char* to_string(GradientCompression c);

struct DistributedDataParallelOptions {
  /// Bytes of a bucket, in MiB; fractions are allowed. Unset: 25, with a first bucket of 1.
  std::optional<double> bucket_cap_mb;
  /// Caps of the buckets one by one, in MiB; the last one repeats. Overrides bucket_cap_mb.
  std::vector<double> bucket_cap_mb_list;
  /// Check that all ranks have the same parameters, and give all the values of rank 0.
  bool init_sync = true;
  /// Full names of parameters and buffers that are left alone.
  std::set<std::string> ignore;
  /// The same on all ranks.
  GradientCompression compression = GradientCompression::none;
};

/// What one bucket holds.
struct GradientBucket {
  int64_t bytes = 0;
  std::vector<size_t>
      parameters;  ///< places in DistributedDataParallel::reduced_names(), in the bucket's order
};

/// A module that calls the one it wraps, whose names get the prefix "module.". Parameters must not be added
/// or replaced afterwards. Source: torch.nn.parallel.DistributedDataParallel.
class DistributedDataParallel : public Module {
 public:
  /// Blocks: until all ranks of `group` are here. Throws: invalid, when no parameter requires a gradient, or
  /// a cap is not positive; comm, naming the first parameter or buffer in which two ranks differ, or the rank
  /// that is missing or has failed.
  DistributedDataParallel(Module& module, std::shared_ptr<ProcessGroup> group,
                          DistributedDataParallelOptions options = {}, Loc loc = Loc::current());
  ~DistributedDataParallel() override;

  /// The wrapped module's. Throws: invalid, when parameters got no gradient since the last call, naming them.
  Tensor forward(const Tensor& x) override;
  Tensor forward(const Tensor& a, const Tensor& b) override;
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& c) override;

  Module& module() { return module_; }

  /// While alive, forwards begin steps whose gradients stay this rank's own and add up; the first backward of
  /// a forward after it reduces the sum. Source: DistributedDataParallel.no_sync.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Names of the parameters whose gradients are reduced, in registration order.
  const std::vector<std::string>& reduced_names() const { return names_; }
  /// As made before any backward: one for each dtype, as partial ones could not be filled in order yet.
  const std::vector<GradientBucket>& initial_buckets() const { return initial_; }
  /// As they are reduced, made at the first backward from the order in which its gradients were ready on rank
  /// 0; empty before.
  const std::vector<GradientBucket>& rebuilt_buckets() const { return rebuilt_; }
  /// For CompileOptions::split of a forward through this: the cap of its buckets, the first cap as it is by
  /// default (PyTorch's split does not take over one of the user's), and the parameters that are left alone.
  SplitOptions split_options() const;
  /// Buckets reduced so far.
  int64_t reductions() const { return reductions_; }

 private:
  struct Observer;
  enum class Phase : uint8_t {
    idle,   ///< no forward yet, or a forward under no_sync: gradients stay here
    armed,  ///< a forward has begun a step: its gradients will be reduced
    done,   ///< they have been
  };
  void prepare(Loc loc);
  void ready(const detail::TensorImpl& leaf, const Tensor& gradient, Loc loc);
  void end(Loc loc);
  void compiles(bool begins, Loc loc);
  void failed(const std::string& why, Loc loc);
  void begin_step();
  void rebuild(Loc loc);
  void reduce_in_trace(Loc loc);
  std::string names_of_missing() const;
  void choose(const NamedTensors& tensors, Loc loc);
  std::shared_ptr<ProcessGroup> group_of_gpus(ProcessGroup& group) const;
  std::string model_key(int rank) const;
  void tell_fault(const std::string& why, Loc loc);
  std::string compare(const std::string& mine, Loc loc) const;
  void verify(const std::string& mine, Loc loc);
  void let_others_read() const;
  void broadcast(const NamedTensors& tensors, Loc loc);

  Module& module_;
  const DistributedDataParallelOptions options_;
  const std::optional<DType> wire_;  ///< what gradients are sent as
  BucketCaps caps_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Observer> observer_;
  std::vector<Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<BucketParam> sizes_;
  std::vector<GradientBucket> initial_, rebuilt_;
  std::unordered_map<const detail::TensorImpl*, size_t> places_;
  std::vector<size_t> ready_;  ///< of this step, in order
  std::vector<bool> is_ready_;
  bool in_trace_ = false;                   ///< where the first of these was ready
  std::unique_ptr<BucketReducer> reducer_;  ///< outside compiled callables
  Phase phase_ = Phase::idle;
  bool sync_ = true;
  bool passed_by_ = false;  ///< a backward has come without a forward, and that was said
  Loc forward_loc_;
  int64_t reductions_ = 0;
};

}  // namespace kiln::nn
