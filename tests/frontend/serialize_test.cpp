// SPDX-License-Identifier: Apache-2.0
#include "frontend/serialize.h"

#include <filesystem>

#include "frontend/compile.h"
#include "frontend/nn/layers.h"
#include "frontend/optim/optimizer.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT

struct Folder {
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path = std::filesystem::temp_directory_path() / fmt::format("kiln-serialize-{}", getpid());
};

TEST(Serialize, EveryDtypeViewsAndEmptyTensorsComeBack) {
  const Folder folder;
  const std::string path = folder.path + "/a.safetensors";
  NamedTensors given;
  for (DType t :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8, DType::boolean})
    given.emplace_back(std::string("t.") + std::string(dtype_name(t)), arange(6).to(t));
  given.emplace_back("view", transpose(mat({1, 2, 3, 4, 5, 6}, {2, 3}), 0, 1));
  given.emplace_back("empty", zeros({0, 3}));
  given.emplace_back("scalar", full({}, 7.5));
  save_file(given, path, {{"epoch", "3"}});
  const NamedTensors back = load_file(path);
  ASSERT_EQ(back.size(), given.size());
  for (const auto& [name, t] : given) {
    const auto it = std::find_if(back.begin(), back.end(), [&](const auto& p) { return p.first == name; });
    ASSERT_NE(it, back.end()) << name;
    EXPECT_EQ(it->second.type_str(), t.type_str());
    EXPECT_EQ(doubles(it->second), doubles(t)) << name;
  }
  EXPECT_EQ(SafetensorsFile(path).metadata().at("epoch"), "3");
  EXPECT_ERROR(save_file({{"x", Tensor()}}, path), "invalid: save_file (@): tensor 'x' is undefined");
  EXPECT_EQ(load_file(path).size(), given.size());
}

TEST(Serialize, TrainingGoesOnExactlyFromAFile) {
  const Folder folder;
  struct Run {
    Run() : optimizer(net.parameters(), {.lr = 0.1}) {}
    nn::Linear net{3, 2};
    optim::AdamW optimizer;
    Compiled<std::function<Tensor(const Tensor&)>> step =
        compile(std::function<Tensor(const Tensor&)>([this](const Tensor& x) {
          const Tensor loss = sum(square(net(x)));
          optimizer.zero_grad();
          loss.backward();
          optimizer.step();
          return loss;
        }));
  };
  const Tensor x = mat({1, -2, 3, 0.5f, 1, -1}, {2, 3});
  Run a, b;
  for (int i = 0; i < 3; ++i) a.step(x);
  save_file(a.net.state_dict(), folder.path + "/net.safetensors");
  save_file(a.optimizer.state_dict(), folder.path + "/optimizer.safetensors");
  b.net.load_state_dict(load_file(folder.path + "/net.safetensors"));
  b.optimizer.load_state_dict(load_file(folder.path + "/optimizer.safetensors"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(a.step(x).item(), b.step(x).item());
  EXPECT_EQ(values(a.net.weight), values(b.net.weight));
}

}  // namespace
}  // namespace kiln
