// SPDX-License-Identifier: Apache-2.0

// Handles faults of the whole cluster. Passes wrong numbers, which workers sent or servers
// computed, to the FaultPolicy. Makes messages from the policy's verdicts, and returns what the
// coordinator has to do. Also carries out orders of operators that evict or readmit workers or roll
// the job back. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "common/params/model_spec.h"
#include "common/runtime/ids.h"
#include "server/coordinator/cluster_saves.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/faults/fault_policy.h"
#include "server/coordinator/outbox.h"
#include "server/coordinator/rounds/open_round.h"
#include "server/membership/membership_table.h"
#include "server/sync/worker_fault.h"

namespace lodestar::coordinator {

// What the coordinator has to do because of a fault or an order.
struct FaultVerdict {
  enum class Kind : uint8_t {
    kNothing,
    kDrop,     // the life of `worker` ends, for `reason`
    kShutOut,  // the lives of all workers that are shut out end, for `reason`
    kGoBack,   // all servers restore a checkpoint that is not marked as bad
    kEnd,      // the job is over; the error is state.ending.failure()
  };
  Kind kind = Kind::kNothing;
  WorkerId worker = {};
  std::string reason = {};
};

// Says why the losses in a report are impossible for a trainer. Empty means that they are possible.
std::string OddLoss(const messages::RoundReport& report, const params::ModelSpec& model);

class ClusterFaults {
 public:
  // The three objects must outlive this one.
  ClusterFaults(ClusterState* state, Outbox* outbox, ClusterSaves* saves)
      : state_(*state), outbox_(*outbox), saves_(*saves) {}

  // Checks that the worker may register. Errors: FailedPrecondition (the worker is shut out, or its
  // process has sent NaN or Inf too often).
  absl::Status CheckSound(const messages::RegisterCall& call) const;
  FaultVerdict OnWorkerFault(const sync::WorkerFault& fault, absl::Time now);
  FaultVerdict OnNotFinite(WorkerId worker, Round round, absl::string_view text, absl::Time now);
  // Raises an alarm if this worker and another one seem to train on the same samples.
  void LookForEqualLosses(WorkerId worker, const messages::RoundReport& report, absl::Time now);
  // Call if the weights of a shard are not finite after this round.
  FaultVerdict OnShardDiverged(int shard, Round round, absl::string_view text, absl::Time now);

  // Raises an alarm if a robust mean had contributions of too few workers or of too few
  // certificates.
  void LookForFewSenders(const rounds::OpenRound& round, int num_workers, absl::Time now);

  // See Coordinator.
  absl::StatusOr<FaultVerdict> Evict(absl::string_view name, absl::string_view reason,
                                     absl::Time now);
  absl::StatusOr<FaultVerdict> EvictCertificate(absl::string_view certificate,
                                                absl::string_view reason, absl::Time now);
  // Returns the name of the certificate of the worker `name`. If `name` is the name of a
  // certificate that some worker has, returns `name`. Errors: NotFound (no worker and no
  // certificate has this name); FailedPrecondition (the worker has no certificate).
  absl::StatusOr<std::string> CertificateOf(absl::string_view name) const;
  absl::Status Readmit(absl::string_view name, absl::Time now);
  absl::StatusOr<FaultVerdict> RollBack(Round round, absl::string_view why, absl::Time now);
  absl::Status CheckMayRollBack(Round round, absl::Time now) const;

 private:
  // Returns the number of certificates that these workers have. Each worker without a certificate
  // counts as one certificate.
  int NumCertificates(const std::vector<WorkerId>& workers) const;
  // Shuts the worker or the certificate `name` out. Restarts of the servers do not undo this.
  FaultVerdict ShutOutByOperator(std::string name, bool is_identity, absl::string_view reason,
                                 absl::Time now);
  // Counts a round for which a shard has reported the worker as kTooLong or kOpposed.
  FaultVerdict CountPoisoned(const sync::WorkerFault& fault, absl::Time now);
  // Shuts the worker out or raises an alarm, if the verdict says so. `text` says what the worker
  // sent.
  FaultVerdict Follow(const faults::SenderVerdict& verdict, WorkerId worker, absl::string_view text,
                      absl::Time now);
  // Returns all workers that have a connection in state.membership, also those whose lives have
  // ended.
  std::vector<faults::Sender> Senders() const;
  // Raises the alarm `what`. If the alarm is new, also writes `what` and the details `seen` to the
  // log.
  void Accuse(absl::string_view what, absl::string_view seen, absl::Time now);
  // Marks the checkpoints of `first_bad` or more rounds as bad. Then the job goes back to an
  // earlier checkpoint, or fails.
  FaultVerdict Diverge(Round round, Round first_bad, absl::string_view why, absl::Time now);

  ClusterState& state_;
  Outbox& outbox_;
  ClusterSaves& saves_;
};

}  // namespace lodestar::coordinator
