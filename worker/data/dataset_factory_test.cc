#include "worker/data/dataset_factory.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelSpec Preset(const std::string& name) {
  auto spec = ModelPreset(name);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : ModelSpec{};
}

DatasetConfig Config(const std::string& path, const std::string& format = "auto") {
  DatasetConfig config;
  config.path = path;
  config.format = format;
  return config;
}

// Eight digits-sized images, all of class 3.
std::string WriteDigits(const TestFolder& folder) {
  const std::string images = BigEndianBytes({0x803, 8, 8, 8}) + std::string(8 * 64, '\x80');
  const std::string labels = BigEndianBytes({0x801, 8}) + std::string(8, '\x03');
  folder.Write("digits/train-images-idx3-ubyte", images);
  folder.Write("digits/t10k-images-idx3-ubyte", images);
  folder.Write("digits/train-labels-idx1-ubyte", labels);
  folder.Write("digits/t10k-labels-idx1-ubyte", labels);
  return folder.Path("digits");
}

std::string ErrorOf(const DatasetConfig& config, const std::string& preset) {
  const auto dataset = OpenDataset(config, Preset(preset));
  EXPECT_FALSE(dataset.ok());
  return std::string(dataset.status().message());
}

TEST(DatasetFactoryTest, OpensTextForGpt) {
  TestFolder folder;
  const std::string path = folder.Write("t.txt", std::string(2000, 'a'));
  auto dataset = OpenDataset(Config(path), Preset("gpt-nano"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->tokens_per_sample(), 64);
  EXPECT_THAT((*dataset)->Describe(), HasSubstr("text: 1 file"));
}

TEST(DatasetFactoryTest, OpensTokensForGpt) {
  TestFolder folder;
  const std::string path = folder.Write("t.bin", TokenBytes(std::vector<uint16_t>(20000, 50000)));
  auto dataset = OpenDataset(Config(path, "tokens"), Preset("gpt2-124m"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->tokens_per_sample(), 1024);
}

TEST(DatasetFactoryTest, OpensImagesForClassifiers) {
  TestFolder folder;
  const std::string path = WriteDigits(folder);
  for (const char* model : {"mlp", "cnn"}) {
    auto dataset = OpenDataset(Config(path), Preset(model));
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
  EXPECT_THAT(ErrorOf(Config(text, "cifar10"), "cnn"), HasSubstr("is a folder"));
}

TEST(DatasetFactoryTest, MissingPathAndUnknownFormatAreErrors) {
  TestFolder folder;
  const std::string text = folder.Write("t.txt", std::string(2000, 'a'));
  EXPECT_THAT(ErrorOf(Config(folder.Path("none")), "gpt-nano"), HasSubstr("no such file"));
  EXPECT_THAT(ErrorOf(Config(""), "gpt-nano"), HasSubstr("--data is empty"));
  EXPECT_THAT(ErrorOf(Config(text, "csv"), "gpt-nano"),
              AllOf(HasSubstr("csv"), HasSubstr("auto, text, tokens, idx, cifar10")));
}

TEST(DatasetFactoryTest, EmptyFolderIsAnEmptyCorpus) {
  TestFolder folder;
  EXPECT_THAT(ErrorOf(Config(folder.root()), "gpt-nano"), HasSubstr("empty corpus"));
}

}  // namespace
}  // namespace lodestar
