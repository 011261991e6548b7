#include "worker/data/format_detection.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

void ExpectFormat(const std::string& path, DataFormat wanted) {
  const auto format = DetectDataFormat(path);
  ASSERT_TRUE(format.ok()) << format.status();
  EXPECT_EQ(DataFormatName(*format), DataFormatName(wanted)) << path;
}

TEST(FormatDetectionTest, TextIsWhatIsNothingElse) {
  TestFolder folder;
  ExpectFormat(folder.Write("notes.txt", "some text"), DataFormat::kText);
  ExpectFormat(folder.Write("text.bin", "some text"), DataFormat::kText);
  ExpectFormat(folder.Write("binary.dat", TokenBytes({1, 2, 3})), DataFormat::kText);
  ExpectFormat(folder.Write("empty", ""), DataFormat::kText);
}

TEST(FormatDetectionTest, TokensAreKnownByHeaderOrZeroBytes) {
  TestFolder folder;
  ExpectFormat(folder.Write("raw/0.bin", TokenBytes({464, 13, 198})), DataFormat::kTokens);
  ExpectFormat(folder.Path("raw"), DataFormat::kTokens);
  // 20240520 little-endian, version 1.
  const std::string start("\x88\xd8\x34\x01\x01\0\0\0\0\0\0\0", 12);
  ExpectFormat(folder.Write("train.data", start), DataFormat::kTokens);
}

TEST(FormatDetectionTest, ImageFoldersAreKnownByTheirFiles) {
  TestFolder folder;
  folder.Write("mnist/t10k-labels-idx1-ubyte.gz", "");
  ExpectFormat(folder.Path("mnist"), DataFormat::kIdx);
  folder.Write("cifar/data_batch_5.bin", "");
  ExpectFormat(folder.Path("cifar"), DataFormat::kCifar10);
}

TEST(FormatDetectionTest, SingleImageOrGzipFileSaysWhatToGiveInstead) {
  TestFolder folder;
  for (const std::string& path :
       {folder.Write("i", BigEndianBytes({0x803, 1, 1, 1})), folder.WriteGzip("x.gz", "text")}) {
    const absl::Status status = DetectDataFormat(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("give the folder"));
  }
}

TEST(FormatDetectionTest, NamesRoundTrip) {
  for (DataFormat format :
       {DataFormat::kText, DataFormat::kTokens, DataFormat::kIdx, DataFormat::kCifar10}) {
    const auto parsed = ParseDataFormat(DataFormatName(format));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, format);
  }
  EXPECT_THAT(std::string(ParseDataFormat("csv").status().message()),
              HasSubstr("--data_format=csv"));
}

}  // namespace
}  // namespace lodestar
