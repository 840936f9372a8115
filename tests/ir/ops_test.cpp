// SPDX-License-Identifier: Apache-2.0
// Every row of the op table.
#include "ir/op.h"

#include <gtest/gtest.h>

#include "ir/graph.h"
#include "ir/interpret.h"

namespace kiln {
namespace {

TEST(Ops, RowsAreComplete) {
  for (const OpDef* d : all_ops()) {
    SCOPED_TRACE(d->name);
    EXPECT_NE(d->infer, nullptr);
    EXPECT_TRUE(d->eval || d->view);
    EXPECT_TRUE(d->grad || d->constant_gradient);
    EXPECT_FALSE(d->grad && d->constant_gradient);
    EXPECT_FALSE(d->doc.empty());
    EXPECT_FALSE(d->source.empty());
    EXPECT_LT(d->lo, d->hi);
  }
}

}  // namespace
}  // namespace kiln
