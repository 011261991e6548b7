// SPDX-License-Identifier: Apache-2.0

#include "tests/numerics/formula_training.h"

#include <cmath>
#include <variant>

namespace lodestar {
namespace {

struct SampleSizes {
  int64_t inputs = 0;
  int64_t targets = 1;
  int64_t classes = 0;
  bool is_text = false;
};

SampleSizes SizesOf(const params::MlpSpec& mlp) {
  return {.inputs = mlp.widths.front(), .classes = mlp.widths.back()};
}
SampleSizes SizesOf(const params::CnnSpec& cnn) {
  return {.inputs = int64_t{cnn.image_channels} * cnn.image_height * cnn.image_width,
          .classes = cnn.num_classes};
}
SampleSizes SizesOf(const params::GptSpec& gpt) {
  return {
      .inputs = gpt.context, .targets = gpt.context, .classes = gpt.vocabulary, .is_text = true};
}
SampleSizes SizesOf(const params::ClientModelSpec&) { return {}; }

}  // namespace

std::vector<float> FormulaWeights(const params::Layout& layout) {
  std::vector<float> weights(layout.num_elements());
  for (const params::TensorSpec& tensor : layout.tensors()) {
    const double start = tensor.initializer.kind == params::InitializerKind::kOnes ? 1.0 : 0.0;
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.num_elements(); ++i) {
      weights[i] = static_cast<float>(start + 0.03 * std::sin(1.2345 * static_cast<double>(i)));
    }
  }
  return weights;
}

data::HostBatch FormulaBatch(const params::ModelSpec& spec, int64_t num_samples) {
  const SampleSizes sizes =
      std::visit([](const auto& architecture) { return SizesOf(architecture); }, spec.architecture);
  data::HostBatch batch;
  batch.num_samples = num_samples;
  for (int64_t i = 0; i < num_samples * sizes.inputs; ++i) {
    const int64_t value = 7 * i * i + 13 * i + 5;
    if (sizes.is_text) {
      batch.tokens.push_back(static_cast<int32_t>(value % sizes.classes));
    } else {
      batch.features.push_back(static_cast<float>(value % 256) / 255.0f);
    }
  }
  for (int64_t i = 0; i < num_samples * sizes.targets; ++i) {
    batch.targets.push_back(static_cast<int32_t>((3 * i * i + 11 * i + 1) % sizes.classes));
  }
  return batch;
}

std::vector<DecayRange> DecayRanges(const params::Layout& layout) {
  std::vector<DecayRange> ranges;
  for (const params::TensorSpec& tensor : layout.tensors()) {
    if (ranges.empty() || ranges.back().decay != tensor.decay) {
      ranges.push_back({{tensor.offset, tensor.offset}, tensor.decay});
    }
    ranges.back().range.end += tensor.num_elements();
  }
  return ranges;
}

}  // namespace lodestar
