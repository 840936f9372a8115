// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <sstream>

#include "frontend/kiln.h"

namespace kiln::nn {
namespace KILN_FILE {

std::string text_of(const Module& m) {
  std::ostringstream out;
  out << m;
  return out.str();
}

struct Block : Module {
  explicit Block(int64_t n) : fc(n, n, false) { register_module("fc", fc); }
  Linear fc;
};

struct Net : Module {
  Net() : stem(3, 4), scale(ones({4})) {
    register_parameter("scale", scale);
    register_module("stem", stem);
    register_module("blocks", blocks);
    for (const int64_t n : {4, 4, 4, 5}) blocks.emplace_back<Block>(n);
  }
  Linear stem;
  Tensor scale;
  ModuleList blocks;
};

TEST(ModulePrint, ATreeWithClassesAndTensors) {
  EXPECT_EQ(text_of(Linear(3, 4)), "Linear(weight f32[4,3], bias f32[4])");
  EXPECT_EQ(text_of(Dropout(0.5)), "dropout()");
  EXPECT_EQ(text_of(ReLU()), "relu()");
  EXPECT_EQ(text_of(Sigmoid()), "sigmoid()");
  EXPECT_EQ(text_of(MaxPool2d(2)), "max_pool2d()");
  EXPECT_EQ(text_of(Conv2d(3, 4, 5)), "Conv2d(weight f32[4,3,5,5], bias f32[4])");
  EXPECT_EQ(text_of(Net()),
            "Net(scale f32[4]\n"
            "  (stem): Linear(weight f32[4,3], bias f32[4])\n"
            "  (blocks): ModuleList(\n"
            "    (0-2): 3 x Block(\n"
            "      (fc): Linear(weight f32[4,4])\n"
            "    )\n"
            "    (3): Block(\n"
            "      (fc): Linear(weight f32[5,5])\n"
            "    )\n"
            "  )\n"
            ")");
  EXPECT_EQ(text_of(BatchNorm1d(2)),
            "BatchNorm1d(weight f32[2], bias f32[2], running_mean f32[2], running_var f32[2], "
            "num_batches_tracked i64[])");
}

TEST(ModulePrint, OnlyNeighboursByNumberAreOneLine) {
  ModuleDict dict;
  for (const char* name : {"0", "7", "8", "x"}) dict.emplace<Linear>(name, 2, 2, false);
  EXPECT_EQ(text_of(dict),
            "ModuleDict(\n"
            "  (0): Linear(weight f32[2,2])\n"
            "  (7-8): 2 x Linear(weight f32[2,2])\n"
            "  (x): Linear(weight f32[2,2])\n"
            ")");
}

TEST(ModulePrint, ListsOfModulesAndBuffers) {
  Net net;
  EXPECT_EQ(net.modules().size(), 11u);
  EXPECT_EQ(net.modules().front(), &net);
  BatchNorm1d norm(2);
  EXPECT_EQ(norm.buffers().size(), 3u);
  EXPECT_EQ(norm.buffers()[0].impl(), norm.named_buffers()[0].second.impl());
}

}  // namespace KILN_FILE
}  // namespace kiln::nn
