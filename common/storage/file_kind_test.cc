// SPDX-License-Identifier: Apache-2.0

#include "common/storage/file_kind.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

std::string WhyNot(const std::string& text, int64_t offset = 0) {
  return WhyNoText(Bytes(text), offset);
}

TEST(FileKindTest, KnowsFilesByTheirStart) {
  EXPECT_EQ(KindByMagic(Bytes("\x1f\x8b\x08...")), "gzip data");
  EXPECT_EQ(KindByMagic(Bytes("\x89PNG\r\n\x1a\n....")), "a PNG image");
  EXPECT_EQ(KindByMagic(Bytes("PAR1\x15\x04")), "a Parquet table");
  EXPECT_EQ(KindByMagic(Bytes(std::string(257, '.') + "ustar")), "a tar archive");
  EXPECT_EQ(KindByMagic(Bytes("\xff\xfeH")), "UTF-16 text");
  EXPECT_EQ(KindByMagic(Bytes(std::string("\xff\xfe\0\0", 4))), "UTF-32 text");
  EXPECT_EQ(KindByMagic(Bytes(std::string("\0\0\x08\x03", 4))), "IDX images");
}

TEST(FileKindTest, SaysInWordsWhatAFileIs) {
  EXPECT_EQ(KindInWords(Bytes("")), "empty");
  EXPECT_EQ(KindInWords(Bytes("%PDF-1.7")), "a PDF document");
  EXPECT_EQ(KindInWords(Bytes("\n<!DOCTYPE HTML>\n<title>404")), "an HTML page");
  EXPECT_EQ(KindInWords(Bytes("once upon a time")), "text");
  EXPECT_EQ(KindInWords(Bytes(std::string(64, '\0'))), "of an unknown kind");
}

TEST(FileKindTest, TextIsNoneOfThem) {
  for (const char* text : {"", "P", "PK is short for Phil Katz", "BZh is not enough",
                           "PAR1 is a gene", "text", "\xef\xbb\xbf UTF-8 with a mark", "ustar"}) {
    EXPECT_EQ(KindByMagic(Bytes(text)), "") << text;
  }
}

TEST(FileKindTest, TextInAnyEncodingWithAsciiIsText) {
  for (const char* text :
       {"plain\r\n\ttext\f", "\x1b[1mcolours\x1b[0m and \b", "gr\xc3\xbc\xc3\x9f dich",
        "gr\xfc\xdf dich", "\x93\xfa\x96{\x8c\xea", "\x1b$BF|K\\8l\x1b(B"}) {
    EXPECT_EQ(WhyNot(std::string(text)), "") << text;
  }
}

TEST(FileKindTest, AStrayControlCodeDoesNoHarm) {
  EXPECT_EQ(WhyNot(std::string(50, 'x') + '\0'), "");
  EXPECT_NE(WhyNot(std::string(48, 'x') + '\0'), "");
}

TEST(FileKindTest, BinariesAreNoText) {
  EXPECT_THAT(WhyNot(std::string("\1\0\2\0\3\0", 6), 4096),
              AllOf(HasSubstr("100 %"), HasSubstr("offset 4096")));
  std::string random;
  uint32_t state = 1;
  for (int i = 0; i < 1000; ++i) {
    state = state * 1664525u + 1013904223u;
    random.push_back(static_cast<char>(state >> 24));
  }
  EXPECT_NE(WhyNot(random), "");
}

TEST(FileKindTest, NothingMayBeText) { EXPECT_EQ(WhyNot(""), ""); }

}  // namespace
}  // namespace lodestar::storage
