// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/testing/training_rig.h"

#include <string>
#include <utility>

#include "common/job/fragment_plan.h"
#include "common/params/bucket_plan.h"
#include "common/runtime/status_macros.h"
#include "common/testing/status_matchers.h"
#include "worker/model/testing/synthetic_training.h"
#include "worker/trainer/round_runner_factory.h"

namespace lodestar::trainer {
namespace {

constexpr int64_t kRigSamples = 48;
constexpr int64_t kRigHeldout = 5;

class RandomDataset final : public data::Dataset {
 public:
  // If *reading is an error, reads of training data return this error. The tokens of training data
  // are below *limit.
  RandomDataset(const params::ModelSpec& spec, const absl::Status* reading, const int32_t* limit)
      : reading_(reading), limit_(limit), batch_(model::RandomBatch(spec, kRigSamples, 7)) {}
  int64_t num_train_samples() const override { return kRigSamples - kRigHeldout; }
  int64_t num_heldout_samples() const override { return kRigHeldout; }
  int64_t tokens_per_sample() const override { return 1; }
  const std::string& fingerprint() const override { return name_; }
  std::string Describe() const override { return name_; }
  absl::Status ReadTrain(absl::Span<const data::SampleRef> samples,
                         data::HostBatch* batch) const override {
    RETURN_IF_ERROR(*reading_);
    *batch = model::SliceBatch(batch_, samples.front().index, 0);
    for (const data::SampleRef& sample : samples) Append(sample.index, batch);
    for (int32_t& token : batch->tokens) token %= *limit_;
    return absl::OkStatus();
  }
  absl::Status ReadHeldout(absl::Span<const int64_t> samples,
                           data::HostBatch* batch) const override {
    *batch = model::SliceBatch(batch_, 0, 0);
    for (int64_t sample : samples) Append(kRigSamples - kRigHeldout + sample, batch);
    return absl::OkStatus();
  }

 private:
  void Append(int64_t index, data::HostBatch* batch) const {
    const data::HostBatch one = model::SliceBatch(batch_, index, 1);
    ++batch->num_samples;
    batch->tokens.insert(batch->tokens.end(), one.tokens.begin(), one.tokens.end());
    batch->targets.insert(batch->targets.end(), one.targets.begin(), one.targets.end());
  }

  const absl::Status* const reading_;
  const int32_t* const limit_;
  const std::string name_ = "random";
  const data::HostBatch batch_;
};

}  // namespace

job::JobSpec SmallJob(job::JobSpec job) {
  job.model = model::SmallGptSpec();
  if (job.bucket_bytes == params::kDefaultBucketBytes) job.bucket_bytes = 4096;
  job.batch_size = kRigBatch;
  return job;
}

TrainingRig::TrainingRig(job::JobSpec job, kernels::Device* device, bool overlap,
                         process::TraceRecorder* trace, Clock* clock, bool pulls_ahead)
    : TrainingRig(job, device,
                  *model::MakeModel({.spec = SmallJob(job).model, .max_batch = 4}, device), overlap,
                  trace, clock, pulls_ahead) {}

TrainingRig::TrainingRig(job::JobSpec job, kernels::Device* device,
                         std::unique_ptr<model::Model> model, bool overlap,
                         process::TraceRecorder* trace, Clock* clock, bool pulls_ahead)
    : job_(SmallJob(std::move(job))),
      server_(job_, /*learning_rate=*/0.5),
      dataset_(std::make_unique<RandomDataset>(job_.model, &reading_, &token_limit_)),
      order_(1, dataset_->num_train_samples()),
      model_(std::move(model)),
      runner_deps_({.model = model_.get(),
                    .device = device,
                    .dataset = dataset_.get(),
                    .clock = clock,
                    .overlap = overlap,
                    .trace = trace,
                    .pulls_ahead = pulls_ahead,
                    .on_contributed =
                        [this](const messages::RoundReport& report) { on_contributed_(report); },
                    .on_step = [this](const RoundStep& step) { on_step_(step); },
                    .stop_requested = [this] { return is_stopping_.load(); },
                    .time_left = [this] { return absl::Nanoseconds(time_left_ns_.load()); },
                    .on_activity = [this](absl::string_view activity) { on_activity_(activity); }}),
      runner_(*MakeRoundRunner(job_, runner_deps_)) {}

TrainingRig::~TrainingRig() = default;

absl::StatusOr<messages::RoundReport> TrainingRig::RunRound(int64_t round,
                                                            messages::Grant::Kind kind) {
  const int steps = job::StepsOfWindow(job_, Round(round));
  int64_t steps_before = 0;
  for (int64_t before = 0; before < round; ++before) {
    steps_before += job::StepsOfWindow(job_, Round(before));
  }
  messages::Grant grant;
  grant.kind = kind;
  grant.round = Round(round);
  grant.first_sample = kRigBatch * steps_before / job_.local_steps;
  grant.first_position = grant.first_sample;
  grant.num_samples = kRigBatch * steps / job_.local_steps;
  grant.local_steps = steps;
  grant.learning_rates.assign(steps, 0.01);
  grant.min_round = Round(round);
  if (round == 1) grant.num_heldout_samples = kRigHeldout;
  grant.evaluation_set_size = kRigHeldout;
  return Run(grant);
}

absl::StatusOr<messages::RoundReport> TrainingRig::RunRound(int64_t round, Work work) {
  if (work == Work::kFull) return RunRound(round);
  messages::Grant grant;
  grant.round = Round(round);
  grant.min_round = grant.round;
  grant.local_steps = 0;
  return Run(grant);
}

absl::StatusOr<messages::RoundReport> TrainingRig::Run(const messages::Grant& grant) {
  return runner_->Run({.registration = &server_.registration(),
                       .sample_order = &order_,
                       .transport = transport_,
                       .is_over = [this] { return is_over_.load(); }},
                      grant);
}

TrainingOutcome TrainThreeRounds(const job::JobSpec& job, kernels::Device* device, bool overlap) {
  TrainingRig rig(job, device, overlap, /*trace=*/nullptr, &Clock::Real(), /*pulls_ahead=*/overlap);
  return TrainThreeRounds(rig);
}

TrainingOutcome TrainThreeRounds(TrainingRig& rig) {
  TrainingOutcome outcome;
  for (int64_t round = 0; round < 3; ++round) {
    const absl::StatusOr<messages::RoundReport> report = rig.RunRound(round);
    EXPECT_OK(report);
    if (!report.ok()) break;
    outcome.losses.push_back(report->loss_sum);
    outcome.losses.push_back(report->heldout_loss_sum);
    EXPECT_EQ(report->heldout_predictions > 0, round == 1);
  }
  outcome.weights = rig.server().weights();
  return outcome;
}

}  // namespace lodestar::trainer
