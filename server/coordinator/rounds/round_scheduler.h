// The rounds of a job: which members compute what, what they have reported, when a round is over,
// and how the job goes. RoundScheduler remembers the data that was handed out, the rounds that are
// open, the work that each worker holds, and the orders of a site. The caller passes facts in, and
// words and carries out the verdicts. Pure: no lock, clock or thread.
//
// The job is the caller's. It may change while rounds end, and work is cut by it from SetJob() or
// Restore() on.
//
// The assignment of a worker is remembered as long as the worker: until Forget().
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

#include "absl/status/status.h"
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

namespace lodestar {

// What others know of a member: a worker that lives and has joined.
struct RoundMember {
  WorkerId id;
  Incarnation incarnation;
  std::string name;
  // See MemberProgress.
  std::optional<absl::Duration> usual_round = std::nullopt;
};

// One moment of the cluster for the policy. Owns what ClusterFacts points to.
struct ClusterView {
  RequiredMembers required;
  std::vector<MemberProgress> members;  // ascending by worker
  std::optional<Round> open_round;
  int reported = 0;
  std::vector<MemberProgress> missing;

  // Valid while this object is unchanged.
  ClusterFacts Facts() const {
    ClusterFacts facts;
    facts.required = required;
    facts.members = members;
    if (open_round.has_value()) facts.open_round = OpenRoundFacts{*open_round, reported, missing};
    return facts;
  }
};

// A round that is over.
struct ClosedRound {
  OpenRound round;
  RoundSummary summary;  // whole if it is to be announced
  // None of its workers has reported: the round `replaced_by` takes its place. Never an evaluation.
  bool is_lost = false;
  Round replaced_by = {};
  bool is_announced = true;  // The summary is to be announced.
};

// A report was counted.
struct CountedReport {
  std::optional<Grant> grant;  // that the worker held
  absl::Duration took;         // from the grant to the report
};

// What becomes of an order of a site.
struct OrderVerdict {
  enum class Kind : uint8_t {
    kUnderWay,
    kDone,       // with this outcome
    kWithdrawn,  // or replaced by another
    kJobFailed,
    kNotHandedOut,  // The site hands out no work any more.
  };
  Kind kind = Kind::kUnderWay;
  SiteOutcome outcome = {};
};

class RoundScheduler {
 public:
  // What outlives the coordinator's process, beside the memory of each assignment.
  struct Memory {
    WorkLedger::Memory ledger;
    std::map<Round, OpenRound::Memory> open;
    int64_t evaluation_attempt = 0;
    MemberQuota::Memory quota;
    JobProgress::Memory progress;
    std::vector<RoundSummary> last_rounds;  // that may not be on record
  };

  // Number of rounds that are remembered until they are on record. The oldest go beyond it.
  static constexpr size_t kMaxUnrecorded = 256;

  // `upstream`: HOST:PORT of the servers that order the rounds. Empty means that there are none,
  // and this is no site. Mode and quota stay those of this job.
  RoundScheduler(const JobSpec& job, int num_shards, absl::Duration lease, std::string upstream,
                 absl::Time now);
  Memory memory() const;
  // Requires what DataSets does.
  void Resume(const JobSpec& job, Memory memory, absl::Time now);
  void Resume(WorkerId worker, WorkerAssignment::Memory memory, absl::Time now) {
    assignments_[worker] = WorkerAssignment(std::move(memory), now);
  }
  // Goes on from a checkpoint, with no worker. Quota and orders stay.
  void Restore(const JobSpec& job, const LedgerState& ledger, const ProgressState& progress);
  // Cuts work by this job from here on.
  void SetJob(const JobSpec& job) { ledger_ = WorkLedger(job, ledger_.state()); }

  const WorkLedger& ledger() const { return ledger_; }
  const JobProgress& progress() const { return progress_; }
  const ClusterPolicy& policy() const { return *policy_; }
  bool uses_rosters() const { return policy_->uses_rosters(); }
  // Returns the rounds that are open: one at most with rosters, else one per grant that is out.
  const std::map<Round, OpenRound>& open() const { return open_; }
  // Returns the ledger before the newest round with a roster was opened. Not set means that it is
  // not known.
  const std::optional<LedgerState>& before_open_round() const { return before_open_round_; }
  const std::map<WorkerId, WorkerAssignment>& assignments() const { return assignments_; }
  // Returns an empty assignment for a worker of which none is known.
  const WorkerAssignment& Of(WorkerId worker) const;

  // Members that there must be.

  // The cluster is ready for workers. Those that were there get time to come back.
  void GatherMembers(absl::Time now) { quota_.OnReady(now); }
  bool IsGathering(absl::Time now) const { return quota_.IsGathering(now); }
  RequiredMembers Required(absl::Time now) const { return quota_.Required(now); }
  // Returns true if so many members are enough for the next round.
  bool CanGoOnWith(size_t num_members, absl::Time now) const {
    return num_members > 0 && static_cast<int>(num_members) >= Required(now).count;
  }

  // Workers. A life begins, or goes on.
  void BeginLife(WorkerId worker, const RegisterCall& call, bool is_same_process, absl::Time now) {
    assignments_[worker].BeginLife(call, is_same_process, now);
  }
  // The worker has this data. Errors: those of DataSets::Admit().
  absl::Status Admit(WorkerId worker, absl::string_view name, const DatasetInfo& data) {
    return ledger_.AdmitWorker(worker, name, data);
  }
  // Makes the worker, which has joined `others`, as far as the slowest of them.
  void BeginMembership(WorkerId worker, absl::Span<const RoundMember> others, absl::Time now);
  // Ends the life: rounds that are open go on without the worker.
  void EndLife(WorkerId worker, absl::Time now);
  void Forget(WorkerId worker) { assignments_.erase(worker); }

  // The worker asks for work, and waits until it gets some. Returns whether it had not waited.
  bool AskForWork(WorkerId worker) { return assignments_[worker].SetWaiting(); }
  // The worker wants no new work in this life.
  void BeginLeave(WorkerId worker) { assignments_[worker].BeginLeave(); }
  // Returns true if the worker wants to leave, and no round takes anything of it. `is_ready`: the
  // servers take contributions.
  bool MayLeave(WorkerId worker, bool is_ready) const;
  ReportVerdict Classify(WorkerId worker, const RoundReport& report, const JobSpec& job) const {
    return Of(worker).Classify(report, job);
  }
  // Counts the report in its round, and completes the grant. A round that is not open any more was
  // committed without this worker. Requires: the report is of the grant held.
  CountedReport Count(WorkerId worker, const RoundReport& report, const JobSpec& job,
                      absl::Time now);

  // The server of `shard` has all that the worker contributes to the round. Returns true if this
  // was the last server that the report waits for.
  bool OnContributed(int shard, WorkerId worker, Round round);
  bool AwaitsContribution(WorkerId worker, Round round) const {
    return Of(worker).AwaitsContribution(round, num_shards_);
  }
  // The server of `shard` has attached and has told where its journal ends.
  void OnServerAttached(int shard);

  // Rounds. `members`: all of them, ascending by ID.

  ClusterView View(absl::Span<const RoundMember> members, absl::Time now) const;
  // Returns true if a further round may follow.
  bool has_next_round() const {
    return is_site() ? site_->waiting() != nullptr : !ledger_.is_exhausted();
  }
  // Returns true if a member has something in hand that only a further round takes, and the job has
  // one.
  bool OwesContribution(absl::Span<const RoundMember> members) const;
  // Returns the members that the next round is to be opened for. Empty means that none is to be
  // opened now.
  std::vector<RosterMember> NextRoster(absl::Span<const RoundMember> members, absl::Time now) const;
  // Opens the next round for NextRoster(), in this view. Requires has_next_round().
  WorkLedger::Work OpenNext(absl::Span<const RosterMember> roster,
                            absl::Span<const RoundMember> members, ViewId view,
                            WorkLedger::Computes computes, absl::Time now);
  // Closes the rounds that are over, and returns them, ascending.
  std::vector<ClosedRound> CloseOver(absl::Span<const RoundMember> members, absl::Time now);
  // Returns the round before which all rounds are over, and in the weights. Without rosters any
  // weights will do, and it is 0.
  Round committed_round() const;
  // Returns the number of rounds that are over, and in all weights once everything is applied.
  int64_t rounds_done() const;
  // Drops the rounds that are open: nothing comes of them.
  void DropOpen() { open_.clear(); }

  // The final evaluation: the one round that is open, once none other follows.

  // Returns workers that the evaluation is not over all held-out samples without, while none of
  // their kind has asked for work.
  std::vector<WorkerId> LackingForEvaluation(absl::Span<const RoundMember> members) const {
    return ledger_.LackingFor(Waiting(members));
  }
  // Returns the members that it is to be opened for. Empty means that it is not to be opened now.
  std::vector<RosterMember> EvaluationRoster(absl::Span<const RoundMember> members) const;
  WorkLedger::Work OpenEvaluation(absl::Span<const RosterMember> roster, ViewId view,
                                  absl::Time now);
  // Ends the evaluation. Not set means that a worker was lost during it: it is to be repeated.
  // Requires: it is open, and none of its workers is missing.
  std::optional<ClosedRound> EndEvaluation(absl::Time now);

  // Records. Forgets this round and those before it: what was announced is where it is to stay.
  void OnRecorded(const RoundSummary& summary);
  // Returns the rounds that were announced, and are not on record as far as is known.
  const std::deque<RoundSummary>& unrecorded() const { return unrecorded_; }
  // A pause is over. If no round was open, its time is none of training.
  void EndStandstill() {
    if (open_.empty()) progress_.OnStandstill();
  }
  // See WorkLedger.
  void MultiplyLearningRateScale(double factor) { ledger_.MultiplyLearningRateScale(factor); }
  // Returns samples that were handed out, and neither trained on nor with a worker that may still
  // tell of them, nor in the sums of a round that is open.
  int64_t UntrainedSamples(const JobSpec& job) const;

  // Orders of a site. See SiteCourse. All but the first require is_site().

  bool is_site() const { return site_.has_value(); }
  const SiteCourse& site() const { return *site_; }
  uint64_t TakeOrder(const SiteOrder& order) { return site_->Take(order); }
  bool WithdrawUnlessBegun(uint64_t number) { return site_->WithdrawUnlessBegun(number); }
  bool TellUpstream(absl::string_view words, absl::Time now) {
    return site_->TellUpstream(words, now);
  }
  // Says what becomes of an order. `has_failed`: the job. `is_over`: no work is handed out any
  // more.
  OrderVerdict JudgeOrder(uint64_t number, bool has_failed, bool is_over) const;
  // Returns the data set of the members. Not set means that there are too few members.
  std::optional<DatasetInfo> SiteData(absl::Span<const RoundMember> members, absl::Time now) const;

 private:
  MemberProgress ProgressOf(const RoundMember& member, absl::Time now) const;
  // Returns the members of the round's roster that live and have not reported.
  std::vector<MemberProgress> MissingOf(const OpenRound& round,
                                        absl::Span<const RoundMember> members,
                                        absl::Time now) const;
  // Returns members that have asked for work and have none.
  std::vector<RosterMember> Waiting(absl::Span<const RoundMember> members) const;
  // Null means that this is no site, or has no order.
  const SiteOrder* WaitingOrder() const { return is_site() ? site_->waiting() : nullptr; }
  // Returns how many members may share the next round at most.
  int MaxRosterOfNext() const;
  // Gives out the work, with the losses of the job.
  void Give(WorkLedger::Work& work, absl::Time now);
  ClosedRound Close(OpenRound round, absl::Time now);

  const std::unique_ptr<const ClusterPolicy> policy_;
  const int num_shards_;
  WorkLedger ledger_;
  MemberQuota quota_;
  JobProgress progress_;
  std::optional<SiteCourse> site_;  // Not set means that this is none.
  std::map<WorkerId, WorkerAssignment> assignments_;
  const WorkerAssignment unknown_;
  std::map<Round, OpenRound> open_;
  std::optional<LedgerState> before_open_round_;
  int64_t evaluation_attempt_ = 0;
  std::deque<RoundSummary> unrecorded_;
};

// Returns what shards are told of a round. An evaluation that has a number among those of training
// is a round that no member contributes to.
RoundPlan PlanForShards(const WorkLedger::Work& work);

}  // namespace lodestar
