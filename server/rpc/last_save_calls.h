// SPDX-License-Identifier: Apache-2.0

// LastSaveCalls decides how a server that is being stopped asks the coordinator for the last
// checkpoint. It repeats the call until an answer counts. It does no I/O: its owner makes the calls
// and passes the time.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/checkpoint_task.h"

namespace lodestar::rpc {

class LastSaveCalls {
 public:
  using Outcome = absl::StatusOr<checkpoints::PublishedCheckpoint>;

  // Maximum length of one call. A connection can lose a call without breaking, so the server then
  // asks again. The coordinator continues the save that it has begun.
  static constexpr absl::Duration kLongestCall = absl::Seconds(10);
  // Pause between two attempts.
  static constexpr absl::Duration kPause = absl::Milliseconds(50);

  struct Call {
    absl::Duration patience;  // how long the coordinator may work on the save
    absl::Duration deadline;  // deadline of this call
  };

  explicit LastSaveCalls(absl::Duration patience, absl::Time now,
                         absl::Duration longest_call = kLongestCall);

  // Returns the next call. `server_incarnation` is the incarnation that this server has loaded. 0
  // means that it has loaded nothing yet.
  Call Next(uint64_t server_incarnation, absl::Time now);

  // Must be called with the answer to a call. Returns the outcome of the save. If the result is not
  // set, the caller makes the next call after kPause. An answer counts only if this server still
  // has the incarnation of the servers in which it made the call. Errors:
  // - DataLoss: no answer that counts has come in time
  // - those of the coordinator
  std::optional<Outcome> OnAnswer(const Outcome& answer, uint64_t server_incarnation,
                                  absl::Time now);
  // Must be called instead of OnAnswer() if there is no connection. `connection` says why: Aborted
  // means that the coordinator has given up this server. The result is as in OnAnswer(), except in
  // these cases, in which it is `connection`:
  // - at once after Aborted
  // - at once if this server has loaded nothing, and so has nothing to save
  // - after the patience if no call could be made
  std::optional<Outcome> OnDisconnected(const absl::Status& connection, uint64_t server_incarnation,
                                        absl::Time now) const;

 private:
  Outcome NotAnswered(absl::string_view last) const;

  const absl::Duration patience_;
  const absl::Time until_;
  const absl::Duration longest_call_;
  std::optional<Call> call_;  // the last call
  absl::Time called_at_;
  uint64_t called_in_ = 0;  // incarnation of the servers at that call
};

}  // namespace lodestar::rpc
