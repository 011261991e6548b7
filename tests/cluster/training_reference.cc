// SPDX-License-Identifier: Apache-2.0

#include "tests/cluster/training_reference.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "common/job/gradient_clip.h"
#include "common/params/initial_weights.h"
#include "common/params/layout.h"
#include "common/runtime/status_macros.h"
#include "kernels/factory/device_factory.h"
#include "server/optimizer/optimizer_factory.h"
#include "worker/data/dataset_factory.h"
#include "worker/data/sample_order.h"
#include "worker/model/model.h"

namespace lodestar {
namespace {

std::vector<params::ElementRange> DecayRanges(const params::Layout& layout) {
  std::vector<params::ElementRange> ranges;
  for (const params::TensorSpec& tensor : layout.tensors()) {
    if (tensor.decay) ranges.push_back({tensor.offset, tensor.offset + tensor.num_elements()});
  }
  return ranges;
}

float ClipScale(absl::Span<const float> gradient, double clip_norm) {
  if (clip_norm <= 0.0) return 1.0f;
  double square_sum = 0.0;
  for (const float g : gradient) square_sum += static_cast<double>(g) * g;
  return job::GradientClipScale(square_sum, clip_norm);
}

// Returns a span of the model's vector, which host code may use because the device is the CPU.
absl::Span<float> SpanOf(kernels::Buf vector) {
  return {vector.as<float>(), static_cast<size_t>(vector.num_elements)};
}

// The weights of one model and the state of their optimizer.
struct Replica {
  std::vector<float> weights;
  std::vector<std::vector<float>> state;
  int64_t steps = 0;
};

// Makes steps of the job's optimizer on consecutive samples of the job's order.
class StepMaker {
 public:
  static absl::StatusOr<std::unique_ptr<StepMaker>> Create(const job::JobSpec& job,
                                                           const std::string& data) {
    auto steps = std::unique_ptr<StepMaker>(new StepMaker(job));
    ASSIGN_OR_RETURN(steps->device_, factory::MakeDevice("cpu", /*threads=*/1, nullptr));
    ASSIGN_OR_RETURN(
        steps->model_,
        model::MakeModel({.spec = job.model, .max_batch = job.batch_size, .seed = job.seed},
                         steps->device_.get()));
    ASSIGN_OR_RETURN(const data::DataSource source, data::OpenData({.path = data}));
    ASSIGN_OR_RETURN(steps->dataset_, data::MakeDataset(source, job.model, job.seed));
    steps->decay_ = DecayRanges(steps->model_->layout());
    return steps;
  }

  Replica Initial() const {
    const params::Layout& layout = model_->layout();
    Replica replica;
    replica.weights.resize(layout.num_elements());
    params::FillInitialRange(layout, job_.seed, {0, layout.num_elements()},
                             absl::MakeSpan(replica.weights));
    replica.state.assign(optimizer_->num_state_vectors(),
                         std::vector<float>(replica.weights.size()));
    return replica;
  }

  // Makes a step on the samples from `first` on, at the learning rate of local step `step` of the
  // job.
  absl::Status Take(Replica& replica, int64_t first, int64_t step) {
    const data::SampleOrder order(job_.seed, dataset_->num_train_samples());
    std::vector<data::SampleRef> samples(job_.batch_size);
    for (int64_t i = 0; i < job_.batch_size; ++i) samples[i] = order.At(first + i);
    batch_.first_position = first;
    RETURN_IF_ERROR(dataset_->ReadTrain(samples, &batch_));
    std::copy(replica.weights.begin(), replica.weights.end(), SpanOf(model_->parameters()).begin());
    RETURN_IF_ERROR(model_->TrainStep(batch_, /*gate=*/nullptr, /*sink=*/nullptr).status());
    const absl::Span<const float> gradient = SpanOf(model_->gradients());
    const absl::Span<float> weights = absl::MakeSpan(replica.weights);
    optimizer::OptimizerVectors vectors = {
        .gradient = gradient, .weights_in = weights, .weights_out = weights, .state = {}};
    for (size_t i = 0; i < replica.state.size(); ++i) {
      vectors.state[i] = absl::MakeSpan(replica.state[i]);
    }
    const double progress =
        static_cast<double>(step / job_.local_steps) +
        static_cast<double>(step % job_.local_steps) / static_cast<double>(job_.local_steps);
    optimizer_->Apply({.step = ++replica.steps,
                       .learning_rate = job_.schedule.At(progress, 1.0 / job_.local_steps),
                       .gradient_scale = ClipScale(gradient, job_.clip_norm)},
                      vectors, decay_);
    return absl::OkStatus();
  }

 private:
  explicit StepMaker(const job::JobSpec& job)
      : job_(job), optimizer_(optimizer::MakeGradientOptimizer(job.optimizer)) {}

  const job::JobSpec job_;
  const std::unique_ptr<optimizer::Optimizer> optimizer_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<data::Dataset> dataset_;
  std::vector<params::ElementRange> decay_;
  data::HostBatch batch_;
};

}  // namespace

absl::StatusOr<std::vector<float>> InitialWeights(const job::JobSpec& job) {
  ASSIGN_OR_RETURN(const params::Layout layout, params::BuildLayout(job.model));
  std::vector<float> weights(layout.num_elements());
  params::FillInitialRange(layout, job.seed, {0, layout.num_elements()}, absl::MakeSpan(weights));
  return weights;
}

absl::StatusOr<std::vector<float>> TrainSequentially(const job::JobSpec& job,
                                                     const std::string& data) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StepMaker> steps, StepMaker::Create(job, data));
  Replica replica = steps->Initial();
  const int64_t num_steps = job.schedule.total_rounds * job.local_steps;
  for (int64_t step = 0; step < num_steps; ++step) {
    RETURN_IF_ERROR(steps->Take(replica, step * job.batch_size, step));
  }
  return std::move(replica.weights);
}

absl::StatusOr<std::vector<float>> TrainElastically(const job::JobSpec& job,
                                                    const std::string& data, int num_workers) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StepMaker> steps, StepMaker::Create(job, data));
  std::vector<Replica> replicas(num_workers, steps->Initial());
  const std::vector<float> initial = steps->Initial().weights;
  std::vector<double> center(initial.begin(), initial.end());
  int64_t next_sample = 0;
  // The steps of the last round would be in no weights, so that round is left out.
  for (int64_t round = 0; round + 1 < job.schedule.total_rounds; ++round) {
    for (Replica& replica : replicas) {
      for (int64_t step = 0; step < job.local_steps; ++step) {
        RETURN_IF_ERROR(steps->Take(replica, next_sample, round * job.local_steps + step));
        next_sample += job.batch_size;
      }
    }
    const double alpha = job.outer_learning_rate / num_workers;
    for (size_t e = 0; e < center.size(); ++e) {
      double moved = 0.0;
      for (Replica& replica : replicas) {
        const double pull = alpha * (center[e] - replica.weights[e]);
        replica.weights[e] = static_cast<float>(replica.weights[e] + pull);
        moved += pull;
      }
      center[e] -= moved;
    }
  }
  return std::vector<float>(center.begin(), center.end());
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
