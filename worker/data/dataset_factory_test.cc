// SPDX-License-Identifier: Apache-2.0

#include "worker/data/dataset_factory.h"

#include <sys/stat.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

params::ModelSpec Preset(const std::string& name) {
  auto spec = params::ModelPreset(name);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : params::ModelSpec{};
}

DataConfig Config(const std::string& path, const std::string& format = "auto") {
  return {.path = path, .format = format};
}

absl::StatusOr<std::unique_ptr<Dataset>> Open(const DataConfig& config, const std::string& preset) {
  const absl::StatusOr<DataSource> source = OpenData(config);
  if (!source.ok()) return source.status();
  return MakeDataset(*source, Preset(preset), /*seed=*/1);
}

// Writes eight images of 8x8 pixels, all of class 3.
std::string WriteDigits(const TestFolder& folder) {
  const std::string header = BigEndianBytes({0x803, 8, 8, 8});
  const std::string labels = BigEndianBytes({0x801, 8}) + std::string(8, '\x03');
  folder.Write("digits/train-images-idx3-ubyte", header + std::string(8 * 64, '\x80'));
  folder.Write("digits/t10k-images-idx3-ubyte", header + std::string(8 * 64, '\x81'));
  folder.Write("digits/train-labels-idx1-ubyte", labels);
  folder.Write("digits/t10k-labels-idx1-ubyte", labels);
  return folder.Path("digits");
}

std::string ErrorOf(const DataConfig& config, const std::string& preset = "gpt-nano") {
  const auto dataset = Open(config, preset);
  EXPECT_FALSE(dataset.ok());
  return std::string(dataset.status().message());
}

TEST(DatasetFactoryTest, OpensTextForGpt) {
  TestFolder folder;
  const std::string path = folder.Write("t.txt", std::string(2000, 'a'));
  auto dataset = Open(Config(path), "gpt-nano");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->tokens_per_sample(), 64);
  EXPECT_THAT((*dataset)->Describe(), HasSubstr("text: 1 file"));
}

TEST(DatasetFactoryTest, OpensTokensForGpt) {
  TestFolder folder;
  const std::string path = folder.Write("t.bin", TokenBytes(std::vector<uint16_t>(20000, 50000)));
  auto dataset = Open(Config(path, "tokens"), "gpt2-124m");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->tokens_per_sample(), 1024);
}

TEST(DatasetFactoryTest, OpensImagesForClassifiers) {
  TestFolder folder;
  const std::string path = WriteDigits(folder);
  for (const char* model : {"mlp", "cnn"}) {
    auto dataset = Open(Config(path), model);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->num_train_samples(), 8);
  }
}

TEST(DatasetFactoryTest, SaysWhichModelNeedsWhichData) {
  TestFolder folder;
  const std::string images = WriteDigits(folder);
  const std::string text = folder.Write("t.txt", std::string(2000, 'a'));
  EXPECT_THAT(ErrorOf(Config(images), "gpt-nano"),
              AllOf(HasSubstr("holds idx images"), HasSubstr("gpt-nano"),
                    HasSubstr("needs text or tokens")));
  EXPECT_THAT(ErrorOf(Config(text), "mlp"),
              AllOf(HasSubstr("holds text"), HasSubstr("train-images-idx3-ubyte"),
                    HasSubstr("data_batch_1.bin")));
  EXPECT_THAT(ErrorOf(Config(images), "cnn-mnist"), HasSubstr("choose a model for this size"));
  EXPECT_THAT(ErrorOf(Config(text, "cifar10"), "cnn"), HasSubstr("must be a folder"));
}

TEST(DatasetFactoryTest, MissingPathAndUnknownFormatAreErrors) {
  TestFolder folder;
  const std::string text = folder.Write("t.txt", std::string(2000, 'a'));
  EXPECT_THAT(ErrorOf(Config(folder.Path("none")), "gpt-nano"), HasSubstr("none: No such file"));
  EXPECT_THAT(ErrorOf(Config(""), "gpt-nano"), HasSubstr("--data is empty"));
  EXPECT_THAT(ErrorOf(Config(text, "csv"), "gpt-nano"),
              AllOf(HasSubstr("csv"), HasSubstr("auto, text, tokens, idx, cifar10")));
}

// OpenData() must find every error that does not depend on the model.
TEST(DatasetFactoryTest, OpenDataFindsWhatIsWrongWithoutAModel) {
  TestFolder folder;
  const std::string text = folder.Write("t.txt", std::string(2000, 'a'));
  const std::string odd = folder.Write("odd.bin", std::string(2001, '\0'));
  const std::string images = WriteDigits(folder);
  folder.Write("digits/train-labels-idx1-ubyte", "");
  const std::string fifo = folder.Path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_OK(OpenData(Config(text)));
  const std::pair<DataConfig, std::string> wrong[] = {
      {Config(folder.Path("none")), "none: No such file"},
      {Config(absl::StrCat(text, "/below")), "Not a directory"},
      {Config(fifo), "fifo is neither a file nor a folder"},
      {Config("/dev/null"), "neither a file nor a folder"},
      {Config(odd), "odd.bin: 2001 bytes are not a whole number"},
      {Config(images), "train-labels-idx1-ubyte: ends at offset 0"},
      {{.path = text, .heldout_path = folder.Path("none")}, "--heldout_data"},
      {{.path = text, .token_bytes = 4}, "--token_bytes=4"},
      {{.path = text, .heldout_path = odd}, "holds tokens, but --data="},
  };
  for (const auto& [config, part] : wrong) {
    EXPECT_THAT(std::string(OpenData(config).status().message()), HasSubstr(part));
  }
}

TEST(DatasetFactoryTest, HeldOutImagesHaveFilesOfTheirOwn) {
  TestFolder folder;
  const std::string images = WriteDigits(folder);
  EXPECT_THAT(
      OpenData({.path = images, .heldout_path = images}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is only for text and tokens")));
}

TEST(DatasetFactoryTest, HeldOutTextMayLieElsewhere) {
  TestFolder folder;
  const auto dataset = Open({.path = folder.Write("t.txt", std::string(2000, 'a')),
                             .heldout_path = folder.Write("h.txt", std::string(200, 'b'))},
                            "gpt-nano");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_train_samples(), 2000 / 64 - 1);
  EXPECT_EQ((*dataset)->num_heldout_samples(), 199 / 64);
}

TEST(DatasetFactoryTest, SaysThatBytesAreFewOfTheModelsTokens) {
  TestFolder folder;
  const std::string path = folder.Write("t.txt", std::string(20000, 'a'));
  EXPECT_THAT((*Open(Config(path), "gpt2-124m"))->Describe(),
              HasSubstr("only 256 of the model's 50257 tokens"));
}

TEST(DatasetFactoryTest, OneSourceServesModelsAndSeeds) {
  TestFolder folder;
  const auto source = OpenData(Config(folder.Write("t.txt", std::string(20000, 'a'))));
  ASSERT_OK(source);
  const auto small = MakeDataset(*source, Preset("gpt-nano"), 1);
  const auto large = MakeDataset(*source, Preset("gpt2-124m"), 2);
  ASSERT_OK(small);
  ASSERT_OK(large);
  EXPECT_EQ((*small)->tokens_per_sample(), 64);
  EXPECT_EQ((*large)->tokens_per_sample(), 1024);
}

TEST(DatasetFactoryTest, EmptyFolderIsAnEmptyCorpus) {
  TestFolder folder;
  EXPECT_THAT(ErrorOf(Config(folder.root()), "gpt-nano"), HasSubstr("empty corpus"));
}

}  // namespace
}  // namespace lodestar::data
