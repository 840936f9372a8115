// SPDX-License-Identifier: Apache-2.0
#include "frontend/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() : dir_(fs::temp_directory_path() / fmt::format("kiln-safetensors-{}", getpid())) {
    fs::create_directories(dir_);
    path_ = (dir_ / "a.safetensors").string();
  }
  ~SafetensorsTest() override { fs::remove_all(dir_); }

  void put(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string get() const {
    std::ifstream in(path_, std::ios::binary);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
  }
  // A file with this header (its length is right) and `data` zero bytes.
  void put_header(const std::string& header, size_t data) const {
    std::string length(8, '\0');
    for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
    put(length + header + std::string(data, '\0'));
  }
  std::string open_error() const {
    try {
      SafetensorsFile f(path_);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::invalid);
      std::string text = e.what();
      const std::string prefix = "safetensors " + path_ + ": ";
      EXPECT_TRUE(text.starts_with(prefix)) << text;
      return text.substr(std::min(text.size(), prefix.size()));
    }
    return "no error";
  }
  std::string error_of_header(const std::string& header, size_t data) const {
    put_header(header, data);
    return open_error();
  }
  void write_sample() const {
    const float w[6] = {1, 2, 3, 4, 5, 6};
    const uint8_t flags[3] = {1, 0, 1};
    const double d = 0.5;
    const int64_t step = 7;
    const SafetensorsItem items[] = {{"z.weight", DType::f32, {2, 3}, w},
                                     {"flags", DType::boolean, {3}, flags},
                                     {"half", DType::f64, {}, &d},
                                     {"empty", DType::f32, {0, 4}, nullptr},
                                     {"step", DType::i64, {1}, &step}};
    write_safetensors(path_, items, {{"format", "pt"}, {"note", "a \"quoted\" line"}});
  }

  fs::path dir_;
  std::string path_;
};

TEST_F(SafetensorsTest, RoundTrip) {
  write_sample();
  const SafetensorsFile f(path_);
  ASSERT_EQ(f.entries().size(), 5u);
  EXPECT_EQ(f.entries()[0].name, "empty");
  EXPECT_EQ(f.entries()[4].name, "z.weight");
  for (const auto& e : f.entries())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(e.data) % dtype_size(e.dtype), 0u) << e.name;
  const int64_t shape[] = {2, 3};
  const auto& w = f.at("z.weight", DType::f32, shape);
  EXPECT_EQ(w.bytes, 24u);
  EXPECT_EQ(reinterpret_cast<const float*>(w.data)[5], 6.0f);
  EXPECT_EQ(*reinterpret_cast<const double*>(f.at("half", DType::f64, {}).data), 0.5);
  EXPECT_EQ(f.find("empty")->bytes, 0u);
  EXPECT_EQ(f.find("nothing"), nullptr);
  EXPECT_EQ(f.metadata().at("note"), "a \"quoted\" line");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(SafetensorsTest, DataBeginsAlignedAndTheSameBytesComeOut) {
  write_sample();
  const std::string first = get();
  EXPECT_EQ((8 + static_cast<unsigned char>(first[0]) + 256u * static_cast<unsigned char>(first[1])) % 8, 0u);
  write_sample();
  EXPECT_EQ(get(), first);
}

TEST_F(SafetensorsTest, EveryDType) {
  const uint64_t zeros[2] = {0, 0};
  std::vector<SafetensorsItem> items;
  for (int i = 0; i < kDTypeCount; ++i)
    items.push_back({std::string(dtype_name(static_cast<DType>(i))), static_cast<DType>(i), {2}, zeros});
  write_safetensors(path_, items);
  const SafetensorsFile f(path_);
  for (const auto& it : items) EXPECT_EQ(f.find(it.name)->dtype, it.dtype);
}

TEST_F(SafetensorsTest, NoTensors) {
  write_safetensors(path_, {});
  EXPECT_EQ(SafetensorsFile(path_).entries().size(), 0u);
}

TEST_F(SafetensorsTest, UnalignedDataOfOthersIsReadable) {
  put_header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
             5);
  const SafetensorsFile f(path_);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(f.find("b")->data) % 4, 0u);
  EXPECT_EQ(*reinterpret_cast<const float*>(f.find("b")->data), 0.0f);
}

TEST_F(SafetensorsTest, IntegersThatTensorsHaveNotAreWidened) {
  const std::string header = R"({"a":{"dtype":"U64","shape":[2],"data_offsets":[0,16]},)"
                             R"("b":{"dtype":"U32","shape":[1],"data_offsets":[16,20]},)"
                             R"("c":{"dtype":"I16","shape":[1],"data_offsets":[20,22]},)"
                             R"("d":{"dtype":"U16","shape":[1],"data_offsets":[22,24]},)"
                             R"("e":{"dtype":"I8","shape":[1],"data_offsets":[24,25]}})";
  put_header(header, 0);
  const std::string head = get();
  put(head + std::string(7, '\xff') + std::string("\x7f", 1) + std::string(8, '\0') + std::string(9, '\xff'));
  const SafetensorsFile f(path_);
  EXPECT_EQ(reinterpret_cast<const int64_t*>(f.at("a", DType::i64, std::vector<int64_t>{2}).data)[0],
            INT64_MAX);
  const std::vector<int64_t> one = {1};
  EXPECT_EQ(*reinterpret_cast<const int64_t*>(f.at("b", DType::i64, one).data), 4294967295);
  EXPECT_EQ(*reinterpret_cast<const int32_t*>(f.at("c", DType::i32, one).data), -1);
  EXPECT_EQ(*reinterpret_cast<const int32_t*>(f.at("d", DType::i32, one).data), 65535);
  EXPECT_EQ(*reinterpret_cast<const int32_t*>(f.at("e", DType::i32, one).data), -1);
  EXPECT_EQ(f.find("e")->bytes, 4u);
  put(head + std::string(8, '\0') + std::string(17, '\xff'));
  EXPECT_EQ(open_error(), "'a' has a U64 beyond 9223372036854775807 as element 1; i64 holds no more");
  EXPECT_EQ(error_of_header(R"({"a":{"dtype":"U16","shape":[2],"data_offsets":[0,2]}})", 2),
            "'a' does not fit its shape; got 2 bytes, expected 4 for U16[2]");
}

TEST_F(SafetensorsTest, BooleansAreZeroOrOne) {
  put_header(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 0);
  const std::string head = get();
  put(head + std::string("\x01\0", 2));
  EXPECT_EQ(open_error(), "no error");
  put(head + std::string("\0\x02", 2));
  EXPECT_EQ(open_error(), "'a' has bytes that are neither false nor true");
}

TEST_F(SafetensorsTest, AtNamesWhatDiffers) {
  write_sample();
  const SafetensorsFile f(path_);
  const auto text = [&](std::string_view name, DType t, std::vector<int64_t> shape) {
    try {
      f.at(name, t, shape);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(text("w", DType::f32, {2}), "safetensors " + path_ + ": there is no 'w'");
  EXPECT_EQ(text("z.weight", DType::f32, {3, 2}),
            "safetensors " + path_ + ": 'z.weight' is another array; got f32[2,3], expected f32[3,2]");
  EXPECT_EQ(text("z.weight", DType::i32, {2, 3}),
            "safetensors " + path_ + ": 'z.weight' is another array; got f32[2,3], expected i32[2,3]");
}

TEST_F(SafetensorsTest, MissingAndIrregularFiles) {
  try {
    SafetensorsFile f(path_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::io);
    EXPECT_EQ(e.what(), "open " + path_ + ": cannot read the file; No such file or directory");
  }
  EXPECT_THROW(SafetensorsFile(dir_.string()), Error);
  EXPECT_THROW(SafetensorsFile("/dev/full"), Error);
}

TEST_F(SafetensorsTest, BadLengths) {
  put("");
  EXPECT_EQ(open_error(), "truncated; got 0 bytes, expected at least 8");
  put("abc");
  EXPECT_EQ(open_error(), "truncated; got 3 bytes, expected at least 8");
  put(std::string(8, '\xff') + "{}");
  EXPECT_EQ(open_error(),
            "truncated, or the header length lies; got a header of "
            "18446744073709551615 bytes in a file of 10");
  put(std::string("\x03\0\0\0\0\0\0\0", 8) + "{}");
  EXPECT_EQ(open_error(), "truncated, or the header length lies; got a header of 3 bytes in a file of 10");
  EXPECT_EQ(error_of_header("", 0), "the header is not a JSON object");
  EXPECT_EQ(error_of_header("[]", 0), "the header is not a JSON object");
  EXPECT_THAT(error_of_header("{", 0), HasSubstr("the header is not JSON; "));
  EXPECT_THAT(error_of_header("{}x", 0), HasSubstr("the header is not JSON; "));
  EXPECT_THAT(error_of_header("{\"\xff\":1}", 0), HasSubstr("the header is not JSON; "));
}

TEST_F(SafetensorsTest, EveryTruncationIsAnError) {
  write_sample();
  const std::string whole = get();
  for (size_t n = 0; n < whole.size(); ++n) {
    put(whole.substr(0, n));
    EXPECT_NE(open_error(), "no error") << n;
  }
  put(whole + "x");
  EXPECT_EQ(open_error(), "1 bytes after the last array belong to none");
}

TEST_F(SafetensorsTest, BadEntries) {
  const auto entry = [&](const std::string& body, size_t data) {
    return error_of_header("{\"a\":{" + body + "}}", data);
  };
  EXPECT_EQ(error_of_header(R"({"a":1})", 0), "'a' needs exactly dtype, shape and data_offsets");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[1])", 4), "'a' needs exactly dtype, shape and data_offsets");
  EXPECT_EQ(
      entry(R"("dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1])", 1),
      "'a' has an unknown dtype; got \"F8_E4M3\", expected one of BF16 BOOL F16 F32 F64 I8 I16 I32 I64 U8 "
      "U16 U32 U64");
  EXPECT_EQ(
      entry(R"("dtype":4,"shape":[1],"data_offsets":[0,1])", 1),
      "'a' has an unknown dtype; got 4, expected one of BF16 BOOL F16 F32 F64 I8 I16 I32 I64 U8 U16 U32 "
      "U64");
  EXPECT_EQ(entry(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", 1),
            "'a' has a bad shape; got [-1], expected sizes >= 0");
  EXPECT_EQ(entry(R"("dtype":"U8","shape":[1.5],"data_offsets":[0,1])", 1),
            "'a' has a bad shape; got [1.5], expected sizes >= 0");
  EXPECT_EQ(entry(R"("dtype":"U8","shape":1,"data_offsets":[0,1])", 1),
            "'a' has a bad shape; got 1, expected an array");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
            "'a' has a shape that overflows; got [4294967296,4294967296]");
  EXPECT_EQ(entry(R"("dtype":"U8","shape":[1],"data_offsets":[0])", 1),
            "'a' has bad data_offsets; got [0], expected two sizes");
  EXPECT_EQ(entry(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])", 1),
            "'a' lies outside the file; got bytes 1 to 0, expected within 1");
  EXPECT_EQ(entry(R"("dtype":"U8","shape":[2],"data_offsets":[0,2])", 1),
            "'a' lies outside the file; got bytes 0 to 2, expected within 1");
  EXPECT_EQ(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4),
            "'a' does not fit its shape; got 4 bytes, expected 8 for f32[2]");
  EXPECT_EQ(error_of_header(R"({"__metadata__":{"a":1}})", 0), "the metadata 'a' is not a string");
  EXPECT_EQ(error_of_header(R"({"__metadata__":[]})", 0), "__metadata__ is not an object");
}

TEST_F(SafetensorsTest, NamesAndRanges) {
  const std::string a = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  EXPECT_EQ(error_of_header("{" + a + "," + a + "}", 2), "the name 'a' occurs twice");
  EXPECT_EQ(error_of_header(R"({"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1),
            "the name 'dtype' occurs twice");
  EXPECT_EQ(error_of_header("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3),
            "'b' overlaps another array");
  EXPECT_EQ(error_of_header("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})", 4),
            "there is a hole of 1 bytes before 'b'");
  EXPECT_EQ(error_of_header(R"({"a":[[[[[1]]]]]})", 0), "the header is nested too deeply");
}

// Whatever one damaged byte says, opening either fails with an Error or gives arrays inside the file.
TEST_F(SafetensorsTest, ByteFlipsInTheHeaderNeverCrash) {
  write_sample();
  const std::string whole = get();
  const size_t header =
      8 + static_cast<unsigned char>(whole[0]) + 256u * static_cast<unsigned char>(whole[1]);
  ASSERT_GT(header, 200u);
  size_t refused = 0;
  size_t touched = 0;
  for (size_t i = 0; i < header; ++i) {
    for (const unsigned mask : {0x01u, 0x08u, 0x20u, 0x80u}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ static_cast<char>(mask));
      put(damaged);
      try {
        const SafetensorsFile f(path_);
        for (const auto& e : f.entries())
          touched += e.bytes ? std::to_integer<size_t>(e.data[e.bytes - 1]) : 0;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, header);
  EXPECT_GT(touched, 0u);
}

TEST_F(SafetensorsTest, BadItems) {
  const float w[1] = {1};
  const auto text = [&](std::vector<SafetensorsItem> items) {
    try {
      write_safetensors(path_, items);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(text({{"a", DType::f32, {1}, w}, {"a", DType::f32, {1}, w}}),
              HasSubstr("the name 'a' is reserved or used twice"));
  EXPECT_THAT(text({{"__metadata__", DType::f32, {1}, w}}), HasSubstr("is reserved"));
  EXPECT_THAT(text({{"a", DType::f32, {-1}, w}}), HasSubstr("'a' has a bad shape [-1]"));
  EXPECT_THAT(text({{"\xff", DType::f32, {1}, w}}), HasSubstr("is not UTF-8"));
  EXPECT_FALSE(fs::exists(path_));
  try {
    write_safetensors("/dev/full", {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::io);
    EXPECT_STREQ(e.what(), "write /dev/full: not a regular file");
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
