// The coordinator of one job: membership, work and rounds, and the commands to the shards that
// follow from them. Pure: no lock, clock, thread, proto or I/O. The owner serializes all calls,
// passes the time, and calls Tick() a few times per lease. Same calls, same answers, same commands.
//
//   kAwaitingShards --> kRestoring --> [kAwaitingLayout] --> kLoading --> kRunning --> kEvaluating
//         ^                                                                  |             |
//         | any shard is lost                                                v             v
//         +------------- (from every state)               kDone <-------- kSaving <--------+
//
// kAwaitingLayout only for the model `client` without a checkpoint. RequestStop() leads from
// kRunning to kSaving as soon as no work is out. In kDone, workers are told to leave.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/job_spec.h"
#include "common/layout.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/messages.h"
#include "server/coordinator/round_observer.h"
#include "server/coordinator/shard_fleet.h"

namespace lodestar {

enum class CoordinatorPhase : uint8_t {
  kAwaitingShards,
  kRestoring,
  kAwaitingLayout,
  kLoading,
  kRunning,
  kEvaluating,
  kSaving,
  kDone,
  kFailed,  // weights cannot be loaded: see failure()
};

// What ChooseRestore() found.
struct RestoreChoice {
  WeightsSource source;
  std::optional<CoordinatorState> state;  // of a checkpoint
  std::optional<Layout> layout;  // of a checkpoint or weights file; model `client` needs it
  // Time-based or random; raised above that of the checkpoint if it is not.
  uint64_t server_incarnation = 0;
  std::string alarm;  // not empty: why a newer checkpoint was passed over
};

struct PublishedCheckpoint {
  std::string path;
  Round round;
  uint64_t bytes = 0;
};

class Coordinator {
 public:
  struct Config {
    JobSpec job;
    int num_shards = 1;
    absl::Duration lease = absl::Seconds(10);
    std::string checkpoint_dir;    // empty: nothing is saved
    int64_t checkpoint_every = 0;  // rounds; 0: only on request and at the end
    bool exit_when_done = false;
  };
  // Not owned; must outlive the coordinator.
  struct Deps {
    ShardFleet* fleet = nullptr;
    CheckpointStore* checkpoints = nullptr;
    RoundObserver* observer = nullptr;
  };

  // Errors: InvalidArgument, as ValidateJobSpec() and BuildLayout(), or for num_shards.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Create(Config config, const Deps& deps,
                                                             absl::Time now);
  ~Coordinator();

  // Workers. Errors of each: see proto/cluster_service.proto. Aborted: register again.
  absl::StatusOr<RegisterAnswer> Register(const RegisterCall& call, absl::Time now);
  absl::StatusOr<ViewId> Join(const WorkerLife& life, absl::string_view layout_hash,
                              const DatasetClaim& dataset, absl::Time now);
  absl::StatusOr<HeartbeatAnswer> Heartbeat(const HeartbeatCall& call, absl::Time now);
  // Counts the report (once, however often it comes), then answers with the worker's grant: the one
  // it holds and has not reported, to the bit as given before, or a new one, or none yet.
  absl::StatusOr<GrantAnswer> RequestGrant(const WorkerLife& life,
                                           const std::optional<GrantReport>& report,
                                           absl::Time now);
  // What a RequestGrant() of this life would answer now; renews no lease and counts nothing. For
  // calls that are being held.
  absl::StatusOr<GrantAnswer> PollGrant(const WorkerLife& life, absl::Time now) const;
  absl::Status Leave(const WorkerLife& life, absl::string_view reason,
                     const std::optional<GrantReport>& report, absl::Time now);

  // Time passes: leases end.
  void Tick(absl::Time now);

  // Shards. Attached and lost by their connection; shard 0 is in this process and attaches
  // likewise. Errors: InvalidArgument (numbers do not fit), AlreadyExists (another server holds the
  // shard).
  absl::Status OnShardAttached(int shard, int num_shards, uint64_t instance_id,
                               absl::string_view address, absl::Time now);
  void OnShardLost(int shard, uint64_t instance_id, absl::Time now);
  // Answers to commands. Those of an earlier server incarnation are ignored.
  void OnShardLoaded(int shard, uint64_t server_incarnation, const absl::Status& status,
                     absl::Time now);
  void OnShardSaved(int shard, uint64_t server_incarnation, absl::string_view directory,
                    const absl::StatusOr<std::string>& manifest_part, absl::Time now);
  void OnRestoreChosen(const absl::StatusOr<RestoreChoice>& choice, absl::Time now);
  void OnCheckpointPublished(absl::string_view directory,
                             const absl::StatusOr<PublishedCheckpoint>& published, absl::Time now);

  // Operators. The ticket names the checkpoint that will serve the request; it is taken as soon as
  // no round is open. Errors: FailedPrecondition (no --checkpoint_dir, or not running).
  absl::StatusOr<uint64_t> RequestCheckpoint(absl::Time now);
  // Empty while it is under way; NotFound for tickets long gone.
  std::optional<absl::StatusOr<PublishedCheckpoint>> CheckpointOutcome(uint64_t ticket) const;
  void RequestStop(absl::string_view reason, absl::Time now);
  void RaiseAlarm(absl::string_view text, absl::Time now);

  // Changes whenever a pending grant, registration or checkpoint could have a new answer.
  uint64_t state_version() const;
  CoordinatorPhase phase() const;
  // Not ok in kFailed.
  const absl::Status& failure() const;
  // The job is over, the workers have left, and the servers were told to exit.
  bool should_exit() const;
  uint64_t server_incarnation() const;
  // Null until the layout is known.
  std::shared_ptr<const ClusterMap> map() const;
  const JobSpec& job() const;
  ClusterSnapshot Snapshot(absl::Time now) const;

 private:
  class Impl;
  explicit Coordinator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lodestar
