// CoordinatorLink: a worker's conversation with the coordinator: registration, heartbeats, grants,
// leaving. One object lives as long as the process and goes through many lives (incarnations). The
// gRPC implementation is cluster_session.h; tests of the trainer use a fake.
//
// Thread-safety: heartbeats run on a thread of the link; Cancel() and Rearm() may be called from
// any thread; everything else is called by one thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/cluster_messages.h"

namespace lodestar {

class CoordinatorLink {
 public:
  // All called on the heartbeat thread.
  struct HeartbeatCalls {
    // Whether StayConnected is called, too, so that the servers may end this life before its lease
    // if the process ends.
    bool stays_connected = true;
    // What the worker tells with each heartbeat; its life is filled in.
    std::function<HeartbeatCall()> activity;
    // After each heartbeat: why the cluster does not go on; empty if it does.
    std::function<void(const std::string& reason)> on_waiting = [](const std::string&) {};
    // After each that was not answered, and why; the next may be.
    std::function<void(const absl::Status&)> on_unanswered = [](const absl::Status&) {};
    // Servers are at other addresses than those of the version that `activity` has told.
    std::function<void(const ServerAddresses&)> on_moved = [](const ServerAddresses&) {};
    // Once, if the coordinator refuses this life (Aborted) or this worker (PermissionDenied).
    std::function<void(const absl::Status&)> on_lost;
  };

  virtual ~CoordinatorLink() = default;

  // One attempt to begin a life. `offered`: the tensors of a program of its own; none: the worker
  // takes the job's model. Errors: as in proto/cluster_service.proto; Unavailable if nobody
  // answers.
  virtual absl::StatusOr<Registration> Register(const std::optional<OfferedLayout>& offered,
                                                const ProcessHistory& process) = 0;
  // Makes the worker a member. Errors: FailedPrecondition if layout or data differ from the job's.
  virtual absl::Status Join(const std::string& layout_hash, const DatasetInfo& dataset) = 0;
  // The contribution that `report` is of is on its way: asks for the next grant beside it, which
  // NextGrant() with a report of the same round returns. What it asks may come to nothing. Does not
  // wait for servers. Between Register() and the end of that life.
  virtual void AskAhead(const RoundReport& report) = 0;
  // Blocks until there is a grant or the coordinator says what is waited for (kWait). `leaving`: no
  // new work is wanted, now or later: returns at once, with the grant that this worker has been
  // given already, known to it or not, or kDone. Errors: Aborted: this life is over, register
  // again; Cancelled after Cancel().
  virtual absl::StatusOr<Grant> NextGrant(const std::optional<RoundReport>& report,
                                          bool leaving) = 0;
  // Best effort: returns within a timeout of its own whatever happens. A worker that has never
  // registered has nothing to leave: OK.
  virtual absl::Status Leave(const std::string& reason,
                             const std::optional<RoundReport>& report) = 0;

  // Renews the lease every `interval` until StopHeartbeats(), or until this life is refused. An
  // unreachable coordinator is tried again.
  virtual void StartHeartbeats(absl::Duration interval, HeartbeatCalls calls) = 0;
  virtual void StopHeartbeats() = 0;

  // Ends the calls in progress, and makes later ones fail with Cancelled until Rearm(); Leave() and
  // heartbeats excepted.
  virtual void Cancel() = 0;
  virtual void Rearm() = 0;
};

}  // namespace lodestar
