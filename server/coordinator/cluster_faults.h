// Faults of a whole cluster: tells the FaultPolicy what was sent, reported or computed and cannot
// be right, words its verdicts, and says what the coordinator is to do. Orders of operators about
// faults are here as well: they shut workers out, let them in again, and send the job back. Pure.
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

namespace lodestar {

// What follows, at once.
struct FaultVerdict {
  enum class Kind : uint8_t {
    kNothing,
    kDrop,     // the worker's life ends, for the reason
    kShutOut,  // the lives of all that are shut out end, for the reason
    kGoBack,   // all is restored from what was not set aside
    kEnd,      // the job is over: state.ending.failure()
  };
  Kind kind = Kind::kNothing;
  WorkerId worker = {};
  std::string reason = {};
};

// Says why the losses of a report are none that a trainer can have. Empty means that a trainer can
// have them.
std::string OddLoss(const RoundReport& report, const ModelSpec& model);

class ClusterFaults {
 public:
  // All outlive this.
  ClusterFaults(ClusterState* state, Outbox* outbox, ClusterSaves* saves)
      : state_(*state), outbox_(*outbox), saves_(*saves) {}

  // Errors: FailedPrecondition (it is shut out, or was sick too often).
  absl::Status CheckSound(const RegisterCall& call) const;
  FaultVerdict OnWorkerFault(const WorkerFault& fault, absl::Time now);
  FaultVerdict OnNotFinite(WorkerId worker, Round round, absl::string_view text, absl::Time now);
  // The weights of a shard are not finite after this round.
  FaultVerdict OnShardDiverged(int shard, Round round, absl::string_view text, absl::Time now);

  // Raises an alarm if a robust mean had contributions of too few workers, or certificates.
  void LookForFewSenders(const OpenRound& round, int num_workers, absl::Time now);

  // See Coordinator.
  absl::StatusOr<FaultVerdict> Evict(absl::string_view name, absl::string_view reason,
                                     absl::Time now);
  absl::StatusOr<FaultVerdict> EvictCertificate(absl::string_view certificate,
                                                absl::string_view reason, absl::Time now);
  // Returns the certificate of the worker `name`, or `name` if that is the certificate of a worker.
  // Errors: NotFound (there is no such worker); FailedPrecondition (it has no certificate).
  absl::StatusOr<std::string> CertificateOf(absl::string_view name) const;
  absl::Status Readmit(absl::string_view name, absl::Time now);
  absl::StatusOr<FaultVerdict> RollBack(Round round, absl::string_view why, absl::Time now);
  absl::Status CheckMayRollBack(Round round, absl::Time now) const;

 private:
  // Returns how many certificates these workers have; each one without a certificate counts as one.
  int NumCertificates(const std::vector<WorkerId>& workers) const;
  // The entry stays over restarts of the servers.
  FaultVerdict ShutOutByOperator(std::string name, bool is_identity, absl::string_view reason,
                                 absl::Time now);
  // What a worker has sent is far longer than what others send, or opposes it: counts the round.
  FaultVerdict CountPoisoned(const WorkerFault& fault, absl::Time now);
  // Shuts the sender out, or raises an alarm, as the verdict says. `text` says what was seen.
  FaultVerdict Follow(const SenderVerdict& verdict, WorkerId worker, absl::string_view text,
                      absl::Time now);
  // Returns all workers of this life of the servers, also those whose lives have ended.
  std::vector<Sender> Senders() const;
  // Raises the alarm; if it is new, the log has what was seen.
  void Accuse(absl::string_view what, absl::string_view seen, absl::Time now);
  // Weights after `first_bad` updates are not to be used any more.
  FaultVerdict Diverge(Round round, Round first_bad, absl::string_view why, absl::Time now);

  ClusterState& state_;
  Outbox& outbox_;
  ClusterSaves& saves_;
};

}  // namespace lodestar
