// What happens to the job, for files and people: one JSON line per committed round, a progress line
// in the log now and then, events as they come; scalars for TensorBoard.
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

// {"round","train_loss","heldout_loss","heldout_accuracy","train_bits_per_byte",
// "heldout_bits_per_byte","samples","seconds","workers","compute_seconds",
// "communication_seconds","wait_seconds"}: null where there is none; samples and seconds are the
// job's so far, over all lives of its servers; the last three are of this round alone, means over
// its workers, by their own clocks (RoundTimes). And "metrics", an object of numbers by name, if
// programs have told any.
std::string MetricsLine(const RoundSummary& summary, LossUnit unit);

// "round 12/2000  loss 2.1000 nats  24.0 samples/s  2 workers", without what is unknown.
std::string ProgressLine(const RoundSummary& summary, LossUnit unit, double samples_per_second);

class ProgressRecorder {
 public:
  struct Config {
    std::string metrics_out = {};  // see MetricsFile; empty: none
    // Lets metrics_out be a file that another process has open. That one may be a server that has
    // lost the leader lease and is frozen: it ends at once if it goes on.
    bool may_share_metrics = false;
    std::string tensorboard_dir = {};  // see TensorBoardFile; empty: none
    Clock* clock = &Clock::Real();
    LossUnit loss_unit = LossUnit::kNats;
    // The log gets evaluations, the last round, and besides at most one line per this time.
    absl::Duration log_interval = absl::Seconds(2);
    // Told, on a thread of the recorder, when either cannot be written any more.
    std::function<void(absl::string_view)> on_failure = [](absl::string_view) {};
    // Called from the writer's thread once a round's line is in metrics_out, where it outlives this
    // process, if not a loss of power. Called, too, if no line is to be written.
    std::function<void(const RoundSummary&)> on_recorded = [](const RoundSummary&) {};
  };

  // Errors: those of opening metrics_out and of making a file in tensorboard_dir.
  static absl::StatusOr<std::unique_ptr<ProgressRecorder>> Create(const Config& config);

  // Only queues.
  void Note(Announcement announcement);

 private:
  explicit ProgressRecorder(const Config& config);
  void Record(const RoundSummary& summary);
  void CutMetrics(const RestoredPoint& point);
  void WriteMetrics(const RoundSummary& summary);
  void RestartTensorBoard(const RestoredPoint& point);
  void ShowRound(const RoundSummary& summary);  // in TensorBoard
  void WriteTensorBoard(absl::string_view record);

  const Config config_;
  // These are used by the writer's thread only.
  std::optional<MetricsFile> metrics_;
  int64_t num_lost_lines_ = 0;  // since the last one that was written
  std::optional<TensorBoardFile> tensorboard_;
  bool is_tensorboard_failing_ = false;
  // What a line of the log has told.
  struct Mark {
    absl::Time time;
    int64_t samples = 0;  // of the job
  };
  std::optional<Mark> logged_;  // the last one
  Mark rate_begins_;            // from when on its rate is
  ThreadPool writer_;
};

}  // namespace lodestar::status
