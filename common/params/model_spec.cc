// SPDX-License-Identifier: Apache-2.0

#include "common/params/model_spec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/runtime/status_macros.h"

namespace lodestar::params {
namespace {

// These limits are far above the sizes of real models. Products of a few of them still fit into
// int64_t.
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxLayers = 4096;
constexpr int kMaxImageSide = 1 << 14;
constexpr int kMaxContext = 1 << 20;
constexpr int kMaxVocabulary = 1 << 24;
// Maximum number of values of one image.
constexpr int64_t kMaxImageValues = int64_t{1} << 31;

absl::Status CheckField(absl::string_view field, int64_t value, int64_t minimum, int64_t maximum) {
  if (value >= minimum && value <= maximum) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("model spec: ", field, " is ", value,
                                                 ", allowed are ", minimum, " to ", maximum));
}

absl::Status Validate(const MlpSpec& mlp) {
  RETURN_IF_ERROR(CheckField("number of mlp widths", mlp.widths.size(), 2, kMaxLayers));
  for (size_t i = 0; i < mlp.widths.size(); ++i) {
    RETURN_IF_ERROR(CheckField(absl::StrCat("mlp width ", i), mlp.widths[i], 1, kMaxWidth));
  }
  return absl::OkStatus();
}

absl::Status Validate(const CnnSpec& cnn) {
  RETURN_IF_ERROR(CheckField("cnn image_height", cnn.image_height, 1, kMaxImageSide));
  RETURN_IF_ERROR(CheckField("cnn image_width", cnn.image_width, 1, kMaxImageSide));
  RETURN_IF_ERROR(CheckField("cnn image_channels", cnn.image_channels, 1, kMaxWidth));
  RETURN_IF_ERROR(CheckField("cnn image_height * image_width * image_channels",
                             int64_t{cnn.image_height} * cnn.image_width * cnn.image_channels, 1,
                             kMaxImageValues));
  RETURN_IF_ERROR(CheckField("cnn hidden_width", cnn.hidden_width, 1, kMaxWidth));
  RETURN_IF_ERROR(CheckField("cnn num_classes", cnn.num_classes, 1, kMaxWidth));
  RETURN_IF_ERROR(CheckField("number of cnn channels", cnn.channels.size(), 1, kMaxLayers));
  int height = cnn.image_height;
  int width = cnn.image_width;
  for (size_t i = 0; i < cnn.channels.size(); ++i) {
    RETURN_IF_ERROR(
        CheckField(absl::StrCat("cnn channels[", i, "]"), cnn.channels[i], 1, kMaxWidth));
    height /= 2;
    width /= 2;
    if (height < 1 || width < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model spec: cnn image of ", cnn.image_height, "x", cnn.image_width, " is too small for ",
          cnn.channels.size(), " poolings of 2x2; it is large enough for ", i,
          ". Use fewer channels or larger images"));
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const GptSpec& gpt) {
  RETURN_IF_ERROR(CheckField("gpt num_layers", gpt.num_layers, 1, kMaxLayers));
  RETURN_IF_ERROR(CheckField("gpt num_heads", gpt.num_heads, 1, kMaxWidth));
  RETURN_IF_ERROR(CheckField("gpt width", gpt.width, 1, kMaxWidth));
  RETURN_IF_ERROR(CheckField("gpt context", gpt.context, 1, kMaxContext));
  RETURN_IF_ERROR(CheckField("gpt vocabulary", gpt.vocabulary, 1, kMaxVocabulary));
  if (!(gpt.dropout >= 0.0 && gpt.dropout < 1.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model spec: gpt dropout is ", gpt.dropout, ", allowed is 0 <= dropout < 1"));
  }
  if (gpt.width % gpt.num_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model spec: gpt width ", gpt.width, " is not a multiple of num_heads ", gpt.num_heads));
  }
  return absl::OkStatus();
}

absl::Status Validate(const ClientModelSpec&) { return absl::OkStatus(); }

std::vector<ModelSpec> Presets() {
  constexpr int kGpt2Context = 1024;
  constexpr int kGpt2Vocabulary = 50257;
  const auto gpt2 = [](const char* name, int num_layers, int num_heads, int width) {
    return ModelSpec{name, GptSpec{num_layers, num_heads, width, kGpt2Context, kGpt2Vocabulary}};
  };
  return {
      {"mlp", MlpSpec{{64, 128, 64, 10}}},
      {"cnn", CnnSpec{8, 8, 1, {16, 32}, 64, 10}},
      {"mlp-mnist", MlpSpec{{784, 512, 256, 10}}},
      {"cnn-mnist", CnnSpec{28, 28, 1, {16, 32}, 128, 10}},
      {"cnn-cifar10", CnnSpec{32, 32, 3, {32, 64, 128}, 256, 10}},
      {"gpt-nano", GptSpec{4, 4, 128, 64, 256}},
      {"gpt-mini", GptSpec{6, 6, 384, 256, 256}},
      gpt2("gpt2-124m", 12, 12, 768),
      gpt2("gpt2-355m", 24, 16, 1024),
      gpt2("gpt2-774m", 36, 20, 1280),
      gpt2("gpt2-1.5b", 48, 25, 1600),
      {"client", ClientModelSpec{}},
  };
}

}  // namespace

absl::StatusOr<ModelSpec> ModelPreset(absl::string_view name) {
  for (ModelSpec& preset : Presets()) {
    if (preset.name == name) return std::move(preset);
  }
  return absl::NotFoundError(
      absl::StrCat("there is no model preset '", name,
                   "'; the presets are: ", absl::StrJoin(ModelPresetNames(), ", ")));
}

std::vector<std::string> ModelPresetNames() {
  std::vector<std::string> names;
  for (ModelSpec& preset : Presets()) names.push_back(std::move(preset.name));
  return names;
}

std::string ModelInWords(absl::string_view name) {
  return name.empty() ? "the model" : absl::StrCat("model ", name);
}

absl::Status ValidateModelSpec(const ModelSpec& spec) {
  return std::visit([](const auto& architecture) { return Validate(architecture); },
                    spec.architecture);
}

}  // namespace lodestar::params
