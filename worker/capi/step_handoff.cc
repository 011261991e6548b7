// SPDX-License-Identifier: Apache-2.0

#include "worker/capi/step_handoff.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar::capi {

absl::StatusOr<model::BatchResult> StepHandoff::Compute(HandedStep step, model::GradientSink* sink,
                                                        const GetMore& get_more) {
  absl::MutexLock lock(&mutex_);
  step_ = std::move(step);
  num_extra_samples_ = 0;
  ready_blocks_.clear();
  has_ready_blocks_ = false;
  learning_rates_.clear();
  if (weight_.has_value()) weight_before_ = weight_before_.value_or(0) + *weight_;
  weight_.reset();
  // An evaluation, or the first step of training, begins a new round.
  if (!step_.is_training || step_.step.step == 0) {
    metrics_.clear();
    weight_before_.reset();
  }
  state_ = State::kOffered;
  const auto has_news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return state_ == State::kFinished || state_ == State::kExtending || has_left_ ||
           !ready_blocks_.empty();
  };
  absl::Status told;  // The sink's error. The program continues its step even so.
  while (true) {
    mutex_.Await(absl::Condition(&has_news));
    if (!ready_blocks_.empty()) {
      const int block = ready_blocks_.front();
      ready_blocks_.pop_front();
      if (sink == nullptr || !told.ok()) continue;
      mutex_.Unlock();
      told = sink->BlockReady(block);
      mutex_.Lock();
      continue;
    }
    if (state_ == State::kExtending) {
      RETURN_IF_ERROR(GetMoreSamples(get_more));
      continue;
    }
    const State state = std::exchange(state_, State::kIdle);
    if (state == State::kOffered)
      return absl::CancelledError("the program has left and asks for no more steps");
    if (state == State::kTaken) {
      return absl::FailedPreconditionError("the program left in the middle of a step");
    }
    if (!told.ok()) return told;
    return result_;
  }
}

absl::Status StepHandoff::GetMoreSamples(const GetMore& get_more) {
  mutex_.Unlock();
  absl::StatusOr<ExtraSamples> more = get_more();
  mutex_.Lock();
  extended_ = more.status();
  state_ = more.ok() ? State::kTaken : State::kIdle;
  if (!more.ok()) return more.status();
  num_extra_samples_ += static_cast<int64_t>(more->samples.size());
  step_.samples = std::move(more->samples);
  step_.first_position = more->first_position;
  step_.forecast = std::move(more->forecast);
  return absl::OkStatus();
}

int64_t StepHandoff::num_extra_samples() {
  absl::MutexLock lock(&mutex_);
  return num_extra_samples_;
}

messages::Metrics StepHandoff::MetricsOfRound() {
  absl::MutexLock lock(&mutex_);
  messages::Metrics means;
  for (const auto& [name, metric] : metrics_) {
    if (metric.count > 0) means[name] = metric.sum / static_cast<double>(metric.count);
  }
  return means;
}

absl::Status StepHandoff::Log(absl::string_view name, double value) {
  RETURN_IF_ERROR(messages::CheckMetricName(name));
  absl::MutexLock lock(&mutex_);
  if (state_ != State::kTaken || !step_.is_training) {
    return absl::FailedPreconditionError(
        absl::StrCat("metric '", name,
                     "' was logged, but no training step is open; log metrics between the begin "
                     "and the end of a step"));
  }
  auto metric = metrics_.find(std::string(name));
  if (metric == metrics_.end()) {
    if (metrics_.size() >= messages::kMaxMetrics) {
      return absl::InvalidArgumentError(absl::StrCat("metric '", name,
                                                     "' cannot be added: a round may have at most ",
                                                     messages::kMaxMetrics, " metrics"));
    }
    metric = metrics_.try_emplace(std::string(name)).first;
  }
  metric->second.of_step = value;
  return absl::OkStatus();
}

void StepHandoff::EndStep(absl::StatusOr<model::BatchResult> result) {
  for (auto& [name, metric] : metrics_) {
    if (!metric.of_step.has_value()) continue;
    metric.sum += *metric.of_step;
    ++metric.count;
    metric.of_step.reset();
  }
  result_ = std::move(result);
  state_ = State::kFinished;
}

void StepHandoff::End(const absl::Status& outcome) {
  absl::MutexLock lock(&mutex_);
  state_ = State::kEnded;
  outcome_ = outcome;
}

bool StepHandoff::AwaitNews(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto has_news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return state_ == State::kOffered || state_ == State::kTaken || state_ == State::kEnded;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&has_news), timeout);
}

absl::StatusOr<std::optional<HandedStep>> StepHandoff::Next() {
  absl::MutexLock lock(&mutex_);
  if (state_ == State::kTaken) {
    return absl::FailedPreconditionError(
        "the last step is not finished; report it as done or as failed before asking for another "
        "step");
  }
  const auto has_step = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return state_ == State::kOffered || state_ == State::kEnded;
  };
  mutex_.Await(absl::Condition(&has_step));
  if (state_ == State::kOffered) {
    state_ = State::kTaken;
    return step_;
  }
  if (!outcome_.ok()) return outcome_;
  return std::nullopt;
}

absl::StatusOr<HandedStep> StepHandoff::Extend() {
  absl::MutexLock lock(&mutex_);
  if (state_ != State::kTaken || !step_.is_training) {
    return absl::FailedPreconditionError(
        "more samples were asked for, but no training step is open");
  }
  if (has_ready_blocks_) {
    return absl::FailedPreconditionError(
        "the step cannot be extended, because a block of its gradient was reported as ready and "
        "may have been sent. If steps may be extended, report no block before the last samples");
  }
  state_ = State::kExtending;
  const auto is_answered = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return state_ != State::kExtending;
  };
  mutex_.Await(absl::Condition(&is_answered));
  RETURN_IF_ERROR(extended_);
  return step_;
}

void StepHandoff::KeepSamples() {
  absl::MutexLock lock(&mutex_);
  keeps_samples_ = true;
}

bool StepHandoff::keeps_samples() {
  absl::MutexLock lock(&mutex_);
  return keeps_samples_;
}

trainer::StepForecast StepHandoff::Forecast() {
  absl::MutexLock lock(&mutex_);
  return state_ == State::kTaken ? step_.forecast : trainer::StepForecast();
}

bool StepHandoff::has_step() {
  absl::MutexLock lock(&mutex_);
  return state_ == State::kTaken;
}

absl::Status StepHandoff::BlockReady(int block) {
  absl::MutexLock lock(&mutex_);
  if (state_ != State::kTaken || !step_.is_training) {
    return absl::FailedPreconditionError(
        "a block was reported as ready, but no training step is open");
  }
  ready_blocks_.push_back(block);
  has_ready_blocks_ = true;
  return absl::OkStatus();
}

absl::Status StepHandoff::CheckBeforeBlocks(absl::string_view what) const {
  if (state_ != State::kTaken || !step_.is_training) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " cannot be set, because no training step has begun"));
  }
  if (has_ready_blocks_) {
    return absl::FailedPreconditionError(
        absl::StrCat(what,
                     " was set after a block of the gradient was reported as ready, so the block "
                     "may have been sent; set it before the first block is ready"));
  }
  return absl::OkStatus();
}

absl::Status StepHandoff::SetLearningRate(int block, double rate) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckBeforeBlocks(absl::StrCat("learning rate ", rate)));
  learning_rates_[block] = rate;
  return absl::OkStatus();
}

absl::Status StepHandoff::SetWeight(int64_t weight) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(CheckBeforeBlocks(absl::StrCat("weight ", weight)));
  weight_ = weight;
  return absl::OkStatus();
}

std::optional<int64_t> StepHandoff::weight_of_round() {
  absl::MutexLock lock(&mutex_);
  if (!weight_.has_value()) return weight_before_;
  return weight_before_.value_or(0) + *weight_;
}

std::optional<double> StepHandoff::learning_rate(int block) {
  absl::MutexLock lock(&mutex_);
  auto rate = learning_rates_.find(block);
  if (rate == learning_rates_.end()) rate = learning_rates_.find(-1);
  return rate == learning_rates_.end() ? std::nullopt : std::optional(rate->second);
}

absl::Status StepHandoff::Skip() {
  absl::MutexLock lock(&mutex_);
  if (state_ != State::kTaken || !step_.is_training) {
    return absl::FailedPreconditionError(
        "a step was reported as skipped, but no training step is open");
  }
  if (has_ready_blocks_) {
    return absl::FailedPreconditionError(
        "the step cannot be skipped, because a block of its gradient was reported as ready and may "
        "have been sent. If steps may be skipped, report no block before the whole gradient is "
        "known");
  }
  EndStep(model::BatchResult{.is_skipped = true});
  return absl::OkStatus();
}

absl::Status StepHandoff::Finish(absl::StatusOr<model::BatchResult> result) {
  absl::MutexLock lock(&mutex_);
  if (state_ != State::kTaken) {
    return absl::FailedPreconditionError("a step was reported as done, but no step is open");
  }
  EndStep(std::move(result));
  return absl::OkStatus();
}

void StepHandoff::Leave() {
  absl::MutexLock lock(&mutex_);
  has_left_ = true;
}

}  // namespace lodestar::capi
