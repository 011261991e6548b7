// SPDX-License-Identifier: Apache-2.0

// LastSave plans the tries to write the last checkpoint, at the end of the job or before servers
// stop: when and where each try is made, and when the last save is over. Pure; the coordinator
// carries out the tries.
//
//   idle --Begin--> pausing --(time)--> [a try] --OnFailed--> pausing ... --no try left--> over
//                                          \------- End ----------------------------------^
//
// A lap is a sequence of tries: kTries in the checkpoint folder with growing pauses, then one in
// the fallback folder, if there is one.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/coordinator/checkpoints/checkpoint_record.h"

namespace lodestar::checkpoints {

class LastSave {
 public:
  using Outcome = absl::StatusOr<PublishedCheckpoint>;
  enum class Place : uint8_t { kFolder, kFallback };

  static constexpr int kTries = 3;
  static constexpr absl::Duration kFirstPause =
      absl::Seconds(1);  // each further pause is 4 times as long
  static constexpr absl::Duration kLongestPause = absl::Minutes(1);

  explicit LastSave(bool has_fallback) : has_fallback_(has_fallback) {}

  // Begins the tries. `gives_up` says when the last save ends:
  // - True: After one lap, because a process waits to exit.
  // - False: When a try succeeds. Until then, laps follow each other.
  // If an earlier last save has ended with an error, the tries begin again.
  void Begin(bool gives_up, absl::Time now);
  bool is_begun() const { return is_begun_; }
  bool is_under_way() const { return is_begun_ && !outcome_.has_value(); }

  // Returns where to try now. Not set means that a pause is not over, or that the last save has not
  // begun or is over.
  std::optional<Place> Due(absl::Time now) const;
  // Records that a try has failed. If Begin() was called with `gives_up` and this was the last try
  // of the lap, the last save ends with `error`.
  void OnFailed(const absl::Status& error, absl::Time now);
  void End(const Outcome& outcome) { outcome_ = outcome; }

  // Returns how the last save ended. Not set means that it has not ended.
  const std::optional<Outcome>& outcome() const { return outcome_; }
  // Return the error of the last failed try, and when the next try is due. Valid after OnFailed().
  const absl::Status& error() const { return error_; }
  absl::Time next_try() const { return next_try_; }

 private:
  int TriesPerLap() const { return kTries + (has_fallback_ ? 1 : 0); }

  bool has_fallback_;
  bool is_begun_ = false;
  bool gives_up_ = false;
  int failures_ = 0;
  absl::Time next_try_;
  absl::Status error_;
  std::optional<Outcome> outcome_;
};

}  // namespace lodestar::checkpoints
