// SPDX-License-Identifier: Apache-2.0

// Curves and events of a run, and the file that keeps them when the server ends: an SQLite database
// beside the checkpoints.
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

namespace lodestar::history {

inline constexpr char kHistoryFileName[] = "history.sqlite";  // in --checkpoint_dir

// A range of consecutive trained rounds.
struct HistoryPoint {
  Round first_round;
  Round last_round;
  int64_t samples = 0;      // samples of the job up to the end of these rounds
  double seconds = 0.0;     // seconds of training up to the end of these rounds
  double train_loss = 0.0;  // nats per prediction: mean over those rounds that have a loss
  int64_t num_losses = 0;
  double learning_rate = 0.0;  // rate of the last of these rounds; 0 means not known
  friend bool operator==(const HistoryPoint&, const HistoryPoint&) = default;
};

struct HeldoutPoint {
  Round round;          // number of updates in the weights
  int64_t samples = 0;  // samples of the job up to this point
  double seconds = 0.0;
  double loss = 0.0;  // nats per prediction
  friend bool operator==(const HeldoutPoint&, const HeldoutPoint&) = default;
};

struct HistoryEvent {
  absl::Time time;  // rounded to microseconds in the file
  bool is_alarm = false;
  std::string text;
  friend bool operator==(const HistoryEvent&, const HistoryEvent&) = default;
};

struct RunHistory {
  std::vector<HistoryPoint> trained;
  std::vector<HeldoutPoint> heldout;
  std::vector<HistoryEvent> events;  // the newest event is the last
  // Number of rounds that each new point of the curve `trained` stands for.
  int64_t rounds_per_point = 1;
  // 1 means that samples are not made of tokens. 0 means that this is not known.
  int64_t tokens_per_sample = 0;
  // Unit in which losses are shown; nullopt means that it is not known.
  std::optional<job::LossUnit> loss_unit = {};
  // Settings that have an effect, with the model first. Empty means that they are not known.
  std::vector<job::JobSetting> settings = {};
  friend bool operator==(const RunHistory&, const RunHistory&) = default;
};

// Returns one line:
//   {"rounds_per_point", "tokens_per_sample",
//   "loss_unit": "bits/byte" or "nats"; null means that it is not known,
//   "settings": {flag: value},
//   "trained": {"round", "samples", "seconds", "loss", "learning_rate"},
//   "heldout": {"round", "samples", "seconds", "loss"},
//   "events": [{"time" (seconds since 1970), "alarm", "text"}]}
// Each column of "trained" and "heldout" is an array. Losses are in nats. null means that a loss or
// a learning rate is not known.
std::string HistoryJson(const RunHistory& history);
// Returns one element of "events" as one line.
std::string EventJson(const HistoryEvent& event);

// Replaces the content of the file, or creates the file. Errors: Unimplemented (the file is of a
// later release); DataLoss (it is damaged or not ours); ResourceExhausted (the disk is full);
// Unavailable (another process writes it); those of common/runtime/file_io.h; else Unknown. Each
// error names the path.
absl::Status WriteHistory(const std::string& path, const RunHistory& history);

// Reads the file within seconds, whatever it holds. Errors: NotFound; FailedPrecondition (not a
// regular file); those of WriteHistory().
absl::StatusOr<RunHistory> ReadHistory(const std::string& path);

// Returns true if a file with this beginning may be a history. `beginning` has kHistoryHeaderBytes,
// or the whole file if it is shorter. An empty file counts as an empty history.
inline constexpr size_t kHistoryHeaderBytes = 100;
bool MayBeHistory(absl::string_view beginning);

// Reads a history like ReadHistory(), from the bytes of a file. `path` is used in errors. Errors:
// Unimplemented (of a later release); DataLoss (damaged or not ours).
absl::StatusOr<RunHistory> ParseHistory(absl::string_view image, const std::string& path);

}  // namespace lodestar::history
