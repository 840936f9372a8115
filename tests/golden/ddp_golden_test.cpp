// SPDX-License-Identifier: Apache-2.0
// ddp.json: what DistributedDataParallel computes on each rank, eagerly and compiled, among threads that
// share memory and that talk by Gloo. G-19, G-20, G-24, G-25: ..R-34, R-49..R-60, R-66, R-79,
//
#include <iostream>
#include <optional>

#include "frontend/kiln.h"
#include "frontend/nn/distributed_data_parallel.h"
#include "ir/base/options.h"
#include "tests/golden/eval.h"
#include "tests/golden/ranks.h"
#include "tests/golden/run.h"

namespace kiln::golden {
namespace {

using nn::DistributedDataParallel;
using Options = nn::DistributedDataParallelOptions;
using Compression = nn::GradientCompression;

/// Three linears with tanh.
struct Net : nn::Module {
  explicit Net(int64_t i = 5, int64_t h = 6, int64_t o = 2) : fc0(i, h), fc1(h, h), fc2(h, o) {
    register_module("fc0", fc0);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(tanh(fc1(tanh(fc0(x))))); }
  nn::Linear fc0, fc1, fc2;
};

/// fc1 is applied twice.
struct TwiceNet : Net {
  Tensor forward(const Tensor& x) override { return fc2(tanh(fc1(tanh(fc1(tanh(fc0(x))))))); }
};

/// Adds the buffer to its output; counts its forwards in an integer buffer.
struct BufferNet : Net {
  BufferNet() : shift(zeros({2})), count(Tensor::from_vector<int64_t>({0}, {1})) {
    register_buffer("shift", shift);
    register_buffer("count", count);
  }
  Tensor forward(const Tensor& x) override {
    {
      NoGrad guard;
      count.copy_(count + 1);
    }
    return Net::forward(x) + shift;
  }
  Tensor shift, count;
};

/// Rank 1 runs the two branches in the other order.
struct BranchNet : nn::Module {
  explicit BranchNet(int rank) : first(rank == 0), a(5, 6), b(5, 6), c(6, 2) {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
  }
  Tensor forward(const Tensor& x) override {
    if (first) {
      const Tensor u = a(x), v = b(x);
      return c(tanh(u) + tanh(v));
    }
    const Tensor v = b(x), u = a(x);
    return c(tanh(v) + tanh(u));
  }
  const bool first;
  nn::Linear a, b, c;
};

/// One rank of one case.
struct Run {
  const Json& j;
  RankResults& results;
  const int rank;
  const GroupPtr group;
  const bool compiled;
  const Device device;

  Tensor own(const std::string& name) const { return formula(name).to(device); }
  /// The formula tensor of that name, this rank's own if there is one.
  Tensor formula(const std::string& name) const {
    const Json* found = nullptr;
    for (const Json& e : j["tensors"]) {
      if (e["arg"] == name + fmt::format("/rank{}", rank)) return tensor_of(e);
      if (e["arg"] == name) found = &e;
    }
    if (!found) throw std::runtime_error("no tensor " + name);
    return tensor_of(*found);
  }
  /// Moves it to the rank's device, too.
  void fill(nn::Module& m) const {
    NoGrad guard;
    for (auto& [name, p] : m.named_parameters()) p.copy_(formula(name));
    m.to(device);
  }
  void put(const std::string& name, const Tensor& t) const {
    results.put(rank, name, t.defined() ? t.cpu() : t);
  }
  void put_grads(nn::Module& m, int64_t step) const {
    for (auto& [name, p] : m.named_parameters()) put(fmt::format("{}/{}.grad", step, name), p.grad());
  }
  void put_parameters(nn::Module& m, const std::string& prefix = "after") const {
    for (auto& [name, p] : m.named_parameters()) put(prefix + "/" + name, p);
  }
  /// Wraps `step` or leaves it; `builds` of it are expected at the end.
  template <typename F, typename Use>
  void with(F step, size_t builds, Use&& use) const {
    if (!compiled) return use(step);
    auto f = compile(step);
    use(f);
    const size_t n = f.stats().builds.size();
    if (n != builds) throw std::runtime_error(fmt::format("{} builds, expected {}", n, builds));
  }
};

Tensor row(const Tensor& t, int64_t i) { return select(t, 0, i).clone(); }

struct Training {
  int64_t steps = 5;
  bool zero = true;
  size_t builds = 1;
  std::function<void(int64_t)> after = [](int64_t) {};
};

/// SGD; x[s], y[s] are this rank's batch of step s; the loss is the mean squared error.
void train(const Run& r, nn::Module& net, DistributedDataParallel& ddp, const Training& t = {}) {
  const Tensor x = r.own("x"), y = r.own("y");
  optim::SGD opt(net.parameters(), {.lr = 0.25});
  const auto step = [&](const Tensor& in, const Tensor& target) {
    if (t.zero) opt.zero_grad();
    const Tensor loss = mse_loss(ddp(in), target);
    loss.backward();
    opt.step();
    return loss;
  };
  const bool numbers = !r.j["numbers"].empty();
  r.with(step, t.builds, [&](auto& f) {
    for (int64_t s = 0; s < t.steps; ++s) {
      const Tensor loss = f(row(x, s), row(y, s));
      if (numbers) r.put(fmt::format("{}/loss", s), loss);
      if (numbers) r.put_grads(net, s);
      t.after(s);
    }
  });
  if (numbers) r.put_parameters(net);
}

template <typename Model = Net>
void plain(const Run& r, const Options& options = {}, const Training& t = {}) {
  Model net;
  r.fill(net);
  DistributedDataParallel ddp(net, r.group, options);
  train(r, net, ddp, t);
}

void wrapped(const Run& r, const Options& options, const Training& t) {
  Net net;
  r.fill(net);
  DistributedDataParallel ddp(net, r.group, options);
  r.put_parameters(net, "wrapped");
  train(r, net, ddp, t);
}

/// Every other backward is a synced one; the step follows it.
void every_other(const Run& r) {
  Net net;
  r.fill(net);
  DistributedDataParallel ddp(net, r.group);
  const Tensor x = r.own("x"), y = r.own("y");
  optim::SGD opt(net.parameters(), {.lr = 0.25});
  const auto half = [&](const Tensor& in, const Tensor& target, bool sync) {
    std::optional<DistributedDataParallel::NoSync> scope;
    if (!sync) scope.emplace(ddp);
    mse_loss(ddp(in), target).backward();
  };
  r.with(half, 2, [&](auto& f) {
    for (int64_t s = 0; s < 6; ++s) {
      f(row(x, s), row(y, s), s % 2 == 1);
      r.put_grads(net, s);
      if (s % 2 == 0) continue;
      opt.step();
      opt.zero_grad();
    }
  });
  r.put_parameters(net);
}

/// One forward and one backward, of which one is in a no_sync scope.
void half_in_scope(const Run& r, bool forward) {
  Net net;
  r.fill(net);
  DistributedDataParallel ddp(net, r.group);
  const auto step = [&](const Tensor& in, const Tensor& target) {
    std::optional<DistributedDataParallel::NoSync> scope;
    if (forward) scope.emplace(ddp);
    const Tensor loss = mse_loss(ddp(in), target);
    if (forward) scope.reset();
    else scope.emplace(ddp);
    loss.backward();
  };
  r.with(step, 1, [&](auto& f) { f(row(r.own("x"), 0), row(r.own("y"), 0)); });
  r.put_grads(net, 0);
}

std::string sizes_text(const std::vector<nn::GradientBucket>& buckets) {
  std::vector<int64_t> bytes;
  for (const nn::GradientBucket& b : buckets) bytes.push_back(b.bytes);
  return fmt::format("{}", fmt::join(bytes, ", "));
}

std::string indices_text(const std::vector<nn::GradientBucket>& buckets) {
  std::vector<std::string> of;
  for (const nn::GradientBucket& b : buckets) of.push_back(fmt::format("{}", fmt::join(b.parameters, " ")));
  return fmt::format("{}", fmt::join(of, ", "));
}

void bucket_list(const Run& r) {
  Net net;
  r.fill(net);
  DistributedDataParallel ddp(net, r.group, {.bucket_cap_mb_list = {1e-4, 2e-4}});
  train(r, net, ddp, {.steps = 3});
  r.results.fact(r.rank, "bucket_sizes", sizes_text(ddp.initial_buckets()));
  r.results.fact(r.rank, "rebuilt_bucket_sizes", sizes_text(ddp.rebuilt_buckets()));
}

/// The tables of the logging data: PyTorch shows those of the rebuilt buckets two forwards later.
void tables(const Run& r, nn::Module& net, const Options& options,
            const std::function<void(Run, DistributedDataParallel&)>& go) {
  DistributedDataParallel ddp(net, r.group, options);
  const auto fact = [&](const std::string& name, const Json& value) { r.results.fact(r.rank, name, value); };
  fact("constructed/bucket_sizes", sizes_text(ddp.initial_buckets()));
  fact("constructed/num_parameter_tensors", ddp.reduced_names().size());
  int64_t bytes = 0;
  for (const nn::GradientBucket& b : ddp.initial_buckets()) bytes += b.bytes;
  fact("constructed/total_parameter_size_bytes", bytes);
  fact("constructed/world_size", r.group->size());
  fact("constructed/rank", r.group->rank());
  go(r, ddp);
  if (!r.j["facts"].contains("after3/rebuilt_bucket_sizes")) return;
  fact("after3/rebuilt_bucket_sizes", sizes_text(ddp.rebuilt_buckets()));
  fact("after3/rebuilt_per_bucket_param_indices", indices_text(ddp.rebuilt_buckets()));
  fact("after3/num_buckets_reduced", ddp.reductions() / 3);
}

template <typename Model, typename... Args>
void logged(const Run& r, const Options& options, int64_t steps, Args... args) {
  Model net(args...);
  r.fill(net);
  tables(r, net, options,
         [&](const Run& run, DistributedDataParallel& ddp) { train(run, net, ddp, {.steps = steps}); });
}

void large_layers(const Run& r) {
  Net net(8, 520, 4);
  net.to(r.device);
  tables(r, net, {}, [&](const Run& run, DistributedDataParallel& ddp) {
    const auto step = [&](const Tensor& x) {
      ddp.zero_grad();
      sum(ddp(x)).backward();
    };
    run.with(step, 1, [&](auto& f) {
      for (int s = 0; s < 3; ++s) f(zeros({1, 8}, {.device = run.device}));
    });
  });
}

/// The buffers of rank 0 count at the start and never again.
void buffers_at_the_start(const Run& r) {
  BufferNet net;
  r.fill(net);
  {
    NoGrad guard;
    net.count.fill_(7 * r.rank);
    net.shift.fill_(0.5 * r.rank);
  }
  DistributedDataParallel ddp(net, r.group);
  const Tensor x = r.own("x");
  const auto put = [&](int64_t s, const char* when) {
    for (auto& [name, b] : net.named_buffers()) r.put(fmt::format("{}/after_{}/{}", s, when, name), b);
  };
  const auto forward = [&](const Tensor& in) { return ddp(in); };
  r.with(forward, 1, [&](auto& f) {
    for (int64_t s = 0; s < 3; ++s) {
      if (r.rank == 1) {
        NoGrad guard;
        net.shift.copy_(net.shift + 10.0);
        net.count.copy_(net.count + 100);
      }
      const Tensor out = f(row(x, s));
      put(s, "forward");
      sum(out).backward();
      put(s, "backward");
    }
  });
}

void separate_optimizer(const Run& r,
                        const std::function<std::unique_ptr<optim::Optimizer>(nn::Module&)>& make) {
  Net net;
  r.fill(net);
  DistributedDataParallel ddp(net, r.group);
  const auto opt = make(net);
  const Tensor x = r.own("x"), y = r.own("y");
  const auto step = [&](const Tensor& in, const Tensor& target) {
    ddp.zero_grad();
    mse_loss(ddp(in), target).backward();
    opt->step();
  };
  Json null = Json::array();
  r.with(step, 1, [&](auto& f) {
    for (int64_t s = 0; s < 3; ++s) {
      f(row(x, s), row(y, s));
      r.put_parameters(net, fmt::format("{}", s));
      null.push_back(!net.fc0.weight.grad().defined());
    }
  });
  r.results.fact(r.rank, "gradients_null", null);
}

Options capped(double mb) { return {.bucket_cap_mb = mb}; }

using Case = std::function<void(const Run&)>;
const std::map<std::string, Case>& cases() {
  static const Case with_plain = [](const Run& r) { plain(r); };
  static const Case small = [](const Run& r) { plain(r, capped(1e-4), {.steps = 3}); };
  static const Case fp16 = [](const Run& r) { plain(r, {.compression = Compression::fp16}, {.steps = 3}); };
  static const Case small_tables = [](const Run& r) { logged<Net>(r, capped(1e-4), 3); };
  static const std::map<std::string, Case> all = {
      {"plain", with_plain},
      {"plain_4", with_plain},
      {"initial_broadcast", [](const Run& r) { wrapped(r, {}, {.steps = 2}); }},
      {"no_initial_sync", [](const Run& r) { wrapped(r, {.init_sync = false}, {.steps = 1}); }},
      {"small_buckets", [](const Run& r) { plain(r, capped(1e-4)); }},
      {"no_sync_every_other", every_other},
      {"no_sync_4", every_other},
      {"no_sync_backward_only", [](const Run& r) { half_in_scope(r, false); }},
      {"no_sync_forward_only", [](const Run& r) { half_in_scope(r, true); }},
      // Without a gradient, with one that the first call made, with one that is there: two builds.
      {"no_views_accumulate", [](const Run& r) { plain(r, {}, {.steps = 3, .zero = false, .builds = 2}); }},
      {"layer_twice", [](const Run& r) { plain<TwiceNet>(r, {}, {.steps = 3}); }},
      {"bucket_cap_list", bucket_list},
      {"ignored_parameter", [](const Run& r) { plain(r, {.ignore = {"fc1.weight"}}, {.steps = 2}); }},
      // Options that say how PyTorch fills buckets; here there is one way.
      {"batched_grad_copy", small},
      {"lazy_bucket_allocation", small},
      {"mixed_plain_fp32", [](const Run& r) { plain(r, {}, {.steps = 3}); }},
      {"hook_none", [](const Run& r) { plain(r, {}, {.steps = 3}); }},
      // Ways to one thing; in 4 ranks the sums are rounded once here, and at each step there.
      {"hook_fp16", fp16},
      {"hook_builtin_fp16", fp16},
      {"hook_fp16_wrapper_over_allreduce", fp16},
      {"hook_fp16_4", fp16},
      {"hook_bf16_body", [](const Run& r) { plain(r, {.compression = Compression::bf16}, {.steps = 3}); }},
      {"logging_comm_hook", [](const Run& r) { logged<Net>(r, {.compression = Compression::fp16}, 1); }},
      {"buffers_forward_sync_off", buffers_at_the_start},
      {"optimizer_separate_sgd",
       [](const Run& r) {
         separate_optimizer(r, [](nn::Module& m) -> std::unique_ptr<optim::Optimizer> {
           return std::make_unique<optim::SGD>(m.parameters(),
                                               optim::SGDOptions{.lr = 0.25, .momentum = 0.5});
         });
       }},
      {"optimizer_separate_adam",
       [](const Run& r) {
         separate_optimizer(r, [](nn::Module& m) -> std::unique_ptr<optim::Optimizer> {
           return std::make_unique<optim::AdamW>(
               m.parameters(),
               optim::AdamWOptions{.lr = 0.05, .beta1 = 0.5, .beta2 = 0.75, .eps = 1e-3, .weight_decay = 0});
         });
       }},
      {"logging_default", [](const Run& r) { logged<Net>(r, {}, 3); }},
      {"logging_small_cap", small_tables},
      {"logging_four_ranks", small_tables},
      {"logging_views", [](const Run& r) { logged<Net>(r, capped(2e-4), 3); }},
      {"logging_ready_order_differs", [](const Run& r) { logged<BranchNet>(r, capped(1e-4), 3, r.rank); }},
      {"logging_large_layers", large_layers},
  };
  return all;
}

/// What keeps the others from being run: the beginnings of their ids.
const std::vector<std::pair<std::string, std::string>>& not_built() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"assign_", "a case of assignment.json"},
      {"batch_norm_running_statistics", "buffers are not synced in a forward"},
      {"bucket_views", "option gradient_as_bucket_view"},
      {"buffers_after_no_sync", "buffers are not synced in a forward"},
      {"buffers_broadcast", "buffers are not synced in a forward"},
      {"buffers_hook_", "buffer hooks"},
      {"buffers_ignored", "buffers are not synced in a forward"},
      {"buffers_replaced", "buffers are not synced in a forward"},
      {"buffers_sync_off", "option broadcast_buffers"},
      {"delayed_all_reduce", "delayed all-reduce"},
      {"detection_all_used", "option find_unused_parameters"},
      {"hook_allreduce", "communication hooks"},
      {"hook_bucket_fields", "communication hooks"},
      {"hook_builtin_allreduce", "communication hooks"},
      {"hook_encode_decode", "communication hooks"},
      {"hook_noop", "communication hooks"},
      {"hook_other_tensor_into_views", "communication hooks"},
      {"hook_powersgd_", "communication hooks"},
      {"join_", "uneven inputs (join)"},
      {"logging_detection", "option find_unused_parameters"},
      {"logging_large_layers_detection", "option find_unused_parameters"},
      {"logging_static", "option static_graph"},
      {"mixed_bf16_", "option mixed_precision"},
      {"no_sync_with_detection", "option find_unused_parameters"},
      {"optimizer_fused_", "optimizers fused into the reduction"},
      {"optimizer_in_backward_", "optimizers in the backward"},
      {"process_group_replaced", "replacing the process group"},
      {"save_and_load_", "saving the wrapper"},
      {"sparse_", "sparse gradients"},
      {"static_graph", "option static_graph"},
      {"unused_", "option find_unused_parameters"},
  };
  return all;
}

/// The fields of the logging data that Kiln does not have, or has at another time.
bool fact_left(const std::string& name) {
  static const std::set<std::string> looked_at = {"constructed/bucket_sizes",
                                                  "constructed/num_parameter_tensors",
                                                  "constructed/total_parameter_size_bytes",
                                                  "constructed/world_size",
                                                  "constructed/rank",
                                                  "after3/rebuilt_bucket_sizes",
                                                  "after3/rebuilt_per_bucket_param_indices",
                                                  "after3/num_buckets_reduced",
                                                  "bucket_sizes",
                                                  "rebuilt_bucket_sizes",
                                                  "gradients_null"};
  return !looked_at.contains(name);
}

/// What one step of the halves that a case sends is, and a little more.
double rounding(const std::string& id) {
  return id.find("fp16") != std::string::npos ? 1e-3 : id.find("bf16") != std::string::npos ? 1.6e-2 : 0;
}

std::string run(const Json& j, const Case& body, bool compiled, Between between) {
  RankResults results(j, rounding(j["id"]));
  std::string d =
      first_difference(on_ranks(j["world"].get<int>(), between, [&](int rank, const GroupPtr& group) {
        body({j, results, rank, group, compiled,
              between == Between::gpus ? Device::cuda(rank) : Device::cpu()});
        return std::string();
      }));
  return d.empty() ? results.missing(fact_left) : d;
}

std::string run(const Json& j, const Case& body, bool compiled) {
  if (option("KILN_TEST_DEVICE") == "cuda") return run(j, body, compiled, Between::gpus);
  const std::string shared = run(j, body, compiled, Between::threads);
  if (!shared.empty()) return "threads, " + shared;
  const std::string sent = run(j, body, compiled, Between::gloo);
  return sent.empty() ? "" : "gloo, " + sent;
}

std::string reason(const std::string& id) {
  for (const auto& [begin, why] : not_built())
    if (id.starts_with(begin)) return why;
  return "";
}

/// Every case is either run or has a reason, and nothing else is listed.
std::string list_is_complete(const Json& file) {
  std::set<std::string> ids, used;
  for (const Json& j : file["cases"]) {
    const std::string id = j["id"];
    ids.insert(id);
    if (cases().contains(id)) continue;
    if (reason(id).empty()) return id + " is neither run nor listed";
    for (const auto& [begin, why] : not_built())
      if (id.starts_with(begin)) used.insert(begin);
  }
  for (const auto& [id, body] : cases())
    if (!ids.contains(id)) return "the file has no case " + id;
  for (const auto& [begin, why] : not_built())
    if (!used.contains(begin)) return "the file has no case " + begin + "...";
  return "";
}

}  // namespace
}  // namespace kiln::golden

int main(int argc, char** argv) {
  using namespace kiln::golden;
  const std::string incomplete = list_is_complete(load("ddp"));
  if (!incomplete.empty()) {
    std::cerr << incomplete << std::endl;
    return 2;
  }
  return golden_main("ddp", argc, argv, [](const Json&, const Json& j, bool compiled) {
    const std::string id = j["id"];
    const auto found = cases().find(id);
    if (found == cases().end()) throw Exempt(reason(id));
    return run(j, found->second, compiled);
  });
}
