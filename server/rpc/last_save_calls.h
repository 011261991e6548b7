// LastSaveCalls: how a server that was told to stop asks the coordinator for the last checkpoint,
// by call after call until an answer counts. Pure: its owner makes the calls and tells the time.
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
  using Outcome = absl::StatusOr<PublishedCheckpoint>;

  // A connection can swallow a call and stay. A server that has waited for that long asks once
  // more, and the coordinator goes on with what it has begun.
  static constexpr absl::Duration kLongestCall = absl::Seconds(10);
  // Between two attempts.
  static constexpr absl::Duration kPause = absl::Milliseconds(50);

  struct Call {
    absl::Duration patience;  // for how long the coordinator may work on it
    absl::Duration deadline;  // of this call
  };

  explicit LastSaveCalls(absl::Duration patience, absl::Time now,
                         absl::Duration longest_call = kLongestCall);

  // Returns the next call. `server_incarnation` is that of what this server has loaded. 0 means
  // that it has loaded nothing yet.
  Call Next(uint64_t server_incarnation, absl::Time now);

  // Returns what has become of the save. If it is not set, another attempt is due, after a pause.
  // What the coordinator says holds for the life of the servers in which it was asked. An answer
  // that was kept on its way while this server has loaded again says nothing of what was counted
  // since. Errors: those of the coordinator; DataLoss if none has come in time.
  std::optional<Outcome> OnAnswer(const Outcome& answer, uint64_t server_incarnation,
                                  absl::Time now);
  // There is no connection to call on, for the reason given; Aborted: the coordinator has let go of
  // this server. Who has loaded nothing has nothing to wait for.
  std::optional<Outcome> OnDisconnected(const absl::Status& connection, uint64_t server_incarnation,
                                        absl::Time now) const;

 private:
  Outcome NotAnswered(absl::string_view last) const;

  const absl::Duration patience_;
  const absl::Time until_;
  const absl::Duration longest_call_;
  std::optional<Call> call_;  // the last one
  absl::Time called_at_;
  uint64_t called_in_ = 0;  // life of the servers
};

}  // namespace lodestar::rpc
