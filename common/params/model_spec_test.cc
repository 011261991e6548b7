// SPDX-License-Identifier: Apache-2.0

#include "common/params/model_spec.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/testing/status_matchers.h"

namespace lodestar::params {
namespace {

using ::testing::HasSubstr;

absl::Status Validate(CnnSpec cnn) { return ValidateModelSpec({"test", std::move(cnn)}); }

TEST(ModelSpecTest, EveryPresetIsValidAndKeepsItsName) {
  EXPECT_EQ(ModelPresetNames().size(), 12);
  for (const std::string& name : ModelPresetNames()) {
    ASSERT_OK_AND_ASSIGN(const ModelSpec preset, ModelPreset(name));
    EXPECT_EQ(preset.name, name);
    EXPECT_OK(ValidateModelSpec(preset));
  }
}

TEST(ModelSpecTest, UnknownPresetNamesThoseThereAre) {
  EXPECT_THAT(ModelPreset("gpt-5"),
              StatusIs(absl::StatusCode::kNotFound,
                       ::testing::AllOf(HasSubstr("gpt-5"), HasSubstr("gpt2-1.5b"))));
}

TEST(ModelSpecTest, RefusesDimensionsOutOfRange) {
  EXPECT_THAT(ValidateModelSpec({"m", MlpSpec{{64}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("number of mlp widths is 1")));
  EXPECT_THAT(ValidateModelSpec({"m", MlpSpec{{64, 0, 10}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mlp width 1 is 0")));
  EXPECT_THAT(ValidateModelSpec({"m", MlpSpec{{64, 1 << 30}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1048576")));
  EXPECT_THAT(ValidateModelSpec({"m", GptSpec{4, 0, 128, 64, 256}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_heads is 0")));
  EXPECT_THAT(ValidateModelSpec({"m", GptSpec{4, 4, 128, 64, -1}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("vocabulary is -1")));
}

TEST(ModelSpecTest, RefusesDropoutOfEverythingOrLessThanNothing) {
  const auto with = [](double dropout) {
    return ValidateModelSpec({"m", GptSpec{4, 4, 128, 64, 256, dropout}});
  };
  EXPECT_OK(with(0.0));
  EXPECT_OK(with(0.9));
  for (double dropout : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THAT(with(dropout),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 <= dropout < 1")));
  }
}

TEST(ModelSpecTest, RefusesHeadsThatDoNotDivideTheWidth) {
  EXPECT_THAT(ValidateModelSpec({"m", GptSpec{4, 3, 128, 64, 256}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("multiple of num_heads 3")));
}

TEST(ModelSpecTest, RefusesImagesWhoseSizeNoMemoryHolds) {
  EXPECT_THAT(Validate({1 << 14, 1 << 14, 1 << 20, {1}, 1, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("281474976710656")));
}

TEST(ModelSpecTest, RefusesImagesTooSmallForTheirPooling) {
  EXPECT_OK(Validate({8, 8, 1, {4, 4, 4}, 16, 10}));
  EXPECT_THAT(Validate({8, 8, 1, {4, 4, 4, 4}, 16, 10}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("8x8 is too small")));
  EXPECT_THAT(Validate({8, 8, 1, {}, 16, 10}), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lodestar::params
