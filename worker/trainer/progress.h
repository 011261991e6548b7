// The worker's progress line says the job's losses as the server tells them, and how fast this
// worker is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/job/job_loss.h"
#include "common/messages/cluster_messages.h"

namespace lodestar::trainer {

// Says now and then how training goes. Not thread-safe; time is passed in.
class Progress {
 public:
  struct Config {
    int64_t tokens_per_sample = 1;  // If it is above 1, throughput is told in tokens/s.
    LossUnit loss_unit = LossUnit::kNats;
    // The time between lines. News of an evaluation does not wait for it.
    absl::Duration interval = absl::Seconds(2);
  };

  explicit Progress(const Config& config) : config_(config) {}

  // Takes in what a round took this worker.
  void Add(absl::Time now, const RoundReport& report);
  // Takes in what the server tells with a grant; returns the line to show, or an empty string.
  std::string Tell(absl::Time now, const Grant& grant);

 private:
  void ClearWindow();
  // Returns a text such as "  4740 tokens/s  exposed 32 %  ETA 1s" for the time since the last
  // line. It is empty without a round.
  std::string SpeedText(absl::Time now, int64_t total_rounds) const;

  const Config config_;
  std::optional<Round> told_train_round_;
  std::optional<Round> told_heldout_round_;
  // Since the last line.
  absl::Time window_start_ = absl::InfinitePast();
  int64_t window_samples_ = 0;
  absl::Duration window_exposed_;
  absl::Duration window_evaluation_;
  Round window_first_round_;
  Round last_round_;
  std::optional<absl::Time> last_added_at_;
};

}  // namespace lodestar::trainer
