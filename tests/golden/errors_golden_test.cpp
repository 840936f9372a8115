// SPDX-License-Identifier: Apache-2.0
// errors.json: what DistributedDataParallel refuses, in words that the file asks for (G-33).
#include <algorithm>
#include <iostream>
#include <optional>

#include "frontend/kiln.h"
#include "frontend/nn/distributed_data_parallel.h"
#include "tests/golden/eval.h"
#include "tests/golden/ranks.h"
#include "tests/golden/run.h"

namespace kiln::golden {
namespace {

using nn::DistributedDataParallel;
using Options = nn::DistributedDataParallelOptions;

/// `b` has parameters and is never used.
struct Unused : nn::Module {
  Unused() : a(3, 2), b(3, 2) {
    register_module("a", a);
    register_module("b", b);
  }
  Tensor forward(const Tensor& x) override { return a(x); }
  nn::Linear a, b;
};

/// The second output stays in the module.
struct TwoOutputs : Unused {
  Tensor forward(const Tensor& x) override {
    second = b(x);
    return a(x);
  }
  Tensor second;
};

struct Empty : nn::Module {
  Tensor forward(const Tensor& x) override { return relu(x); }
};

/// Forward and backward of a wrapped module, `times` times.
void steps(DistributedDataParallel& ddp, bool compiled, int times = 1) {
  const auto step = [&](const Tensor& x) { sum(ddp(x)).backward(); };
  const auto fast = compile(step);
  for (int i = 0; i < times; ++i) compiled ? fast(ones({2, 3})) : step(ones({2, 3}));
}

/// Wraps a new Linear(3, 2) or what is given; steps are refused or not.
template <typename Model = Unused>
void wrap_and_step(const GroupPtr& group, bool compiled) {
  Model m;
  DistributedDataParallel ddp(m, group);
  steps(ddp, compiled, 3);
}

void nothing_to_train(int, const GroupPtr& group, bool) {
  nn::Linear m(3, 2);
  m.requires_grad_(false);
  DistributedDataParallel(m, group);
}
void everything_ignored(int, const GroupPtr& group, bool) {
  nn::Linear m(3, 2);
  DistributedDataParallel(m, group, {.ignore = {"weight", "bias"}});
}
void cap_and_list(int, const GroupPtr& group, bool compiled) {
  nn::Linear m(3, 2);
  DistributedDataParallel ddp(m, group, {.bucket_cap_mb = 1, .bucket_cap_mb_list = {1, 2}});
  steps(ddp, compiled);
}
void two_backwards(int, const GroupPtr& group, bool compiled) {
  nn::Linear m(3, 2);
  DistributedDataParallel ddp(m, group);
  const auto twice = [&](const Tensor& x) {
    const Tensor out = sum(ddp(x));
    out.backward({}, true);
    out.backward();
  };
  compiled ? compile(twice)(ones({2, 3})) : twice(ones({2, 3}));
}
void gradient_of_other_dtype(int, const GroupPtr& group, bool compiled) {
  nn::Linear m(3, 2);
  DistributedDataParallel ddp(m, group);
  const HookHandle handle = m.weight.register_hook([](const Tensor& g) { return to(g, DType::f64); });
  steps(ddp, compiled);
}

struct Case {
  std::function<void(int rank, const GroupPtr& group, bool compiled)> run;
  std::optional<ErrorKind> refused = {};  ///< what all ranks raise; unset: nothing
  std::vector<std::string> more = {};     ///< words where Kiln refuses and PyTorch does not
};

const std::map<std::string, Case>& cases() {
  static const std::map<std::string, Case> all = {
      {"no_group",
       {[](int, const GroupPtr&, bool) {
          nn::Linear m(3, 2);
          DistributedDataParallel(m, nullptr);
        },
        ErrorKind::invalid}},
      {"nothing_to_train", {nothing_to_train, ErrorKind::invalid}},
      {"no_parameters",
       {[](int, const GroupPtr& group, bool) {
          Empty m;
          DistributedDataParallel(m, group);
        },
        ErrorKind::invalid}},
      {"everything_ignored", {everything_ignored, ErrorKind::invalid}},
      {"cap_and_list", {cap_and_list}},
      {"parameter_count_differs",
       {[](int rank, const GroupPtr& group, bool) {
          nn::Linear m(3, 2, rank == 0);
          DistributedDataParallel(m, group);
        },
        ErrorKind::comm}},
      // PyTorch's other rank times out; here all ranks raise, with the same words.
      {"parameter_shape_differs",
       {[](int rank, const GroupPtr& group, bool) {
          nn::Linear m(3 + rank, 2);
          DistributedDataParallel(m, group);
        },
        ErrorKind::comm}},
      // PyTorch leaves the second one local, without a word.
      {"two_backwards_of_one_forward",
       {two_backwards, ErrorKind::invalid, {"have been reduced", "this rank's alone", "no_sync"}}},
      {"unfinished_detection_off",
       {[](int, const GroupPtr& group, bool compiled) { wrap_and_step<Unused>(group, compiled); },
        ErrorKind::invalid}},
      {"detection_off_output_not_in_loss",
       {[](int, const GroupPtr& group, bool compiled) { wrap_and_step<TwoOutputs>(group, compiled); },
        ErrorKind::invalid}},
      {"gradient_of_other_dtype", {gradient_of_other_dtype, ErrorKind::invalid}},
  };
  return all;
}

/// What keeps the others from being run.
constexpr const char *hooks = "communication hooks", *statics = "option static_graph",
                     *devices = "one device, which is not chosen", *join = "join",
                     *finalise = "manual finalisation", *detection = "unused parameters",
                     *fused = "optimizers fused into the reduction",
                     *views = "option gradient_as_bucket_view", *log = "logging data",
                     *split = "the split optimiser", *delay = "delayed all-reduce",
                     *sync_bn = "SyncBatchNorm", *mesh = "device meshes";
const std::map<std::string, std::string>& not_built() {
  static const std::map<std::string, std::string> all = {
      {"bucket_views_detached", views},
      {"bucket_views_replaced_gradient", views},
      {"both_buffer_flags", "buffers are not synced in a forward"},
      {"builtin_after_comm_hook", hooks},
      {"cap_list_with_python_reducer", "there is one reducer"},
      {"check_reducer_finalized", "the explicit check"},
      {"check_reduction_warns", "a deprecated option"},
      {"comm_hook_after_backward", hooks},
      {"comm_hook_after_builtin", hooks},
      {"comm_hook_bf16_on_cpu", hooks},
      {"comm_hook_bucket_annotation", hooks},
      {"comm_hook_not_callable", hooks},
      {"comm_hook_return_annotation", hooks},
      {"comm_hook_returns_nothing", hooks},
      {"compiled_backward_over_cpp_reducer", "not refused: a compiled backward holds the reduction"},
      {"delay_without_hook_parameter", delay},
      {"detection_on_output_detached", detection},
      {"detection_on_output_not_in_loss", detection},
      {"device_id_on_cpu", devices},
      {"error_is_logged", log},
      {"fused_optimizer_unsupported_class", fused},
      {"fused_optimizer_with_comm_hook", fused},
      {"group_and_mesh", mesh},
      {"hook_parameter_without_delay", delay},
      {"join_different_groups", join},
      {"join_empty_list", join},
      {"join_throw_on_early_termination", join},
      {"lazy_parameters", "lazy modules"},
      {"manual_finalisation_forgotten", finalise},
      {"manual_finalisation_not_required", finalise},
      {"manual_finalisation_too_early", finalise},
      {"manual_finalisation_twice", finalise},
      {"marked_twice_outside_forward", detection},
      {"marked_twice_reentrant_checkpoint", "checkpoints are not reentrant: a parameter is ready once"},
      {"mesh_not_1d", mesh},
      {"optimiser_first_cap_above_cap", split},
      {"optimize_ddp_unknown_mode", split},
      {"output_device_on_cpu", devices},
      {"output_device_zero_accepted", devices},
      {"pickle_with_other_group", "saving the wrapper"},
      {"sample_rate_zero", log},
      {"second_comm_hook", hooks},
      {"sparse_parameter", "sparse tensors"},
      {"static_graph_fires_more", statics},
      {"static_graph_first_iteration_unused_used_later", statics},
      {"static_graph_set_late", statics},
      {"static_graph_set_twice", statics},
      {"sync_batch_norm_forward_on_cpu", sync_bn},
      {"sync_batch_norm_on_cpu", sync_bn},
      {"two_device_ids", devices},
      {"two_device_types", devices},
      {"unfinished_static_graph", statics},
  };
  return all;
}

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
  return s;
}

std::string run(const Json& j, const Case& c, bool compiled) {
  std::vector<std::string> words = c.more;
  if (j["refused"].get<bool>())
    for (const Json& w : j["words"]) words.push_back(w.get<std::string>());
  const auto said = on_ranks(j["world"].get<int>(), Between::threads, [&](int rank, const GroupPtr& group) {
    c.run(rank, group, compiled);
    return std::string();
  });
  for (const std::string& s : said) {
    if (!c.refused && !s.empty()) return "refused: " + s;
    if (!c.refused) continue;
    if (!s.starts_with(std::string(to_string(*c.refused)) + ": "))
      return fmt::format("got '{}', expected an error of kind {}", s, to_string(*c.refused));
    for (const std::string& w : words)
      if (lower(s).find(lower(w)) == std::string::npos) return fmt::format("'{}' does not say '{}'", s, w);
  }
  return "";
}

/// Every case is either run or has a reason, and nothing else is listed.
std::string list_is_complete(const Json& file) {
  std::set<std::string> ids;
  for (const Json& j : file["cases"]) {
    const std::string id = j["id"];
    ids.insert(id);
    if (cases().contains(id) == not_built().contains(id)) return id + " is not listed once";
  }
  for (const auto& [id, c] : cases())
    if (!ids.contains(id)) return "the file has no case " + id;
  for (const auto& [id, why] : not_built())
    if (!ids.contains(id)) return "the file has no case " + id;
  return "";
}

}  // namespace
}  // namespace kiln::golden

int main(int argc, char** argv) {
  using namespace kiln::golden;
  const std::string incomplete = list_is_complete(load("errors"));
  if (!incomplete.empty()) {
    std::cerr << incomplete << std::endl;
    return 2;
  }
  return golden_main("errors", argc, argv, [](const Json&, const Json& j, bool compiled) {
    const std::string id = j["id"];
    const auto found = cases().find(id);
    if (found == cases().end()) throw Exempt(not_built().at(id));
    return run(j, found->second, compiled);
  });
}
