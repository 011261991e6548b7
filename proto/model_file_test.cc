// SPDX-License-Identifier: Apache-2.0

#include "proto/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/params/model_spec_json.h"
#include "common/testing/status_matchers.h"

namespace lodestar::wire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(ModelFileTest, ReadsAModel) {
  const std::string path = WriteFile("small.textproto",
                                     "# two layers\n"
                                     "name: \"small\"\n"
                                     "gpt { num_layers: 2 num_heads: 2 width: 8 context: 16 "
                                     "vocabulary: 256 }\n");
  EXPECT_THAT(LoadModelSpec(path),
              IsOkAndHolds(params::ModelSpec{"small", params::GptSpec{2, 2, 8, 16, 256}}));
}

TEST(ModelFileTest, SkipsAByteOrderMark) {
  EXPECT_OK(ParseModelSpec("\xef\xbb\xbfname: \"tiny\" mlp { widths: 64 widths: 10 }", "model"));
}

TEST(ModelFileTest, ReadsWhatACheckpointSaysOfItsModel) {
  for (const std::string& name : params::ModelPresetNames()) {
    params::ModelSpec spec = *params::ModelPreset(name);
    spec.name = "my \"own\"";
    if (params::GptSpec* const gpt = std::get_if<params::GptSpec>(&spec.architecture))
      gpt->dropout = 0.25;
    const std::string text = params::ModelSpecToModelFile(spec);
    EXPECT_THAT(ParseModelSpec(text, name), IsOkAndHolds(spec)) << text;
  }
}

TEST(ModelFileTest, NamesLineAndColumnOfAMistake) {
  const std::string path = WriteFile("typo.textproto", "name: \"small\"\ngpt { num_leyers: 2 }\n");
  EXPECT_THAT(LoadModelSpec(path),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(path + ":2:"), HasSubstr("num_leyers"))));
}

TEST(ModelFileTest, SaysWhatIsMissingAtTheEnd) {
  EXPECT_THAT(ParseModelSpec("name: \"small\"\ngpt { num_layers: 2\n", "m"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("m:3:1: "), HasSubstr("a '}' is missing"))));
}

TEST(ModelFileTest, NamesTheFieldThatIsOutOfRange) {
  EXPECT_THAT(ParseModelSpec("mlp { widths: 4 widths: 0 }", "m"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("m: "), HasSubstr("mlp width 1 is 0"))));
}

TEST(ModelFileTest, NamesAFileThatIsMissing) {
  EXPECT_THAT(LoadModelSpec("no/such/file"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no/such/file")));
}

TEST(ModelFileTest, NamesFileOfModelOnce) {
  const std::string path = WriteFile("wide.textproto", "gpt { num_layers: 1 width: 0 }");
  const absl::Status status = NamedModel(path).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--model")));
  const std::string message(status.message());
  EXPECT_NE(message.find(path), message.npos);
  EXPECT_EQ(message.find(path), message.rfind(path)) << message;
  EXPECT_THAT(NamedModel("no/such/file"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gpt-nano")));
  EXPECT_OK(NamedModel("gpt-nano").status());
}

TEST(ModelFileTest, NamesFileThatPresetHides) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(::testing::TempDir());
  WriteFile("gpt-nano", "mlp { widths: 4 widths: 4 }");
  std::filesystem::create_directory("mlp");
  EXPECT_THAT(HiddenModelFile("gpt-nano"), HasSubstr("--model=./gpt-nano"));
  EXPECT_EQ(HiddenModelFile("./gpt-nano"), "");
  EXPECT_EQ(HiddenModelFile("mlp"), "") << "a folder is no model";
  EXPECT_EQ(HiddenModelFile("cnn"), "");
  std::filesystem::remove("gpt-nano");
  std::filesystem::current_path(before);
}

TEST(ModelFileTest, RefusesAFileThatCannotBeASpec) {
  EXPECT_THAT(LoadModelSpec(::testing::TempDir()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(::testing::TempDir())));
  const std::string path = WriteFile("huge.textproto", std::string(2 << 20, '#'));
  EXPECT_THAT(LoadModelSpec(path),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("huge.textproto")));
}

}  // namespace
}  // namespace lodestar::wire
