// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/runtime/time_text.h"

namespace lodestar::trainer {

namespace {

// Maximum pause between two rounds. If the pause is longer, the worker was cut off, and the
// measurement of its speed begins again.
constexpr absl::Duration kLongestGap = absl::Seconds(2);

}  // namespace

void Progress::Add(absl::Time now, const messages::RoundReport& report) {
  const absl::Time begin = now - report.compute - report.communication - report.wait;
  // A round number that is not higher than before means that the servers went back to a checkpoint,
  // or began another job.
  const bool goes_on = last_added_at_.has_value() && begin - *last_added_at_ <= kLongestGap &&
                       report.round > last_round_;
  if (!goes_on) {
    ClearWindow();
    window_start_ = begin;
    window_first_round_ = report.round;
  } else {
    // The last line may have been shown while this round ran. In that case the window also includes
    // the part of the round before that line.
    window_start_ = std::min(window_start_, begin);
  }
  last_added_at_ = now;
  window_samples_ += report.num_samples;
  window_exposed_ += report.communication;
  window_evaluation_ += report.evaluation;
  last_round_ = report.round;
}

std::string Progress::Tell(absl::Time now, const messages::Grant& grant) {
  const job::JobLoss& loss = grant.loss;
  const bool has_trained = loss.train.has_value() && loss.train_round != told_train_round_;
  const bool was_evaluated = loss.heldout.has_value() && loss.heldout_round != told_heldout_round_;
  const bool is_time =
      now - window_start_ >= config_.interval || grant.kind == messages::Grant::Kind::kDone;
  if (!was_evaluated && !(has_trained && is_time)) return "";

  const std::string line =
      absl::StrCat(job::JobLossText(loss, grant.total_rounds, config_.loss_unit),
                   SpeedText(now, grant.total_rounds));
  if (loss.train.has_value()) told_train_round_ = loss.train_round;
  if (loss.heldout.has_value()) told_heldout_round_ = loss.heldout_round;
  ClearWindow();
  window_start_ = now;
  window_first_round_ = last_round_ + 1;
  return line;
}

void Progress::ClearWindow() {
  window_samples_ = 0;
  window_exposed_ = absl::ZeroDuration();
  window_evaluation_ = absl::ZeroDuration();
}

std::string Progress::SpeedText(absl::Time now, int64_t total_rounds) const {
  if (window_samples_ == 0) return "";
  // Leaves out the time of evaluations, so that it changes neither the rate nor the time left.
  const double seconds = absl::ToDoubleSeconds(now - window_start_ - window_evaluation_);
  if (seconds <= 0.0) return "";
  const bool has_tokens = config_.tokens_per_sample > 1;
  std::string text = absl::StrFormat(
      "  %.0f %s/s  exposed %.0f %%",
      static_cast<double>(window_samples_ * config_.tokens_per_sample) / seconds,
      has_tokens ? "tokens" : "samples", 100.0 * absl::ToDoubleSeconds(window_exposed_) / seconds);
  const auto rounds = static_cast<double>(last_round_ - window_first_round_ + 1);
  const auto rounds_left = static_cast<double>(total_rounds - 1 - last_round_.value());
  const auto seconds_left = static_cast<int64_t>(rounds_left * seconds / rounds);
  if (seconds_left > 0) {
    absl::StrAppend(&text, "  ETA ", DurationText(absl::Seconds(seconds_left)));
  }
  return text;
}

}  // namespace lodestar::trainer
