// SPDX-License-Identifier: Apache-2.0

// RoundScheduler decides on the rounds of a job: which members compute what, and when a round is
// over. It remembers:
// - the data that was handed out;
// - the open rounds and their reports;
// - the progress of the job;
// - the assignment of each worker, until Forget();
// - the orders of a site.
//
// The caller owns the job, which may change between rounds. RoundScheduler uses the job of the last
// SetJob() or Restore(). The caller passes facts in, writes the messages and carries out the
// verdicts. Pure: no lock, clock or thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/coordinator_state.h"
#include "server/coordinator/rounds/job_progress.h"
#include "server/coordinator/rounds/member_quota.h"
#include "server/coordinator/rounds/open_round.h"
#include "server/coordinator/rounds/round_summary.h"
#include "server/coordinator/rounds/site_course.h"
#include "server/coordinator/rounds/site_order.h"
#include "server/coordinator/rounds/work_ledger.h"
#include "server/coordinator/rounds/worker_assignment.h"
#include "server/sync/cluster_policy.h"
#include "server/sync/round_plan.h"

namespace lodestar::rounds {

// A living worker that has joined. Has the facts about the worker that the scheduler does not
// store.
struct RoundMember {
  WorkerId id;
  Incarnation incarnation;
  std::string name;
  // See MemberProgress.
  std::optional<absl::Duration> usual_round = std::nullopt;
};

// The state of the cluster at one moment, for the decisions of the policy. Owns the data that
// Facts() points to.
struct ClusterView {
  sync::RequiredMembers required;
  std::vector<sync::MemberProgress> members;  // ascending by worker
  std::optional<Round> open_round;
  int reported = 0;
  std::vector<sync::MemberProgress> missing;

  // Returns facts that are valid until this object changes.
  sync::ClusterFacts Facts() const {
    sync::ClusterFacts facts;
    facts.required = required;
    facts.members = members;
    if (open_round.has_value())
      facts.open_round = sync::OpenRoundFacts{*open_round, reported, missing};
    return facts;
  }
};

// A round that is over.
struct ClosedRound {
  OpenRound round;
  RoundSummary summary;  // all fields are set if is_announced
  // True means that no worker of the round has reported. The round `replaced_by` then replaces it.
  // Always false for an evaluation.
  bool is_lost = false;
  Round replaced_by = {};
  bool is_announced = true;  // true means that the caller announces the summary
};

// What Count() returns for a report.
struct CountedReport {
  std::optional<messages::Grant> grant;  // grant that the worker held
  absl::Duration took;                   // from the grant to the report
};

// The state of an order to a site.
struct OrderVerdict {
  enum class Kind : uint8_t {
    kUnderWay,
    kDone,       // the order is done, see `outcome`
    kWithdrawn,  // the order was withdrawn or replaced by another
    kJobFailed,
    kNotHandedOut,  // The site hands out no work any more.
  };
  Kind kind = Kind::kUnderWay;
  SiteOutcome outcome = {};
};

class RoundScheduler {
 public:
  // What survives the coordinator's process. WorkerAssignment::Memory is stored separately.
  struct Memory {
    WorkLedger::Memory ledger;
    std::map<Round, OpenRound::Memory> open;
    int64_t evaluation_attempt = 0;
    MemberQuota::Memory quota;
    JobProgress::Memory progress;
    std::vector<RoundSummary> last_rounds;  // rounds that may not be on record
  };

  // Maximum number of rounds in unrecorded(). Beyond this number, the oldest are dropped.
  static constexpr size_t kMaxUnrecorded = 256;

  // `upstream` is the HOST:PORT of the servers whose orders this site carries out. Empty means that
  // this is not a site. The mode and the required number of members always come from this `job`,
  // even after SetJob() or Restore().
  RoundScheduler(const job::JobSpec& job, int num_shards, absl::Duration lease,
                 std::string upstream, absl::Time now);
  Memory memory() const;
  // Continues from the memory of an earlier process. Requires: memory.ledger.data satisfies what
  // DataSets(Memory) requires.
  void Resume(const job::JobSpec& job, Memory memory, absl::Time now);
  void Resume(WorkerId worker, WorkerAssignment::Memory memory, absl::Time now) {
    assignments_[worker] = WorkerAssignment(std::move(memory), now);
  }
  // Continues from a checkpoint. Forgets all workers and open rounds. The required number of
  // members and the orders of a site do not change.
  void Restore(const job::JobSpec& job, const checkpoints::LedgerState& ledger,
               const checkpoints::ProgressState& progress);
  // Uses the settings of this job for all further rounds and grants.
  void SetJob(const job::JobSpec& job) { ledger_ = WorkLedger(job, ledger_.state()); }

  const WorkLedger& ledger() const { return ledger_; }
  const JobProgress& progress() const { return progress_; }
  const sync::ClusterPolicy& policy() const { return *policy_; }
  bool uses_rosters() const { return policy_->uses_rosters(); }
  // Returns the open rounds. With rosters there is at most one. Without rosters there is one for
  // each grant that a worker holds.
  const std::map<Round, OpenRound>& open() const { return open_; }
  // Returns the ledger before the newest round was opened, if rounds have rosters. Not set means
  // that it is not known.
  const std::optional<checkpoints::LedgerState>& before_open_round() const {
    return before_open_round_;
  }
  const std::map<WorkerId, WorkerAssignment>& assignments() const { return assignments_; }
  // Returns the assignment of the worker. It is empty if the worker is not known.
  const WorkerAssignment& Of(WorkerId worker) const;

  // Functions about the required number of members.

  // Records that the cluster is ready for workers. Earlier members then get time to come back. See
  // MemberQuota.
  void GatherMembers(absl::Time now) { quota_.OnReady(now); }
  bool IsGathering(absl::Time now) const { return quota_.IsGathering(now); }
  sync::RequiredMembers Required(absl::Time now) const { return quota_.Required(now); }
  // Returns true if `num_members` members are enough for the next round.
  bool CanGoOnWith(size_t num_members, absl::Time now) const {
    return num_members > 0 && static_cast<int>(num_members) >= Required(now).count;
  }

  // Functions about workers.
  //
  // Begins a life of the worker, or continues it.
  void BeginLife(WorkerId worker, const messages::RegisterCall& call, bool is_same_process,
                 absl::Time now) {
    assignments_[worker].BeginLife(call, is_same_process, now);
  }
  // Records that the worker has this data. For the result see DataSets::Admit().
  std::optional<DataRefusal> Admit(WorkerId worker, absl::string_view name,
                                   const messages::DatasetInfo& data) {
    return ledger_.AdmitWorker(worker, name, data);
  }
  // Sets the progress of a worker that has joined to the progress of the slowest other member.
  // `others` are all other members.
  void BeginMembership(WorkerId worker, absl::Span<const RoundMember> others, absl::Time now);
  // Must be called when a life of the worker has ended. Open rounds continue without the worker.
  void EndLife(WorkerId worker, absl::Time now);
  void Forget(WorkerId worker) { assignments_.erase(worker); }

  // Records that the worker asks for work. It waits until it gets work. `without_samples` means
  // that it makes its next step with samples that it has. Returns true if the wait begins with this
  // call.
  bool AskForWork(WorkerId worker, bool without_samples = false) {
    return assignments_[worker].SetWaiting(without_samples);
  }
  // Records that the worker wants no new work in this life.
  void BeginLeave(WorkerId worker) { assignments_[worker].BeginLeave(); }
  // Returns true if the worker wants to leave, and no round needs anything more from it. `is_ready`
  // means that the servers take contributions. If they do not, no round needs anything.
  bool MayLeave(WorkerId worker, bool is_ready) const;
  ReportVerdict Classify(WorkerId worker, const messages::RoundReport& report,
                         const job::JobSpec& job) const {
    return Of(worker).Classify(report, job);
  }
  // Counts the report in its round, and completes the grant of the worker. If the round is over
  // already, it has ended without this worker, and the report does not count in it. Requires: the
  // report is of the grant that the worker holds.
  CountedReport Count(WorkerId worker, const messages::RoundReport& report, const job::JobSpec& job,
                      absl::Time now);

  // Hands out more samples for the worker's contribution to the round, as many as its grant has,
  // and returns a grant of them. The plan of the round, and so the weight of the contribution,
  // stays as it is. Errors: FailedPrecondition (the worker has no grant of a gradient for this
  // round; or this is a site, where only the servers upstream hand out samples).
  absl::StatusOr<messages::Grant> Extend(WorkerId worker, Round round);

  // Records that the server of `shard` has the worker's whole contribution to the round. Returns
  // true if the worker's report need not wait for any other server.
  bool OnContributed(int shard, WorkerId worker, Round round);
  bool AwaitsContribution(WorkerId worker, Round round) const {
    return Of(worker).AwaitsContribution(round, num_shards_);
  }
  // Records that the server of `shard` has attached and has said where its journal ends. The
  // reports of grants given before no longer wait for this server.
  void OnServerAttached(int shard);

  // Functions about rounds. `members` are all members, ascending by ID.

  ClusterView View(absl::Span<const RoundMember> members, absl::Time now) const;
  // Returns true if the job has a next round. On a site, returns true if an order waits for its
  // round.
  bool has_next_round() const {
    return is_site() ? site_->waiting() != nullptr : !ledger_.is_exhausted();
  }
  // Returns true if a member holds computed steps that must go into a later round, and the job has
  // a later round.
  bool OwesContribution(absl::Span<const RoundMember> members) const;
  // Returns the members of the next round. Empty means that no round can be opened now.
  std::vector<sync::RosterMember> NextRoster(absl::Span<const RoundMember> members,
                                             absl::Time now) const;
  // Opens the next round. `roster` is the result of NextRoster(). `view` is the ID of the present
  // view. Requires: has_next_round().
  WorkLedger::Work OpenNext(absl::Span<const sync::RosterMember> roster,
                            absl::Span<const RoundMember> members, ViewId view,
                            WorkLedger::Computes computes, absl::Time now);
  // Closes the rounds that are over. Returns them in ascending order.
  std::vector<ClosedRound> CloseOver(absl::Span<const RoundMember> members, absl::Time now);
  // Returns the first round of training that is not over. The weights that workers pull must
  // include all rounds before it. Without rosters, returns 0, because workers may then compute on
  // any weights.
  Round committed_round() const;
  // Returns the number of rounds that are over. The servers may not have applied all their
  // contributions yet.
  int64_t rounds_done() const;
  // Forgets the open rounds. They have no result.
  void DropOpen() { open_.clear(); }

  // Functions about the final evaluation. It begins when no round of training follows. No other
  // round is open then.

  // Returns the workers that the final evaluation lacks. They have held-out samples, and no waiting
  // member has the same data set.
  std::vector<WorkerId> LackingForEvaluation(absl::Span<const RoundMember> members) const {
    return ledger_.LackingFor(Waiting(members));
  }
  // Returns the members of the final evaluation. Empty means that the evaluation cannot be opened
  // now.
  std::vector<sync::RosterMember> EvaluationRoster(absl::Span<const RoundMember> members) const;
  WorkLedger::Work OpenEvaluation(absl::Span<const sync::RosterMember> roster, ViewId view,
                                  absl::Time now);
  // Ends the final evaluation. Not set means that a worker was lost from it, and that it must be
  // repeated. Requires: the evaluation is open, and none of its workers is missing.
  std::optional<ClosedRound> EndEvaluation(absl::Time now);

  // Forgets this round and all earlier rounds in unrecorded(), because they were recorded.
  void OnRecorded(const RoundSummary& summary);
  // Returns the rounds that were announced but may not be recorded yet.
  const std::deque<RoundSummary>& unrecorded() const { return unrecorded_; }
  // Must be called at the end of a pause. If no round is open, the pause does not count in the
  // trained time.
  void EndStandstill() {
    if (open_.empty()) progress_.OnStandstill();
  }
  // See WorkLedger::MultiplyLearningRateScale().
  void MultiplyLearningRateScale(double factor) { ledger_.MultiplyLearningRateScale(factor); }
  // Returns the number of samples that were handed out and lost. A sample is not lost if training
  // has used it, if a worker may still report it, or if an open round has its report.
  int64_t UntrainedSamples(const job::JobSpec& job) const;

  // Functions about the orders of a site. See SiteCourse. All of them except is_site() require
  // is_site().

  bool is_site() const { return site_.has_value(); }
  const SiteCourse& site() const { return *site_; }
  uint64_t TakeOrder(const SiteOrder& order) { return site_->Take(order); }
  bool WithdrawUnlessBegun(uint64_t number) { return site_->WithdrawUnlessBegun(number); }
  bool TellUpstream(absl::string_view words, absl::Time now) {
    return site_->TellUpstream(words, now);
  }
  // Returns the state of an order. `has_failed` means that the job has failed. `is_over` means that
  // no work is handed out any more. Requires: is_site().
  OrderVerdict JudgeOrder(uint64_t number, bool has_failed, bool is_over) const;
  // Returns the data set that the members share. Not set means that there are fewer members than
  // required.
  std::optional<messages::DatasetInfo> SiteData(absl::Span<const RoundMember> members,
                                                absl::Time now) const;

 private:
  sync::MemberProgress ProgressOf(const RoundMember& member, absl::Time now) const;
  // Returns the members of the round that have neither reported nor been lost.
  std::vector<sync::MemberProgress> MissingOf(const OpenRound& round,
                                              absl::Span<const RoundMember> members,
                                              absl::Time now) const;
  // Returns the members that wait for work.
  std::vector<sync::RosterMember> Waiting(absl::Span<const RoundMember> members) const;
  // Returns the order to carry out next. Null means that there is none, or that this is not a site.
  const SiteOrder* WaitingOrder() const { return is_site() ? site_->waiting() : nullptr; }
  // Returns the maximum number of members of the next round.
  int MaxRosterOfNext() const;
  // Opens the round of this work. Adds the losses of the job to the grants, and gives them to the
  // members.
  void Give(WorkLedger::Work& work, absl::Time now);
  ClosedRound Close(OpenRound round, absl::Time now);

  const std::unique_ptr<const sync::ClusterPolicy> policy_;
  const int num_shards_;
  WorkLedger ledger_;
  MemberQuota quota_;
  JobProgress progress_;
  std::optional<SiteCourse> site_;  // not set means that this is no site
  std::map<WorkerId, WorkerAssignment> assignments_;
  const WorkerAssignment unknown_;
  std::map<Round, OpenRound> open_;
  std::optional<checkpoints::LedgerState> before_open_round_;
  int64_t evaluation_attempt_ = 0;
  std::deque<RoundSummary> unrecorded_;
};

// Returns the plan of the round for the shards. For an evaluation, it has no roster, because no
// member contributes.
sync::RoundPlan PlanForShards(const WorkLedger::Work& work);

}  // namespace lodestar::rounds
