// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/model_output.h"

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/params/layout.h"
#include "common/params/model_spec_json.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "common/storage/safetensors.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

void WriteSafetensors(const std::string& path, const storage::SafetensorsMetadata& metadata) {
  ASSERT_OK_AND_ASSIGN(const auto writer,
                       storage::SafetensorsWriter::Create(storage::FileSystem::Real(), path,
                                                          {{"w", {2}}}, metadata));
  const std::vector<float> values = {1.0f, 2.0f};
  ASSERT_OK(writer->Append(absl::Span<const float>(values)));
  ASSERT_OK(writer->Finish(/*sync=*/false));
}

TEST(ModelOutputTest, WhatIsNewOrEmptyMayAlwaysBeWritten) {
  std::ofstream(PathOf("empty")).close();
  for (const Replace replace : {Replace::kModels, Replace::kAny}) {
    EXPECT_OK(CheckModelOutput({.path = PathOf("new")}, replace));
    EXPECT_OK(CheckModelOutput({.path = PathOf("empty")}, replace));
  }
  EXPECT_FALSE(std::filesystem::exists(PathOf("new")));
}

TEST(ModelOutputTest, OnlyForceReplacesWhatIsNoModelOfOurs) {
  std::ofstream(PathOf("notes.txt")) << "precious";
  WriteSafetensors(PathOf("foreign.safetensors"), {{"format", "pt"}});
  for (const char* name : {"notes.txt", "foreign.safetensors"}) {
    EXPECT_THAT(CheckModelOutput({.path = PathOf(name)}, Replace::kModels),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(name), HasSubstr("--force"))));
    EXPECT_OK(CheckModelOutput({.path = PathOf(name)}, Replace::kAny));
  }
}

TEST(ModelOutputTest, AModelOfOursIsReplaced) {
  WriteSafetensors(PathOf("ours.safetensors"), {{params::kModelMetadataKey, "{}"}});
  EXPECT_OK(CheckModelOutput({.path = PathOf("ours.safetensors")}, Replace::kModels));
}

TEST(ModelOutputTest, EvenForceReplacesNoDevice) {
  EXPECT_THAT(CheckModelOutput({.path = "/dev/null"}, Replace::kAny),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a device")));
}

TEST(ModelOutputTest, RefusesFilesAndFoldersInACheckpointEvenWithForce) {
  const std::string checkpoint = PathOf("run/round-00000039");
  std::filesystem::create_directories(checkpoint);
  WriteSafetensors(checkpoint + "/shard-00000-of-00001.safetensors",
                   {{params::kModelMetadataKey, "{}"}});
  std::ofstream(checkpoint + "/MANIFEST.json") << "{}";
  std::filesystem::create_directory_symlink(checkpoint, PathOf("latest"));
  const auto is_refused = StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr("--out"), HasSubstr("run/round-00000039")));
  for (const Replace replace : {Replace::kModels, Replace::kAny}) {
    for (const std::string& folder : {checkpoint, PathOf("latest")}) {
      for (const char* name : {"/shard-00000-of-00001.safetensors", "/MANIFEST.json", "/new"}) {
        EXPECT_THAT(CheckModelOutput({.path = folder + name}, replace), is_refused);
        EXPECT_THAT(CheckModelOutput({ModelFormat::kHuggingFace, folder + "/export"}, replace),
                    is_refused);
      }
      EXPECT_THAT(CheckModelOutput({ModelFormat::kHuggingFace, folder}, replace), is_refused);
    }
  }
  std::filesystem::remove(PathOf("latest"));
}

TEST(ModelOutputTest, FormatsAreNamed) {
  EXPECT_THAT(ParseModelFormat("safetensors"), IsOkAndHolds(ModelFormat::kSafetensors));
  EXPECT_THAT(ParseModelFormat("huggingface"), IsOkAndHolds(ModelFormat::kHuggingFace));
  EXPECT_THAT(ParseModelFormat("onnx"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("onnx"), HasSubstr("huggingface"))));
}

// Fixture in which each test has a folder of its own, with the safetensors file of a model.
class HuggingFaceOutputTest : public testing::Test {
 protected:
  HuggingFaceOutputTest() {
    root_ = PathOf(testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }

  // Writes a model in which element i of the parameter space has the value i.
  std::string WriteModel(const params::ModelSpec& spec, const params::Layout& layout) const {
    std::vector<storage::SafetensorsEntry> entries;
    for (const params::TensorSpec& tensor : layout.tensors()) {
      entries.push_back({tensor.name, tensor.shape});
    }
    std::string path = root_ + "/written.safetensors";
    auto writer = storage::SafetensorsWriter::Create(
        storage::FileSystem::Real(), path, entries,
        {{params::kModelMetadataKey, params::ModelSpecToJson(spec)}});
    EXPECT_OK(writer);
    std::vector<float> values(layout.num_elements());
    std::iota(values.begin(), values.end(), 0.0f);
    EXPECT_OK((*writer)->Append(values));
    EXPECT_OK((*writer)->Finish(/*sync=*/false));
    return path;
  }
  absl::Status Export(const std::string& from) const {
    ASSIGN_OR_RETURN(const auto weights,
                     checkpoints::TrainedWeights::Open(storage::FileSystem::Real(), from));
    ASSIGN_OR_RETURN(const auto writer, ModelWriter::Create(target()));
    RETURN_IF_ERROR(AppendModel(*weights, *writer));
    return writer->Commit();
  }
  ModelTarget target() const { return {ModelFormat::kHuggingFace, root_ + "/out"}; }

  const params::ModelSpec spec_{"small", params::GptSpec{1, 2, 4, 3, 256}};
  std::string root_;
};

TEST_F(HuggingFaceOutputTest, AFolderIsWrittenThatCanBeReadAgain) {
  const params::Layout layout = *params::BuildLayout(spec_);
  ASSERT_OK(CheckModelOutput(target(), Replace::kModels));
  ASSERT_OK(Export(WriteModel(spec_, layout)));
  for (const char* name :
       {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json"}) {
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(target().path, "/", name))) << name;
  }
  ASSERT_OK_AND_ASSIGN(const auto weights, checkpoints::TrainedWeights::Open(
                                               storage::FileSystem::Real(), target().path));
  ASSERT_OK(weights->CheckTensors(layout));
  std::vector<float> values(10);
  ASSERT_OK(weights->Read(layout, {1000, 1010}, absl::MakeSpan(values)));
  EXPECT_EQ(values[3], 1003.0f);
  // An exported model can be the source of an export to the same path.
  EXPECT_OK(CheckModelOutput(target(), Replace::kModels));
  EXPECT_OK(Export(target().path));
}

TEST_F(HuggingFaceOutputTest, ReplacedExportLeavesNoTokenizerOfTheEarlierModel) {
  const params::ModelSpec tokens = {"tokens", params::GptSpec{1, 2, 4, 3, 500}};
  const std::string config = target().path + "/tokenizer_config.json";
  ASSERT_OK(Export(WriteModel(spec_, *params::BuildLayout(spec_))));
  ASSERT_TRUE(std::filesystem::exists(config));
  std::ofstream(config) << "of another program";
  ASSERT_OK(Export(WriteModel(tokens, *params::BuildLayout(tokens))));
  EXPECT_FALSE(std::filesystem::exists(target().path + "/tokenizer.json"));
  EXPECT_TRUE(std::filesystem::exists(config));
  // A tokenizer that a user put there stays.
  std::ofstream(target().path + "/tokenizer.json") << "{}";
  ASSERT_OK(Export(WriteModel(tokens, *params::BuildLayout(tokens))));
  EXPECT_TRUE(std::filesystem::exists(target().path + "/tokenizer.json"));
}

TEST_F(HuggingFaceOutputTest, WhatAServerSendsInAnEarlierLayoutGetsTheNamesOfToday) {
  const std::string path = WriteModel(spec_, *params::BuildEarlierLayout(spec_));
  ASSERT_OK_AND_ASSIGN(const auto writer, ModelWriter::Create(target()));
  ASSERT_OK_AND_ASSIGN(const std::string bytes,
                       storage::FileSystem::Real().ReadWholeFile(path, int64_t{1} << 20));
  ASSERT_OK(writer->Append(bytes));
  ASSERT_OK(writer->Commit());
  ASSERT_OK_AND_ASSIGN(const auto file, storage::SafetensorsReader::Open(
                                            storage::FileSystem::Real(), target().WeightsPath()));
  const params::TensorSpec matrix = *params::BuildLayout(spec_)->Find("h.0.mlp.c_fc.weight");
  ASSERT_OK_AND_ASSIGN(const auto values, file->Floats(matrix.name));
  // The writer has transposed the matrix from [16, 4] to [4, 16].
  const auto first = static_cast<float>(matrix.offset);
  EXPECT_EQ(values[1], first + 4);
  EXPECT_EQ(values[16], first + 1);
}

TEST_F(HuggingFaceOutputTest, WritesNoMoreThanTheHeaderAnnounces) {
  const std::string path = WriteModel(spec_, *params::BuildLayout(spec_));
  ASSERT_OK_AND_ASSIGN(const std::string bytes,
                       storage::FileSystem::Real().ReadWholeFile(path, int64_t{1} << 20));
  {
    ASSERT_OK_AND_ASSIGN(const auto writer, ModelWriter::Create(target()));
    // The bytes are appended one by one, so that the header comes in pieces.
    for (const char& byte : bytes) ASSERT_OK(writer->Append(absl::string_view(&byte, 1)));
    EXPECT_EQ(writer->announced_bytes(), bytes.size());
    EXPECT_THAT(writer->Append("x"), StatusIs(absl::StatusCode::kInvalidArgument,
                                              HasSubstr(absl::StrCat(bytes.size()))));
  }
  EXPECT_FALSE(std::filesystem::exists(target().path)) << "nothing is left";
}

TEST_F(HuggingFaceOutputTest, RefusesAHeaderOfOtherSizesThanItsModelHas) {
  const storage::SafetensorsMetadata metadata = {
      {params::kModelMetadataKey, params::ModelSpecToJson(spec_)}};
  ASSERT_OK_AND_ASSIGN(const storage::SafetensorsHeader header,
                       storage::FormatSafetensorsHeader(
                           "the export", {{"wte.weight", {int64_t{1} << 40}}}, metadata));
  ASSERT_OK_AND_ASSIGN(const auto writer, ModelWriter::Create(target()));
  EXPECT_THAT(writer->Append(header.bytes),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(spec_.name)));
}

TEST_F(HuggingFaceOutputTest, RefusesMoreThanTheDiskHasRoomFor) {
  // The header has no model, like that of a model that only its client knows.
  ASSERT_OK_AND_ASSIGN(
      const storage::SafetensorsHeader header,
      storage::FormatSafetensorsHeader("the export", {{"w", {int64_t{1} << 56}}}, {}));
  ASSERT_OK_AND_ASSIGN(const auto writer, ModelWriter::Create(target()));
  EXPECT_THAT(writer->Append(header.bytes),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(target().WeightsPath())));
}

TEST_F(HuggingFaceOutputTest, LeavesNothingOnceToldToStop) {
  const std::string path = WriteModel(spec_, *params::BuildLayout(spec_));
  std::stop_source stop;
  {
    ASSERT_OK_AND_ASSIGN(const auto weights,
                         checkpoints::TrainedWeights::Open(storage::FileSystem::Real(), path));
    ASSERT_OK_AND_ASSIGN(const auto writer, ModelWriter::Create(target(), stop.get_token()));
    ASSERT_OK(AppendModel(*weights, *writer));
    stop.request_stop();
    EXPECT_THAT(writer->Append("x"), StatusIs(absl::StatusCode::kCancelled));
    EXPECT_THAT(writer->Commit(), StatusIs(absl::StatusCode::kCancelled));
  }
  EXPECT_FALSE(std::filesystem::exists(target().path));
}

TEST_F(HuggingFaceOutputTest, OtherModelsLeaveNothing) {
  const params::ModelSpec mlp = *params::ModelPreset("mlp");
  EXPECT_THAT(Export(WriteModel(mlp, *params::BuildLayout(mlp))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is no gpt")));
  EXPECT_FALSE(std::filesystem::exists(target().path));
  std::filesystem::create_directories(target().path);
  EXPECT_FALSE(Export(WriteModel(mlp, *params::BuildLayout(mlp))).ok());
  EXPECT_TRUE(std::filesystem::is_empty(target().path)) << "and what was there stays";
}

TEST_F(HuggingFaceOutputTest, OnlyForceWritesIntoFoldersOfOthers) {
  std::filesystem::create_directories(target().path);
  EXPECT_OK(CheckModelOutput(target(), Replace::kModels));
  std::ofstream(target().path + "/config.json") << "{}";
  EXPECT_THAT(CheckModelOutput(target(), Replace::kModels),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(target().path), HasSubstr("--force"))));
  EXPECT_OK(CheckModelOutput(target(), Replace::kAny));
  std::ofstream(root_ + "/file") << "x";
  EXPECT_THAT(CheckModelOutput({ModelFormat::kHuggingFace, root_ + "/file"}, Replace::kAny),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not a folder")));
}

}  // namespace
}  // namespace lodestar::psctl
