// SPDX-License-Identifier: Apache-2.0
// GPT-2's tokenizer: pieces as its regular expression finds them, merges by rank, bytes that come back, and
// files that are none.
#include "examples/gpt2/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "examples/gpt2/continue.h"
#include "examples/pretrained/unicode.h"

namespace gpt2 {
namespace KILN_FILE {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<int64_t>;
using Texts = std::vector<std::string>;
using ::testing::HasSubstr;

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const kiln::Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  }
  return "no error";
}

/// The character that GPT-2's files have for a byte, written down anew: the bytes that can be seen, and the
/// others in their order from U+0100 on.
std::string character_of(int byte) {
  int hidden = 0;
  for (int b = 0; b < 256; ++b) {
    const bool seen = (b > 32 && b < 127) || (b > 160 && b != 173);
    if (b == byte) {
      std::string out;
      pretrained::append_utf8(out, seen ? b : 256 + hidden);
      return out;
    }
    hidden += seen ? 0 : 1;
  }
  return "";
}

class Gpt2Tokenizer : public ::testing::Test {
 protected:
  Gpt2Tokenizer() : dir_((fs::temp_directory_path() / ("kiln-bpe-" + std::to_string(getpid()))).string()) {
    fs::create_directories(dir_);
    for (int b = 0; b < 256; ++b) vocabulary_[character_of(b)] = b;
    for (const std::string& merge : merges_) {
      std::string token = merge;
      token.erase(token.find(' '), 1);
      if (!vocabulary_.contains(token)) vocabulary_[token] = 1000 + vocabulary_.size();
    }
    vocabulary_["<|endoftext|>"] = 5000;
  }
  ~Gpt2Tokenizer() override { fs::remove_all(dir_); }

  Tokenizer made() {
    std::ofstream(dir_ + "/vocab.json") << vocabulary_.dump();
    std::ofstream merges(dir_ + "/merges.txt");
    merges << "#version: 0.2\n";
    for (const std::string& m : merges_) merges << m << "\n";
    merges.close();
    return Tokenizer(dir_);
  }
  std::string error() {
    std::string text = error_of([&] { made(); });
    for (size_t at; (at = text.find(dir_)) != std::string::npos;) text.replace(at, dir_.size(), "@");
    return text;
  }
  int64_t id(const std::string& token) const { return vocabulary_.at(token).get<int64_t>(); }

  const std::string dir_;
  Json vocabulary_ = Json::object();
  // U+0120 stands for the space.
  Texts merges_ = {"h e", "l l",          "he ll", "hell o", "\xc4\xa0 w",
                   "o r", "\xc4\xa0w or", "l d",   "e l",    "\xc3\x83 \xc2\xa9",
                   "a a"};
};

TEST_F(Gpt2Tokenizer, PiecesAreThoseOfTheRegularExpression) {
  // As Python's regex module finds them.
  const std::vector<std::pair<std::string, Texts>> cases = {
      {"Hello world", {"Hello", " world"}},
      {"Hello   world", {"Hello", "  ", " world"}},
      {"  two", {" ", " two"}},
      {"tail  ", {"tail", "  "}},
      {"a\n b", {"a", "\n", " b"}},
      {"a \nb", {"a", " ", "\n", "b"}},
      {"a\t\tb", {"a", "\t", "\t", "b"}},
      {"\n\n", {"\n\n"}},
      {"I'll don't we've they're he's I'm she'd",
       {"I", "'ll", " don", "'t", " we", "'ve", " they", "'re", " he", "'s", " I", "'m", " she", "'d"}},
      {"DON'T", {"DON", "'", "T"}},
      {"x='s'", {"x", "='", "s", "'"}},
      {"' s", {"'", " s"}},
      {" 's", {" '", "s"}},
      {"!'s", {"!'", "s"}},
      {"abc123 45 6x", {"abc", "123", " 45", " 6", "x"}},
      {"3.14", {"3", ".", "14"}},
      {" ...wow", {" ...", "wow"}},
      {"\xc2\xa0x a\xc2\xa0\xc2\xa0"
       "b",
       {"\xc2\xa0", "x", " a", "\xc2\xa0", "\xc2\xa0", "b"}},
      {"na\xc3\xafve \xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x81",
       {"na\xc3\xafve", " \xe4\xbd\xa0\xe5\xa5\xbd", "\xef\xbc\x81"}},
      {"x\xc2\xb2 \xc2\xbd \xe2\x85\xa7 \xd9\xa4\xd9\xa2",
       {"x", "\xc2\xb2", " \xc2\xbd", " \xe2\x85\xa7", " \xd9\xa4\xd9\xa2"}},
      {"\xe3\x80\x80\xe3\x80\x80y", {"\xe3\x80\x80", "\xe3\x80\x80", "y"}},
      {"e\xcc\x81"
       "a",
       {"e", "\xcc\x81", "a"}},
      {"\xf0\x9f\x98\x80 \xf0\x9f\x98\x80\xf0\x9f\x98\x80x",
       {"\xf0\x9f\x98\x80", " \xf0\x9f\x98\x80\xf0\x9f\x98\x80", "x"}},
      {"a\xc2\x85"
       "b \xe2\x80\x8b"
       "c",
       {"a", "\xc2\x85", "b", " \xe2\x80\x8b", "c"}},
      {"foo_bar-baz", {"foo", "_", "bar", "-", "baz"}},
      {"a\x1c"
       "b \x1c\x1c",
       {"a", "\x1c", "b", " \x1c\x1c"}},
      {"''s''t", {"''", "s", "''", "t"}},
      {"\xe1\x9a\x80x", {"\xe1\x9a\x80", "x"}},
      {"_ _  _", {"_", " _", " ", " _"}},
      {"a\xff\xfe b", {"a", "\xff\xfe", " b"}},
      {"", {}},
  };
  for (const auto& [text, want] : cases) {
    Texts got;
    for (const std::string_view p : Tokenizer::pieces(text)) got.emplace_back(p);
    EXPECT_EQ(got, want) << text;
  }
}

TEST_F(Gpt2Tokenizer, MergesByRank) {
  const Tokenizer t = made();
  EXPECT_EQ(t.encode("hello world"), (Ids{id("hello"), id("\xc4\xa0wor"), id("ld")}));
  // "l l" was learned before "e l", so that "el" is not made here, and is there.
  EXPECT_EQ(t.encode("ell"), (Ids{id("e"), id("ll")}));
  EXPECT_EQ(t.encode("el"), (Ids{id("el")}));
  EXPECT_EQ(t.encode("aaaaa"), (Ids{id("aa"), id("aa"), id("a")})) << "from the left";
  EXPECT_EQ(t.encode("\xc3\xa9"), (Ids{id("\xc3\x83\xc2\xa9")})) << "bytes of a character are merged, too";
  EXPECT_EQ(t.encode("or"), (Ids{id("or")}));
  EXPECT_EQ(t.encode(" or"), (Ids{32, id("or")})) << "no merge crosses what was not learned";
  EXPECT_EQ(t.encode(""), Ids{});
  EXPECT_EQ(t.encode("hello<|endoftext|> world<|endoftext|>"),
            (Ids{id("hello"), 5000, id("\xc4\xa0wor"), id("ld"), 5000}));
  EXPECT_EQ(t.end_of_text(), 5000);
  EXPECT_EQ(t.largest(), 5000);
}

TEST_F(Gpt2Tokenizer, AnyBytesComeBack) {
  const Tokenizer t = made();
  std::string all;
  for (int i = 0; i < 3; ++i)
    for (int b = 0; b < 256; ++b) all += static_cast<char>(b * (2 * i + 1));
  for (const std::string& text :
       {all, std::string("hello  world\n\n na\xc3\xafve \xe4\xbd\xa0 \xf0\x9f\x98\x80"),
        std::string("a<|endoftext|>b <|endoftext|>"), std::string("<|endof"), std::string(3, '\0')})
    EXPECT_EQ(t.decode(t.encode(text)), text);
  EXPECT_EQ(t.decode({104, 105}), "hi");
  EXPECT_EQ(error_of([&] {
              t.decode({104, 4999});
            }),
            "invalid: tokenizer: no token 4999; there are " + std::to_string(t.size()));
}

TEST_F(Gpt2Tokenizer, FilesThatAreNone) {
  EXPECT_THAT(error_of([&] { Tokenizer(dir_ + "/none"); }),
              HasSubstr("/none/vocab.json: cannot read the file; No such file"));
  made();
  fs::remove(dir_ + "/merges.txt");
  EXPECT_THAT(error_of([&] { Tokenizer{dir_}; }),
              HasSubstr("/merges.txt: cannot read the file; No such file"));
  std::ofstream(dir_ + "/vocab.json") << "{\"a\": ";
  EXPECT_THAT(error_of([&] { Tokenizer{dir_}; }), HasSubstr("/vocab.json: not JSON; "));
  std::ofstream(dir_ + "/vocab.json") << "[1]";
  EXPECT_THAT(error_of([&] { Tokenizer{dir_}; }),
              HasSubstr("/vocab.json: not a JSON object of tokens and numbers"));
}

TEST_F(Gpt2Tokenizer, VocabulariesThatAreNone) {
  const Json good = vocabulary_;
  const auto with = [&](const std::string& token, const Json& number) {
    vocabulary_ = good;
    vocabulary_[token] = number;
    return error();
  };
  EXPECT_EQ(with("x", -1),
            "invalid: tokenizer @/vocab.json: bad number of 'x'; got -1, expected a whole number >= 0");
  EXPECT_EQ(with("x", "y"),
            "invalid: tokenizer @/vocab.json: bad number of 'x'; got \"y\", expected a whole number >= 0");
  EXPECT_EQ(with("zz", 97), "invalid: tokenizer @/vocab.json: 'zz' has the number 97 of 'a'");
  EXPECT_EQ(with("a b", 7000),
            "invalid: tokenizer @/vocab.json: 'a b' has a character that stands for no byte");
  const auto without = [&](const std::string& token) {
    vocabulary_ = good;
    vocabulary_.erase(token);
    return error();
  };
  EXPECT_EQ(without("~"),
            "invalid: tokenizer @/vocab.json: no token '~', which stands for the byte 126, among 267");
  EXPECT_EQ(without("<|endoftext|>"), "invalid: tokenizer @/vocab.json: no token '<|endoftext|>' among 267");
  EXPECT_EQ(without("hell"),
            "invalid: tokenizer @/merges.txt: line 4 merges 'he ll', and the vocabulary has no 'hell'");
}

TEST_F(Gpt2Tokenizer, MergesThatAreNone) {
  const Texts good = merges_;
  const auto with = [&](const std::string& line) {
    merges_ = good;
    merges_.push_back(line);
    return error();
  };
  for (const std::string line : {"ab", "a ", " a", "h e l"})
    EXPECT_EQ(with(line), "invalid: tokenizer @/merges.txt: line 13 is '" + line +
                              "'; expected two tokens with a space between");
  EXPECT_EQ(with("l l"), "invalid: tokenizer @/merges.txt: line 13 has the merge 'l l' again");
  EXPECT_EQ(with("#version a"),
            "invalid: tokenizer @/merges.txt: line 13 merges '#version a', and the vocabulary "
            "has no '#version'");
  merges_ = good;
  merges_.emplace_back("");
  merges_.emplace_back("e ll\r");
  vocabulary_["ell"] = 6000;
  EXPECT_EQ(made().encode("ell"), Ids{6000}) << "lines may end as Windows ends them";
}

TEST_F(Gpt2Tokenizer, TextIsContinued) {
  const Tokenizer t = made();
  Config c;
  c.vocab_size = 5001;
  c.n_positions = 16;
  c.n_embd = 8;
  c.n_layer = 1;
  c.n_head = 2;
  kiln::manual_seed(3);
  Gpt2 model(c);
  // A model that says one token, whatever it is told: its embeddings are that token's but for their size.
  const auto say = [&](int64_t token) {
    const kiln::NoGrad guard;
    for (auto& [name, p] : model.named_parameters()) {
      if (name.ends_with("wte.weight")) {
        kiln::Tensor(p).zero_();
        kiln::select(p, 0, token).fill_(1.0);
      }
      if (name.ends_with("ln_f.bias")) kiln::Tensor(p).fill_(1.0);
      if (name.ends_with("ln_f.weight")) kiln::Tensor(p).zero_();
    }
  };
  say(id("hello"));
  EXPECT_EQ(continue_text(model, t, "hello world", 2), "hello worldhellohello");
  EXPECT_EQ(continue_text(model, t, "", 1), "hello");
  EXPECT_EQ(continue_text(model, t, "a<|endoftext|>", 0), "a<|endoftext|>");
  say(5000);
  EXPECT_EQ(continue_text(model, t, "hello world", 3), "hello world") << "the text has ended";
  c.vocab_size = 5000;
  Gpt2 smaller(c);
  EXPECT_EQ(
      error_of([&] { continue_text(smaller, t, "a", 1); }),
      "invalid: continue_text: the tokenizer has a token 5000, and the model 5000 tokens: they belong to "
      "different checkpoints");
}

TEST(Unicode, CodePointsAndTheirKinds) {
  EXPECT_EQ(pretrained::code_points("a\xc3\xa9\xff\xf0\x9f\x98\x80"),
            (std::vector<int32_t>{97, 0xE9, 0x1F600}));
  EXPECT_EQ(pretrained::first_of("").bytes, 0u);
  EXPECT_EQ(pretrained::first_of("\xff").code, -1);
  std::string text;
  pretrained::append_utf8(text, 0x4F60);
  EXPECT_EQ(text, "\xe4\xbd\xa0");
  EXPECT_EQ(error_of([&] { pretrained::append_utf8(text, 0xD800); }),
            "invalid: unicode: 55296 is no code point");
  for (const int32_t c : {9, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x3000})
    EXPECT_TRUE(pretrained::is_white_space(c)) << c;
  for (const int32_t c : {0x1C, 0x200B, 0xFEFF, 65}) EXPECT_FALSE(pretrained::is_white_space(c)) << c;
  EXPECT_TRUE(pretrained::is_letter(0x2B0) && pretrained::is_letter(0x4E00) && !pretrained::is_letter(0x301));
  EXPECT_TRUE(pretrained::is_number(0xB2) && pretrained::is_number(0x2167) && !pretrained::is_number(65));
}

}  // namespace KILN_FILE
}  // namespace gpt2
