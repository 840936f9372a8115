// SPDX-License-Identifier: Apache-2.0
#include "frontend/serialize.h"

#include <filesystem>
#include <fstream>

#include "frontend/compile.h"
#include "frontend/nn/layers.h"
#include "frontend/optim/adam.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

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

TEST(Serialize, MappedTensorsViewTheFile) {
  const Folder folder;
  const std::string path = folder.path + "/a.safetensors";
  save_file({{"a", vec({1, 2, 3})}, {"b", Tensor::from_vector(std::vector<int64_t>{7}, {})}}, path);
  Tensor a, b;
  {
    const SafetensorsFile file(path);
    const NamedTensors all = tensors_of(file, true);
    a = all[0].second;
    b = all[1].second;
    EXPECT_EQ(a.device(), Device::cpu());
    EXPECT_EQ(static_cast<void*>(a.data_ptr<float>()), file.find("a")->data);
  }
  EXPECT_EQ(values(a + 1.0), (Floats{2, 3, 4}));  // the file object is gone, the mapping is not
  EXPECT_EQ(b.item<int64_t>(), 7);
  a.mul_(2.0);
  EXPECT_EQ(values(a), (Floats{2, 4, 6}));
  EXPECT_EQ(values(load_file(path)[0].second), (Floats{1, 2, 3}));
  EXPECT_EQ(values(load_file(path, true)[0].second), (Floats{1, 2, 3}));
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

TEST(Serialize, FilesOfTorchSave) {
  const Folder folder;
  for (const std::string& start : {std::string("PK\x03\x04 and more"), std::string("\x80\x02}q")}) {
    const std::string path = folder.path + "/x.pt";
    std::ofstream(path, std::ios::binary) << start;
    EXPECT_ERROR(load_file(path),
                 "invalid: load_file (@): " + path +
                     " is a file of torch.save, which holds Python objects (convert it in Python: "
                     "safetensors.torch.save_file(torch.load(\"" +
                     path + "\", weights_only=True), \"NAME.safetensors\"))");
  }
  const std::string none = folder.path + "/none";
  const std::string text = error_of([&] { load_file(none, false, Loc("net.cpp", 42)); });
  EXPECT_TRUE(text.starts_with("io: load_file (net.cpp:42): ")) << text;
}

}  // namespace KILN_FILE
}  // namespace kiln
