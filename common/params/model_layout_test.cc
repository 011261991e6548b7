// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cmath>

#include "common/params/layout.h"
#include "common/testing/status_matchers.h"

namespace lodestar::params {
namespace {

Layout PresetLayout(const std::string& name) { return *BuildLayout(*ModelPreset(name)); }

TEST(BuildLayoutTest, CountsOfParametersAreThoseOfTheArchitectures) {
  EXPECT_EQ(PresetLayout("mlp").num_elements(), 65 * 128 + 129 * 64 + 65 * 10);
  EXPECT_EQ(PresetLayout("cnn").num_elements(),
            10 * 16 + 145 * 32 + (32 * 2 * 2 + 1) * 64 + 65 * 10);
  EXPECT_EQ(PresetLayout("cnn-mnist").num_elements(),
            10 * 16 + 145 * 32 + (32 * 7 * 7 + 1) * 128 + 129 * 10);
  // Numbers of parameters of the released sizes, from transformers' GPT2LMHeadModel with a tied
  // head.
  EXPECT_EQ(PresetLayout("gpt2-124m").num_elements(), 124439808);
  EXPECT_EQ(PresetLayout("gpt2-355m").num_elements(), 354823168);
  EXPECT_EQ(PresetLayout("gpt2-774m").num_elements(), 774030080);
  EXPECT_EQ(PresetLayout("gpt2-1.5b").num_elements(), 1557611200);
}

TEST(BuildLayoutTest, GptHasOneBlockPerLayerBetweenEmbeddingsAndLastNorm) {
  const Layout layout = PresetLayout("gpt-nano");
  ASSERT_EQ(layout.num_blocks(), 6);
  EXPECT_EQ(layout.tensors().front().name, "wte.weight");
  EXPECT_EQ(layout.Find("wpe.weight")->block, 0);
  const char* const kLayerTensors[] = {
      "h.3.ln_1.weight",      "h.3.ln_1.bias",          "h.3.attn.c_attn.weight",
      "h.3.attn.c_attn.bias", "h.3.attn.c_proj.weight", "h.3.attn.c_proj.bias",
      "h.3.ln_2.weight",      "h.3.ln_2.bias",          "h.3.mlp.c_fc.weight",
      "h.3.mlp.c_fc.bias",    "h.3.mlp.c_proj.weight",  "h.3.mlp.c_proj.bias"};
  const TensorSpec* tensor = layout.Find(kLayerTensors[0]);
  for (const char* name : kLayerTensors) {
    EXPECT_EQ(tensor->name, name);
    EXPECT_EQ(tensor->block, 4);
    ++tensor;
  }
  EXPECT_EQ(tensor->name, "ln_f.weight");
  EXPECT_EQ(tensor->block, 5);
  EXPECT_EQ(layout.Find("h.0.attn.c_attn.weight")->shape, (std::vector<int64_t>{128, 384}));
  EXPECT_EQ(layout.Find("h.0.mlp.c_fc.weight")->shape, (std::vector<int64_t>{128, 512}));
  EXPECT_EQ(layout.Find("h.0.mlp.c_proj.weight")->shape, (std::vector<int64_t>{512, 128}));
}

TEST(BuildLayoutTest, GptStartsAsGpt2) {
  const Layout layout = PresetLayout("gpt-nano");
  const auto scale_of = [&](const char* name) { return layout.Find(name)->initializer.scale; };
  const auto kind_of = [&](const char* name) { return layout.Find(name)->initializer.kind; };
  EXPECT_EQ(scale_of("wte.weight"), 0.02f);
  EXPECT_EQ(scale_of("h.0.attn.c_attn.weight"), 0.02f);
  EXPECT_EQ(scale_of("h.0.attn.c_proj.weight"), static_cast<float>(0.02 / std::sqrt(8.0)));
  EXPECT_EQ(scale_of("h.0.mlp.c_proj.weight"), static_cast<float>(0.02 / std::sqrt(8.0)));
  EXPECT_EQ(kind_of("h.0.mlp.c_proj.weight"), InitializerKind::kNormal);
  EXPECT_EQ(kind_of("h.0.mlp.c_proj.bias"), InitializerKind::kZeros);
  EXPECT_EQ(kind_of("ln_f.weight"), InitializerKind::kOnes);
  EXPECT_EQ(kind_of("ln_f.bias"), InitializerKind::kZeros);
}

TEST(EarlierLayoutTest, IsWhatEarlierReleasesHaveWritten) {
  const ModelSpec recorded{"recorded", GptSpec{1, 1, 4, 4, 256}};
  // The hash is the one in tests/compatibility/0.1.0.
  EXPECT_EQ(BuildEarlierLayout(recorded)->hash(), "c72f7031842d0296");
  EXPECT_NE(BuildLayout(recorded)->hash(), "c72f7031842d0296");
  EXPECT_EQ(BuildEarlierLayout(*ModelPreset("mlp"))->hash(), PresetLayout("mlp").hash());
  const EarlierTensor earlier = EarlierGptTensor("h.12.mlp.c_proj.weight");
  EXPECT_EQ(earlier.name, "h.12.mlp.proj.weight");
  EXPECT_TRUE(earlier.is_transposed);
  EXPECT_FALSE(EarlierGptTensor("h.12.mlp.c_proj.bias").is_transposed);
  EXPECT_EQ(EarlierGptTensor("ln_f.weight").name, "ln_f.weight");
}

TEST(EarlierLayoutTest, IsRecognizedBesideThatOfToday) {
  const ModelSpec nano = *ModelPreset("gpt-nano");
  const Layout earlier = *BuildEarlierLayout(nano);
  ASSERT_OK_AND_ASSIGN(const Layout as_earlier, RecognizeLayout(nano, "a", earlier, "b"));
  EXPECT_EQ(as_earlier.hash(), earlier.hash());
  EXPECT_EQ(as_earlier.Find("wte")->initializer.scale, 0.02f);
  ASSERT_OK_AND_ASSIGN(const Layout as_today,
                       RecognizeLayout(nano, "a", PresetLayout("gpt-nano"), "b"));
  EXPECT_EQ(as_today.hash(), PresetLayout("gpt-nano").hash());
  EXPECT_EQ(RecognizeLayout(nano, "a", PresetLayout("gpt-mini"), "b").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(EarlierLayoutTest, OnlyMatricesOfLayersLieTransposed) {
  const ModelSpec spec{"small", GptSpec{2, 1, 4, 4, 7}};
  const Layout today = *BuildLayout(spec);
  const Layout earlier = *BuildEarlierLayout(spec);
  ASSERT_OK_AND_ASSIGN(const std::vector<TransposedMatrix> transposed,
                       TransposedBetween(today, "a", earlier, "b"));
  ASSERT_EQ(transposed.size(), 8);
  const TensorSpec& matrix = *today.Find("h.1.mlp.c_fc.weight");
  const TransposedMatrix& found = transposed[6];
  EXPECT_EQ(found.range.begin, matrix.offset);
  EXPECT_EQ(found.range.size(), 64);
  // Row 1, column 2 of today's [4, 16] is row 2, column 1 of the earlier [16, 4].
  EXPECT_EQ(found.WrittenAt(matrix.offset + 16 + 2), matrix.offset + 2 * 4 + 1);
  EXPECT_TRUE(TransposedBetween(today, "a", today, "b")->empty());
  EXPECT_EQ(TransposedBetween(today, "a", PresetLayout("gpt-nano"), "b").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(BuildLayoutTest, WeightsDecayAndVectorsDoNot) {
  for (const char* name : {"mlp", "cnn", "gpt-nano"}) {
    const Layout layout = PresetLayout(name);
    for (const TensorSpec& tensor : layout.tensors()) {
      EXPECT_EQ(tensor.decay, tensor.shape.size() >= 2) << tensor.name;
    }
  }
}

TEST(BuildLayoutTest, ImageModelsHaveOneBlockPerLayer) {
  const Layout cnn = PresetLayout("cnn");
  EXPECT_EQ(cnn.num_blocks(), 4);
  EXPECT_EQ(cnn.Find("conv1.weight")->shape, (std::vector<int64_t>{32, 16, 3, 3}));
  EXPECT_EQ(cnn.Find("conv1.weight")->block, 1);
  EXPECT_EQ(cnn.Find("fc0.weight")->shape, (std::vector<int64_t>{64, 128}));
  EXPECT_EQ(cnn.Find("fc1.bias")->block, 3);
  EXPECT_EQ(cnn.Find("conv1.weight")->initializer.scale,
            static_cast<float>(std::sqrt(2.0 / (16 * 9))));
  const Layout mlp = PresetLayout("mlp");
  EXPECT_EQ(mlp.num_blocks(), 3);
  EXPECT_EQ(mlp.Find("fc0.weight")->initializer.scale, static_cast<float>(std::sqrt(2.0 / 64)));
  EXPECT_EQ(mlp.Find("fc2.weight")->initializer.scale, static_cast<float>(std::sqrt(1.0 / 64)));
}

TEST(BuildLayoutTest, RefusesInvalidAndClientModels) {
  EXPECT_THAT(BuildLayout({"m", MlpSpec{{64, 0}}}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(BuildLayout(*ModelPreset("client")),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("first program")));
  EXPECT_THAT(BuildLayout({"m", MlpSpec{std::vector<int>(4000, 1 << 20)}}),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("elements")));
}

}  // namespace
}  // namespace lodestar::params
