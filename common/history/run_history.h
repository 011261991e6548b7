// Curves and events of a run, and the file in which they outlive the server that has seen them: an
// SQLite database, next to the checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/job_loss.h"
#include "common/job/job_settings.h"
#include "common/runtime/ids.h"

namespace lodestar {

inline constexpr char kHistoryFileName[] = "history.sqlite";  // in --checkpoint_dir

// Consecutive rounds that were trained.
struct HistoryPoint {
  Round first_round;
  Round last_round;
  int64_t samples = 0;      // of the job, after them
  double seconds = 0.0;     // of training, after them
  double train_loss = 0.0;  // nats per prediction: the mean of those rounds that have one
  int64_t num_losses = 0;
  double learning_rate = 0.0;  // of the last of those rounds; 0 means that it is not known
  friend bool operator==(const HistoryPoint&, const HistoryPoint&) = default;
};

struct HeldoutPoint {
  Round round;          // updates in the weights
  int64_t samples = 0;  // of the job until then
  double seconds = 0.0;
  double loss = 0.0;  // nats per prediction
  friend bool operator==(const HeldoutPoint&, const HeldoutPoint&) = default;
};

struct HistoryEvent {
  absl::Time time;  // to the microsecond in the file
  bool is_alarm = false;
  std::string text;
  friend bool operator==(const HistoryEvent&, const HistoryEvent&) = default;
};

struct RunHistory {
  std::vector<HistoryPoint> trained;
  std::vector<HeldoutPoint> heldout;
  std::vector<HistoryEvent> events;  // the newest last
  int64_t rounds_per_point = 1;      // of those that are added
  // 1 means that samples are not made of tokens. 0 means that this is not known.
  int64_t tokens_per_sample = 0;
  std::optional<LossUnit> loss_unit = {};  // that people read losses in; absent: that is not known
  // Settings that have an effect; the model comes first. Empty means that they are not known.
  std::vector<JobSetting> settings = {};
  friend bool operator==(const RunHistory&, const RunHistory&) = default;
};

// One line: {"rounds_per_point", "tokens_per_sample", "loss_unit" ("bits/byte" or "nats"; null if
// it is not known), "settings": {flag: value}, "trained": {"round", "samples", "seconds", "loss",
// "learning_rate"}, "heldout": {"round", "samples", "seconds", "loss"}, "events": [{"time" (seconds
// since 1970), "alarm", "text"}]}. A curve is one array per column, with losses in nats; a loss or
// learning rate that is not known is null.
std::string HistoryJson(const RunHistory& history);
// One of its events, in one line.
std::string EventJson(const HistoryEvent& event);

// Replaces what the file has; makes it if there is none. Errors: Unimplemented if the file is of a
// later release, DataLoss if it is damaged or none of ours, ResourceExhausted for a full disk,
// Unavailable while another process writes it, those of common/runtime/file_io.h, else Unknown;
// each with the path.
absl::Status WriteHistory(const std::string& path, const RunHistory& history);

// Ends within seconds, whatever the file holds. Errors: NotFound; FailedPrecondition if it is no
// regular file; those of WriteHistory().
absl::StatusOr<RunHistory> ReadHistory(const std::string& path);

// Whether a file may be a history by how it begins: kHistoryHeaderBytes of it, or all that it has.
// An empty one may become one.
inline constexpr size_t kHistoryHeaderBytes = 100;
bool MayBeHistory(absl::string_view beginning);

// The same as ReadHistory() of a file's bytes; `path` is for texts. Errors: Unimplemented
// if they are of a later release, DataLoss if they are damaged or none of ours.
absl::StatusOr<RunHistory> ParseHistory(absl::string_view image, const std::string& path);

}  // namespace lodestar
