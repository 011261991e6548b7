// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/gradient_rounds.h"

#include <functional>
#include <utility>

#include "common/messages/contribution.h"
#include "common/runtime/status_macros.h"
#include "worker/trainer/grant_samples.h"
#include "worker/trainer/step_trace.h"

namespace lodestar::trainer {
namespace {

// Starts a push with the first block, when the learning rates and the weight of the program are
// known.
class PushOfProgram final : public model::GradientSink {
 public:
  // `start` sets `push`, which outlives the object.
  PushOfProgram(std::function<void()> start, std::optional<ContributionPush>* push)
      : start_(std::move(start)), push_(push) {}

  absl::Status BlockReady(int block) override { return Started().BlockReady(block); }
  absl::Status PartsReady(int block, absl::Span<const params::ElementRange> parts) override {
    return Started().PartsReady(block, parts);
  }

 private:
  ContributionPush& Started() {
    if (!push_->has_value()) start_();
    return **push_;
  }

  const std::function<void()> start_;
  std::optional<ContributionPush>* const push_;
};

client::BlockRates RatesOf(model::Model& model) {
  client::BlockRates rates;
  for (int block = 0; block < model.layout().num_blocks(); ++block) {
    const std::optional<double> rate = model.learning_rate(block);
    if (rate.has_value()) rates[block] = *rate;
  }
  return rates;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GradientRounds>> GradientRounds::Create(const job::JobSpec& job,
                                                                       const RoundRunnerDeps& deps,
                                                                       double client_clip_norm) {
  auto rounds = std::unique_ptr<GradientRounds>(new GradientRounds(job, deps, client_clip_norm));
  ASSIGN_OR_RETURN(
      rounds->exchange_,
      ExchangeState::Create(job, deps.model->layout(), deps.device, deps.model->parameters(),
                            deps.model->gradients(), &rounds->timeline_));
  rounds->skipped_.emplace(rounds->exchange_->contribution()->encoding());
  ASSIGN_OR_RETURN(rounds->clipper_, GradientClipper::Create(deps.device));
  return rounds;
}

absl::Status GradientRounds::Train(const LifeContext& life, const messages::Grant& grant,
                                   WeightsPull& pull, std::optional<ContributionPush>& push,
                                   messages::RoundReport* report) {
  const SampleSpan samples = SamplesOfStep(grant, 0);
  {
    process::TraceSpan span(deps_.trace, "training", "read data");
    RETURN_IF_ERROR(ReadTrainSpan(*deps_.dataset, *life.sample_order, samples, &batch_));
  }
  deps_.on_step({.round = grant.round,
                 .samples = samples,
                 .round_first_sample = grant.round_first_sample.value_or(samples.first),
                 .learning_rate = grant.learning_rates[0],
                 .server_incarnation = life.registration->server_incarnation});
  client::ContributionHeader header{.round = grant.round,
                                    .kind = messages::ContributionKind::kGradient};
  const auto start_push = [&](ContributionBytes* bytes) {
    if (header.num_samples != messages::kSkippedSamples) {
      if (takes_program_rates_) header.learning_rates = RatesOf(*deps_.model);
      header.weight = deps_.model->contribution_weight();
    }
    push.emplace(*life.registration, header, bytes, &pull, life.transport, deps_.clock, deps_.trace,
                 leaves());
  };
  const bool has_program = deps_.model->has_program();
  PushOfProgram of_program([&] { start_push(exchange_->contribution()); }, &push);
  if (!pushes_late() && !has_program) start_push(exchange_->contribution());
  model::GradientSink* const sink = push.has_value() ? &*push : nullptr;
  StepTrace step(deps_.trace, &timeline_, &pull,
                 has_program && !pushes_late() ? &of_program : sink);
  ASSIGN_OR_RETURN(const model::BatchResult result, deps_.model->TrainStep(batch_, &step, &step));
  if (result.is_skipped) {
    header.num_samples = messages::kSkippedSamples;
    start_push(&*skipped_);
    RETURN_IF_ERROR(push->AllBlocksReady());
  } else if (pushes_late()) {
    ASSIGN_OR_RETURN(header.scale,
                     clipper_->Scale(deps_.model->gradients(),
                                     deps_.model->layout().TrainedRanges(), client_clip_norm_));
    start_push(exchange_->contribution());
    RETURN_IF_ERROR(push->AllBlocksReady());
  }
  report->loss_sum = result.loss_sum;
  report->num_predictions = result.num_predictions;
  report->num_samples = grant.num_samples;
  return absl::OkStatus();
}

}  // namespace lodestar::trainer
