// SPDX-License-Identifier: Apache-2.0
// buckets.json and split.json: the forward of real modules, cut as PyTorch's DDPOptimizer cuts it. Buckets
// are compared exactly: bytes, names, their order, extension; nodes are PyTorch's own. Outputs, losses and
// gradients of the cut models are compared with PyTorch's, or where the file has none, with eager ones.
#include <gtest/gtest.h>

#include "tests/golden/eval.h"
#include "tests/golden/run.h"
#include "tests/golden/split_models.h"

namespace kiln::golden {
namespace KILN_FILE {

/// A table as the files write it: [[bytes, [names]], ...] in forward order.
Json buckets_of(const BucketTable& t) {
  Json out = Json::array();
  for (const BucketTable::Bucket& b : t.buckets) out.push_back({b.bytes, b.params});
  return out;
}
std::vector<bool> extended(const BucketTable& t) {
  std::vector<bool> out;
  for (const BucketTable::Bucket& b : t.buckets) out.push_back(b.extra_ops > 0);
  return out;
}

SplitOptions caps_of(const Json& table) {
  SplitOptions o;
  o.cap = table["bucket_bytes_cap"].get<int64_t>();
  const Json& first =
      table.contains("graphs") ? table["graphs"][0]["first_bucket_cap"] : table["first_bucket_cap"];
  if (!first.is_null()) o.first = first.get<int64_t>();
  return o;
}

struct CutRun {
  std::unique_ptr<SplitModel> model;
  Build build;
  std::vector<Tensor> outputs;
};

/// The case's model, run once on `in` with those caps.
CutRun run_split(const Json& one, const std::vector<Tensor>& in, const SplitOptions& split, Backend backend,
                 const std::function<void(SplitModel&)>& prepare = {}) {
  CutRun r;
  r.model = make_split_model(one);
  if (prepare) prepare(*r.model);
  CompileOptions options;
  options.backend = backend;
  options.split = split;
  auto f = compile([&] { return r.model->run(in, {12, 13}); }, options);
  r.outputs = f();
  r.build = f.stats().builds.at(0);
  return r;
}

/// What the two files write differently about a bucket.
Json simple(const Json& graph) {
  Json out = Json::array();
  for (const Json& b : graph["buckets"])
    out.push_back(b.is_object() ? Json::array({b["bytes"], b["params"]}) : b);
  return out;
}
std::vector<bool> extended(const Json& graph) {
  std::vector<bool> out;
  for (size_t i = 0; i < graph["buckets"].size(); ++i) {
    const Json& b = graph["buckets"][i];
    out.push_back((b.is_object() ? b["extra_nodes_for_output"] : graph["extra_nodes_for_output"][i]) != 0);
  }
  return out;
}

void check_tables(const Json& graphs, const Build& build) {
  ASSERT_EQ(build.buckets.size(), graphs.size());
  size_t partitions = 0;
  for (size_t g = 0; g < graphs.size(); ++g) {
    EXPECT_EQ(buckets_of(build.buckets[g]), simple(graphs[g]));
    EXPECT_EQ(extended(build.buckets[g]), extended(graphs[g]));
    const size_t n = graphs[g]["buckets"].size();
    partitions += n > 1 ? n : 0;
  }
  EXPECT_EQ(build.breaks.size(), partitions) << "B-47: a reason for each partition";
}

/// Outputs and gradients of a cut run equal eager ones, up to rounding.
void check_like_eager(const Json& one, const std::vector<Tensor>& in, const CutRun& cut,
                      const std::function<void(SplitModel&)>& prepare) {
  const auto eager = make_split_model(one);
  prepare(*eager);
  eager->load_state_dict(cut.model->state_dict());
  const std::vector<Tensor> expected = eager->run(in, {12, 13});
  const auto close = [](const Tensor& got, const Tensor& want) {
    ASSERT_EQ(got.defined(), want.defined());
    if (!want.defined()) return;
    const Values a = values_of(got), b = values_of(want);
    double largest = 1;
    for (double v : b.data) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < b.data.size(); ++i) ASSERT_NEAR(a.data[i], b.data[i], 1e-5 * largest);
  };
  ASSERT_EQ(cut.outputs.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) close(cut.outputs[i], expected[i]);
  if (!expected[0].requires_grad()) return;
  for (const auto& outputs : {cut.outputs, expected}) {
    Tensor loss = sum(outputs[0]);
    for (size_t i = 1; i < outputs.size(); ++i) loss = loss + sum(outputs[i]);
    loss.backward();
  }
  const nn::NamedTensors got = cut.model->named_parameters(), want = eager->named_parameters();
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(want[i].first);
    close(got[i].second.grad(), want[i].second.grad());
  }
}

void check_optimizer_case(const Json& one) {
  SCOPED_TRACE(one["id"].get<std::string>());
  const bool indices = one["input_dtype"] == "int64", half = one["input_dtype"] == "bfloat16";
  manual_seed(3);
  const Sizes sizes = one["input_shape"].get<Sizes>();
  Tensor x = indices ? randint(0, 3, sizes) : rand(sizes);
  if (half) x = to(x, DType::bf16);
  const auto prepare = [&](SplitModel& m) {
    if (half) m.to(DType::bf16);
    for (auto& [name, p] : m.named_parameters())
      for (const Json& listed : one["parameters"])
        if (listed["name"] == name && !listed["requires_grad"]) Tensor(p).requires_grad_(false);
  };
  const CutRun cut = run_split(one, {x}, caps_of(one), Backend::reference, prepare);
  check_tables(one["graphs"], cut.build);
  if (!half && one["id"] != "split_eval_no_grad_params") check_like_eager(one, {x}, cut, prepare);
}

/// Cases of `file` of that kind; "": all.
std::vector<Json> cases_of(const Json& file, const std::string& kind) {
  std::vector<Json> cases;
  for (const Json& one : file["cases"])
    if (kind.empty() || one["kind"] == kind) cases.push_back(one);
  return cases;
}

// B-11..B-26, D-46, D-55. Ignored parameters count here: PyTorch loses their marks on the way (B-21).
TEST(SplitGolden, TablesOfRealModules) {
  const Json file = load("buckets");
  const std::vector<Json> cases = cases_of(file, "ddp_optimizer");
  EXPECT_EQ(cases.size(), 28u);
  for (const Json& one : cases) check_optimizer_case(one);
}

// `split_call_module_ignored_and_reused` is left out: it is made of calls of modules, and traces hold ops.
TEST(SplitGolden, GraphsWithoutModules) {
  const Json file = load("buckets");
  int seen = 0;
  for (const Json& one : file["cases"]) {
    if (one["kind"] != "ddp_optimizer_raw") continue;
    ++seen;
    if (one["id"] == "split_empty_graph") {
      EXPECT_EQ(buckets_of(split_at_buckets({}, {}, caps_of(one))), simple(one));
    } else if (one.contains("error")) {
      EXPECT_THROW(split_at_buckets({}, {}, caps_of(one)), Error);
    } else {
      EXPECT_EQ(one["id"], "split_call_module_ignored_and_reused");
    }
  }
  EXPECT_EQ(seen, 3);
}

/// Bytes of each bucket, as the file writes them: "1050624, 4202496".
std::string bytes_text(const Buckets& b, const std::vector<BucketParam>& params) {
  std::string out;
  for (const auto& bucket : b.params) {
    int64_t bytes = 0;
    for (size_t p : bucket) bytes += params[p].bytes;
    out += (out.empty() ? "" : ", ") + std::to_string(bytes);
  }
  return out;
}

/// R-34, R-66: the wrapper's own buckets, before and after its first backward.
void check_reducer(const Json& one, int64_t cap, const nn::Module& model) {
  std::vector<BucketParam> params;
  for (const auto& [name, p] : model.named_parameters())
    if (std::find(one["ignored"].begin(), one["ignored"].end(), name) == one["ignored"].end())
      params.push_back({p.numel() * 4, DType::f32, 0, false});
  const BucketCaps caps{one["bucket_cap_mb"].is_null() ? kFirstBucketBytes : cap, cap, {}};
  EXPECT_EQ(bytes_text(initial_buckets(params, caps, true), params), one["reducer_bucket_bytes"]);
  std::vector<size_t> ready;
  for (const char c : one["reducer_rebuilt_bucket_params"].get<std::string>())
    if (std::isdigit(static_cast<unsigned char>(c))) ready.push_back(static_cast<size_t>(c - '0'));
  const Buckets rebuilt = rebuild_buckets(params, caps, ready);
  EXPECT_EQ(bytes_text(rebuilt, params), one["reducer_rebuilt_bucket_bytes"]);
  std::string text;
  for (const auto& bucket : rebuilt.params)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", fmt::join(bucket, " "));
  EXPECT_EQ(text, one["reducer_rebuilt_bucket_params"]);
}

// B-04..B-06: of a wrapper's sizes only the cap is taken over.
TEST(SplitGolden, CapsOfAWrapper) {
  const Json file = load("buckets");
  int seen = 0;
  for (Json one : file["cases"]) {
    if (one["kind"] != "ddp_wrapped") continue;
    SCOPED_TRACE(one["id"].get<std::string>());
    ++seen;
    for (int i = 0; i < one["layers"].get<int>(); ++i) {
      const int64_t d = one["d"].get<int64_t>();
      one["parameters"].push_back({{"name", fmt::format("net.{}.weight", 2 * i)}, {"shape", {d, d}}});
      one["parameters"].push_back({{"name", fmt::format("net.{}.bias", 2 * i)}, {"shape", {d}}});
    }
    SplitOptions split;
    if (!one["bucket_cap_mb"].is_null())
      split.cap = static_cast<int64_t>(one["bucket_cap_mb"].get<double>() * 1048576);
    check_reducer(one, split.cap, *make_split_model(one));
    const std::vector<Tensor> in = {rand({2, one["d"].get<int64_t>()})};
    if (one.contains("error")) {
      EXPECT_THROW(run_split(one, in, split, Backend::reference), Error);
      continue;
    }
    const Build build = run_split(one, in, split, Backend::reference).build;
    ASSERT_EQ(build.buckets.size(), one["buckets"].size());
    EXPECT_EQ(buckets_of(build.buckets[0]), simple({{"buckets", one["buckets"][0]}}));
  }
  EXPECT_EQ(seen, 5);
}

/// Scalar that the case differentiates.
Tensor loss_of(const Json& one, const Tensor& y) {
  const std::string note = one.value("note", "");
  if (note.find("mean of squares") != std::string::npos) return mean(y * y);
  return note.find("loss = mean") != std::string::npos ? mean(y) : sum(y);
}

void load_weights(SplitModel& model, const Json& one) {
  nn::NamedTensors state;
  for (const Json& entry : one["tensors"])
    if (entry.contains("param")) state.emplace_back(entry["param"].get<std::string>(), tensor_of(entry));
  model.load_state_dict(state);
}

/// Inputs of call `k`: "x0" of several, or the only one.
std::vector<Tensor> inputs_of(const Json& one, size_t k) {
  std::vector<Tensor> in;
  for (const Json& entry : one["tensors"]) {
    if (!entry.contains("arg")) continue;
    const std::string arg = entry["arg"].get<std::string>();
    if (one["calls"].size() == 1 || arg == fmt::format("x{}", k)) in.push_back(tensor_of(entry));
  }
  return in;
}

/// Every call of the case through one cut callable: output, loss, gradients.
void check_calls(const Json& one, const SplitOptions& split) {
  const auto model = make_split_model(one);
  load_weights(*model, one);
  CompileOptions options;
  options.split = split;
  auto f = compile(
      [&](const std::vector<Tensor>& in, const std::vector<int64_t>& n) { return model->run(in, n)[0]; },
      options);
  for (size_t k = 0; k < one["calls"].size(); ++k) {
    SCOPED_TRACE(k);
    const Json& call = one["calls"][k];
    std::vector<int64_t> n;
    if (one.contains("integers") && !one["integers"][k].is_null())
      n = one["integers"][k].get<std::vector<int64_t>>();
    model->zero_grad();
    const Tensor y = f(inputs_of(one, k), n);
    EXPECT_EQ(compare(call["output"], values_of(y)), "");
    const Tensor loss = loss_of(one, y);
    EXPECT_EQ(compare_scalar(call["loss"], loss.item()), "");
    loss.backward();
    for (const auto& [name, p] : model->named_parameters())
      EXPECT_EQ(compare(call["grads"][name], values_of(p.grad())), "") << name;
  }
  if (!one.contains("through_wrapper") || !one["through_wrapper"].contains("buckets_per_compile")) return;
  // Stages that end at a host read before anything uses a parameter have a table, too: one empty bucket.
  const auto has_params = [](const BucketTable& t) {
    return std::any_of(t.buckets.begin(), t.buckets.end(), [](const auto& x) { return !x.params.empty(); });
  };
  for (const Build& b : f.stats().builds) {
    const auto at = std::find_if(b.buckets.begin(), b.buckets.end(), has_params);
    ASSERT_NE(at, b.buckets.end());
    EXPECT_EQ(buckets_of(*at), one["through_wrapper"]["buckets_per_compile"][0]);
  }
}

/// The tables of a case, by name.
std::vector<std::pair<std::string, Json>> tables_of(const Json& one) {
  std::vector<std::pair<std::string, Json>> out;
  for (const auto& [name, j] : one.items())
    if (name.starts_with("table") || name == "no_split") out.emplace_back(name, j);
  return out;
}

std::vector<Json> split_cases() {
  static const Json file = load("split");
  return cases_of(file, "");
}

// D-46, D-47, D-53, D-55: as for buckets.json, on the models of PyTorch's own tests.
TEST(SplitGolden, TablesOfThePatterns) {
  const std::vector<Json> cases = split_cases();
  EXPECT_EQ(cases.size(), 20u);
  for (Json one : cases) {
    SCOPED_TRACE(one["id"].get<std::string>());
    one["calls"] = Json::array({0});
    for (const auto& [name, table] : tables_of(one)) {
      SCOPED_TRACE(name);
      std::vector<Tensor> in = inputs_of(one, 0);
      in.resize(1);
      check_tables(table["graphs"], run_split(one, in, caps_of(table), Backend::reference).build);
    }
  }
}

TEST(SplitGolden, ValuesOfThePatterns) {
  for (const Json& one : split_cases()) {
    if (!one.contains("calls")) continue;
    SCOPED_TRACE(one["id"].get<std::string>());
    const auto tables = tables_of(one);
    const SplitOptions wide{.cap = 1 << 20}, caps = tables.empty() ? wide : caps_of(tables[0].second);
    if (one["model"] != "CheckpointedMLP") {
      check_calls(one, caps);
      continue;
    }
    // Its table is of a small cap; its wrapper had another, at which it is one partition.
    check_calls(one, wide);
    Json cut = one;
    cut.erase("through_wrapper");
    check_calls(cut, caps);
  }
}

/// Elements in a half against those of f64: as far from them as PyTorch's are, but for one rounding more.
std::string compare_rounded(const Json& one, const Tensor& got) {
  const bool brain = one["output_dtype"] == "bfloat16";
  if (got.dtype() != (brain ? DType::bf16 : DType::f16)) return "got " + got.type_str();
  const Values v = values_of(got.to(DType::f32));
  const Json &exact = one["float64"], &theirs = one["output"];
  double largest = 0, apart = 0;
  for (size_t i = 0; i < exact["at"].size(); ++i) {
    const double want = exact["at"][i].get<double>();
    largest = std::max(largest, std::abs(want));
    apart = std::max(apart, std::abs(theirs["at"][i].get<double>() - want));
  }
  const double limit = apart + largest * (brain ? 0x1p-8 : 0x1p-11);
  for (size_t i = 0; i < exact["at"].size(); ++i) {
    const double a = v.data.at(exact["index"][i].get<size_t>()), want = exact["at"][i].get<double>();
    if (!(std::abs(a - want) <= limit))
      return fmt::format("element {}: got {}, expected {} within {}", exact["index"][i].get<size_t>(), a,
                         want, limit);
  }
  return "";
}

// D-47: no_grad and enabled gradients hold in every partition that their region spans.
TEST(SplitGolden, ContextsSpanPartitions) {
  for (const Json& one : split_cases()) {
    if (one["model"] != "ToyInContext") continue;
    SCOPED_TRACE(one["id"].get<std::string>());
    const CutRun r = run_split(one, {tensor_of(one["tensors"][0])}, caps_of(one["table"]), Backend::native,
                               [&](SplitModel& m) { load_weights(m, one); });
    if (one.contains("output_dtype") && one["output_dtype"] != "float32") {
      EXPECT_EQ(compare_rounded(one, r.outputs[0]), "");
    } else {
      EXPECT_EQ(compare(one["output"], values_of(r.outputs[0])), "");
    }
    EXPECT_EQ(r.outputs[0].requires_grad(), one["output_requires_grad"].get<bool>());
    EXPECT_EQ(r.build.breaks.size(), one["explain"]["reasons"].get<size_t>());
  }
}

// D-57 with the marks honoured, as BEHAVIOURS asks: the first bucket closes at exactly its cap.
TEST(SplitGolden, IgnoredParametersDoNotCount) {
  for (const Json& one : split_cases()) {
    if (one["model"] != "Custom") continue;
    SplitOptions split = caps_of(one["table_cap_25_ignored"]);
    split.ignored = one["ignored"].get<std::vector<std::string>>();
    const Build b = run_split(one, {tensor_of(one["tensors"][0])}, split, Backend::reference).build;
    EXPECT_EQ(buckets_of(b.buckets.at(0)), Json::parse(R"([[1050624, ["seq.0.weight", "seq.0.bias"]],
                                                          [1048576, ["seq.4.weight"]]])"));
  }
}

// D-08, D-14: three steps of training, where the tied weight counts in the first and the last bucket.
TEST(SplitGolden, MaskedLanguageModel) {
  for (const Json& one : split_cases()) {
    if (one["model"] != "MaskedLM") continue;
    const auto model = make_split_model(one);
    load_weights(*model, one);
    std::map<std::string, Tensor> in;
    for (const Json& entry : one["tensors"])
      if (entry.contains("arg")) in[entry["arg"].get<std::string>()] = tensor_of(entry);
    optim::SGD sgd(model->parameters(), {.lr = one["config"]["lr"].get<double>()});
    CompileOptions options;
    options.split = caps_of(one["table"]);
    auto f = compile([&](const Tensor& ids) { return (*model)(ids); }, options);
    for (size_t step = 0; step < one["losses"].size(); ++step) {
      sgd.zero_grad();
      const Tensor y = f(in["ids"]);
      if (step == 0) {
        EXPECT_EQ(compare(one["output"], values_of(y)), "");
      }
      const Tensor loss = cross_entropy(y.reshape({-1, y.size(-1)}), in["labels"].reshape({-1}));
      EXPECT_EQ(compare_late_loss(one["losses"][step], loss.item()), "");
      loss.backward();
      for (const auto& [name, p] : model->named_parameters())
        if (step == 0 && one["grads_step1"].contains(name)) {
          EXPECT_EQ(compare(one["grads_step1"][name], values_of(p.grad())), "") << name;
        }
      sgd.step();
    }
    EXPECT_EQ(f.stats().builds.size(), 1u);
  }
}

}  // namespace KILN_FILE
}  // namespace kiln::golden
