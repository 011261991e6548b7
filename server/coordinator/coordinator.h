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
// kRunning to kSaving as soon as no work is out. In kDone, workers are told to leave; a last
// checkpoint that failed is tried again there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/job_spec.h"
#include "common/layout.h"
#include "server/coordinator/alarm_book.h"
#include "server/coordinator/checkpoint_course.h"
#include "server/coordinator/checkpoint_schedule.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/cluster_view.h"
#include "server/coordinator/coordinator_config.h"
#include "server/coordinator/coordinator_phase.h"
#include "server/coordinator/job_progress.h"
#include "server/coordinator/last_save.h"
#include "server/coordinator/messages.h"
#include "server/coordinator/open_round.h"
#include "server/coordinator/round_observer.h"
#include "server/coordinator/shard_fleet.h"
#include "server/coordinator/shard_registry.h"
#include "server/coordinator/work_ledger.h"
#include "server/coordinator/worker_desk.h"
#include "server/membership/membership_table.h"
#include "server/sync/sync_policy.h"

namespace lodestar {

class Coordinator {
 public:
  using Config = CoordinatorConfig;
  // Not owned; must outlive the coordinator.
  struct Deps {
    ShardFleet* fleet = nullptr;
    CheckpointStore* checkpoints = nullptr;
    RoundObserver* observer = nullptr;
  };

  // Errors: InvalidArgument, as ValidateJobSpec() and BuildLayout(), or for num_shards.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Create(Config config, const Deps& deps,
                                                             absl::Time now);

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
  // What RequestGrant() would answer now, for calls being held: renews no lease, counts nothing.
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
  // It cannot go on: the job ends with this error after a last checkpoint.
  void OnShardFailing(int shard, const absl::Status& error, absl::Time now);
  void OnRestoreChosen(const absl::StatusOr<RestoreChoice>& choice, absl::Time now);
  void OnCheckpointPublished(absl::string_view directory,
                             const absl::StatusOr<PublishedCheckpoint>& published, absl::Time now);

  // Operators. The ticket names the checkpoint that will serve the request; it is taken as soon as
  // no round is open. Errors: FailedPrecondition (no --checkpoint_dir, or not running).
  absl::StatusOr<uint64_t> RequestCheckpoint(absl::Time now);
  // Empty while it is under way; NotFound for tickets long gone.
  std::optional<absl::StatusOr<PublishedCheckpoint>> CheckpointOutcome(uint64_t ticket) const;
  void RequestStop(absl::string_view reason, absl::Time now);
  // A server is about to stop, for the reason given: nobody gets new work, and what was done is
  // saved. Who still owes a contribution after half of `patience` is dropped from its round.
  void BeginLastSave(absl::string_view reason, absl::Duration patience, absl::Time now);
  // Not set before it is over. Errors: FailedPrecondition (nothing to save, or nowhere); else why
  // it failed. Each says what is in no checkpoint.
  const std::optional<LastSave::Outcome>& LastSaveOutcome() const { return last_save_.outcome(); }
  // "rounds 200 to 216 are in no checkpoint; ..."; empty if everything is.
  std::string Unsaved() const;
  void RaiseAlarm(absl::string_view text, absl::Time now, AlarmKind kind = AlarmKind::kAlarm);

  // Changes whenever a pending grant, registration or checkpoint could have a new answer.
  uint64_t state_version() const { return state_version_; }
  CoordinatorPhase phase() const { return phase_; }
  const absl::Status& failure() const { return failure_; }  // not ok in kFailed
  // The job is over, the workers have left, and the servers were told to exit.
  bool should_exit() const { return should_exit_; }
  uint64_t server_incarnation() const { return server_incarnation_; }
  std::shared_ptr<const ClusterMap> map() const { return map_; }  // null: no layout yet
  Version committed_version() const;  // of every bucket when all is applied; 0 without rosters
  ClusterSnapshot Snapshot(absl::Time now) const;

 private:
  Coordinator(Config config, const Deps& deps, std::optional<Layout> layout, absl::Time now);
  absl::Status CheckReady(absl::Time now) const;
  absl::Status AdoptLayout(const RegisterCall& call, absl::Time now);
  bool ClaimSupply(const WorkerLife& life);
  bool awaits_supply() const;
  void EndLives(const std::vector<EndedLife>& lives, absl::Time now);
  void AnnounceMembers();

  absl::Status CountReport(WorkerId worker, const GrantReport& report, absl::Time now);
  GrantAnswer AnswerFor(WorkerId worker, absl::Time now) const;
  std::string PendingReason(WorkerId worker, absl::Time now) const;
  // Goes on as far as the facts allow.
  void Advance(absl::Time now);
  bool AdvanceOnce(absl::Time now);
  bool AdvanceTraining(absl::Time now);
  bool AdvanceEvaluation(absl::Time now);
  bool AdvanceSaving(absl::Time now);
  bool AdvanceDone(absl::Time now);
  bool CloseRounds(absl::Time now);
  void CloseRound(const OpenRound& round, absl::Time now);
  bool GrantNext(absl::Time now);
  void Give(const WorkLedger::Work& work, absl::Time now);
  void MaybeCheckpoint(absl::Time now);
  void StartCheckpoint(absl::string_view folder, absl::Time now);
  bool AdvanceLastSave(absl::Time now);
  void OnCheckpointFailed(absl::string_view directory, const absl::Status& error, absl::Time now);
  void EndLastSave(const absl::Status& error);
  void DropMissing(absl::Time now);
  bool ServeRequestsWithLast();
  std::vector<RosterMember> Waiting() const;
  ClusterView View() const;
  bool is_stopping() const { return stop_reason_.has_value(); }
  bool is_work_held() const { return !hold_reason_.empty(); }
  bool saves() const { return !config_.checkpoint_dir.empty(); }

  absl::Status Restore(const RestoreChoice& choice, absl::Time now);
  absl::Status Assign(absl::Time now);
  void Fail(const absl::Status& status);
  void Enter(CoordinatorPhase phase);
  void Touch() { ++state_version_; }
  std::string WaitingFor(absl::Time now) const;
  std::string WaitingForLastSave(absl::Time now) const;
  absl::string_view StateName() const;
  std::string NameOf(WorkerId worker) const;

  Config config_;
  Deps deps_;
  absl::Time started_at_;
  std::unique_ptr<const SyncPolicy> policy_;
  CoordinatorPhase phase_ = CoordinatorPhase::kAwaitingShards;
  absl::Status failure_;
  absl::Status shard_failure_;  // for which the job fails once the last checkpoint is taken
  uint64_t state_version_ = 1;
  uint64_t server_incarnation_ = 0;
  std::optional<std::string> stop_reason_;  // once asked to stop
  std::string hold_reason_;                 // empty: work is handed out
  absl::Time drop_missing_at_ = absl::InfiniteFuture();
  bool should_exit_ = false;

  std::optional<Layout> layout_;
  std::shared_ptr<const ClusterMap> map_;
  WeightsSource source_;
  std::optional<WorkerLife> supplier_;  // of the initial weights; model `client`
  bool has_supply_ = false;

  ShardRegistry shards_;
  MembershipTable membership_;
  WorkLedger ledger_;
  CheckpointCourse checkpoints_;
  CheckpointSchedule schedule_;
  LastSave last_save_;
  std::optional<ResumeSnapshot> resumed_;
  AlarmBook alarms_;
  std::map<WorkerId, WorkerDesk> desks_;
  std::map<Round, OpenRound> open_;  // one at most with rosters; else one per grant that is out
  int64_t evaluation_attempt_ = 0;
  JobProgress progress_;
};

}  // namespace lodestar
