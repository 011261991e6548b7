#include "deploy/psctl/model_output.h"

#include <filesystem>
#include <fstream>

#include "common/file_system.h"
#include "common/model_spec_json.h"
#include "common/safetensors.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

void WriteSafetensors(const std::string& path, const SafetensorsMetadata& metadata) {
  ASSERT_OK_AND_ASSIGN(const auto writer,
                       SafetensorsWriter::Create(FileSystem::Real(), path, {{"w", {2}}}, metadata));
  const std::vector<float> values = {1.0f, 2.0f};
  ASSERT_OK(writer->Append(absl::Span<const float>(values)));
  ASSERT_OK(writer->Finish(/*sync=*/false));
}

TEST(ModelOutputTest, WhatIsNewOrEmptyMayAlwaysBeWritten) {
  std::ofstream(PathOf("empty")).close();
  for (const Replace replace : {Replace::kModels, Replace::kAny}) {
    EXPECT_OK(CheckModelOutput(PathOf("new"), replace));
    EXPECT_OK(CheckModelOutput(PathOf("empty"), replace));
  }
  EXPECT_FALSE(std::filesystem::exists(PathOf("new")));
}

TEST(ModelOutputTest, OnlyForceReplacesWhatIsNoModelOfOurs) {
  std::ofstream(PathOf("notes.txt")) << "precious";
  WriteSafetensors(PathOf("foreign.safetensors"), {{"format", "pt"}});
  for (const char* name : {"notes.txt", "foreign.safetensors"}) {
    EXPECT_THAT(CheckModelOutput(PathOf(name), Replace::kModels),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(name), HasSubstr("--force"))));
    EXPECT_OK(CheckModelOutput(PathOf(name), Replace::kAny));
  }
}

TEST(ModelOutputTest, AModelOfOursIsReplaced) {
  WriteSafetensors(PathOf("ours.safetensors"), {{kModelMetadataKey, "{}"}});
  EXPECT_OK(CheckModelOutput(PathOf("ours.safetensors"), Replace::kModels));
}

TEST(ModelOutputTest, EvenForceReplacesNoDevice) {
  EXPECT_THAT(CheckModelOutput("/dev/null", Replace::kAny),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a device")));
}

}  // namespace
}  // namespace lodestar
