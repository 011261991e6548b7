// SPDX-License-Identifier: Apache-2.0

#include "worker/model/testing/synthetic_training.h"

#include <random>

#include "common/runtime/check.h"

namespace lodestar::model {
namespace {

// Numbers and ranges of the inputs and targets of a sample.
struct SampleSizes {
  int64_t tokens = 0;
  int64_t features = 0;
  int64_t targets = 1;
  int classes = 0;
};

SampleSizes SizesOf(const params::MlpSpec& mlp) {
  return {.features = mlp.widths.front(), .classes = mlp.widths.back()};
}
SampleSizes SizesOf(const params::CnnSpec& cnn) {
  return {.features = int64_t{cnn.image_channels} * cnn.image_height * cnn.image_width,
          .classes = cnn.num_classes};
}
SampleSizes SizesOf(const params::GptSpec& gpt) {
  return {.tokens = gpt.context, .targets = gpt.context, .classes = gpt.vocabulary};
}
SampleSizes SizesOf(const params::ClientModelSpec&) { return {}; }

template <typename T>
std::vector<T> SliceOf(const std::vector<T>& values, const data::HostBatch& batch, int64_t begin,
                       int64_t count) {
  const int64_t per_sample = static_cast<int64_t>(values.size()) / batch.num_samples;
  return {values.begin() + begin * per_sample, values.begin() + (begin + count) * per_sample};
}

template <typename T>
void WriteAs(kernels::Device* device, kernels::Buf to, const std::vector<double>& values) {
  const std::vector<T> converted(values.begin(), values.end());
  device->Copy(to.data, converted.data(), converted.size() * sizeof(T),
               kernels::StreamKind::kCompute);
  LODESTAR_CHECK(device->Synchronize(device->Record(kernels::StreamKind::kCompute)).ok());
}

template <typename T>
std::vector<double> ReadAs(kernels::Device* device, kernels::Buf from) {
  std::vector<T> values(from.num_elements);
  device->Copy(values.data(), from.data, values.size() * sizeof(T), kernels::StreamKind::kCompute);
  LODESTAR_CHECK(device->Synchronize(device->Record(kernels::StreamKind::kCompute)).ok());
  return {values.begin(), values.end()};
}

}  // namespace

params::ModelSpec SmallGptSpec() {
  return {"small-gpt",
          params::GptSpec{
              .num_layers = 2, .num_heads = 4, .width = 32, .context = 8, .vocabulary = 40}};
}

params::ModelSpec SmallDroppingGptSpec() {
  params::ModelSpec spec = SmallGptSpec();
  spec.name = "small-dropping-gpt";
  std::get<params::GptSpec>(spec.architecture).dropout = 0.25;
  return spec;
}

std::vector<params::ModelSpec> SmallModelSpecs() {
  // The image height is odd, so pooling drops the last row.
  const params::CnnSpec cnn{.image_height = 9,
                            .image_width = 8,
                            .image_channels = 2,
                            .channels = {3, 5},
                            .hidden_width = 11,
                            .num_classes = 7};
  return {{"small-mlp", params::MlpSpec{{13, 17, 9, 5}}}, {"small-cnn", cnn}, SmallGptSpec()};
}

data::HostBatch RandomBatch(const params::ModelSpec& spec, int64_t num_samples, uint64_t seed) {
  const SampleSizes sizes =
      std::visit([](const auto& architecture) { return SizesOf(architecture); }, spec.architecture);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> feature(0.0f, 1.0f);
  std::uniform_int_distribution<int32_t> class_index(0, sizes.classes - 1);
  data::HostBatch batch;
  batch.num_samples = num_samples;
  batch.tokens.resize(num_samples * sizes.tokens);
  batch.features.resize(num_samples * sizes.features);
  batch.targets.resize(num_samples * sizes.targets);
  for (int32_t& token : batch.tokens) token = class_index(random);
  for (float& value : batch.features) value = feature(random);
  for (int32_t& target : batch.targets) target = class_index(random);
  return batch;
}

data::HostBatch SliceBatch(const data::HostBatch& batch, int64_t begin, int64_t count) {
  return {.num_samples = count,
          .first_position = batch.first_position + begin,
          .tokens = SliceOf(batch.tokens, batch, begin, count),
          .features = SliceOf(batch.features, batch, begin, count),
          .targets = SliceOf(batch.targets, batch, begin, count)};
}

std::vector<double> RandomParameters(const params::Layout& layout, double noise, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values;
  values.reserve(layout.num_elements());
  for (const params::TensorSpec& tensor : layout.tensors()) {
    const bool is_random = tensor.initializer.kind == params::InitializerKind::kNormal ||
                           tensor.initializer.kind == params::InitializerKind::kUniform;
    const double start = tensor.initializer.kind == params::InitializerKind::kOnes ? 1.0 : 0.0;
    const double scale = noise + (is_random ? tensor.initializer.scale : 0.0);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      values.push_back(static_cast<float>(start + scale * normal(random)));
    }
  }
  return values;
}

void WriteBuf(kernels::Device* device, kernels::Buf to, const std::vector<double>& values) {
  LODESTAR_CHECK(static_cast<int64_t>(values.size()) == to.num_elements);
  if (to.dtype == kernels::DType::kF64) {
    WriteAs<double>(device, to, values);
  } else {
    LODESTAR_CHECK(to.dtype == kernels::DType::kF32);
    WriteAs<float>(device, to, values);
  }
}

std::vector<double> ReadBuf(kernels::Device* device, kernels::Buf from) {
  if (from.dtype == kernels::DType::kF64) return ReadAs<double>(device, from);
  LODESTAR_CHECK(from.dtype == kernels::DType::kF32);
  return ReadAs<float>(device, from);
}

}  // namespace lodestar::model
