// SPDX-License-Identifier: Apache-2.0

#include "worker/data/cifar10_reader.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kPixels = 3 * 32 * 32;

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const std::string& folder,
                                                     const ImageInput& input) {
  absl::StatusOr<ImageCorpus> corpus = OpenCifar10(folder);
  if (!corpus.ok()) return corpus.status();
  return MakeImageDataset(std::make_shared<const ImageCorpus>(*std::move(corpus)), input);
}

ImageInput Input() { return {"cifar", false, {3, 32, 32}, 10}; }

// Returns a batch whose record i has label i, and base + i in all pixels.
std::string Batch(int count, int base) {
  std::string content;
  for (int i = 0; i < count; ++i) {
    content.push_back(static_cast<char>(i));
    content += std::string(kPixels, static_cast<char>(base + i));
  }
  return content;
}

void WriteGood(const TestFolder& folder) {
  for (int number = 1; number <= 5; ++number) {
    folder.Write(absl::StrCat("data_batch_", number, ".bin"), Batch(number, 20 * number));
  }
  folder.Write("test_batch.bin", Batch(2, 200));
}

TEST(Cifar10ReaderTest, BatchThatIsTheTestBatchIsNotTrainedOn) {
  TestFolder folder;
  WriteGood(folder);
  folder.Write("data_batch_5.bin", Batch(2, 200));
  auto dataset = OpenDataset(folder.root(), Input());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_train_samples(), 10);
  EXPECT_EQ((*dataset)->num_heldout_samples(), 2);
  EXPECT_THAT((*dataset)->Describe(), HasSubstr("data_batch_5.bin"));
  for (int number = 1; number <= 5; ++number) {
    std::filesystem::remove(folder.Path(absl::StrCat("data_batch_", number, ".bin")));
    folder.Link("test_batch.bin", absl::StrCat("data_batch_", number, ".bin"));
  }
  const absl::Status status = OpenDataset(folder.root(), Input()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("test_batch.bin"));
}

TEST(Cifar10ReaderTest, NamesFurtherBatches) {
  TestFolder folder;
  WriteGood(folder);
  folder.Write("data_batch_6.bin", Batch(2, 20));
  auto dataset = OpenDataset(folder.root(), Input());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_train_samples(), 15);
  EXPECT_THAT((*dataset)->Describe(), HasSubstr("data_batch_6.bin"));
}

TEST(Cifar10ReaderTest, ReadsAllBatchesInOrder) {
  TestFolder folder;
  WriteGood(folder);
  auto dataset = OpenDataset(folder.root(), Input());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->num_train_samples(), 15);
  ASSERT_EQ((*dataset)->num_heldout_samples(), 2);
  HostBatch batch;
  // Image 4 is the second of the third batch, and image 14 is the last of the fifth batch.
  ASSERT_TRUE((*dataset)->ReadTrain({SampleRef{0, 4}, SampleRef{0, 14}}, &batch).ok());
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{1, 4}));
  EXPECT_FLOAT_EQ(batch.features[0], 61 / 255.0f);
  EXPECT_FLOAT_EQ(batch.features[2 * kPixels - 1], 104 / 255.0f);
  ASSERT_TRUE((*dataset)->ReadHeldout({1}, &batch).ok());
  EXPECT_FLOAT_EQ(batch.features[kPixels - 1], 201 / 255.0f);
}

TEST(Cifar10ReaderTest, MissingBatchIsNamed) {
  for (const char* name : {"data_batch_3.bin", "test_batch.bin"}) {
    TestFolder folder;
    WriteGood(folder);
    std::filesystem::remove(folder.Path(name));
    const absl::Status status = OpenDataset(folder.root(), Input()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(name, ": no such file")));
  }
}

TEST(Cifar10ReaderTest, IncompleteRecordNamesItsOffset) {
  TestFolder folder;
  WriteGood(folder);
  folder.Write("data_batch_2.bin", Batch(3, 0).substr(0, 3073 * 2 + 5));
  const absl::Status status = OpenDataset(folder.root(), Input()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("data_batch_2.bin"), HasSubstr("offset 6146")));
}

TEST(Cifar10ReaderTest, LabelOutOfRangeNamesFileAndOffset) {
  TestFolder folder;
  WriteGood(folder);
  folder.Write("data_batch_4.bin", Batch(11, 0));
  const absl::Status status = OpenDataset(folder.root(), Input()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("data_batch_4.bin: the label at offset 30730 is 10")));
}

TEST(Cifar10ReaderTest, ImageSizeMustBeTheModels) {
  TestFolder folder;
  WriteGood(folder);
  const absl::Status status = OpenDataset(folder.root(), {"grey", false, {1, 28, 28}, 10}).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("3x32x32"), HasSubstr("model grey takes 1x28x28")));
}

}  // namespace
}  // namespace lodestar::data
