// SPDX-License-Identifier: Apache-2.0
// Schedules as text: read back exactly, and refused where no kernel could have them.
#include "codegen/schedule.h"

#include <gtest/gtest.h>

namespace kiln {
namespace KILN_FILE {

TEST(Schedule, MatmulReadsBack) {
  MatmulSchedule s{.width = 16, .mr = 14, .nv = 2, .kc = 512, .mc = 28, .tile_m = 112, .tile_n = 96};
  for (const PackA a : {PackA::none, PackA::rows, PackA::cols}) {
    s.pack_a = a;
    s.pack_b = a != PackA::none;
    s.split_k = 1 + static_cast<int>(a);
    EXPECT_EQ(parse_matmul_schedule(str(s)), s) << str(s);
  }
  EXPECT_EQ(str(s),
            "matmul split_k=3; width=16 mr=14 nv=2 kc=512 mc=28 tile_m=112 tile_n=96 pack_a=cols pack_b=1");
  s.pairs = true;
  EXPECT_EQ(numeric_part(str(s)), "matmul pairs split_k=3");
  EXPECT_EQ(parse_matmul_schedule(str(s)), s);
  s.kc = 511;
  EXPECT_FALSE(parse_matmul_schedule(str(s))) << "chunks end between the halves of a word";
}

TEST(Schedule, OrderOfTasksAndPlaceOfTheEpilogueReadBack) {
  MatmulSchedule s{.apart = true, .mr = 6, .nv = 2, .mc = 6, .tile_m = 96, .tile_n = 96, .pack_b = false};
  EXPECT_EQ(numeric_part(str(s)), "matmul apart split_k=1");
  EXPECT_TRUE(has_epilogue_apart(str(s)));
  s.by_rows = true;
  EXPECT_TRUE(str(s).ends_with("pack_b=0 by_rows"));
  EXPECT_EQ(parse_matmul_schedule(str(s)), s);
  s.pack_b = true;
  EXPECT_FALSE(parse_matmul_schedule(str(s))) << "a packed B serves the tasks of its columns";
  s = {.pairs = true, .apart = true, .mr = 6, .nv = 2, .mc = 6, .tile_m = 96, .tile_n = 96};
  EXPECT_EQ(numeric_part(str(s)), "matmul pairs apart split_k=1");
  EXPECT_EQ(parse_matmul_schedule(str(s)), s);
  s.apart = false;
  for (const std::string& text : {str(s), str(BlisSchedule{}), str(RowSchedule{}), std::string("nonsense")})
    EXPECT_FALSE(has_epilogue_apart(text)) << text;
}

// All of it decides bits.
TEST(Schedule, BlisReadsBack) {
  const BlisSchedule s{192, 256};
  EXPECT_EQ(str(s), "blis tile=192x256;");
  EXPECT_EQ(numeric_part(str(s)), "blis tile=192x256");
  EXPECT_EQ(parse_blis_schedule(str(s)), s);
  for (const char* other :
       {"", "blis", "blis;", "blis tile=192x256", "blis tile=0x256;", "blis tile=192x;",
        "blis tile=192x256; ", "blis tile=192x-1;", "rows width=8 accumulators=4; rows=12"})
    EXPECT_FALSE(parse_blis_schedule(other)) << other;
  EXPECT_FALSE(parse_matmul_schedule(str(s)));
  EXPECT_FALSE(parse_row_schedule(str(s)));
}

TEST(Schedule, RowsReadBack) {
  const RowSchedule s{.width = 8, .accumulators = 4, .rows = 12};
  EXPECT_EQ(str(s), "rows width=8 accumulators=4; rows=12");
  EXPECT_EQ(parse_row_schedule(str(s)), s);
  EXPECT_EQ(parse_row_schedule(str(RowSchedule{})), RowSchedule{});
}

TEST(Schedule, RefusesOtherText) {
  const std::string good = str(MatmulSchedule{.mr = 6, .nv = 2, .mc = 6, .tile_m = 96, .tile_n = 96});
  ASSERT_TRUE(parse_matmul_schedule(good));
  for (size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_FALSE(parse_matmul_schedule(good.substr(0, cut))) << cut;
  EXPECT_FALSE(parse_matmul_schedule(good + " "));
  EXPECT_FALSE(parse_matmul_schedule(str(MatmulSchedule{.tile_m = 97})));  // no multiple of mc
  EXPECT_FALSE(parse_matmul_schedule(str(MatmulSchedule{.tile_n = 90})));  // no multiple of a block
  EXPECT_FALSE(parse_matmul_schedule(str(MatmulSchedule{.split_k = 0})));
  EXPECT_FALSE(parse_matmul_schedule("rows width=8 accumulators=4; rows=12"));
  EXPECT_FALSE(parse_row_schedule("rows width=7 accumulators=4; rows=12"));
  EXPECT_FALSE(parse_row_schedule("rows width=8 accumulators=9; rows=12"));
  EXPECT_FALSE(parse_row_schedule("rows width=8 accumulators=4; rows=99999999999999999999"));
  EXPECT_FALSE(parse_row_schedule(""));
}

TEST(Schedule, NumericPart) {
  EXPECT_EQ(numeric_part("rows width=8 accumulators=4; rows=12"), "rows width=8 accumulators=4");
  EXPECT_EQ(numeric_part(""), "");
}

}  // namespace KILN_FILE
}  // namespace kiln
