// The last checkpoint, at the end of the job or before servers stop: which try comes when, where,
// and how it ends. Pure; the coordinator carries the tries out.
//
//   idle --Begin--> pausing --(time)--> [a try] --OnFailed--> pausing ... --no try left--> over
//                                          \------- End ----------------------------------^
//
// A lap of tries: kTries in the checkpoint folder with growing pauses, then one in the fallback.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/coordinator/checkpoints/checkpoint_record.h"

namespace lodestar {

class LastSave {
 public:
  using Outcome = absl::StatusOr<PublishedCheckpoint>;
  enum class Place : uint8_t { kFolder, kFallback };

  static constexpr int kTries = 3;
  static constexpr absl::Duration kFirstPause = absl::Seconds(1);  // 4 times as long each time
  static constexpr absl::Duration kLongestPause = absl::Minutes(1);

  explicit LastSave(bool has_fallback) : has_fallback_(has_fallback) {}

  // `gives_up` means that a process waits to exit, so one lap from now on must do. Without it, lap
  // follows lap. Begins anew if an earlier last save has ended with an error.
  void Begin(bool gives_up, absl::Time now);
  bool is_begun() const { return is_begun_; }
  bool is_under_way() const { return is_begun_ && !outcome_.has_value(); }

  // Returns where to try now. Not set while pausing, or once over.
  std::optional<Place> Due(absl::Time now) const;
  // A try has failed; the last one of the last lap ends it.
  void OnFailed(const absl::Status& error, absl::Time now);
  void End(const Outcome& outcome) { outcome_ = outcome; }

  // Not set before it is over.
  const std::optional<Outcome>& outcome() const { return outcome_; }
  // After OnFailed() these say why, and when the next try is due.
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

}  // namespace lodestar
