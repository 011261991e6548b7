// SPDX-License-Identifier: Apache-2.0

// Makes the worker's progress line: the job's losses, as the server reports them, and the speed of
// this worker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/job/job_loss.h"
#include "common/messages/cluster_messages.h"

namespace lodestar::trainer {

// Makes a progress line from time to time. Not thread-safe. The caller passes the time in.
class Progress {
 public:
  struct Config {
    // Tokens per sample. If it is above 1, throughput is given in tokens/s.
    int64_t tokens_per_sample = 1;
    job::LossUnit loss_unit = job::LossUnit::kNats;
    // The shortest time between two lines. A line about an evaluation is shown without delay.
    absl::Duration interval = absl::Seconds(2);
  };

  explicit Progress(const Config& config) : config_(config) {}

  // Must be called with the report of each round that this worker has completed.
  void Add(absl::Time now, const messages::RoundReport& report);
  // Must be called with each grant, which has the job's losses. Returns the line to show, or an
  // empty string if no line is due.
  std::string Tell(absl::Time now, const messages::Grant& grant);

 private:
  void ClearWindow();
  // Returns the speed since the last line, such as " 4740 tokens/s exposed 32 % ETA 1s". Empty if
  // no round has ended since the last line.
  std::string SpeedText(absl::Time now, int64_t total_rounds) const;

  const Config config_;
  std::optional<Round> told_train_round_;
  std::optional<Round> told_heldout_round_;
  // The members window_... describe the time since the last line.
  absl::Time window_start_ = absl::InfinitePast();
  int64_t window_samples_ = 0;
  absl::Duration window_exposed_;
  absl::Duration window_evaluation_;
  Round window_first_round_;
  Round last_round_;
  std::optional<absl::Time> last_added_at_;
};

}  // namespace lodestar::trainer
