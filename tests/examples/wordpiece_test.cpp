// SPDX-License-Identifier: Apache-2.0
// The tokenizer of the BERT example against the ids of Hugging Face's, and the rules that these do not show.
#include "examples/bert/wordpiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"

namespace bert {
namespace KILN_FILE {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

constexpr const char* kVocab = "tests/goldens/minilm/vocab.txt";

const WordPiece& minilm() {
  static const WordPiece tokenizer(kVocab);
  return tokenizer;
}

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const kiln::Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(WordPiece, IdsOfEveryGoldenText) {
  std::ifstream in("tests/goldens/minilm.json");
  const nlohmann::json golden = nlohmann::json::parse(in)["cases"][0];
  const auto texts = golden["texts"].get<std::vector<std::string>>();
  const auto length = golden["max_length"].get<size_t>();
  const Encoding all = minilm().encode(texts, length);
  ASSERT_EQ(all.texts, static_cast<int64_t>(texts.size()));
  const auto row = static_cast<size_t>(all.length);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = golden["input_ids"][i].get<std::vector<int64_t>>();
    const auto mask = golden["attention_mask"][i].get<std::vector<int64_t>>();
    ASSERT_EQ(ids.size(), row);
    const auto at = static_cast<ptrdiff_t>(i * row), end = at + all.length;
    EXPECT_EQ(std::vector(all.input_ids.begin() + at, all.input_ids.begin() + end), ids) << texts[i];
    EXPECT_EQ(std::vector(all.attention_mask.begin() + at, all.attention_mask.begin() + end), mask);
  }
}

TEST(WordPiece, LowerCaseAndAccents) {
  EXPECT_THAT(minilm().words("Ünïcödé ĐẰNG Straße İstanbul"),
              ElementsAre("unicode", "đang", "straße", "istanbul"));
  EXPECT_THAT(minilm().words("e\u0301 ΑΣ \u1E9B\u0323"), ElementsAre("e", "ασ", "ſ"));
  const WordPiece cased(kVocab, {.lower_case = false});
  EXPECT_THAT(cased.words("Ünïcödé"), ElementsAre("Ünïcödé"));
  const WordPiece bare(kVocab, {.lower_case = false, .strip_accents = true});
  EXPECT_THAT(bare.words("Ünïcödé"), ElementsAre("Unicode"));
  const WordPiece accents(kVocab, {.strip_accents = false});
  EXPECT_THAT(accents.words("Ünïcödé"), ElementsAre("ünïcödé"));
}

TEST(WordPiece, PunctuationStandsAlone) {
  EXPECT_THAT(minilm().words("a.b,c $5+^`|~ «x» “y” ¿z"),
              ElementsAre("a", ".", "b", ",", "c", "$", "5", "+", "^", "`", "|", "~", "«", "x", "»", "“", "y",
                          "”", "¿", "z"));
  EXPECT_THAT(minilm().words("5€ a©b"), ElementsAre("5€", "a©b"));  // symbols, not punctuation
}

TEST(WordPiece, IdeographsStandAlone) {
  EXPECT_THAT(minilm().words("ah博推zz"), ElementsAre("ah", "博", "推", "zz"));
  EXPECT_THAT(minilm().words("ひらカタ \U00020000\U0002F800"), ElementsAre("ひらカタ", "\U00020000", "丽"));
  const WordPiece plain(kVocab, {.tokenize_chinese_chars = false});
  EXPECT_THAT(plain.words("ah博推zz"), ElementsAre("ah博推zz"));
}

TEST(WordPiece, SpacesAndControls) {
  EXPECT_THAT(minilm().words(" \t a\u00A0b\u3000c\u2028d\r\n "), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(minilm().words(std::string("a\0b\x01\u200D"
                                         "c\u00AD\uFFFD\uE000",
                                         17)),
              ElementsAre("abc"));
  EXPECT_THAT(minilm().words(""), IsEmpty());
  EXPECT_THAT(minilm().words("\u200B \x7F"), IsEmpty());
}

TEST(WordPiece, CharactersOfALaterUnicodeAreKept) {
  EXPECT_THAT(minilm().words("a\u0378b"), ElementsAre("a\u0378b"));
  EXPECT_THAT(minilm().tokenize("a\u0378 b"), ElementsAre("[UNK]", "b"));
}

TEST(WordPiece, BytesThatAreNotUtf8AreLeftOut) {
  EXPECT_THAT(minilm().words("a\xff\xfe"
                             "b \xc3(\xe2\x82"),
              ElementsAre("ab", "("));
  EXPECT_THAT(minilm().words("x\xed\xa0\x80y\xc0\x80z\xf4\x90\x80\x80"), ElementsAre("xyz"));
}

TEST(WordPiece, LongestPieceFirst) {
  EXPECT_THAT(minilm().tokenize("unaffable"), ElementsAre("una", "##ffa", "##ble"));
  EXPECT_THAT(minilm().tokenize("☃snow"), ElementsAre("[UNK]"));  // one unknown piece hides the word
  EXPECT_THAT(minilm().tokenize("a ☃ b"), ElementsAre("a", "[UNK]", "b"));
}

TEST(WordPiece, AWordOfMoreThanAHundredCodePointsIsUnknown) {
  const std::string hundred(100, 'a');
  EXPECT_GT(minilm().tokenize(hundred).size(), 1u);
  EXPECT_THAT(minilm().tokenize(hundred + "a"), ElementsAre("[UNK]"));
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "ж";  // two bytes each
  EXPECT_GT(minilm().tokenize(umlauts).size(), 1u);
}

TEST(WordPiece, SpecialTokensInATextAreThemselves) {
  EXPECT_THAT(minilm().tokenize("the [MASK]sat.[SEP]"), ElementsAre("the", "[MASK]", "sat", ".", "[SEP]"));
  EXPECT_THAT(minilm().tokenize("[mask]"), ElementsAre("[", "mask", "]"));
}

TEST(WordPiece, EncodingCutsAndPads) {
  EXPECT_THAT(minilm().encode("a b c d", 4), ElementsAre(101, 1037, 1038, 102));
  EXPECT_THAT(minilm().encode("", 2), ElementsAre(101, 102));
  EXPECT_EQ(error_of([] { minilm().encode("a", 1); }), "encode: max_length must hold [CLS] and [SEP]; got 1");
  const Encoding e = minilm().encode(Words{"a", ""}, 8, 4);
  EXPECT_THAT(e.input_ids, ElementsAre(101, 1037, 102, 0, 101, 102, 0, 0));
  EXPECT_THAT(e.attention_mask, ElementsAre(1, 1, 1, 0, 1, 1, 0, 0));
  EXPECT_EQ(error_of([] {
              minilm().encode(Words{"", "a b c"}, 8, 4);
            }),
            "encode: text 1 has 5 tokens; got pad_to 4 (pass it as max_length, too)");
  EXPECT_EQ(minilm().encode(Words{}).length, 0);
}

TEST(WordPiece, BadVocabularies) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("kiln-vocab-" + std::to_string(getpid()))).string();
  EXPECT_EQ(error_of([&] { WordPiece w(path); }),
            "vocabulary " + path + ": cannot read the file; No such file or directory");
  std::ofstream(path) << "[PAD]\n[UNK]\na\n[PAD]\n";
  EXPECT_EQ(error_of([&] { WordPiece w(path); }),
            "vocabulary " + path + ": line 4 has '[PAD]' again; it is on line 1");
  std::ofstream(path) << "[PAD]\r\n[UNK]\r\n";
  EXPECT_EQ(
      error_of([&] { WordPiece w(path); }),
      "vocabulary " + path + ": no '[CLS]' among 2 lines (expected BERT's vocab.txt, one token a line)");
  std::filesystem::remove(path);
  EXPECT_EQ(error_of([] { minilm().token(30522); }), "vocabulary: no token 30522; it has 30522");
  EXPECT_EQ(minilm().token(minilm().id("hello")), "hello");
}

}  // namespace KILN_FILE
}  // namespace bert
