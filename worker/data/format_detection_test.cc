// SPDX-License-Identifier: Apache-2.0

#include "worker/data/format_detection.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar::data {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void ExpectFormat(const std::string& path, DataFormat wanted) {
  const auto format = DetectDataFormat(path);
  ASSERT_TRUE(format.ok()) << format.status();
  EXPECT_EQ(DataFormatName(*format), DataFormatName(wanted)) << path;
}

void ExpectRefused(const std::string& path, const std::vector<std::string>& parts) {
  const absl::Status status = DetectDataFormat(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& part : parts) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(FormatDetectionTest, TextIsText) {
  TestFolder folder;
  ExpectFormat(folder.Write("notes.txt", "some text"), DataFormat::kText);
  ExpectFormat(folder.Write("text.bin", "some text"), DataFormat::kText);
  ExpectFormat(folder.Write("empty", ""), DataFormat::kText);
}

TEST(FormatDetectionTest, WhatIsNeitherTextNorTokensIsRefused) {
  TestFolder folder;
  const std::string random = folder.Write("d/random", TokenBytes(std::vector<uint16_t>(50, 0x1b)));
  ExpectRefused(random, {random, "% of the bytes from offset 0", "--data_format=text",
                         "--data_format=tokens"});
  ExpectRefused(folder.Write("utf16.txt", "\xff\xfeh"), {"utf16.txt", "UTF-16 text", "convert"});
  ExpectRefused(folder.Write("p.png", "\x89PNG\r\n\x1a\n"), {"p.png", "a PNG image"});
  folder.Write("d/a.txt", "text");
  folder.Write("d/b.zip", "PK\x03\x04");
  ExpectRefused(folder.Path("d"), {"2 files are not text", "b.zip (a ZIP archive", "random ("});
}

TEST(FormatDetectionTest, LooksAtMoreThanTheStart) {
  TestFolder folder;
  const std::string text(200'000, 'x');
  ExpectFormat(folder.Write("whole.txt", text), DataFormat::kText);
  ExpectRefused(folder.Write("crashed.txt", text + std::string(100'000, '\0')),
                {"crashed.txt", "zero or control codes"});
}

TEST(FormatDetectionTest, TextAndTokensTogetherAreRefused) {
  TestFolder folder;
  folder.Write("d/input.txt", "text");
  folder.Write("d/other.pkl", std::string("\x80\x04\0\0\0", 5));
  folder.Write("d/train.bin", TokenBytes({464, 13, 198}));
  folder.Write("d/val.bin", TokenBytes({464, 13, 198}));
  ExpectRefused(folder.Path("d"),
                {"train.bin", "val.bin", "input.txt", "other.pkl", "--data_format=tokens"});
}

TEST(FormatDetectionTest, FolderOfNanoGptIsTokens) {
  TestFolder folder;
  folder.Write("d/meta.pkl", std::string("\x80\x04\0\0\0", 5));
  folder.Write("d/train.bin", TokenBytes({464, 13, 198}));
  folder.Write("d/val.bin", TokenBytes({464, 13, 198}));
  ExpectFormat(folder.Path("d"), DataFormat::kTokens);
  folder.Write("d/input.txt", "text");
  folder.Write("d/prepare.py", "import numpy");
  folder.Write("d/readme.md", "text");
  ExpectFormat(folder.Path("d"), DataFormat::kTokens);
}

TEST(FormatDetectionTest, DocumentationBesideTokensIsNoData) {
  TestFolder folder;
  folder.Write("d/train.bin", TokenBytes({464, 13, 198}));
  folder.Write("d/README.md", "text");
  ExpectFormat(folder.Path("d"), DataFormat::kTokens);
}

TEST(FormatDetectionTest, TellsTextFromTheHeaderWhoseNameItBeginsWith) {
  TestFolder folder;
  ExpectFormat(folder.Write("a.txt", "LITPKDS is the name of a format."), DataFormat::kText);
}

TEST(FormatDetectionTest, NamesCifar100) {
  TestFolder folder;
  folder.Write("d/train.bin", std::string(3074, 'x'));
  folder.Write("d/test.bin", std::string(3074, 'x'));
  folder.Write("d/fine_label_names.txt", "apple\n");
  ExpectRefused(folder.Path("d"), {"CIFAR-100", "data_batch_1.bin"});
}

TEST(FormatDetectionTest, NamesTheFolderWithImagesBelow) {
  TestFolder folder;
  const std::string batch(3073, '\1');
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                           "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    folder.Write(absl::StrCat("cifar/binary/", name), batch);
  }
  folder.Write("cifar/binary/batches.meta.txt", "airplane\n");
  ExpectRefused(folder.Path("cifar"), {"CIFAR-10", "--data=", "/cifar/binary"});
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte"}) {
    folder.Write(absl::StrCat("mnist/raw/", name), "");
  }
  ExpectRefused(folder.Path("mnist"), {"IDX", "--data=", "/mnist/raw"});
}

TEST(FormatDetectionTest, NamesOtherVersionsOfCifar10) {
  TestFolder folder;
  for (const char* name : {"data_batch_1", "test_batch"}) {
    folder.Write(absl::StrCat("python/", name), "\x80\x04");
    folder.Write(absl::StrCat("packed/", name, ".bin.gz"), "\x1f\x8b");
  }
  ExpectRefused(folder.Path("python"), {"/python", "CIFAR-10", "cifar-10-binary", "pickle"});
  ExpectRefused(folder.Path("packed"), {"data_batch_1.bin.gz", "gunzip"});
  ExpectRefused(folder.root(), {"gunzip"});
}

TEST(FormatDetectionTest, FolderOfDataTroveIsTokens) {
  TestFolder folder;
  folder.Write("d/0_text.ds", TokenBytes({464, 13, 198}));
  ExpectFormat(folder.Path("d"), DataFormat::kTokens);
  folder.Write("d/0_text.ds.index", std::string(16, '\1'));
  folder.Write("d/0_text.ds.metadata", "gpt2|2\n3");
  ExpectFormat(folder.Path("d"), DataFormat::kTokens);
}

TEST(FormatDetectionTest, SpeaksOfIdxOnlyForItsNames) {
  TestFolder folder;
  const std::string gzip("\x1f\x8b\x08\0", 4);
  ExpectRefused(folder.Write("a/train-images-idx3-ubyte.gz", gzip), {"gzip data", "IDX"});
  EXPECT_THAT(std::string(DetectDataFormat(folder.Write("b.txt.gz", gzip)).status().message()),
              Not(HasSubstr("IDX")));
}

// The message must not suggest a flag with which notes.bin would be read as tokens.
TEST(FormatDetectionTest, AdvisesNoFlagUnderWhichTextIsReadAsTokens) {
  TestFolder folder;
  folder.Write("d/notes.bin", "some text");
  folder.Write("d/train.bin", TokenBytes({464, 13, 198}));
  ExpectRefused(folder.Path("d"), {"train.bin", "notes.bin", "Remove one of the two kinds"});
  EXPECT_THAT(std::string(DetectDataFormat(folder.Path("d")).status().message()),
              Not(HasSubstr("--data_format")));
  const std::string zip = folder.Write("a.zip", "PK\x03\x04");
  EXPECT_THAT(std::string(DetectDataFormat(zip).status().message()),
              Not(HasSubstr("--data_format")));
}

TEST(FormatDetectionTest, NamesAFewOfManyFiles) {
  TestFolder folder;
  for (int i = 0; i < 9; ++i) folder.Write(absl::StrCat("d/", i), "\x1f\x8b");
  ExpectRefused(folder.Path("d"), {"d/0 (gzip data)", "d/2 (gzip data) and 6 more"});
}

TEST(FormatDetectionTest, TokensAreKnownByHeaderOrZeroBytes) {
  TestFolder folder;
  ExpectFormat(folder.Write("raw/0.bin", TokenBytes({464, 13, 198})), DataFormat::kTokens);
  ExpectFormat(folder.Path("raw"), DataFormat::kTokens);
  // The header has the magic number 20240520 and version 1, both little-endian.
  const std::string start("\x88\xd8\x34\x01\x01\0\0\0\0\0\0\0", 12);
  ExpectFormat(folder.Write("train.data", start), DataFormat::kTokens);
  ExpectFormat(folder.Write("npy/0.npy", "\x93NUMPY"), DataFormat::kTokens);
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
  for (const std::string& path : {folder.Write("i", BigEndianBytes({0x803, 1, 1, 1})),
                                  folder.WriteGzip("t10k-images-idx3-ubyte.gz", "text")}) {
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
}  // namespace lodestar::data
