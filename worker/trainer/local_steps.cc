// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/local_steps.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_fields.h"
#include "common/logging/logging.h"
#include "common/runtime/status_macros.h"
#include "worker/trainer/grant_samples.h"
#include "worker/trainer/step_trace.h"

namespace lodestar::trainer {

namespace {

// Returns the settings of the job that the inner optimizer's state depends on, as text.
std::string SettingsOfState(const job::JobSpec& job) {
  std::vector<std::string> texts;
  for (const job::JobField& field : job::JobFields()) {
    if (!field.is_inner_state) continue;
    texts.push_back(absl::StrCat("--", field.name, "=", job::TextOf(field.get(job))));
  }
  return absl::StrJoin(texts, " ");
}

}  // namespace

LocalSteps::LocalSteps(const job::JobSpec& job, const RoundRunnerDeps& deps,
                       DeviceTimeline* timeline)
    : deps_(deps),
      timeline_(timeline),
      window_end_(deps.stop_requested, deps.time_left),
      job_(SettingsOfState(job)) {}

absl::StatusOr<std::unique_ptr<LocalSteps>> LocalSteps::Create(const job::JobSpec& job,
                                                               const RoundRunnerDeps& deps,
                                                               DeviceTimeline* timeline) {
  auto steps = std::unique_ptr<LocalSteps>(new LocalSteps(job, deps, timeline));
  if (!deps.model_has_optimizer) {
    ASSIGN_OR_RETURN(steps->inner_optimizer_,
                     InnerOptimizer::Create(job.optimizer, deps.model->layout(), deps.device));
  }
  return steps;
}

void LocalSteps::Begin(uint64_t server_incarnation, Round round) {
  const bool is_same_life = server_incarnation_ == server_incarnation;
  server_incarnation_ = server_incarnation;
  const std::optional<Round> last_round = std::exchange(last_round_, round);
  if (inner_optimizer_ == nullptr || inner_optimizer_->num_vectors() == 0) return;
  if (!last_round.has_value()) return TakeUpState(round);
  if (is_same_life || round > *last_round) return;
  logging::LogInfo(
      "the state of the inner optimizer is reset, because the servers have gone back to round {}, "
      "but the state is of round {}",
      round, *last_round);
  inner_optimizer_->Reset();
}

void LocalSteps::TakeUpState(Round round) {
  absl::StatusOr<InnerStateStore::Stored> stored = absl::NotFoundError(
      "to keep the state when a worker is stopped, give --state_dir and --name");
  if (deps_.inner_states != nullptr) stored = deps_.inner_states->Load();
  const absl::Status taken = stored.ok() ? TakeOver(*stored, round) : stored.status();
  if (deps_.inner_states != nullptr) {
    if (const absl::Status removed = deps_.inner_states->Remove(); !removed.ok()) {
      logging::LogWarn("the state of the inner optimizer cannot be removed: {}", removed.message());
    }
  }
  if (taken.ok()) {
    return logging::LogInfo(
        "the inner optimizer continues with the state that it had after {} steps",
        inner_optimizer_->steps());
  }
  inner_optimizer_->Reset();
  // At round 0 the worker or the job is new, so a missing state is normal.
  if (absl::IsNotFound(taken) && round == Round(0)) return;
  const std::string text =
      absl::StrCat("the inner optimizer begins round ", round.value(), " without state: ",
                   absl::IsNotFound(taken) && deps_.inner_states != nullptr
                       ? "no earlier process saved a state for this worker's name"
                       : taken.message());
  if (absl::IsNotFound(taken)) return logging::LogInfo("{}", text);
  logging::LogWarn("{}", text);
}

absl::Status LocalSteps::TakeOver(const InnerStateStore::Stored& stored, Round round) {
  const InnerStateRecord& record = stored.record;
  const auto differs = [](absl::string_view what, const auto& there, const auto& here) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the saved state has another ", what, " than needed: ", there, " instead of ", here));
  };
  const std::string& worker = deps_.inner_states->worker_name();
  const std::string layout_hash = deps_.model->layout().hash();
  if (record.worker_name != worker) return differs("worker name", record.worker_name, worker);
  if (record.job != job_) return differs("job", record.job, job_);
  if (record.layout_hash != layout_hash)
    return differs("layout hash", record.layout_hash, layout_hash);
  const int num_vectors = inner_optimizer_->num_vectors();
  if (stored.vectors.size() != num_vectors) {
    return differs("number of vectors", stored.vectors.size(), num_vectors);
  }
  if (round < record.round) {
    return absl::FailedPreconditionError(
        absl::StrCat("the saved state is of round ", record.round.value(),
                     ", but the job has gone back to before that round"));
  }
  const int64_t num_elements = deps_.model->layout().num_elements();
  for (int i = 0; i < num_vectors; ++i) {
    const auto size = static_cast<int64_t>(stored.vectors[i].size());
    if (size != num_elements) return differs("vector length", size, num_elements);
    RETURN_IF_ERROR(inner_optimizer_->WriteState(i, stored.vectors[i]));
  }
  inner_optimizer_->SetSteps(record.steps);
  return absl::OkStatus();
}

absl::Status LocalSteps::KeepState() {
  if (inner_optimizer_ == nullptr || inner_optimizer_->num_vectors() == 0) return absl::OkStatus();
  if (!last_round_.has_value() || deps_.inner_states == nullptr) return absl::OkStatus();
  InnerStateRecord record;
  record.job = job_;
  record.layout_hash = deps_.model->layout().hash();
  record.round = *last_round_ + 1;
  record.steps = inner_optimizer_->steps();
  return deps_.inner_states->Save(std::move(record), inner_optimizer_->num_vectors(),
                                  deps_.model->layout().num_elements(),
                                  [this](int index, absl::Span<float> values) {
                                    return inner_optimizer_->ReadState(index, values);
                                  });
}

absl::Status LocalSteps::Take(const Work& work, int step, messages::RoundReport* sums) {
  const absl::Time start = deps_.clock->Now();
  const messages::Grant& grant = *work.grant;
  const SampleSpan samples = SamplesOfStep(grant, step);
  {
    process::TraceSpan span(deps_.trace, "training", "read data");
    RETURN_IF_ERROR(ReadTrainSpan(*deps_.dataset, *work.order, samples, &batch_));
  }
  deps_.on_step({.round = grant.round,
                 .step = step,
                 .num_steps = grant.local_steps,
                 .samples = samples,
                 .round_first_sample = grant.round_first_sample.value_or(samples.first),
                 .learning_rate = grant.learning_rates[step],
                 .server_incarnation = server_incarnation_});
  ASSIGN_OR_RETURN(const model::BatchResult result, Step(work, grant.learning_rates[step]));
  sums->loss_sum += result.loss_sum;
  sums->num_predictions += result.num_predictions;
  sums->num_samples += samples.count - result.num_lost_samples;
  window_end_.OnStep(deps_.clock->Now() - start, /*waited=*/work.gate != nullptr);
  return absl::OkStatus();
}

bool LocalSteps::IsLeft(const messages::Grant& grant, int step, const absl::Status& taken) const {
  if (!absl::IsCancelled(taken) || !deps_.stop_requested()) return false;
  WindowEnd::TellCut(grant, step, "the program that computes the steps has left");
  return true;
}

absl::StatusOr<model::BatchResult> LocalSteps::Step(const Work& work, double learning_rate) {
  const auto before_change = [&work] {
    return work.before_change ? work.before_change() : absl::OkStatus();
  };
  if (inner_optimizer_ == nullptr) {
    RETURN_IF_ERROR(before_change());
    return TrainOnBatch(work.gate);
  }
  ASSIGN_OR_RETURN(const model::BatchResult result, TrainOnBatch(work.gate));
  RETURN_IF_ERROR(before_change());
  process::TraceSpan span(deps_.trace, "training", "inner optimizer");
  RETURN_IF_ERROR(inner_optimizer_->Step(deps_.model->parameters(),
                                         deps_.model->narrow_parameters(), deps_.model->gradients(),
                                         learning_rate, work.clip_norm));
  return result;
}

absl::StatusOr<model::BatchResult> LocalSteps::TrainOnBatch(model::WeightsGate* gate) {
  if (deps_.trace == nullptr || !deps_.trace->is_recording()) {
    return deps_.model->TrainStep(batch_, gate, /*sink=*/nullptr);
  }
  RETURN_IF_ERROR(timeline_->Flush());
  StepTrace trace(deps_.trace, timeline_, gate, /*sink=*/nullptr);
  return deps_.model->TrainStep(batch_, &trace, &trace);
}

absl::Status LocalSteps::Check(Round round) {
  if (inner_optimizer_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool is_finite,
                   inner_optimizer_->ResetUnlessFinite(deps_.model->parameters()));
  if (!is_finite) {
    logging::LogWarn(
        "round {}: the local steps made weights or optimizer state NaN or Inf; the optimizer state "
        "is reset. If this repeats, start the job with a lower --learning_rate",
        round);
  }
  return absl::OkStatus();
}

}  // namespace lodestar::trainer
