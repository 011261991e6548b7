#include "server/checkpoint/weights_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "server/checkpoint/checkpoint_publisher.h"
#include "server/checkpoint/shard_files.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TensorSpec Tensor(const std::string& name, std::vector<int64_t> shape) {
  TensorSpec tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  return tensor;
}

// A checkpoint of two servers whose boundary cuts the second tensor; weight i is i.
class WeightsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = absl::StrCat(testing::TempDir(), "/weights-", getpid(), "-", info->name());
    auto layout = Layout::FromTensors({Tensor("a", {10, 8}), Tensor("b", {40})});
    ASSERT_OK(layout);
    layout_ = *layout;
    auto directory = BeginCheckpoint(root_, Round(1));
    ASSERT_OK(directory);
    Manifest manifest;
    manifest.round = Round(1);
    manifest.layout = layout_;
    manifest.model = R"({"name": "test"})";
    const std::vector<ElementRange> ranges = {{0, 100}, {100, 120}};
    for (int shard = 0; shard < 2; ++shard) {
      auto page = std::make_shared<Page>(ranges[shard].size());
      for (int64_t i = 0; i < page->size(); ++i) {
        page->data()[i] = static_cast<float>(ranges[shard].begin + i);
      }
      const ShardState state = {ranges[shard], {}, {{ranges[shard], Version(1), page, {}, {}}}};
      auto part = WriteShardFiles({*directory, shard, 2, manifest.model}, layout_, state);
      ASSERT_OK(part);
      manifest.shards.push_back(*part);
    }
    auto path = PublishCheckpoint(*directory, manifest, 1);
    ASSERT_OK(path);
    out_ = root_ + "/model.safetensors";
    ASSERT_OK(ExportWeights(*path, out_));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string root_;
  std::string out_;
  Layout layout_;
};

TEST_F(WeightsFileTest, ExportHasWholeTensorsAndNamesTheModel) {
  auto file = SafetensorsReader::Open(out_);
  ASSERT_OK(file);
  EXPECT_EQ((*file)->tensors().size(), 2);
  EXPECT_EQ((*file)->metadata().at("lodestar.model"), R"({"name": "test"})");
  ASSERT_NE((*file)->Find("b"), nullptr);
  EXPECT_EQ((*file)->Find("b")->shape, (std::vector<int64_t>{40}));
}

TEST_F(WeightsFileTest, ExportReadsBackInAnyCut) {
  auto file = WeightsFile::Open(out_, layout_);
  ASSERT_OK(file);
  std::vector<float> part(50);
  ASSERT_OK((*file)->Read({65, 115}, absl::MakeSpan(part)));
  for (int i = 0; i < 50; ++i) ASSERT_EQ(part[i], static_cast<float>(65 + i));
}

TEST_F(WeightsFileTest, AFileOfAnotherModelIsRefusedByTensor) {
  auto other = Layout::FromTensors({Tensor("a", {8, 10}), Tensor("b", {40})});
  ASSERT_OK(other);
  EXPECT_THAT(WeightsFile::Open(out_, *other),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("tensor a"), HasSubstr("[8, 10]"), HasSubstr("[10, 8]"))));
  auto fewer = Layout::FromTensors({Tensor("a", {10, 8})});
  ASSERT_OK(fewer);
  EXPECT_THAT(WeightsFile::Open(out_, *fewer),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor b")));
  auto more = Layout::FromTensors({Tensor("a", {10, 8}), Tensor("b", {40}), Tensor("c", {1})});
  ASSERT_OK(more);
  EXPECT_THAT(WeightsFile::Open(out_, *more),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no tensor c")));
}

}  // namespace
}  // namespace lodestar
