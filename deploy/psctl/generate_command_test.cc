// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/generate_command.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checkpoints/hugging_face.h"
#include "common/params/layout.h"
#include "common/params/model_spec_json.h"
#include "common/storage/file_system.h"
#include "common/storage/safetensors.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Writes a folder with a model and a tokenizer. All weights are zero. The model has `vocabulary`
// tokens, but the tokenizer has the 256 tokens of a model of bytes.
std::string WriteFolder(int vocabulary) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/model-", vocabulary);
  EXPECT_OK(storage::FileSystem::Real().CreateDirectories(folder));
  const params::ModelSpec spec = {"m", params::GptSpec{1, 2, 4, 3, vocabulary}};
  const params::ModelSpec of_bytes = {"m", params::GptSpec{1, 2, 4, 3, 256}};
  const params::Layout layout = *params::BuildLayout(spec);
  std::vector<storage::SafetensorsEntry> entries;
  for (const params::TensorSpec& tensor : layout.tensors())
    entries.push_back({tensor.name, tensor.shape});
  auto writer = storage::SafetensorsWriter::Create(
      storage::FileSystem::Real(), folder + "/model.safetensors", entries,
      {{params::kModelMetadataKey, params::ModelSpecToJson(spec)}});
  EXPECT_OK(writer);
  EXPECT_OK((*writer)->Append(std::vector<float>(layout.num_elements())));
  EXPECT_OK((*writer)->Finish(/*sync=*/false));
  const std::vector<checkpoints::NamedText> files = *checkpoints::HuggingFaceFiles(spec);
  const std::vector<checkpoints::NamedText> files_of_bytes =
      *checkpoints::HuggingFaceFiles(of_bytes);
  for (const checkpoints::NamedText& file : files)
    std::ofstream(folder + "/" + file.name) << file.text;
  for (const checkpoints::NamedText& file : files_of_bytes) {
    if (file.name == "tokenizer.json") std::ofstream(folder + "/" + file.name) << file.text;
  }
  return folder;
}

absl::Status Generate(const std::string& folder, const std::string& tokenizer = "") {
  GenerateOptions options;
  options.model_path = folder;
  options.tokenizer = tokenizer;
  options.device = "cpu";
  options.prompt = "a";
  options.num_bytes = 1;
  return RunGenerate(options);
}

TEST(GenerateCommandTest, RefusesTheTokenizerOfAnotherModelBesideTheModel) {
  const std::string folder = WriteFolder(600);
  EXPECT_THAT(Generate(folder), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         AllOf(HasSubstr(folder), HasSubstr("--tokenizer"))));
  EXPECT_OK(Generate(folder, /*tokenizer=*/folder));
  EXPECT_THAT(Generate(WriteFolder(100)), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(GenerateCommandTest, TakesTheTokenizerOfAVocabularyThatIsRoundedUp) {
  for (const int vocabulary : {256, 320}) EXPECT_OK(Generate(WriteFolder(vocabulary)));
}

}  // namespace
}  // namespace lodestar::psctl
