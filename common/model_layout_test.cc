#include <gtest/gtest.h>

#include <cmath>

#include "common/layout.h"
#include "common/testing/status_matchers.h"

namespace lodestar {
namespace {

Layout PresetLayout(const std::string& name) { return *BuildLayout(*ModelPreset(name)); }

TEST(BuildLayoutTest, CountsOfParametersAreThoseOfTheArchitectures) {
  EXPECT_EQ(PresetLayout("mlp").num_elements(), 65 * 128 + 129 * 64 + 65 * 10);
  EXPECT_EQ(PresetLayout("cnn").num_elements(),
            10 * 16 + 145 * 32 + (32 * 2 * 2 + 1) * 64 + 65 * 10);
  EXPECT_EQ(PresetLayout("cnn-mnist").num_elements(),
            10 * 16 + 145 * 32 + (32 * 7 * 7 + 1) * 128 + 129 * 10);
  // As printed by transformers' GPT2LMHeadModel for the released sizes, head tied.
  EXPECT_EQ(PresetLayout("gpt2-124m").num_elements(), 124439808);
  EXPECT_EQ(PresetLayout("gpt2-355m").num_elements(), 354823168);
  EXPECT_EQ(PresetLayout("gpt2-774m").num_elements(), 774030080);
  EXPECT_EQ(PresetLayout("gpt2-1.5b").num_elements(), 1557611200);
}

TEST(BuildLayoutTest, GptHasOneBlockPerLayerBetweenEmbeddingsAndLastNorm) {
  const Layout layout = PresetLayout("gpt-nano");
  ASSERT_EQ(layout.num_blocks(), 6);
  EXPECT_EQ(layout.tensors().front().name, "wte");
  EXPECT_EQ(layout.Find("wpe")->block, 0);
  const char* const kLayerTensors[] = {
      "h.3.ln_1.weight",      "h.3.ln_1.bias",      "h.3.attn.qkv.weight", "h.3.attn.qkv.bias",
      "h.3.attn.proj.weight", "h.3.attn.proj.bias", "h.3.ln_2.weight",     "h.3.ln_2.bias",
      "h.3.mlp.fc.weight",    "h.3.mlp.fc.bias",    "h.3.mlp.proj.weight", "h.3.mlp.proj.bias"};
  const TensorSpec* tensor = layout.Find(kLayerTensors[0]);
  for (const char* name : kLayerTensors) {
    EXPECT_EQ(tensor->name, name);
    EXPECT_EQ(tensor->block, 4);
    ++tensor;
  }
  EXPECT_EQ(tensor->name, "ln_f.weight");
  EXPECT_EQ(tensor->block, 5);
  EXPECT_EQ(layout.Find("h.0.attn.qkv.weight")->shape, (std::vector<int64_t>{384, 128}));
  EXPECT_EQ(layout.Find("h.0.mlp.fc.weight")->shape, (std::vector<int64_t>{512, 128}));
  EXPECT_EQ(layout.Find("h.0.mlp.proj.weight")->shape, (std::vector<int64_t>{128, 512}));
}

TEST(BuildLayoutTest, GptStartsAsGpt2) {
  const Layout layout = PresetLayout("gpt-nano");
  const auto scale_of = [&](const char* name) { return layout.Find(name)->initializer.scale; };
  const auto kind_of = [&](const char* name) { return layout.Find(name)->initializer.kind; };
  EXPECT_EQ(scale_of("wte"), 0.02f);
  EXPECT_EQ(scale_of("h.0.attn.qkv.weight"), 0.02f);
  EXPECT_EQ(scale_of("h.0.attn.proj.weight"), static_cast<float>(0.02 / std::sqrt(8.0)));
  EXPECT_EQ(scale_of("h.0.mlp.proj.weight"), static_cast<float>(0.02 / std::sqrt(8.0)));
  EXPECT_EQ(kind_of("h.0.mlp.proj.weight"), InitializerKind::kNormal);
  EXPECT_EQ(kind_of("h.0.mlp.proj.bias"), InitializerKind::kZeros);
  EXPECT_EQ(kind_of("ln_f.weight"), InitializerKind::kOnes);
  EXPECT_EQ(kind_of("ln_f.bias"), InitializerKind::kZeros);
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
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("first client")));
  EXPECT_THAT(BuildLayout({"m", MlpSpec{std::vector<int>(4000, 1 << 20)}}),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("elements")));
}

}  // namespace
}  // namespace lodestar
