// SPDX-License-Identifier: Apache-2.0

#include "common/checkpoints/trained_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "common/testing/status_matchers.h"

namespace lodestar::checkpoints {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kModel[] = R"({"name": "test"})";
constexpr int kElements = 130;

params::TensorSpec Tensor(const std::string& name, std::vector<int64_t> shape) {
  params::TensorSpec tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  return tensor;
}

// Tests with files in which element i of the parameter space has the weight i.
class TrainedWeightsTest : public testing::Test {
 protected:
  TrainedWeightsTest() {
    root_ = absl::StrCat(testing::TempDir(), "/trained-",
                         testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ + "/round-00000007");
    values_.resize(kElements);
    std::iota(values_.begin(), values_.end(), 0.0f);
    layout_ = *params::Layout::FromTensors(
        {Tensor("a", {10, 8}), Tensor("b", {40}), Tensor("c", {5, 2})});
  }

  storage::WrittenFile Write(const std::string& path,
                             const std::vector<storage::SafetensorsEntry>& entries,
                             params::ElementRange range,
                             const storage::SafetensorsMetadata& metadata) {
    auto writer =
        storage::SafetensorsWriter::Create(storage::FileSystem::Real(), path, entries, metadata);
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

  // Writes a checkpoint of three servers. Their boundaries cut the first and the second tensor.
  std::string WriteCheckpoint(const Json& settings = Json::object()) {
    const std::string directory = root_ + "/round-00000007";
    const std::vector<params::ElementRange> ranges = {{0, 30}, {30, 100}, {100, kElements}};
    const std::vector<std::vector<storage::SafetensorsEntry>> entries = {
        {{"a@0:30", {30}}},
        {{"a@30:80", {50}}, {"b@0:20", {20}}},
        {{"b@20:40", {20}}, {"c", {5, 2}}}};
    Manifest manifest;
    manifest.round = Round(7);
    manifest.layout = layout_;
    manifest.model = kModel;
    manifest.settings = settings;
    for (int shard = 0; shard < 3; ++shard) {
      ShardManifest& part = manifest.shards.emplace_back();
      part.shard = shard;
      part.range = ranges[shard];
      part.weights.name = absl::StrCat("shard-", shard, ".safetensors");
      const storage::WrittenFile written =
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
  params::Layout layout_;
};

TEST_F(TrainedWeightsTest, FileAndCheckpointOfAnyNumberOfServersHaveTheSameTensors) {
  for (const std::string& path : {WriteFile(), WriteCheckpoint()}) {
    const auto weights = TrainedWeights::Open(storage::FileSystem::Real(), path);
    ASSERT_OK(weights);
    EXPECT_EQ((*weights)->model(), kModel);
    ASSERT_OK((*weights)->CheckTensors(layout_));
    std::vector<float> all(kElements);
    ASSERT_OK((*weights)->Read(layout_, {0, kElements}, absl::MakeSpan(all)));
    EXPECT_EQ(all, values_) << path;
    std::vector<float> part(60);
    ASSERT_OK((*weights)->Read(layout_, {65, 125}, absl::MakeSpan(part)));
    EXPECT_EQ(part, std::vector<float>(values_.begin() + 65, values_.begin() + 125)) << path;
  }
}

TEST_F(TrainedWeightsTest, ACheckpointKeepsTheMarkOfEmbeddings) {
  std::vector<params::TensorSpec> tensors = layout_.tensors();
  tensors[1].embedding = true;
  layout_ = *params::Layout::FromTensors(tensors);
  const auto manifest = ReadManifest(storage::FileSystem::Real(), WriteCheckpoint());
  ASSERT_OK(manifest);
  EXPECT_FALSE(manifest->layout.tensors()[0].embedding);
  EXPECT_TRUE(manifest->layout.tensors()[1].embedding);
}

TEST_F(TrainedWeightsTest, WeightsOfAnotherModelAreRefusedByTensor) {
  for (const std::string& path : {WriteFile(), WriteCheckpoint()}) {
    const auto weights = TrainedWeights::Open(storage::FileSystem::Real(), path);
    ASSERT_OK(weights);
    const auto refusal = [&](std::vector<params::TensorSpec> tensors) {
      const absl::Status status =
          (*weights)->CheckTensors(*params::Layout::FromTensors(std::move(tensors)));
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
  EXPECT_THAT(TrainedWeights::Open(storage::FileSystem::Real(), root_),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("no checkpoint"), HasSubstr(checkpoint))));
}

TEST_F(TrainedWeightsTest, AMeanGradientIsNotTakenForWeights) {
  const std::string checkpoint = WriteCheckpoint({{"optimizer", "reduce"}});
  EXPECT_THAT(TrainedWeights::Open(storage::FileSystem::Real(), checkpoint),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(checkpoint), HasSubstr("and no weights"))));
}

TEST_F(TrainedWeightsTest, ADamagedCheckpointIsNotRead) {
  const std::string checkpoint = WriteCheckpoint();
  std::fstream file(checkpoint + "/shard-1.safetensors", std::ios::in | std::ios::out);
  file.seekp(-3, std::ios::end);
  file.put('x');
  file.close();
  EXPECT_THAT(TrainedWeights::Open(storage::FileSystem::Real(), checkpoint),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("shard-1.safetensors")));
}

// Tests with a gpt in files of Hugging Face. Element i of each tensor is i, except in the head.
class HuggingFaceWeightsTest : public testing::Test {
 protected:
  HuggingFaceWeightsTest() {
    folder_ = absl::StrCat(testing::TempDir(), "/hf-",
                           testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Config(2);
    for (const params::TensorSpec& tensor : layout_.tensors()) Add(tensor.name, tensor.shape);
  }

  void Config(int heads) {
    std::ofstream(folder_ + "/config.json")
        << R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 4, "n_positions": 3, "vocab_size": 5,)"
        << R"( "n_head": )" << heads << "}";
  }
  void Add(const std::string& name, std::vector<int64_t> shape) {
    entries_.push_back({name, std::move(shape)});
  }
  void Write(const std::string& name = "model.safetensors", float first = 0.0f) {
    auto writer = storage::SafetensorsWriter::Create(storage::FileSystem::Real(),
                                                     folder_ + "/" + name, entries_, {});
    ASSERT_OK(writer);
    for (const storage::SafetensorsEntry& entry : entries_) {
      int64_t elements = 1;
      for (const int64_t dimension : entry.shape) elements *= dimension;
      std::vector<float> values(elements);
      std::iota(values.begin(), values.end(), entry.name == "lm_head.weight" ? first : 0.0f);
      ASSERT_OK((*writer)->Append(values));
    }
    ASSERT_OK((*writer)->Finish(/*sync=*/false).status());
  }
  absl::Status Check() {
    const auto weights = TrainedWeights::Open(storage::FileSystem::Real(), folder_);
    RETURN_IF_ERROR(weights.status());
    RETURN_IF_ERROR((*weights)->CheckHeads(spec_));
    return (*weights)->CheckTensors(layout_);
  }
  std::string Refusal() {
    const absl::Status status = Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const params::ModelSpec spec_{"small", params::GptSpec{1, 2, 4, 3, 5}};
  const params::Layout layout_ = *params::BuildLayout(spec_);
  std::string folder_;
  std::vector<storage::SafetensorsEntry> entries_;
};

TEST_F(HuggingFaceWeightsTest, AreReadWithAndWithoutPrefix) {
  for (const char* prefix : {"", "transformer."}) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      entries_[i].name = prefix + layout_.tensors()[i].name;
    }
    Write();
    for (const std::string& path : {folder_, folder_ + "/model.safetensors"}) {
      const auto weights = TrainedWeights::Open(storage::FileSystem::Real(), path);
      ASSERT_OK(weights);
      EXPECT_OK((*weights)->CheckHeads(spec_));
      ASSERT_OK((*weights)->CheckTensors(layout_));
      const params::TensorSpec& matrix = *layout_.Find("h.0.attn.c_attn.weight");
      std::vector<float> values(5);
      ASSERT_OK((*weights)->Read(layout_, {matrix.offset + 7, matrix.offset + 12},
                                 absl::MakeSpan(values)));
      EXPECT_EQ(values, (std::vector<float>{7, 8, 9, 10, 11}));
      EXPECT_THAT((*weights)->model(), HasSubstr("\"num_layers\":1"));
    }
  }
}

TEST_F(HuggingFaceWeightsTest, AreReadFromSeveralFiles) {
  const std::vector<storage::SafetensorsEntry> all = entries_;
  entries_.assign(all.begin() + 3, all.end());
  Write("model-2.safetensors");
  entries_.assign(all.begin(), all.begin() + 3);
  Write("model-1.safetensors");
  const std::string index = folder_ + "/model.safetensors.index.json";
  std::ofstream(index)
      << R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})";
  EXPECT_OK(Check());
  Write("model-2.safetensors");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("wte.weight"), HasSubstr("another file")));
  std::ofstream(index) << "{}";
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(index), HasSubstr("weight_map")));
}

TEST_F(HuggingFaceWeightsTest, MasksArePassedOverAndOtherTensorsAreNot) {
  Add("h.0.attn.bias", {1, 1, 3, 3});
  Add("transformer.h.0.attn.masked_bias", {1});
  Write();
  EXPECT_OK(Check());
  Add("h.0.attn.rotary", {3});
  Write();
  EXPECT_THAT(Refusal(), HasSubstr("has tensor h.0.attn.rotary"));
}

TEST_F(HuggingFaceWeightsTest, AHeadMustBeTheTokenTable) {
  Add("lm_head.weight", {5, 4});
  Write();
  EXPECT_OK(Check());
  Write("model.safetensors", /*first=*/1.0f);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("lm_head.weight"), HasSubstr("wte.weight")));
}

// If two tensors share memory, safetensors.torch.save_model() writes only one of them.
TEST_F(HuggingFaceWeightsTest, HeadAloneIsTheTokenTable) {
  ASSERT_EQ(entries_.front().name, "wte.weight");
  for (storage::SafetensorsEntry& entry : entries_) entry.name = "transformer." + entry.name;
  entries_.front().name = "lm_head.weight";
  Write("model.safetensors", /*first=*/1.0f);
  ASSERT_OK(Check());
  ASSERT_OK_AND_ASSIGN(const auto weights,
                       TrainedWeights::Open(storage::FileSystem::Real(), folder_));
  std::vector<float> values(3);
  ASSERT_OK(weights->Read(layout_, {0, 3}, absl::MakeSpan(values)));
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
}

TEST_F(HuggingFaceWeightsTest, OtherKindsOfFloatsAreNamedWithAWayOut) {
  storage::SafetensorsEntry& first = entries_.front();
  first.dtype = "BF16";
  const std::vector<int64_t> shape = first.shape;
  const auto writer = storage::SafetensorsWriter::Create(
      storage::FileSystem::Real(), folder_ + "/model.safetensors", {first}, {});
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->Append(std::vector<uint8_t>(2 * shape[0] * shape[1])));
  ASSERT_OK((*writer)->Finish(/*sync=*/false).status());
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("wte.weight"), HasSubstr("BF16"), HasSubstr("float32")));
}

TEST_F(HuggingFaceWeightsTest, PickledWeightsAreNamed) {
  std::ofstream(folder_ + "/pytorch_model.bin") << "PK\x03\x04";
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("save_pretrained")));
}

TEST_F(HuggingFaceWeightsTest, AdaptersAndFilesWithoutAnIndexAreNamed) {
  Write("weights.safetensors");
  EXPECT_THAT(Refusal(), HasSubstr(folder_ + "/weights.safetensors"));
  Write("weights-2.safetensors");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("2 files"), HasSubstr("model.safetensors.index.json")));
  Write("adapter_model.safetensors");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("LoRA"), HasSubstr("merge_and_unload")));
}

TEST_F(HuggingFaceWeightsTest, RootOfACacheNamesItsSnapshots) {
  std::filesystem::create_directories(folder_ + "/snapshots/abc");
  Write("snapshots/abc/model.safetensors");
  EXPECT_THAT(Check(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_ + "/snapshots/abc")));
}

TEST_F(HuggingFaceWeightsTest, TransposedWeightsAreNamedWithAWayOut) {
  for (storage::SafetensorsEntry& entry : entries_) {
    if (entry.name == "h.0.attn.c_attn.weight") entry.shape = {12, 4};
  }
  Write();
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("c_attn"), HasSubstr("[12, 4]"), HasSubstr(".t()")));
}

TEST_F(HuggingFaceWeightsTest, NamesInMessagesHaveNoControls) {
  Add("evil\x1b[2J" + std::string(1 << 20, 'x'), {1});
  Write();
  const std::string text = Refusal();
  EXPECT_THAT(text, HasSubstr("evil\\x1b"));
  EXPECT_LT(text.size(), 1000);
}

TEST_F(HuggingFaceWeightsTest, WhatIsMissingOrOfAnotherShapeIsNamed) {
  entries_.back().shape = {5};
  Write();
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("ln_f.bias"), HasSubstr("[5]"), HasSubstr("[4]")));
  entries_.pop_back();
  Write();
  EXPECT_THAT(Refusal(), HasSubstr("no tensor ln_f.bias"));
}

TEST_F(HuggingFaceWeightsTest, AnotherNumberOfHeadsIsNamed) {
  Write();
  Config(4);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("4 heads"), HasSubstr("has 2")));
  Config(3);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("config.json"), HasSubstr("num_heads 3")));
}

TEST_F(HuggingFaceWeightsTest, AConfigOfSomethingElseBesideAFileDoesNotCount) {
  Write();
  std::ofstream(folder_ + "/config.json") << R"({"editor": "vi"})";
  EXPECT_THAT(Refusal(), HasSubstr("model_type"));
  const auto weights =
      TrainedWeights::Open(storage::FileSystem::Real(), folder_ + "/model.safetensors");
  ASSERT_OK(weights);
  EXPECT_EQ((*weights)->model(), "");
}

TEST_F(HuggingFaceWeightsTest, WhatEarlierReleasesWroteIsTransposed) {
  entries_.clear();
  const params::Layout earlier = *params::BuildEarlierLayout(spec_);
  for (const params::TensorSpec& tensor : earlier.tensors()) Add(tensor.name, tensor.shape);
  Write();
  const auto weights =
      TrainedWeights::Open(storage::FileSystem::Real(), folder_ + "/model.safetensors");
  ASSERT_OK(weights);
  ASSERT_OK((*weights)->CheckTensors(layout_));
  // The file has the matrix as [12, 4], and the layout has it as [4, 12]. So row 1 of the layout is
  // column 1 of the file.
  const int64_t offset = layout_.Find("h.0.attn.c_attn.weight")->offset;
  std::vector<float> values(3);
  ASSERT_OK((*weights)->Read(layout_, {offset + 12, offset + 15}, absl::MakeSpan(values)));
  EXPECT_EQ(values, (std::vector<float>{1, 5, 9}));
}

}  // namespace
}  // namespace lodestar::checkpoints
