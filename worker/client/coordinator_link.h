// CoordinatorLink is a worker's connection to the coordinator: registration, heartbeats, grants,
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
#include "common/messages/cluster_messages.h"

namespace lodestar::client {

class CoordinatorLink {
 public:
  // All functions are called on the heartbeat thread.
  struct HeartbeatCalls {
    // True if StayConnected is called as well, so that the servers may end this life before its
    // lease if the process ends.
    bool stays_connected = true;
    // Returns what the worker tells with each heartbeat; the link fills in the life.
    std::function<HeartbeatCall()> activity;
    // Called after each heartbeat with the reason why the cluster does not go on, or with an empty
    // text if it does.
    std::function<void(const std::string& reason)> on_waiting = [](const std::string&) {};
    // Called after each heartbeat that was not answered, with the reason. The next one may be.
    std::function<void(const absl::Status&)> on_unanswered = [](const absl::Status&) {};
    // Called if servers are at other addresses than those of the version that `activity` has told.
    std::function<void(const ServerAddresses&)> on_moved = [](const ServerAddresses&) {};
    // Called once, if the coordinator refuses this life (Aborted) or this worker
    // (PermissionDenied).
    std::function<void(const absl::Status&)> on_lost;
  };

  virtual ~CoordinatorLink() = default;

  // Tries to begin a life. `offered` has the tensors of a program of its own. If it is not set, the
  // worker takes the job's model. Errors: as in proto/cluster_service.proto; Unavailable if no
  // server answers.
  virtual absl::StatusOr<Registration> Register(const std::optional<OfferedLayout>& offered,
                                                const ProcessHistory& process) = 0;
  // Makes the worker a member. Errors: FailedPrecondition if layout or data differ from the job's.
  virtual absl::Status Join(const std::string& layout_hash, const DatasetInfo& dataset) = 0;
  // Asks for the next grant while the contribution of `report` is on its way. NextGrant() with a
  // report of the same round returns that grant. The question may come to nothing. Does not wait
  // for servers. May be called between Register() and the end of that life.
  virtual void AskAhead(const RoundReport& report) = 0;
  // Blocks until there is a grant or the coordinator says what is waited for (kWait). `leaving`
  // means that no new work is wanted, now or later. Then this returns at once: with the grant that
  // this worker has been given already, known to it or not, or with kDone. Errors: Aborted if this
  // life is over, and the worker is to register again; Cancelled after Cancel().
  virtual absl::StatusOr<Grant> NextGrant(const std::optional<RoundReport>& report,
                                          bool leaving) = 0;
  // Tries to tell the coordinator that this worker leaves. Returns within a timeout of its own
  // whatever happens. Returns OK for a worker that has never registered, as it has nothing to
  // leave.
  virtual absl::Status Leave(const std::string& reason,
                             const std::optional<RoundReport>& report) = 0;

  // Renews the lease every `interval` until StopHeartbeats(), or until this life is refused. If the
  // coordinator cannot be reached, tries again.
  virtual void StartHeartbeats(absl::Duration interval, HeartbeatCalls calls) = 0;
  virtual void StopHeartbeats() = 0;

  // Ends the calls in progress, and makes later ones fail with Cancelled until Rearm(). This does
  // not apply to Leave() and heartbeats.
  virtual void Cancel() = 0;
  virtual void Rearm() = 0;
};

}  // namespace lodestar::client
