// SPDX-License-Identifier: Apache-2.0
// Every function of the op headers says which argument it refuses, and what it got: the table has a row for
// each, and its tensors are taken away or replaced one by one. That no function is missing is read from the
// headers.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "frontend/kiln.h"
#include "tests/argument_errors_elementwise.h"
#include "tests/argument_errors_indices.h"
#include "tests/argument_errors_layers.h"
#include "tests/argument_errors_losses.h"
#include "tests/argument_errors_shapes.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

std::vector<Function> all_functions() {
  std::vector<Function> all;
  for (const auto& part :
       {elementwise_functions(), reduction_functions(), shape_functions(), product_functions(),
        index_functions(), chosen_functions(), layer_functions(), loss_functions(), random_functions(),
        in_place_functions(), indexed_write_functions()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// The call is refused with the function's name, a line of the table, the argument's name and `found`.
void expect_refused(const Function& f, const Tensors& in, size_t i, const std::string& found) {
  const std::string text = error_of([&] { f.call(in); }), arg = f.argument(i);
  EXPECT_TRUE(text.starts_with(fmt::format("invalid: {} (argument_errors_", f.name))) << arg << ": " << text;
  const bool named = text.find(arg + " " + found) != std::string::npos ||
                     text.find(arg + " is " + found) != std::string::npos;
  EXPECT_TRUE(named) << f.name << " " << arg << ": " << text;
}

TEST(ArgumentErrors, WhatIsRightIsTaken) {
  for (const Function& f : all_functions())
    EXPECT_EQ(error_of([&] { f.call(f.good); }), "no error") << f.name;
}

TEST(ArgumentErrors, UndefinedTensors) {
  for (const Function& f : all_functions())
    for (size_t i = 0; i < f.good.size(); ++i) {
      if (f.optional(i)) continue;
      Tensors in = f.good;
      in[i] = {};
      expect_refused(f, in, i, "undefined");
    }
}

TEST(ArgumentErrors, WrongTensors) {
  for (const Function& f : all_functions())
    for (const auto& [i, wrong] : f.wrong) {
      Tensors in = f.good;
      in[i] = wrong;
      expect_refused(f, in, i, wrong.type_str());
    }
}

/// "function argument" of every tensor that a function of the header takes.
std::set<std::string> declared(const std::string& header) {
  std::stringstream file;
  file << std::ifstream(header).rdbuf();
  const std::string text = std::regex_replace(file.str(), std::regex("//[^\n]*"), "");
  const std::regex function(
      "\n[A-Za-z][A-Za-z0-9_:<>&, ]* (\\w+)\\(([^;{}]*(\\{[^;{}]*\\}[^;{}]*)*)\\)( \\{|;)"),
      tensor("const (Tensor|TensorArg|std::vector<Tensor>)& (\\w+)");
  std::set<std::string> all;
  for (std::sregex_iterator f(text.begin(), text.end(), function), end; f != end; ++f) {
    const std::string parameters = (*f)[2];
    for (std::sregex_iterator t(parameters.begin(), parameters.end(), tensor); t != end; ++t)
      all.insert((*f)[1].str() + " " + (*t)[2].str());
  }
  return all;
}

TEST(ArgumentErrors, NoFunctionIsMissing) {
  std::set<std::string> known;
  for (const Function& f : all_functions())
    for (size_t i = 0; i < f.args.size(); ++i)
      known.insert(std::string(f.name) + " " + f.argument(i).substr(0, f.argument(i).find('[')));
  size_t count = 0;
  for (const char* header : {"ops",       "elementwise", "reductions",      "shapes",
                             "linalg",    "functional",  "activation",      "losses",
                             "conv",      "pooling",     "unpooling",       "norm",
                             "ops_index", "ops_sort",    "vision",          "random",
                             "attention", "rnn",         "packed_sequence", "flex_attention"}) {
    const std::set<std::string> all = declared(fmt::format("frontend/{}.h", header));
    EXPECT_FALSE(all.empty()) << header;
    count += all.size();
    for (const std::string& argument : all)  // weights have names of their own
      EXPECT_TRUE(known.count(argument) || (header == std::string("rnn") && argument.ends_with(" weights")))
          << header << ": " << argument;
  }
  EXPECT_GT(count, 300u);
}

/// Where and how a function may run.
struct Way {
  const char* name;
  Device device;
  std::optional<CompileOptions> compiled;
};
std::vector<Way> ways() {
  const auto with = [](Backend backend, Mode mode) {
    CompileOptions o;
    o.backend = backend;
    o.mode = mode;
    return o;
  };
  return {{"eager", Device::cpu(), {}},
          {"compiled", Device::cpu(), with(Backend::native, Mode::standard)},
          {"interpreted", Device::cpu(), with(Backend::reference, Mode::standard)},
          {"eager on a GPU", Device::cuda(), {}},
          {"kernels on a GPU", Device::cuda(), with(Backend::native, Mode::standard)},
          {"graphs on a GPU", Device::cuda(), with(Backend::native, Mode::reduce_overhead)}};
}

/// Without what depends on where and when.
std::string plain(std::string text) {
  return std::regex_replace(text, std::regex(" on cuda:0| \\(reported late, from call \\d+ of \\w+\\)"), "");
}

TEST(ArgumentErrors, AnIdOutOfRangeIsTheSameEverywhere) {
  const std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)> functions[] = {
      {"embedding", [](const Tensor& i, const Tensor& w) { return embedding(i, w); }},
      {"embedding_bag", [](const Tensor& i, const Tensor& w) {
         return embedding_bag(i.view({1, -1}), w);
       }}};
  for (const auto& [name, f] : functions)
    for (const Way& way : ways()) {
      const Tensor weight = mat({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}).to(way.device);
      std::function<Tensor(const Tensor&, const Tensor&)> run = f;
      if (way.compiled) run = compile(f, *way.compiled);
      const Tensor good = ids({3, 0}).to(way.device);
      const Floats want = values(run(good, weight));
      for (const int64_t bad : {int64_t{4}, int64_t{-1}, int64_t{1} << 40, INT64_MIN}) {
        const std::string text = plain(error_of([&] {
          run(ids({0, bad}).to(way.device), weight);
          cuda::synchronize();
        }));
        EXPECT_TRUE(text.starts_with(fmt::format("invalid: {} (argument_errors_test.cpp:", name))) << text;
        EXPECT_TRUE(text.ends_with(
            fmt::format("): ids {} is out of range; expected 0 to 3, the rows of weight f32[4,2]", bad)))
            << way.name << ": " << text;
        EXPECT_EQ(values(run(good, weight)), want) << way.name;
      }
    }
}

}  // namespace KILN_FILE
}  // namespace kiln
