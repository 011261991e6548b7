// SPDX-License-Identifier: Apache-2.0

// ProgressRecorder writes what happens in a job, for operators and programs:
// - one JSON line per committed round,
// - progress lines in the log, at intervals,
// - a line in the log for each event and alarm,
// - scalars for TensorBoard.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/job_loss.h"
#include "common/runtime/clock.h"
#include "common/runtime/executor.h"
#include "server/coordinator/announcement.h"
#include "server/status/metrics_file.h"
#include "server/status/tensorboard_file.h"

namespace lodestar::status {

// Returns the JSON object
// {"round","train_loss","heldout_loss","heldout_accuracy","train_bits_per_byte",
// "heldout_bits_per_byte","samples","seconds","workers","compute_seconds",
// "communication_seconds","wait_seconds"}.
// Unknown values are null. `samples` and `seconds` are totals since the beginning of the job, over
// all restarts. The last three members are about this round only: means over its workers, measured
// with the workers' own clocks (RoundTimes). If programs have reported metrics, "metrics" is an
// object with these metrics by name.
std::string MetricsLine(const rounds::RoundSummary& summary, job::LossUnit unit);

// Returns a line such as "round 12/2000  loss 2.1000 nats  24.0 samples/s  2 workers", without the
// parts that are unknown.
std::string ProgressLine(const rounds::RoundSummary& summary, job::LossUnit unit,
                         double samples_per_second);

class ProgressRecorder {
 public:
  struct Config {
    std::string metrics_out = {};  // see MetricsFile; empty: no file
    // True means that another process may have metrics_out open. That process may be a suspended
    // server that has lost the leader lease. If it is resumed, it ends at once.
    bool may_share_metrics = false;
    std::string tensorboard_dir = {};  // see TensorBoardFile; empty: no files
    Clock* clock = &Clock::Real();
    job::LossUnit loss_unit = job::LossUnit::kNats;
    // Minimum time between lines of the log. Evaluations and the last round are always logged.
    absl::Duration log_interval = absl::Seconds(2);
    // The next two are called on a thread of the recorder. on_failure gets a sentence about
    // rounds that metrics_out lacks, or has twice, after a run was restored. on_writing gets the
    // name of a flag
    // (--metrics_out or --tensorboard_dir), and an error once its file cannot be written any more,
    // or OK once it can be written again.
    std::function<void(absl::string_view)> on_failure = [](absl::string_view) {};
    std::function<void(absl::string_view flag, const absl::Status&)> on_writing =
        [](absl::string_view, const absl::Status&) {};
    // Called from the writer's thread once a round's line is in metrics_out. The line then survives
    // the end of this process, but perhaps not a loss of power. Also called if no line is to be
    // written.
    std::function<void(const rounds::RoundSummary&)> on_recorded = [](const rounds::RoundSummary&) {
    };
  };

  // Opens metrics_out, and creates a file in tensorboard_dir. Errors: those of both.
  static absl::StatusOr<std::unique_ptr<ProgressRecorder>> Create(const Config& config);

  // Queues an announcement.
  void Note(coordinator::Announcement announcement);

 private:
  explicit ProgressRecorder(const Config& config);
  void Record(const rounds::RoundSummary& summary);
  void CutMetrics(const coordinator::RestoredPoint& point);
  void WriteMetrics(const rounds::RoundSummary& summary);
  void RestartTensorBoard(const coordinator::RestoredPoint& point);
  void ShowRound(const rounds::RoundSummary& summary);  // writes it for TensorBoard
  void WriteTensorBoard(absl::string_view record);

  const Config config_;
  // The members below are used by the writer's thread only.
  std::optional<MetricsFile> metrics_;
  int64_t num_lost_lines_ = 0;  // lines lost since the last line that was written
  std::optional<TensorBoardFile> tensorboard_;
  bool is_tensorboard_failing_ = false;
  // The time and samples of a line in the log.
  struct Mark {
    absl::Time time;
    int64_t samples = 0;  // samples of the job so far
  };
  std::optional<Mark> logged_;  // the last line
  Mark rate_begins_;            // begin of the time that the last line's rate covers
  ThreadPool writer_;
};

}  // namespace lodestar::status
