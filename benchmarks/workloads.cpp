// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/workloads.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "benchmarks/models.h"
#include "frontend/nn/distributed_data_parallel.h"
#include "runtime/collective.h"

namespace kiln::bench {

namespace {

constexpr double kLearningRate = 1e-5, kSgdLearningRate = 0.05;

CompileOptions options_for(const std::string& name, const WorkloadOptions& w) {
  CompileOptions o;
  o.name = name;
  o.threads = w.threads;
  o.profile = w.profile;
  o.activation_memory = w.activation_memory;
  if (w.graphs) o.mode = Mode::reduce_overhead;
  return o;
}

/// Model, data and optimizer (AdamW, but SGD of dlrm and none of pointwise), stepped eagerly or compiled.
template <typename Model>
class Training : public Workload {
 public:
  template <typename... A>
  Training(const std::string& name, const WorkloadOptions& o, std::vector<Tensor> data, A&&... args)
      : model_(std::forward<A>(args)...),
        data_(std::move(data)),
        compiled_(o.compiled),
        step_(compile(std::function<Tensor()>([this] { return run(); }), options_for(name, o))) {
    model_.to(o.device);
    for (Tensor& t : data_) t = t.to(o.device);
    if constexpr (std::is_same_v<Model, Dlrm>)
      optimizer_ =
          std::make_unique<optim::SGD>(model_.parameters(), optim::SGDOptions{.lr = kSgdLearningRate});
    else if constexpr (kTrains)
      optimizer_ =
          std::make_unique<optim::AdamW>(model_.parameters(), optim::AdamWOptions{.lr = kLearningRate});
    if (o.group)
      parallel_.emplace(
          model_, o.group,
          nn::DistributedDataParallelOptions{.bucket_cap_mb = o.bucket_cap_mb, .compression = o.compression});
  }

  double step() override { return (compiled_ ? step_() : run()).item(); }
  CallableStats stats() const override { return step_.stats(); }
  int64_t parameter_count() const override {
    int64_t n = 0;
    for (const Tensor& p : model_.parameters()) n += p.numel();
    return n;
  }
  std::vector<std::pair<std::string, double>> gnorm() const override {
    std::vector<std::pair<std::string, double>> out;
    if constexpr (kTrains) return out;
    for (const auto& [name, p] : model_.named_parameters()) out.emplace_back(name, bench::norm(p.grad()));
    return out;
  }

 private:
  Tensor run() {
    if constexpr (!kTrains) model_.zero_grad();
    nn::Module& net = parallel_ ? static_cast<nn::Module&>(*parallel_) : model_;
    Tensor loss = data_.size() == 1   ? net(data_[0])
                  : data_.size() == 2 ? net(data_[0], data_[1])
                                      : net(data_[0], data_[1], data_[2]);
    loss.backward();
    if constexpr (kTrains) {
      optimizer_->step();
      model_.zero_grad();  // the peers' compilers hand out no gradients either
    }
    return loss;
  }

  static constexpr bool kTrains = !std::is_same_v<Model, Pointwise>;
  Model model_;
  std::optional<nn::DistributedDataParallel> parallel_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<Tensor> data_;
  bool compiled_;
  Compiled<std::function<Tensor()>> step_;
};

/// One product of two square matrices of f32, and the wait for it.
class Product : public Workload {
 public:
  Product(int64_t n, const WorkloadOptions& o)
      : a_(real("bench/matmul/a", {n, n}, -1, 1).to(o.device)),
        b_(real("bench/matmul/b", {n, n}, -1, 1).to(o.device)),
        compiled_(o.compiled),
        step_(compile(std::function<Tensor()>([this] { return matmul(a_, b_); }), options_for("matmul", o))) {
  }
  double step() override {
    const Tensor c = compiled_ ? step_() : matmul(a_, b_);
    if (c.device().is_cuda()) cuda::synchronize(c.device().index);
    return 0;
  }
  CallableStats stats() const override { return step_.stats(); }
  int64_t parameter_count() const override { return 0; }

 private:
  Tensor a_, b_;
  bool compiled_;
  Compiled<std::function<Tensor()>> step_;
};

/// What a query attends to, and by which function.
enum class Attended {
  sdpa,    ///< causal, by scaled_dot_product_attention
  causal,  ///< and the others by flex_attention
  window,  ///< the last kWindow keys
  alibi,   ///< causal, less by distance
};

/// Attention of 8 heads of 64 over N positions, forward and backward or forward alone: half the sum of
/// squares of what comes out, so that the backward has to wait for the forward.
class SelfAttention : public Workload {
 public:
  SelfAttention(Attended attended, bool backward, int64_t n, const WorkloadOptions& o)
      : attended_(attended),
        backward_(backward),
        compiled_(o.compiled),
        step_(compile(std::function<Tensor()>([this] { return run(); }), options_for("attention", o))) {
    for (const char* name : {"q", "k", "v"}) {
      Tensor t = real(std::string("bench/attention/") + name, {1, kHeads, n, kWidth}, -1, 1).to(o.device);
      if (backward_) t.requires_grad_();
      inputs_.push_back(t);
    }
    slopes_ = exp2(arange(kHeads, DType::f32) * -1.0 - 1.0).reshape({1, kHeads, 1, 1}).to(o.device);
  }
  double step() override { return (compiled_ ? step_() : run()).item(); }
  CallableStats stats() const override { return step_.stats(); }
  int64_t parameter_count() const override { return 0; }
  std::vector<std::pair<std::string, double>> gnorm() const override {
    std::vector<std::pair<std::string, double>> out;
    for (size_t i = 0; backward_ && i < inputs_.size(); ++i)
      out.emplace_back(std::string(1, "qkv"[i]), bench::norm(inputs_[i].grad()));
    return out;
  }

 private:
  static constexpr int64_t kHeads = 8, kWidth = 64, kWindow = 256;
  Tensor run() {
    for (Tensor& t : inputs_) t.set_grad({});
    const Tensor y = attend();
    const Tensor loss = (y * y).sum() * 0.5;
    if (backward_) loss.backward();
    return loss;
  }
  Tensor attend() const {
    const Tensor &q = inputs_[0], &k = inputs_[1], &v = inputs_[2];
    if (attended_ == Attended::sdpa) return scaled_dot_product_attention(q, k, v, {}, {.is_causal = true});
    FlexAttentionOptions o;
    o.mask_mod = [this](const Tensor&, const Tensor&, const Tensor& row, const Tensor& key) {
      const Tensor causal = ge(row, key);
      return attended_ == Attended::window ? logical_and(causal, lt(row - key, kWindow)) : causal;
    };
    if (attended_ == Attended::alibi)
      o.score_mod = [this](const Tensor& x, const Tensor&, const Tensor&, const Tensor& row,
                           const Tensor& key) { return x + (key - row).to(DType::f32) * slopes_; };
    return flex_attention(q, k, v, o);
  }

  Attended attended_;
  bool backward_, compiled_;
  std::vector<Tensor> inputs_;
  Tensor slopes_;
  Compiled<std::function<Tensor()>> step_;
};

/// N, M, ... of a name that is `prefix` and "N-M-...", so many, all above 0; or nothing.
Sizes sizes_in(const std::string& name, std::string_view prefix, size_t count) {
  Sizes out;
  const char* at = name.data() + prefix.size();
  const char* const end = name.data() + name.size();
  if (!name.starts_with(prefix)) return {};
  for (bool more = true; more;) {
    const auto [next, error] = std::from_chars(at, end, out.emplace_back());
    if (error != std::errc() || out.back() < 1) return {};
    more = next != end && *next == '-';
    at = next + more;
  }
  return at == end && out.size() == count ? out : Sizes();
}

using Made = std::unique_ptr<Workload>;

/// Where a workload's data has its names; ranks have data of their own.
std::string data_of(const std::string& name, const WorkloadOptions& o) {
  return fmt::format("bench/{}/data{}/", name, o.rank());
}

Made make_mlp(const std::string& name, const WorkloadOptions& o, const Sizes& sizes, int64_t batch) {
  batch *= o.batches;
  const std::string data = data_of(name, o);
  std::vector<Tensor> d{real(data + "x", {batch, sizes[0]}, -kSqrt3, kSqrt3),
                        ints(data + "y", {batch}, static_cast<uint64_t>(sizes.back()))};
  return std::make_unique<Training<Mlp>>(name, o, std::move(d), name, sizes);
}
Made make_gpt(const WorkloadOptions& o, const GptSizes& g) {
  const std::string data = data_of(g.name, o);
  const int64_t batch = g.batch * o.batches;
  std::vector<Tensor> d{ints(data + "x", {batch, g.seq}, static_cast<uint64_t>(g.vocab)),
                        ints(data + "y", {batch, g.seq}, static_cast<uint64_t>(g.vocab))};
  return std::make_unique<Training<Gpt>>(g.name, o, std::move(d), g);
}
Made make_bert(const WorkloadOptions& o) {
  const std::string name = "bert-mini", data = data_of(name, o);
  const int64_t batch = Bert::kBatch * o.batches;
  std::vector<Tensor> d{ints(data + "x", {batch, Bert::kSeq}, Bert::kVocab),
                        ints(data + "t", {batch, Bert::kSeq}, 2), ints(data + "y", {batch}, 2)};
  return std::make_unique<Training<Bert>>(name, o, std::move(d));
}
Made make_convnet(const WorkloadOptions& o) {
  const std::string name = "convnet", data = data_of(name, o);
  const int64_t batch = ConvNet::kBatch * o.batches;
  std::vector<Tensor> d{real(data + "x", {batch, 3, 32, 32}, -kSqrt3, kSqrt3), ints(data + "y", {batch}, 10)};
  return std::make_unique<Training<ConvNet>>(name, o, std::move(d));
}
Made make_dlrm(const WorkloadOptions& o) {
  const std::string name = "dlrm", data = data_of(name, o);
  const int64_t batch = Dlrm::kBatch * o.batches;
  std::vector<Tensor> d{ints(data + "i", {Dlrm::kTables, batch, Dlrm::kIds}, Dlrm::kRows),
                        ints(data + "y", {batch}, 2).to(DType::f32)};
  return std::make_unique<Training<Dlrm>>(name, o, std::move(d));
}
Made make_pointwise(const WorkloadOptions& o) {
  KILN_CHECK(!o.group, invalid, "kiln-bench: pointwise has no parameters that ranks could share");
  std::vector<Tensor> d{real("bench/pointwise/data0/t", {Pointwise::kSize, Pointwise::kSize}, 0, 1)};
  return std::make_unique<Training<Pointwise>>("pointwise", o, std::move(d));
}

/// attention-N, flex-KIND-N, and flex-KIND-forward-N; or nothing.
Made make_attention(const std::string& name, const WorkloadOptions& o) {
  constexpr std::pair<const char*, Attended> kKinds[] = {{"attention-", Attended::sdpa},
                                                         {"flex-causal-", Attended::causal},
                                                         {"flex-window-", Attended::window},
                                                         {"flex-alibi-", Attended::alibi}};
  for (const auto& [prefix, attended] : kKinds)
    for (const bool backward : {true, false})
      if (const Sizes n = sizes_in(name, prefix + std::string(backward ? "" : "forward-"), 1); !n.empty())
        return std::make_unique<SelfAttention>(attended, backward, n[0], o);
  return nullptr;
}

struct Maker {
  std::string name;
  Made (*make)(const WorkloadOptions& o);
};
const Maker kMakers[] = {
    {"tiny-mlp",
     [](const WorkloadOptions& o) {
       return make_mlp("tiny-mlp", o, {64, 64, 64, 8}, 32);
     }},
    {"mlp",
     [](const WorkloadOptions& o) {
       return make_mlp("mlp", o, {784, 1024, 1024, 10}, 128);
     }},
    {"gpt-small", [](const WorkloadOptions& o) { return make_gpt(o, kGptSmall); }},
    {"bert-mini", make_bert},
    {"convnet", make_convnet},
    {"pointwise", make_pointwise},
    {"dlrm", make_dlrm},
    {"gpt2", [](const WorkloadOptions& o) { return make_gpt(o, kGpt2); }},
};

}  // namespace

const std::vector<std::string>& workload_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Maker& m : kMakers) all.push_back(m.name);
    return all;
  }();
  return names;
}

int WorkloadOptions::rank() const { return group ? group->rank() : 0; }

std::unique_ptr<Workload> make_workload(const std::string& name, const WorkloadOptions& o) {
  for (const Maker& m : kMakers)
    if (m.name == name) return m.make(o);
  const bool alone = !o.group;
  if (const Sizes n = sizes_in(name, "matmul-", 1); alone && !n.empty())
    return std::make_unique<Product>(n[0], o);
  if (Made m = alone ? make_attention(name, o) : nullptr) return m;
  if (const Sizes n = sizes_in(name, "mlp-", 3); !n.empty()) {
    Sizes widths(static_cast<size_t>(n[2]) + 1, n[1]);
    widths.push_back(10);
    return make_mlp(name, o, widths, n[0]);
  }
  if (const Sizes n = sizes_in(name, "gpt-", 4); !n.empty())
    return make_gpt(o, {name, n[3], n[2], std::max<int64_t>(1, n[2] / 64), 96, n[1], n[0]});
  throw Error(
      ErrorKind::invalid,
      fmt::format("kiln-bench: unknown workload '{}'; known: {} mlp-B-W-L gpt-B-T-W-L{}", name,
                  fmt::join(workload_names(), " "), alone ? " matmul-N attention-N flex-KIND-N" : ""));
}

}  // namespace kiln::bench
