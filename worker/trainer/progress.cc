#include "worker/trainer/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lodestar {

std::string Progress::Add(absl::Time now, const RoundReport& report, int64_t total_rounds) {
  if (window_start_ == absl::InfinitePast()) {
    window_start_ = now - report.compute - report.communication - report.wait;
    window_first_round_ = report.round;
  }
  window_samples_ += report.num_samples;
  window_loss_sum_ += report.loss_sum;
  window_predictions_ += report.num_predictions;
  window_waiting_ += report.wait + report.communication;
  window_evaluation_ += report.evaluation;
  if (now - window_start_ < interval_ && report.heldout_predictions == 0) return "";

  std::string line = Line(now, report, total_rounds);
  window_start_ = now;
  window_samples_ = 0;
  window_loss_sum_ = 0.0;
  window_predictions_ = 0;
  window_waiting_ = absl::ZeroDuration();
  window_evaluation_ = absl::ZeroDuration();
  window_first_round_ = report.round + 1;
  return line;
}

std::string Progress::Line(absl::Time now, const RoundReport& report, int64_t total_rounds) const {
  // Evaluating is not training: it must not move the rate, nor the time that seems to be left.
  const double seconds = absl::ToDoubleSeconds(now - window_start_ - window_evaluation_);
  const double rounds = static_cast<double>(report.round - window_first_round_ + 1);
  std::string line = absl::StrFormat(
      "round %d/%d", std::min(report.round.value() + 1, total_rounds), total_rounds);
  if (window_predictions_ > 0) {
    absl::StrAppendFormat(&line, "  loss %.4f", window_loss_sum_ / window_predictions_);
  }
  if (report.heldout_predictions > 0) {
    absl::StrAppendFormat(&line, "  held-out %.4f",
                          report.heldout_loss_sum / report.heldout_predictions);
  }
  if (seconds > 0.0 && window_samples_ > 0) {
    absl::StrAppendFormat(&line, "  %.0f %s/s  waiting %.0f %%",
                          window_samples_ * tokens_per_sample_ / seconds,
                          tokens_per_sample_ > 1 ? "tokens" : "samples",
                          100.0 * absl::ToDoubleSeconds(window_waiting_) / seconds);
    const double seconds_left = (total_rounds - 1 - report.round.value()) * seconds / rounds;
    absl::StrAppend(
        &line, "  ETA ",
        absl::FormatDuration(absl::Seconds(static_cast<int64_t>(std::max(0.0, seconds_left)))));
  }
  return line;
}

}  // namespace lodestar
