// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/round_runner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/logging/logging.h"
#include "common/process/work_progress.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_macros.h"
#include "worker/trainer/exact_contribution.h"
#include "worker/trainer/grant_samples.h"

namespace lodestar::trainer {
namespace {

// Maximum number of held-out samples that are read at once. It limits the memory of a batch.
constexpr int64_t kSamplesPerRead = 256;

// Returns true if a call that failed with `status` may succeed in another life or over another
// connection.
bool MayGoBetter(const absl::Status& status) {
  const Remedy remedy = RemedyFor(status);
  return remedy == Remedy::kRejoin || remedy == Remedy::kReconnect;
}

// The elements of a vector in host memory, in fp32.
class VectorBytes final : public ContributionBytes {
 public:
  // `vector` must outlive the object.
  explicit VectorBytes(absl::Span<const float> vector) : vector_(vector) {}

  params::Encoding encoding() const override { return params::Encoding::kFp32; }
  bool is_inline() const override { return true; }
  void Begin(const messages::Registration&, Round, float) override {}
  kernels::EventId Prepare(const params::Bucket&) override { return 0; }
  absl::Status Await(kernels::EventId) override { return absl::OkStatus(); }
  absl::Span<const std::byte> Of(const params::Bucket& bucket) const override {
    return client::BytesOf(vector_.subspan(bucket.range.begin, bucket.range.size()));
  }
  void Commit(absl::Span<const uint32_t>) override {}

 private:
  const absl::Span<const float> vector_;
};

}  // namespace

absl::StatusOr<messages::RoundReport> RoundRunner::Run(const LifeContext& life,
                                                       const messages::Grant& grant) {
  const messages::Registration& registration = *life.registration;
  RETURN_IF_ERROR(CheckGrant(grant, registration.job, *deps_.dataset));
  const bool is_of_this_life = kept_.has_value() &&
                               kept_->server_incarnation == registration.server_incarnation &&
                               kept_->life == registration.life;
  const bool is_made =
      is_of_this_life && kept_->round == grant.round && grant.kind == messages::Grant::Kind::kTrain;
  absl::Status settled;
  if (!is_made && kept_.has_value()) {
    // The coordinator already has the report of the kept contribution's round, but the servers have
    // not acknowledged the contribution. Another push shows which buckets were not counted.
    if (is_of_this_life && kept_->round < grant.round && !keeper_.has_value()) {
      settled = PushKept(life, kept_->made);
    }
    if (settled.ok()) {
      kept_.reset();
      if (keeper_.has_value()) keeper_->Doubt();
    }
  }
  absl::StatusOr<messages::RoundReport> report =
      !settled.ok() ? absl::StatusOr<messages::RoundReport>(settled)
      : is_made     ? RunAgain(life)
                    : RunRound(life, grant);
  if (report.ok()) {
    report->lost_residual_rounds = std::exchange(lost_residual_rounds_, 0);
    return report;
  }
  if (MayGoBetter(report.status())) return report;
  kept_.reset();
  return AsFinal(report.status());
}

absl::StatusOr<std::optional<messages::RoundReport>> RoundRunner::SettleResidual(
    const LifeContext& life, Round round) {
  if (exchange_->residual() == nullptr) return std::nullopt;
  if (deps_.residuals != nullptr && !keeper_.has_value()) {
    keeper_.emplace(deps_.residuals, exchange_->residual(), deps_.clock);
  }
  std::optional<messages::RoundReport> delivered;
  if (keeper_.has_value()) {
    deps_.on_activity("push");
    ASSIGN_OR_RETURN(delivered, keeper_->Settle(life, round));
  }
  const bool is_there = keeper_.has_value() && keeper_->has_residual();
  if (!std::exchange(has_settled_, true) && !is_there) {
    lost_residual_rounds_ = static_cast<int64_t>(life.registration->rounds_completed);
    if (lost_residual_rounds_ > 0) {
      logging::LogWarn(
          "error feedback is reset: an earlier process with this worker's name has completed {} "
          "rounds, and its residual is not on this machine{}",
          lost_residual_rounds_,
          deps_.residuals == nullptr ? "; to keep residuals, give --state_dir and --name, and "
                                       "--keep_residuals=always if the job has no local steps"
                                     : "");
    }
  }
  return delivered;
}

void RoundRunner::ForgetResidual() {
  if (keeper_.has_value()) keeper_->Forget();
}

absl::Status RoundRunner::HandInInitialWeights(const messages::Registration& registration,
                                               const InitialState& state,
                                               client::ParameterTransport* transport) {
  std::vector<uint32_t> with_state;
  for (const params::Bucket& bucket : registration.buckets()) {
    if (!registration.layout().is_averaged(bucket.block)) with_state.push_back(bucket.index);
  }
  client::ContributionHeader header{.round = Round(0),
                                    .kind = messages::ContributionKind::kInitialWeights};
  // A bucket begins with its weights, so its state comes first.
  for (const std::vector<float>& vector : state.vectors) {
    ++header.state_vector;
    VectorBytes bytes(vector);
    RETURN_IF_ERROR(PushAgain(
        registration,
        {header, &bytes, with_state, std::vector<Version>(with_state.size(), state.version)},
        transport, deps_.clock));
  }
  header.state_vector = 0;
  ExactContribution weights(exchange_->weights());
  for (const params::Bucket& bucket : registration.buckets()) {
    RETURN_IF_ERROR(weights.Await(weights.Prepare(bucket)));
  }
  const MadeContribution made{header, &weights, AllBuckets(registration),
                              std::vector<Version>(registration.buckets().size(), state.version)};
  return PushAgain(registration, made, transport, deps_.clock);
}

absl::Status RoundRunner::EvaluateHeldout(const LifeContext& life, const messages::Grant& grant,
                                          WeightsPull* pull, messages::RoundReport* report) {
  if (grant.num_heldout_samples == 0) return absl::OkStatus();
  const absl::Time start = deps_.clock->Now();
  const auto blocked = [pull] { return pull == nullptr ? absl::ZeroDuration() : pull->blocked(); };
  const absl::Duration blocked_before = blocked();
  process::TraceSpan span(deps_.trace, "training", "evaluation");
  const data::Dataset& dataset = *deps_.dataset;
  data::HostBatch batch;
  std::vector<int64_t> samples;
  const int64_t begin = grant.first_heldout_sample;
  const int64_t end = begin + grant.num_heldout_samples;
  process::WorkProgress progress(grant.num_heldout_samples, start);
  if (grant.kind == messages::Grant::Kind::kEvaluate) {
    logging::LogInfo("this worker evaluates the weights of round {} on {} held-out samples",
                     grant.round, grant.num_heldout_samples);
  }
  const int64_t per_pass = std::min(kSamplesPerRead, deps_.model->samples_per_pass());
  for (int64_t k = begin; k < end;) {
    RETURN_IF_ERROR(life.Check());
    if (deps_.stop_requested()) return CutEvaluation(grant, k - begin, report);
    // A pass ends at each multiple of kSamplesPerRead, counted from `begin`. Where passes end
    // determines the last bits of the sums.
    const int64_t border = begin + ((k - begin) / kSamplesPerRead + 1) * kSamplesPerRead;
    const int64_t pass_end = std::min({end, border, k + per_pass});
    samples.clear();
    for (; k < pass_end; ++k) {
      samples.push_back(
          HeldoutSampleAt(k, grant.evaluation_set_size, dataset.num_heldout_samples()));
    }
    RETURN_IF_ERROR(dataset.ReadHeldout(samples, &batch));
    if (const absl::Time now = deps_.clock->Now();
        progress.OnPiece(static_cast<int64_t>(samples.size()), now)) {
      logging::LogInfo("evaluation of round {}: {} of {} held-out samples: {}", grant.round,
                       progress.done(), progress.total(), progress.ShareText(now));
    }
    deps_.on_step(
        {.round = grant.round, .server_incarnation = life.registration->server_incarnation});
    ASSIGN_OR_RETURN(const model::BatchResult result, deps_.model->Evaluate(batch, pull));
    report->heldout_loss_sum += result.loss_sum;
    report->heldout_correct += result.num_correct;
    report->heldout_predictions += result.num_predictions;
  }
  report->evaluation += deps_.clock->Now() - start - (blocked() - blocked_before);
  return absl::OkStatus();
}

absl::Status RoundRunner::CutEvaluation(const messages::Grant& grant, int64_t num_done,
                                        messages::RoundReport* report) {
  logging::LogInfo("stopping: the evaluation ends after {} of {} held-out samples", num_done,
                   grant.num_heldout_samples);
  if (grant.kind == messages::Grant::Kind::kEvaluate) {
    return absl::CancelledError("stopped on request during the evaluation");
  }
  report->heldout_loss_sum = 0.0;
  report->heldout_correct = 0;
  report->heldout_predictions = 0;
  return absl::OkStatus();
}

void RoundRunner::TellContributed(messages::RoundReport report) {
  if (deps_.on_contributed == nullptr || deps_.stop_requested()) return;
  report.lost_residual_rounds = lost_residual_rounds_;
  deps_.on_contributed(report);
}

absl::Status RoundRunner::Keep(const LifeContext& life, ContributionPush& push,
                               const messages::RoundReport& report) {
  kept_ = {life.registration->server_incarnation, life.registration->life, report.round,
           push.made(), report};
  if (!keeper_.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(push.AwaitMade());
  process::TraceSpan span(deps_.trace, "training", "keep residual");
  return keeper_->Keep(*life.registration, kept_->made, report);
}

absl::StatusOr<messages::RoundReport> RoundRunner::RunAgain(const LifeContext& life) {
  const absl::Time start = deps_.clock->Now();
  deps_.on_activity("push");
  RETURN_IF_ERROR(PushKept(life, kept_->made));
  messages::RoundReport report = kept_->report;
  kept_.reset();
  report.communication += deps_.clock->Now() - start;
  return report;
}

}  // namespace lodestar::trainer
