#include "tests/cluster/training_reference.h"

#include <cmath>
#include <memory>

#include "absl/types/span.h"
#include "common/gradient_clip.h"
#include "common/initial_weights.h"
#include "common/layout.h"
#include "common/status_macros.h"
#include "kernels/device_factory.h"
#include "server/optimizer/optimizer_factory.h"
#include "worker/data/dataset_factory.h"
#include "worker/data/sample_order.h"
#include "worker/model/model.h"

namespace lodestar {
namespace {

std::vector<ElementRange> DecayRanges(const Layout& layout) {
  std::vector<ElementRange> ranges;
  for (const TensorSpec& tensor : layout.tensors()) {
    if (tensor.decay) ranges.push_back({tensor.offset, tensor.offset + tensor.num_elements()});
  }
  return ranges;
}

float ClipScale(absl::Span<const float> gradient, double clip_norm) {
  if (clip_norm <= 0.0) return 1.0f;
  double square_sum = 0.0;
  for (const float g : gradient) square_sum += static_cast<double>(g) * g;
  return GradientClipScale(square_sum, clip_norm);
}

// On a CPU device, where host code may use the model's vectors.
absl::Span<float> SpanOf(Buf vector) {
  return {vector.as<float>(), static_cast<size_t>(vector.num_elements)};
}

}  // namespace

absl::StatusOr<std::vector<float>> InitialWeights(const JobSpec& job) {
  ASSIGN_OR_RETURN(const Layout layout, BuildLayout(job.model));
  std::vector<float> weights(layout.num_elements());
  FillInitialRange(layout, job.seed, {0, layout.num_elements()}, absl::MakeSpan(weights));
  return weights;
}

absl::StatusOr<std::vector<float>> TrainSequentially(const JobSpec& job, const std::string& data) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, MakeDevice("cpu", /*threads=*/1, nullptr));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Model> model,
      MakeModel({.spec = job.model, .max_batch = job.batch_size, .seed = job.seed}, device.get()));
  ASSIGN_OR_RETURN(const DataSource source, OpenData({.path = data}));
  ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset,
                   MakeDataset(source, job.model, job.seed));
  const SampleOrder order(job.seed, dataset->num_train_samples());
  const std::unique_ptr<Optimizer> optimizer = MakeGradientOptimizer(job.optimizer);
  const std::vector<ElementRange> decay = DecayRanges(model->layout());
  const absl::Span<float> weights = SpanOf(model->parameters());
  const absl::Span<const float> gradient = SpanOf(model->gradients());
  FillInitialRange(model->layout(), job.seed, {0, model->layout().num_elements()}, weights);

  OptimizerVectors vectors = {
      .gradient = gradient, .weights_in = weights, .weights_out = weights, .state = {}};
  std::vector<std::vector<float>> state(optimizer->num_state_vectors(),
                                        std::vector<float>(weights.size()));
  for (size_t i = 0; i < state.size(); ++i) vectors.state[i] = absl::MakeSpan(state[i]);

  HostBatch batch;
  std::vector<SampleRef> samples(job.batch_size);
  const int64_t num_steps = job.schedule.total_rounds * job.local_steps;
  for (int64_t step = 0; step < num_steps; ++step) {
    for (int64_t i = 0; i < job.batch_size; ++i) samples[i] = order.At(step * job.batch_size + i);
    batch.first_position = step * job.batch_size;
    RETURN_IF_ERROR(dataset->ReadTrain(samples, &batch));
    RETURN_IF_ERROR(model->TrainStep(batch, /*gate=*/nullptr, /*sink=*/nullptr).status());
    const double progress =
        static_cast<double>(step / job.local_steps) +
        static_cast<double>(step % job.local_steps) / static_cast<double>(job.local_steps);
    optimizer->Apply({.step = step + 1,
                      .learning_rate = job.schedule.At(progress, 1.0 / job.local_steps),
                      .gradient_scale = ClipScale(gradient, job.clip_norm)},
                     vectors, decay);
  }
  return std::vector<float>(weights.begin(), weights.end());
}

double RelativeDistance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace lodestar
