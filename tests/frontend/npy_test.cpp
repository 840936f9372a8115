// SPDX-License-Identifier: Apache-2.0
// Files that numpy wrote (tests/goldens/numpy/make.py), and damaged ones.
#include "frontend/npy.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using ::testing::HasSubstr;

constexpr const char* kFolder = "tests/goldens/numpy/";

std::map<std::string, Tensor> load(const std::string& name) {
  std::map<std::string, Tensor> out;
  for (const auto& [n, t] : load_npz(kFolder + name)) out[n] = t;
  return out;
}

class Npy : public ::testing::Test {
 protected:
  Npy() : path_((std::filesystem::temp_directory_path() / fmt::format("kiln-npy-{}", getpid())).string()) {}
  ~Npy() override { std::filesystem::remove(path_); }
  /// Error of a file of version 1 with this header and so many bytes; without path and line.
  std::string error(const std::string& header, size_t bytes) const {
    std::ofstream(path_, std::ios::binary) << "\x93NUMPY" << '\1' << '\0' << static_cast<char>(header.size())
                                           << '\0' << header << std::string(bytes, '\0');
    return error_of_file(path_);
  }
  static std::string error_of_file(const std::string& path) {
    const std::string text = error_of([&] { load_npy(path, Loc("a.cpp", 1)); });
    const std::string place = "load_npy " + path + " (a.cpp:1): ";
    const size_t at = text.find(place);
    return at == std::string::npos ? text : text.substr(0, at) + text.substr(at + place.size());
  }
  std::string path_;
};

TEST_F(Npy, EveryTypeInBothByteOrders) {
  for (const char* file : {"stored.npz", "deflated.npz"}) {
    const auto all = load(file);
    const std::map<std::string, DType> dtypes = {
        {"b1", DType::boolean}, {"i1", DType::i32}, {"i2", DType::i32}, {"i4", DType::i32},
        {"i8", DType::i64},     {"u1", DType::u8},  {"u2", DType::i32}, {"u4", DType::i64},
        {"u8", DType::i64},     {"f2", DType::f16}, {"f4", DType::f32}, {"f8", DType::f64}};
    for (const auto& [type, dtype] : dtypes)
      for (const std::string order : {"", "little ", "big "}) {
        const auto it = all.find(order + type);
        if (it == all.end()) continue;
        const Tensor& t = it->second;
        EXPECT_EQ(t.dtype(), dtype) << order << type;
        EXPECT_EQ(t.sizes(), (Sizes{2, 3}));
        std::vector<double> expected = {0, 1, 2, 3, 5, 100};
        if (type[0] == 'b') expected = {0, 1, 1, 1, 1, 1};
        if (type[0] == 'i' || type[0] == 'f') expected[1] = -1;
        if (type[0] == 'f') expected[2] = 0.5;
        EXPECT_EQ(doubles(t), expected) << order << type;
      }
    EXPECT_EQ(all.count("big f8") + all.count("little u2") + all.count("i1") + all.count("b1"), 4u);
  }
}

TEST_F(Npy, FortranOrderEmptyAndScalarArrays) {
  const auto all = load("deflated.npz");
  const Tensor& f = all.at("fortran");
  EXPECT_EQ(f.sizes(), (Sizes{2, 3, 4}));
  EXPECT_EQ(f.strides(), (Sizes{1, 2, 6}));
  EXPECT_EQ(values(f), values(arange(24)));
  EXPECT_EQ(without_device(all.at("empty").type_str()), "f32[0,3]");
  EXPECT_EQ(all.at("scalar").sizes(), Sizes{});
  EXPECT_EQ(all.at("scalar").item(), 7.5);
  EXPECT_EQ(all.at("vector").to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(all.at("ends").to_vector<int64_t>(), (std::vector<int64_t>{INT64_MIN, INT64_MAX}));
  const Floats s = values(all.at("special"));
  EXPECT_TRUE(std::isnan(s[0]) && std::isinf(s[1]) && s[2] < 0 && std::signbit(s[3]));
  const std::vector<int64_t> l = all.at("long").to_vector<int64_t>();
  ASSERT_EQ(l.size(), 30000u);
  EXPECT_EQ(l.back(), 29999 / 7);
}

TEST_F(Npy, MembersComeInTheOrderOfSaving) {
  const NamedTensors all = load_npz(std::string(kFolder) + "stored.npz");
  EXPECT_EQ(all.front().first, "b1");
  EXPECT_EQ(all.back().first, "special");
}

TEST_F(Npy, EveryVersion) {
  for (const char* version : {"1", "2", "3"}) {
    const Tensor t = load_npy(kFolder + ("version" + std::string(version)) + ".npy");
    EXPECT_EQ(without_device(t.type_str()), "i32[2,3]") << version;
    EXPECT_EQ(values(t), (Floats{0, 1, 2, 3, 4, 5})) << version;
  }
}

TEST_F(Npy, TypesThatTensorsHaveNot) {
  EXPECT_EQ(error_of_file(std::string(kFolder) + "complex.npy"),
            "unsupported: elements of type '<c8'; expected bool, int, uint or float");
  EXPECT_EQ(error_of_file(std::string(kFolder) + "record.npy"),
            "unsupported: elements of type [('a', '<f4'), ('b', '<i8')]; expected bool, int, uint or float");
  EXPECT_EQ(
      error_of_file(std::string(kFolder) + "object.npy"),
      "unsupported: elements of type '|O', Python objects, which only running the file's code could make; "
      "expected bool, int, uint or float");
  EXPECT_EQ(error_of_file(std::string(kFolder) + "beyond.npy"),
            "invalid: element 1 is a u8 beyond 9223372036854775807; i64 holds no more");
}

TEST_F(Npy, BadHeaders) {
  const auto dict = [&](const std::string& body) { return error("{" + body + "}", 4); };
  const std::string rest = "'fortran_order': False, 'shape': (1,)";
  EXPECT_EQ(dict("'descr': '<f4', " + rest), "no error");
  EXPECT_EQ(dict("\"shape\":(1L, ),'descr':\"<f4\",'fortran_order':True,"), "no error");
  EXPECT_EQ(error("[]", 4), "invalid: the header is no dictionary; got '[]'");
  EXPECT_EQ(dict("'descr': '<f4', 'shape': (1,)"),
            "invalid: the header needs descr, fortran_order and shape; got {'descr': '<f4', 'shape': (1,)}");
  EXPECT_EQ(dict("'descr': '<f4', 'descr': '<f4', " + rest), "invalid: the header has the key 'descr' twice");
  EXPECT_EQ(dict("'x': 1, " + rest), "invalid: the header has an unknown key 'x'");
  EXPECT_EQ(dict("'descr': '<f4', 'fortran_order': 0, 'shape': (1,)"),
            "invalid: bad 'fortran_order'; got 0, expected True or False");
  for (const char* shape : {"1", "(-1,)", "(1.5,)", "(x,)", "(1", "(99999999999999999999,)", "((1,),)"})
    EXPECT_THAT(dict(fmt::format("'descr': '<f4', 'fortran_order': False, 'shape': {}", shape)),
                HasSubstr("invalid: bad 'shape'; got "))
        << shape;
  EXPECT_THAT(dict("'descr': '<f3', " + rest), HasSubstr("unsupported: elements of type '<f3'"));
  EXPECT_THAT(dict("'descr': 'f', " + rest), HasSubstr("unsupported: elements of type 'f'"));
  EXPECT_THAT(dict("'descr': 4, " + rest), HasSubstr("unsupported: elements of type 4"));
}

TEST_F(Npy, TruncatedAndLongFiles) {
  EXPECT_EQ(error("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 4),
            "invalid: truncated or damaged; got 4 bytes of elements, expected 8 for F32[2]");
  EXPECT_EQ(error("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 12),
            "invalid: truncated or damaged; got 12 bytes of elements, expected 8 for F32[2]");
  EXPECT_EQ(error("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296)}", 4),
            "invalid: truncated or damaged; got 4 bytes of elements, expected more than 63 bits for "
            "F32[4294967296,4294967296]");
  std::ostringstream whole;
  whole << std::ifstream(std::string(kFolder) + "version2.npy", std::ios::binary).rdbuf();
  const std::string good = whole.str();
  for (size_t n = 0; n < good.size(); ++n) {
    std::ofstream(path_, std::ios::binary) << good.substr(0, n);
    EXPECT_NE(error_of_file(path_), "no error") << n;
  }
  std::string other = good;
  other[6] = 4;
  std::ofstream(path_, std::ios::binary) << other;
  EXPECT_EQ(error_of_file(path_), "unsupported: format version 4.0; expected 1.0, 2.0 or 3.0");
  other[0] = 'x';
  std::ofstream(path_, std::ios::binary) << other;
  EXPECT_EQ(error_of_file(path_), "invalid: not a .npy file; its first bytes are not numpy's");
}

TEST_F(Npy, WhatIsSavedComesBack) {
  for (const DType t :
       {DType::boolean, DType::u8, DType::i32, DType::i64, DType::f16, DType::f32, DType::f64}) {
    const Tensor x = arange(6).view({2, 3}).to(t);
    save_npy(x, path_);
    const Tensor back = load_npy(path_);
    EXPECT_EQ(back.type_str(), x.type_str());
    EXPECT_EQ(doubles(back), doubles(x));
  }
  save_npy(transpose(mat({1, 2, 3, 4, 5, 6}, {2, 3}), 0, 1), path_);
  EXPECT_EQ(values(load_npy(path_)), (Floats{1, 4, 2, 5, 3, 6}));
  save_npy(full({}, 2.5), path_);
  EXPECT_EQ(load_npy(path_).sizes(), Sizes{});
  save_npy(zeros({0, 2}), path_);
  EXPECT_EQ(load_npy(path_).sizes(), (Sizes{0, 2}));
  EXPECT_ERROR(save_npy(Tensor(), path_), "invalid: save_npy (@): the tensor is undefined");
  EXPECT_ERROR(save_npy(zeros({1}, {DType::bf16}), path_),
               "unsupported: save_npy (@): numpy has no bf16; got bf16[1] (try .to(kiln::DType::f32))");
}

TEST_F(Npy, FilesAreThoseOfNumpy) {
  save_npy(arange(6).view({2, 3}).to(DType::i32), path_);
  const auto bytes = [](const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path, std::ios::binary).rdbuf();
    return out.str();
  };
  EXPECT_EQ(bytes(path_), bytes(std::string(kFolder) + "version1.npy"));
}

}  // namespace KILN_FILE
}  // namespace kiln
