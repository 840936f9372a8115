// SPDX-License-Identifier: Apache-2.0
// Lines of ranks: where they are cut, that no byte is lost, and that a full pipe stops nobody.
#include "cli/rank_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "ir/base/error.h"

namespace kiln::cli {
namespace KILN_FILE {

/// What a stream makes of `pieces`, taken from a pipe.
std::string printed(const std::vector<std::string>& pieces, bool finish = true) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  OutputQueue queue;
  LinePrefix stream("[3] ", ends[1], queue);
  for (const std::string& piece : pieces) stream.take(piece);
  if (finish) stream.finish();
  std::string out, bytes(1 << 16, '\0');
  while (!queue.empty()) {
    queue.write_some();
    for (ssize_t n = 0; (n = read(ends[0], bytes.data(), bytes.size())) > 0;)
      out.append(bytes, 0, static_cast<size_t>(n));
  }
  close(ends[0]), close(ends[1]);
  return out;
}

TEST(RankOutput, LinesHaveThePrefixHoweverTheyCome) {
  EXPECT_EQ(printed({"a\nb\n"}), "[3] a\n[3] b\n");
  EXPECT_EQ(printed({"a", "", "\nb", "c\n", "\n"}), "[3] a\n[3] bc\n[3] \n");
}

TEST(RankOutput, ALastLineWithoutEndIsKeptUntilTheStreamEnds) {
  EXPECT_EQ(printed({"a\nhalf"}, false), "[3] a\n");
  EXPECT_EQ(printed({"a\nhalf"}), "[3] a\n[3] half\n");
  EXPECT_EQ(printed({}), "");
}

TEST(RankOutput, BytesAreBytes) {
  const std::string bytes("\0\xff\r\x1b[2K\0", 8);
  EXPECT_EQ(printed({bytes, "\n"}), "[3] " + bytes + "\n");
}

TEST(RankOutput, OnlyAnEndlessLineIsCut) {
  const std::string most(LinePrefix::kLongestLine - 1, 'x');
  EXPECT_EQ(printed({most, "\n"}), "[3] " + most + "\n");
  EXPECT_EQ(printed({most, "xyz\n"}), "[3] " + most + "x\n[3] yz\n");
}

TEST(RankOutput, TheQueueKeepsTheOrderOfDescriptors) {
  int a[2], b[2];
  ASSERT_EQ(pipe(a), 0);
  ASSERT_EQ(pipe(b), 0);
  OutputQueue queue;
  queue.push(a[1], "first");
  queue.push(b[1], "");
  queue.push(b[1], "second");
  EXPECT_EQ(queue.size(), 11u);
  EXPECT_EQ(queue.fd(), a[1]);
  queue.write_some();
  EXPECT_EQ(queue.fd(), b[1]);
  EXPECT_EQ(queue.size(), 6u);
  queue.write_some();
  EXPECT_TRUE(queue.empty());
  for (int fd : {a[0], a[1], b[0], b[1]}) close(fd);
}

TEST(RankOutput, WhatCannotBeWrittenIsSaid) {
  const int full = open("/dev/full", O_WRONLY);
  OutputQueue queue;
  queue.push(full, "x");
  try {
    queue.write_some();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::io);
    EXPECT_STREQ(e.what(), "run: cannot write the ranks' output; No space left on device");
  }
  close(full);
}

}  // namespace KILN_FILE
}  // namespace kiln::cli
