// SPDX-License-Identifier: Apache-2.0

#include "worker/data/idx_reader.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTrainImages[] = "train-images-idx3-ubyte";
constexpr char kTrainLabels[] = "train-labels-idx1-ubyte";
constexpr char kTestImages[] = "t10k-images-idx3-ubyte";
constexpr char kTestLabels[] = "t10k-labels-idx1-ubyte";

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const std::string& folder,
                                                     const ImageInput& input) {
  absl::StatusOr<ImageCorpus> corpus = OpenIdx(folder);
  if (!corpus.ok()) return corpus.status();
  return MakeImageDataset(std::make_shared<const ImageCorpus>(*std::move(corpus)), input);
}

ImageInput Input() { return {"tiny", false, {1, 2, 3}, 10}; }

// Returns a file of 2x3 images. Pixel p of image i is (10 * i + p) % 256.
std::string Images(uint32_t count, uint32_t height = 2, uint32_t width = 3) {
  std::string content = BigEndianBytes({0x803, count, height, width});
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t p = 0; p < height * width; ++p) {
      content.push_back(static_cast<char>(10 * i + p));
    }
  }
  return content;
}

std::string Labels(uint32_t count, int modulus = 10) {
  std::string content = BigEndianBytes({0x801, count});
  for (uint32_t i = 0; i < count; ++i) content.push_back(static_cast<char>(i % modulus));
  return content;
}

void WriteGood(const TestFolder& folder) {
  folder.Write(kTrainImages, Images(12));
  folder.Write(kTrainLabels, Labels(12));
  folder.Write(kTestImages, Images(3));
  folder.Write(kTestLabels, Labels(3));
}

// Returns the error after one file of a good folder was replaced by `content`.
std::string ErrorWith(const std::string& name, const std::string& content,
                      const ImageInput& input = Input()) {
  TestFolder folder;
  WriteGood(folder);
  folder.Write(name, content);
  const absl::Status status = OpenDataset(folder.root(), input).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(IdxReaderTest, TestImagesThatAreTheTrainingImagesAreRefused) {
  TestFolder folder;
  WriteGood(folder);
  folder.Write(kTestImages, Images(12));
  folder.Write(kTestLabels, Labels(12));
  for (const bool is_compressed : {false, true}) {
    if (is_compressed) {
      std::filesystem::remove(folder.Path(kTestImages));
      folder.WriteGzip(absl::StrCat(kTestImages, ".gz"), Images(12));
    }
    const absl::Status status = OpenDataset(folder.root(), Input()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(kTrainImages), HasSubstr(kTestImages)));
  }
}

TEST(IdxReaderTest, ReadsPixelsAndLabels) {
  TestFolder folder;
  WriteGood(folder);
  auto dataset = OpenDataset(folder.root(), Input());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_train_samples(), 12);
  EXPECT_EQ((*dataset)->num_heldout_samples(), 3);
  EXPECT_EQ((*dataset)->tokens_per_sample(), 1);
  HostBatch batch;
  ASSERT_TRUE((*dataset)->ReadTrain({SampleRef{0, 11}, SampleRef{5, 2}}, &batch).ok());
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{1, 2}));
  ASSERT_EQ(batch.features.size(), 12);
  EXPECT_FLOAT_EQ(batch.features[0], 110 / 255.0f);
  EXPECT_FLOAT_EQ(batch.features[5], 115 / 255.0f);
  EXPECT_FLOAT_EQ(batch.features[6], 20 / 255.0f);
  EXPECT_TRUE(batch.tokens.empty());
  ASSERT_TRUE((*dataset)->ReadHeldout({2}, &batch).ok());
  EXPECT_EQ(batch.num_samples, 1);
  EXPECT_FLOAT_EQ(batch.features[0], 20 / 255.0f);
  EXPECT_EQ((*dataset)->ReadHeldout({3}, &batch).code(), absl::StatusCode::kOutOfRange);
}

TEST(IdxReaderTest, CompressedFilesAreTheSameData) {
  TestFolder plain;
  WriteGood(plain);
  TestFolder compressed;
  compressed.WriteGzip(absl::StrCat(kTrainImages, ".gz"), Images(12));
  compressed.WriteGzip(absl::StrCat(kTrainLabels, ".gz"), Labels(12));
  compressed.Write(kTestImages, Images(3));
  compressed.WriteGzip(absl::StrCat(kTestLabels, ".gz"), Labels(3));
  auto a = OpenDataset(plain.root(), Input());
  auto b = OpenDataset(compressed.root(), Input());
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ((*a)->fingerprint(), (*b)->fingerprint());
  compressed.Write(kTestLabels, Labels(3, 2));
  auto c = OpenDataset(compressed.root(), Input());
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_NE((*a)->fingerprint(), (*c)->fingerprint());
}

// The header says two images, or is wrong, and then megabytes of zeros follow in the compressed
// file.
TEST(IdxReaderTest, InflatesNoMoreThanTheHeaderTells) {
  for (const uint32_t magic : {0x803u, 0u}) {
    TestFolder folder;
    WriteGood(folder);
    std::filesystem::remove(folder.Path(kTrainImages));
    folder.WriteGzip(absl::StrCat(kTrainImages, ".gz"),
                     BigEndianBytes({magic, 2, 2, 3}) + std::string(8 << 20, '\0'));
    const absl::Status status = OpenDataset(folder.root(), Input()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(kTrainImages, ".gz")));
  }
}

TEST(IdxReaderTest, DamagedGzipNamesTheFile) {
  TestFolder folder;
  WriteGood(folder);
  std::filesystem::remove(folder.Path(kTrainImages));
  const std::string path = folder.WriteGzip(absl::StrCat(kTrainImages, ".gz"), Images(12));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 9);
  const absl::Status status = OpenDataset(folder.root(), Input()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("train-images-idx3-ubyte.gz"), HasSubstr("offset")));
}

TEST(IdxReaderTest, MissingFileIsNamed) {
  for (const char* name : {kTrainImages, kTrainLabels, kTestImages, kTestLabels}) {
    TestFolder folder;
    WriteGood(folder);
    std::filesystem::remove(folder.Path(name));
    const absl::Status status = OpenDataset(folder.root(), Input()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(name, ": no such file")));
  }
}

TEST(IdxReaderTest, WrongMagicIsAnError) {
  EXPECT_THAT(ErrorWith(kTrainImages, Labels(12) + std::string(64, '\0')),
              AllOf(HasSubstr("magic number at offset 0 is 0x00000801"), HasSubstr("0x00000803")));
  EXPECT_THAT(ErrorWith(kTestLabels, Images(3)), HasSubstr("must be 0x00000801"));
}

TEST(IdxReaderTest, TruncatedFilesAreErrors) {
  EXPECT_THAT(ErrorWith(kTrainImages, Images(12).substr(0, 16 + 50)),
              AllOf(HasSubstr("12 entries, which need 88 bytes"), HasSubstr("ends at offset 66")));
  EXPECT_THAT(ErrorWith(kTrainLabels, Labels(12).substr(0, 15)), HasSubstr("ends at offset 15"));
  EXPECT_THAT(ErrorWith(kTestImages, Images(3).substr(0, 9)),
              HasSubstr("ends at offset 9 inside its header of 16 bytes"));
  EXPECT_THAT(ErrorWith(kTestLabels, Labels(3) + "xy"), HasSubstr("has 13"));
}

TEST(IdxReaderTest, HeaderWithHugeNumbersIsAnError) {
  EXPECT_THAT(ErrorWith(kTrainImages, BigEndianBytes({0x803, 0xffffffff, 0xffffffff, 0xffffffff})),
              HasSubstr("a side must have 1 to"));
  EXPECT_THAT(ErrorWith(kTrainImages, BigEndianBytes({0x803, 0xffffffff, 16384, 16384})),
              HasSubstr("ends at offset 16"));
  EXPECT_THAT(ErrorWith(kTrainImages, BigEndianBytes({0x803, 5, 0, 3})),
              HasSubstr("at offset 8, images have 0x3 pixels"));
}

TEST(IdxReaderTest, CountsMustMatch) {
  EXPECT_THAT(ErrorWith(kTrainLabels, Labels(11)),
              AllOf(HasSubstr("at offset 4, there are 11 labels"), HasSubstr("12 images")));
}

TEST(IdxReaderTest, LabelOutOfRangeNamesFileAndOffset) {
  EXPECT_THAT(ErrorWith(kTestLabels, Labels(2) + "\x0a", {"tiny", false, {1, 2, 3}, 10}),
              HasSubstr("has 11"));
  std::string labels = Labels(12);
  labels[8 + 7] = 10;
  EXPECT_THAT(ErrorWith(kTrainLabels, labels),
              AllOf(HasSubstr("train-labels-idx1-ubyte: the label at offset 15 is 10"),
                    HasSubstr("10 classes")));
}

TEST(IdxReaderTest, ImageSizeMustBeTheModels) {
  EXPECT_THAT(ErrorWith(kTrainLabels, Labels(12), {"square", false, {1, 3, 2}, 10}),
              AllOf(HasSubstr("images are 1x2x3"), HasSubstr("model square takes 1x3x2")));
  EXPECT_THAT(ErrorWith(kTrainLabels, Labels(12), {"flat", true, {1, 1, 784}, 10}),
              AllOf(HasSubstr("6 pixels"), HasSubstr("model flat takes 784 pixels")));
  EXPECT_THAT(ErrorWith(kTestLabels, Labels(3), {"", true, {1, 1, 784}, 10}),
              HasSubstr("the model takes 784 pixels"));
  EXPECT_THAT(ErrorWith(kTestImages, Images(3, 3, 2)), HasSubstr("at offset 8, images are 1x3x2"));
  TestFolder folder;
  WriteGood(folder);
  EXPECT_TRUE(OpenDataset(folder.root(), {"flat", true, {1, 1, 6}, 10}).ok());
}

TEST(IdxReaderTest, NoImagesIsAnEmptyCorpus) {
  TestFolder folder;
  WriteGood(folder);
  folder.Write(kTestImages, Images(0));
  folder.Write(kTestLabels, Labels(0));
  const absl::Status status = OpenDataset(folder.root(), Input()).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("empty corpus"));
}

}  // namespace
}  // namespace lodestar::data
