#include "common/trained_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint_manifest.h"
#include "common/file_system.h"
#include "common/testing/status_matchers.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kModel[] = R"({"name": "test"})";
constexpr int kElements = 130;

TensorSpec Tensor(const std::string& name, std::vector<int64_t> shape) {
  TensorSpec tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  return tensor;
}

// Weight i of the parameter space is i.
class TrainedWeightsTest : public testing::Test {
 protected:
  TrainedWeightsTest() {
    root_ = absl::StrCat(testing::TempDir(), "/trained-",
                         testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ + "/round-00000007");
    values_.resize(kElements);
    std::iota(values_.begin(), values_.end(), 0.0f);
    layout_ = *Layout::FromTensors({Tensor("a", {10, 8}), Tensor("b", {40}), Tensor("c", {5, 2})});
  }

  WrittenFile Write(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                    ElementRange range, const SafetensorsMetadata& metadata) {
    auto writer = SafetensorsWriter::Create(FileSystem::Real(), path, entries, metadata);
    EXPECT_OK(writer);
    EXPECT_OK((*writer)->Append(absl::MakeConstSpan(values_).subspan(range.begin, range.size())));
    return *(*writer)->Finish(/*sync=*/false);
  }

  std::string WriteFile() {
    const std::string path = root_ + "/model.safetensors";
    Write(path, {{"a", {10, 8}}, {"b", {40}}, {"c", {5, 2}}}, {0, kElements},
          {{"lodestar.model", kModel}});
    return path;
  }

  // Of three servers, whose boundaries cut the first and the second tensor.
  std::string WriteCheckpoint() {
    const std::string directory = root_ + "/round-00000007";
    const std::vector<ElementRange> ranges = {{0, 30}, {30, 100}, {100, kElements}};
    const std::vector<std::vector<SafetensorsEntry>> entries = {
        {{"a@0:30", {30}}},
        {{"a@30:80", {50}}, {"b@0:20", {20}}},
        {{"b@20:40", {20}}, {"c", {5, 2}}}};
    Manifest manifest;
    manifest.round = Round(7);
    manifest.layout = layout_;
    manifest.model = kModel;
    for (int shard = 0; shard < 3; ++shard) {
      ShardManifest& part = manifest.shards.emplace_back();
      part.shard = shard;
      part.range = ranges[shard];
      part.weights.name = absl::StrCat("shard-", shard, ".safetensors");
      const WrittenFile written =
          Write(directory + "/" + part.weights.name, entries[shard], ranges[shard], {});
      part.weights.num_bytes = written.num_bytes;
      part.weights.crc32c = written.crc32c;
      part.buckets = {{ranges[shard], Version(7), {}}};
    }
    std::ofstream(directory + "/" + kManifestName) << FormatManifest(manifest);
    return directory;
  }

  std::string root_;
  std::vector<float> values_;
  Layout layout_;
};

TEST_F(TrainedWeightsTest, FileAndCheckpointOfAnyNumberOfServersHaveTheSameTensors) {
  for (const std::string& path : {WriteFile(), WriteCheckpoint()}) {
    const auto weights = TrainedWeights::Open(FileSystem::Real(), path);
    ASSERT_OK(weights);
    EXPECT_EQ((*weights)->model(), kModel);
    ASSERT_OK((*weights)->CheckTensors(layout_));
    for (const TensorSpec& tensor : layout_.tensors()) {
      const auto values = (*weights)->Floats(tensor.name);
      ASSERT_OK(values);
      EXPECT_EQ(*values, absl::MakeConstSpan(values_).subspan(tensor.offset, tensor.num_elements()))
          << path << " " << tensor.name;
    }
    std::vector<float> part(60);
    ASSERT_OK((*weights)->Read(layout_, {65, 125}, absl::MakeSpan(part)));
    EXPECT_EQ(part, std::vector<float>(values_.begin() + 65, values_.begin() + 125)) << path;
  }
}

TEST_F(TrainedWeightsTest, WeightsOfAnotherModelAreRefusedByTensor) {
  for (const std::string& path : {WriteFile(), WriteCheckpoint()}) {
    const auto weights = TrainedWeights::Open(FileSystem::Real(), path);
    ASSERT_OK(weights);
    const auto refusal = [&](std::vector<TensorSpec> tensors) {
      const absl::Status status =
          (*weights)->CheckTensors(*Layout::FromTensors(std::move(tensors)));
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      return std::string(status.message());
    };
    EXPECT_THAT(
        refusal({Tensor("a", {8, 10}), Tensor("b", {40}), Tensor("c", {5, 2})}),
        AllOf(HasSubstr(path), HasSubstr("tensor a"), HasSubstr("[8, 10]"), HasSubstr("[10, 8]")));
    EXPECT_THAT(refusal({Tensor("a", {10, 8}), Tensor("b", {40})}), HasSubstr("has tensor c"));
    EXPECT_THAT(
        refusal({Tensor("a", {10, 8}), Tensor("b", {40}), Tensor("c", {5, 2}), Tensor("d", {1})}),
        HasSubstr("no tensor d"));
  }
}

TEST_F(TrainedWeightsTest, AFolderOfCheckpointsNamesThoseInIt) {
  const std::string checkpoint = WriteCheckpoint();
  EXPECT_THAT(TrainedWeights::Open(FileSystem::Real(), root_),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("no checkpoint"), HasSubstr(checkpoint))));
}

TEST_F(TrainedWeightsTest, ADamagedCheckpointIsNotRead) {
  const std::string checkpoint = WriteCheckpoint();
  std::fstream file(checkpoint + "/shard-1.safetensors", std::ios::in | std::ios::out);
  file.seekp(-3, std::ios::end);
  file.put('x');
  file.close();
  EXPECT_THAT(TrainedWeights::Open(FileSystem::Real(), checkpoint),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("shard-1.safetensors")));
}

}  // namespace
}  // namespace lodestar
