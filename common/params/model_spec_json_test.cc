// SPDX-License-Identifier: Apache-2.0

#include "common/params/model_spec_json.h"

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace lodestar::params {
namespace {

using ::testing::HasSubstr;

TEST(ModelSpecJsonTest, EveryPresetComesBackEqual) {
  for (const std::string& name : ModelPresetNames()) {
    ASSERT_OK_AND_ASSIGN(const ModelSpec preset, ModelPreset(name));
    EXPECT_THAT(ModelSpecFromJson(ModelSpecToJson(preset)), IsOkAndHolds(preset)) << name;
  }
}

TEST(ModelSpecJsonTest, DropoutComesBackAndMayBeMissing) {
  ASSERT_OK_AND_ASSIGN(ModelSpec spec, ModelPreset("gpt-nano"));
  const std::string without = ModelSpecToJson(spec);
  EXPECT_THAT(without, ::testing::Not(HasSubstr("dropout")));
  EXPECT_THAT(ModelSpecFromJson(without), IsOkAndHolds(spec));
  std::get<GptSpec>(spec.architecture).dropout = 0.1;
  EXPECT_THAT(ModelSpecFromJson(ModelSpecToJson(spec)), IsOkAndHolds(spec));
}

TEST(ModelSpecJsonTest, ReadsALongNameAsItWasWritten) {
  const std::string name(1000, 'n');
  const auto spec = ModelSpecFromJson(ModelSpecToJson({name, ClientModelSpec{}}));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name, name);
  EXPECT_FALSE(ModelSpecFromJson(ModelSpecToJson({name + name, ClientModelSpec{}})).ok());
}

TEST(ModelSpecJsonTest, RefusesWhatIsNotOneValidModel) {
  const auto error_of = [](absl::string_view text) {
    return std::string(ModelSpecFromJson(text).status().message());
  };
  EXPECT_THAT(error_of("{"), HasSubstr("malformed"));
  EXPECT_THAT(error_of(R"([])"), HasSubstr("object"));
  EXPECT_THAT(error_of(R"({"mlp":{"widths":[1,2]}})"), HasSubstr("name is not there"));
  EXPECT_THAT(error_of(R"({"name":"x"})"), HasSubstr("has 0 of"));
  EXPECT_THAT(error_of(R"({"name":"x","client":{},"mlp":{"widths":[1,2]}})"),
              HasSubstr("has 2 of"));
  EXPECT_THAT(error_of(R"({"name":"x","mlp":{"widths":[1,"2"]}})"), HasSubstr("widths.1"));
  EXPECT_THAT(error_of(R"({"name":"x","mlp":{"widths":[1,5000000000]}})"), HasSubstr("widths.1"));
  EXPECT_THAT(error_of(R"({"name":"x","mlp":{"widths":[1,0]}})"), HasSubstr("mlp width 1 is 0"));
  EXPECT_THAT(error_of(R"({"name":"x","gpt":{"num_layers":1}})"), HasSubstr("num_heads"));
}

}  // namespace
}  // namespace lodestar::params
