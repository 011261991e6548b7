// SPDX-License-Identifier: Apache-2.0

// CoordinatorLink is a worker's connection to the coordinator: registration, heartbeats, grants,
// leaving. One object lives as long as the process, over all lives (incarnations).
// cluster_session.h has the gRPC implementation, and tests of the trainer use a fake.
//
// Thread-safety: heartbeats run on a thread of the link. Cancel() and Rearm() may be called from
// any thread. All other methods must be called by one thread.
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
  // Callbacks on the heartbeat thread.
  struct HeartbeatCalls {
    // True if the link also makes a StayConnected call. Servers then notice the end of this
    // process, and may end its life before the lease runs out.
    bool stays_connected = true;
    // Returns what the worker reports with each heartbeat. The link sets the life in it.
    std::function<messages::HeartbeatCall()> activity;
    // Called after each heartbeat with the reason why the cluster waits. An empty text means that
    // it does not wait.
    std::function<void(const std::string& reason)> on_waiting = [](const std::string&) {};
    // Called after each heartbeat whose answer lists the living workers.
    std::function<void(const messages::LiveWorkers&)> on_live_workers =
        [](const messages::LiveWorkers&) {};
    // Called after each heartbeat that got no answer, with the error. The link continues to send
    // heartbeats.
    std::function<void(const absl::Status&)> on_unanswered = [](const absl::Status&) {};
    // Called if the answer to a heartbeat has server addresses that this worker does not have yet.
    std::function<void(const messages::ServerAddresses&)> on_moved =
        [](const messages::ServerAddresses&) {};
    // Called once if the coordinator refuses this life (Aborted) or this worker (PermissionDenied).
    std::function<void(const absl::Status&)> on_lost;
  };

  virtual ~CoordinatorLink() = default;

  // Tries to begin a life. If the worker's program has its own model, `offered` has the tensors of
  // that model. Otherwise it is not set, and the worker uses the job's model. Errors: see
  // proto/cluster_service.proto; Unavailable if no server answers.
  virtual absl::StatusOr<messages::Registration> Register(
      const std::optional<messages::OfferedLayout>& offered,
      const messages::ProcessHistory& process) = 0;
  // Makes the worker a member. Errors: FailedPrecondition if its layout or data differ from the
  // job's.
  virtual absl::Status Join(const std::string& layout_hash,
                            const messages::DatasetInfo& dataset) = 0;
  // Asks for the next grant early, while the servers still receive the contribution of `report`.
  // NextGrant() with a report of the same round then returns that grant. If the early request
  // fails, NextGrant() asks again. Does not wait for servers. May be called between Register() and
  // the end of that life.
  virtual void AskAhead(const messages::RoundReport& report) = 0;
  // Blocks until there is a grant, or until the coordinator says what it waits for (kWait).
  // `leaving` means that the worker wants no new work. In this case the method returns at once:
  // with a grant that the coordinator has already given to this worker, or else with kDone.
  // `without_samples` is GrantRequest.without_samples. Errors: Aborted if this life is over and the
  // worker must register again; Cancelled after Cancel().
  virtual absl::StatusOr<messages::Grant> NextGrant(
      const std::optional<messages::RoundReport>& report, bool leaving, bool without_samples) = 0;
  // Asks for more samples for the contribution to `held`, the grant that this worker has. Returns a
  // grant of the same round with other samples. A coordinator of an earlier release returns `held`.
  // Errors: those of NextGrant(); see GrantRequest.extends_round.
  virtual absl::StatusOr<messages::Grant> ExtendGrant(const messages::Grant& held) = 0;
  // Tries to tell the coordinator that this worker leaves. Always returns within its own timeout.
  // Returns OK if the worker has never registered.
  virtual absl::Status Leave(const std::string& reason,
                             const std::optional<messages::RoundReport>& report) = 0;

  // Renews the lease every `interval` until StopHeartbeats(), or until this life is refused. If the
  // coordinator cannot be reached, the link continues to try.
  virtual void StartHeartbeats(absl::Duration interval, HeartbeatCalls calls) = 0;
  virtual void StopHeartbeats() = 0;

  // Ends the present calls, and makes later ones fail with Cancelled until Rearm(). Leave() and
  // heartbeats are not affected.
  virtual void Cancel() = 0;
  virtual void Rearm() = 0;
};

}  // namespace lodestar::client
