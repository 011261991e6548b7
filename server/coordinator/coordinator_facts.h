// All that the coordinator knows, and what can be said about it: to operators, to workers that wait
// and to the log. Only Coordinator changes it.
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
#include "common/layout.h"
#include "server/coordinator/alarm_book.h"
#include "server/coordinator/checkpoint_course.h"
#include "server/coordinator/checkpoint_schedule.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/cluster_view.h"
#include "server/coordinator/coordinator_config.h"
#include "server/coordinator/coordinator_phase.h"
#include "server/coordinator/divergence_record.h"
#include "server/coordinator/job_progress.h"
#include "server/coordinator/last_save.h"
#include "server/coordinator/member_quota.h"
#include "server/coordinator/messages.h"
#include "server/coordinator/norm_book.h"
#include "server/coordinator/open_round.h"
#include "server/coordinator/refusal_book.h"
#include "server/coordinator/shard_registry.h"
#include "server/coordinator/wait_log.h"
#include "server/coordinator/weights_supply.h"
#include "server/coordinator/work_ledger.h"
#include "server/coordinator/worker_desk.h"
#include "server/membership/membership_table.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

// How a job came to its end.
struct JobEnding {
  std::string text;         // "stopped after 7 of 20 rounds", "complete after all 20 rounds"
  LastSave::Outcome saved;  // errors: those of CoordinatorFacts::LastSaveOutcome()
};

class CoordinatorFacts {
 public:
  // Changes whenever a pending grant, registration or checkpoint could have a new answer.
  uint64_t state_version() const { return state_version_; }
  CoordinatorPhase phase() const { return phase_; }
  // How it ended, failed or over. Not set before the workers have left and the servers were told to
  // exit.
  std::optional<absl::Status> outcome() const;
  uint64_t server_incarnation() const { return server_incarnation_; }
  std::shared_ptr<const ClusterMap> map() const { return map_; }  // null: no layout yet
  Round committed_round() const;  // before which all rounds are over; 0 without rosters
  ClusterSnapshot Snapshot(absl::Time now) const;

  // Empty while it is under way; NotFound for tickets long gone.
  std::optional<absl::StatusOr<PublishedCheckpoint>> CheckpointOutcome(uint64_t ticket) const {
    return checkpoints_.OutcomeOf(ticket);
  }
  // Not set before it is over. Errors: FailedPrecondition (nothing to save, or nowhere); else why
  // it failed. Each says what is in no checkpoint.
  const std::optional<LastSave::Outcome>& LastSaveOutcome() const { return last_save_.outcome(); }
  // Not set before the job is over and no last checkpoint is tried any more; workers may still have
  // to leave. Error: FailedPrecondition (it has failed).
  std::optional<absl::StatusOr<JobEnding>> Ending() const;
  // Rounds that are over, and in all weights once everything is applied.
  int64_t rounds_done() const;
  // "rounds 200 to 216 are in no checkpoint; ..."; empty if everything is.
  std::string Unsaved() const;

 protected:
  CoordinatorFacts(CoordinatorConfig config, std::optional<Layout> layout, absl::Time now);
  ~CoordinatorFacts() = default;

  // Whether the servers have weights, and workers may call.
  bool is_ready() const;
  absl::Status CheckReady(absl::Time now) const;
  GrantAnswer AnswerFor(WorkerId worker, absl::Time now) const;
  std::string PendingReason(WorkerId worker, absl::Time now) const;
  std::vector<RosterMember> Waiting() const;
  ClusterView View(absl::Time now) const;
  // Of the round's roster: alive and not reported.
  std::vector<MemberProgress> MissingOf(const OpenRound& round) const;
  bool is_stopping() const { return stop_reason_.has_value(); }
  bool is_work_held() const { return !hold_reason_.empty(); }
  // No round is opened, closed or saved: a server cannot be told.
  bool is_shard_away() const { return shards_.any_away(); }
  bool saves() const { return !config_.checkpoint_dir.empty(); }
  // Who is waited for, in which round, and for how long; empty if nobody is.
  enum class Ages : uint8_t { kShown, kLeftOut };
  std::string WaitingFor(absl::Time now, Ages ages = Ages::kShown) const;
  std::string WaitingForLastSave(absl::Time now, Ages ages) const;
  // "; worker gpu-3: no bytes to shard 1 at host:port for 12s", of each that an open round waits
  // for.
  std::string Standstills(std::optional<absl::Time> age_at) const;
  // "no bytes to shard 1 at host:port for 12s"; empty if the worker tells of no standstill. Without
  // its age if `age_at` is not given.
  std::string StandstillOf(WorkerId worker, std::optional<absl::Time> age_at) const;
  // Who may still come back after the servers started anew, to learn that the job is over.
  std::vector<std::string> Returning(absl::Time now) const;
  // Workers that have not left yet.
  std::vector<std::string> Present() const;
  // Whether workers of a server before this one may still come, and learn that the job is over: it
  // has left no checkpoint that names them.
  bool awaits_strangers(absl::Time now) const {
    return map_ != nullptr && membership_.workers().empty() && now < started_at_ + config_.lease;
  }
  std::string WaitingForLeave(absl::Time now) const;
  // How long what is waited for now may last before the log is told.
  absl::Duration WaitPatience() const;
  absl::string_view StateName() const;
  std::string NameOf(WorkerId worker) const;

  CoordinatorConfig config_;
  absl::Time started_at_;
  std::unique_ptr<const ClusterPolicy> policy_;
  CoordinatorPhase phase_ = CoordinatorPhase::kAwaitingShards;
  absl::Status failure_;        // not OK: the servers cannot go on, or the run has diverged
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
  WeightsSupply supply_;

  ShardRegistry shards_;
  NormBook norms_;
  MembershipTable membership_;
  WorkLedger ledger_;
  MemberQuota quota_;
  CheckpointCourse checkpoints_;
  CheckpointSchedule schedule_;
  LastSave last_save_;
  std::optional<ResumeSnapshot> resumed_;
  DivergenceRecord divergence_;
  AlarmBook alarms_;
  RefusalBook refusals_;
  WaitLog waits_;
  JobProgress progress_;
  std::map<WorkerId, WorkerDesk> desks_;
  std::map<Round, OpenRound> open_;  // one at most with rosters; else one per grant that is out
  int64_t evaluation_attempt_ = 0;
  uint64_t finite_reports_ = 0;  // of all workers
};

}  // namespace lodestar
