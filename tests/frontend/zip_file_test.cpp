// SPDX-License-Identifier: Apache-2.0
#include "frontend/zip_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using testing::error_of;
using ::testing::HasSubstr;

std::string little(uint64_t value, size_t bytes) {
  std::string out;
  for (; bytes > 0; --bytes, value >>= 8) out += static_cast<char>(value & 0xff);
  return out;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// An archive with one stored member; the numbers may be made to lie.
struct Archive {
  std::string name = "a.txt", data = "hello", comment;
  uint64_t packed = 5, bytes = 5, header = 0, count = 1;
  uint16_t method = 0, flags = 0;
  uint32_t crc = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>("hello"), 5));

  std::string str() const {
    const std::string local = "PK\x03\x04" + little(20, 2) + little(flags, 2) + little(method, 2) +
                              little(0, 4) + little(crc, 4) + little(packed, 4) + little(bytes, 4) +
                              little(name.size(), 2) + little(0, 2) + name + data;
    const std::string member = "PK\x01\x02" + little(20, 2) + little(20, 2) + little(flags, 2) +
                               little(method, 2) + little(0, 4) + little(crc, 4) + little(packed, 4) +
                               little(bytes, 4) + little(name.size(), 2) + little(0, 12) + little(header, 4) +
                               name;
    return local + member + "PK\x05\x06" + little(0, 4) + little(count, 2) + little(count, 2) +
           little(member.size(), 4) + little(local.size(), 4) + little(comment.size(), 2) + comment;
  }
};

class Zip : public ::testing::Test {
 protected:
  Zip() : path_((std::filesystem::temp_directory_path() / fmt::format("kiln-zip-{}", getpid())).string()) {}
  ~Zip() override { std::filesystem::remove(path_); }
  void put(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  /// What opening it, or reading a member, says; without the path.
  std::string error(const std::string& bytes) const {
    put(bytes);
    const std::string text = error_of([&] {
      const ZipFile zip(path_);
      for (const auto& m : zip.members()) zip.read(m);
    });
    const size_t at = text.find(path_);
    return at == std::string::npos ? text : text.substr(0, at) + "@" + text.substr(at + path_.size());
  }
  std::string path_;
};

TEST_F(Zip, StoredMembersAndComments) {
  put(Archive().str());
  ZipFile zip(path_);
  ASSERT_EQ(zip.members().size(), 1u);
  EXPECT_EQ(zip.members()[0].name, "a.txt");
  EXPECT_EQ(text_of(zip.read(zip.members()[0])), "hello");
  put(Archive{.comment = "PK\x05\x06 in a comment"}.str());
  EXPECT_EQ(ZipFile(path_).members().size(), 1u);
  EXPECT_EQ(error("PK"), "invalid: zip @: not a zip archive, or truncated; 2 bytes without its end record");
  EXPECT_EQ(error(""), "invalid: zip @: not a zip archive, or truncated; 0 bytes without its end record");
}

TEST_F(Zip, MembersOfNumpyInBothWays) {
  for (const char* name : {"stored", "deflated"}) {
    const ZipFile zip(fmt::format("tests/goldens/numpy/{}.npz", name));
    EXPECT_GT(zip.members().size(), 20u);
    for (const auto& m : zip.members()) EXPECT_EQ(text_of(zip.read(m)).substr(1, 5), "NUMPY") << m.name;
  }
}

TEST_F(Zip, WhatLiesIsFound) {
  Archive a;
  a.crc ^= 1;
  EXPECT_EQ(error(a.str()),
            "invalid: zip @: 'a.txt' is damaged; its checksum is not the one that was stored");
  EXPECT_EQ(error(Archive{.packed = 4}.str()),
            "invalid: zip @: truncated or damaged; 'a.txt' does not lie within the file");
  EXPECT_EQ(error(Archive{.packed = 500, .bytes = 500}.str()),
            "invalid: zip @: truncated or damaged; 'a.txt' does not lie within the file");
  EXPECT_EQ(error(Archive{.header = 3}.str()), "invalid: zip @: damaged; no header of 'a.txt' at byte 3");
  EXPECT_EQ(error(Archive{.header = 300}.str()),
            "invalid: zip @: truncated or damaged; a part at byte 300 is beyond the end (113)");
  EXPECT_EQ(error(Archive{.count = 2}.str()), "invalid: zip @: damaged; no member's entry at byte 91");
  EXPECT_EQ(error(Archive{.count = 9}.str()), "invalid: zip @: damaged; 9 members in 113 bytes");
  EXPECT_EQ(error(Archive{.method = 12}.str()),
            "unsupported: zip @: 'a.txt' is packed by method 12; expected 0 (stored) or 8 (deflated)");
  EXPECT_EQ(error(Archive{.flags = 1}.str()), "unsupported: zip @: 'a.txt' is encrypted");
  EXPECT_EQ(error(Archive{.method = 8}.str()),
            "invalid: zip @: 'a.txt' is damaged; 0 of 5 bytes could be unpacked");
  EXPECT_EQ(error(Archive{.bytes = 0xfffffff0, .method = 8}.str()),
            "invalid: zip @: damaged; 'a.txt' has 5 bytes for 4294967280 unpacked");
}

// Whatever one damaged byte says, reading either fails with an Error or gives what is in the file.
TEST_F(Zip, ByteFlipsAndCutsNeverCrash) {
  std::ostringstream whole;
  whole << std::ifstream("tests/goldens/numpy/deflated.npz", std::ios::binary).rdbuf();
  const std::string good = whole.str();
  const size_t directory = good.find("PK\x01\x02");
  ASSERT_LT(directory, good.size());
  size_t refused = 0;
  for (size_t i = 0; i < good.size(); i += i < directory ? 97 : 1) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x41);
    refused += error(bad) != "no error";
  }
  EXPECT_GT(refused, 500u);
  for (size_t n = 0; n < good.size(); n += 31) EXPECT_NE(error(good.substr(0, n)), "no error") << n;
}

}  // namespace KILN_FILE
}  // namespace kiln
