// The coordinator of one job: membership, work and rounds, and what follows from them. Pure: it has
// no lock, clock, thread, proto or I/O, and calls no code of its owner. The owner serializes all
// calls, passes the time, calls Tick() a few times per lease, and carries out the effects. Same
// calls, same answers, same effects.
//
//   kAwaitingShards --> kRestoring --> [kAwaitingLayout] --> kLoading --> kRunning --> kEvaluating
//         ^                                                                  |             |
//         | any shard is lost                                                v             v
//         +------------- (from every state)               kDone <-------- kSaving <--------+
//
// kAwaitingLayout only for the model `client` without a checkpoint. RequestStop() leads from
// kRunning to kSaving as soon as no work is out. In kDone, workers are told to leave; a last
// checkpoint that failed is tried again there. A run that diverges goes to kDone without saving, or
// back to kRestoring: DivergencePolicy. What the servers cannot get over, such as weights that
// cannot be loaded, leads to kFailed, where workers are told why and to leave.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/announcement.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/coordinator/cluster_faults.h"
#include "server/coordinator/cluster_memory.h"
#include "server/coordinator/cluster_orders.h"
#include "server/coordinator/cluster_saves.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/cluster_words.h"
#include "server/coordinator/coordinator_config.h"
#include "server/coordinator/coordinator_memory.h"
#include "server/coordinator/membership/membership.h"
#include "server/coordinator/model/job_model.h"
#include "server/coordinator/outbox.h"
#include "server/coordinator/rounds/round_scheduler.h"
#include "server/coordinator/rounds/site_order.h"
#include "server/coordinator/rounds/work_ledger.h"
#include "server/coordinator/shards/journal_state.h"
#include "server/coordinator/shards/shard_command.h"
#include "server/coordinator/shards/shard_event.h"
#include "server/coordinator/stragglers/straggler_detector.h"
#include "server/sync/push_space.h"
#include "server/sync/worker_fault.h"

namespace lodestar {

// If there is no grant, hold the call, and ask again after state_version() has changed. When the
// caller's patience is over, set `pending_reason` and answer OrWait().
struct GrantAnswer {
  std::optional<Grant> grant;
  std::string pending_reason;  // see Coordinator::WhyNoGrant()

  Grant OrWait() const {
    if (grant.has_value()) return *grant;
    Grant wait;
    wait.kind = Grant::Kind::kWait;
    wait.reason = pending_reason;
    return wait;
  }
};

class Coordinator {
 public:
  using Config = CoordinatorConfig;
  // Errors: InvalidArgument, as ValidateJobSpec() and BuildLayout(), or for num_shards.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Create(Config config, absl::Time now);
  // Goes on where a process that has ended was, as after a long outage: workers keep their lives
  // and grants, and servers are away until they attach with the memory that they had. Errors: those
  // of Create(); FailedPrecondition, as CheckSameJob(); DataLoss (a memory that contradicts
  // itself).
  static absl::StatusOr<std::unique_ptr<Coordinator>> Resume(Config config,
                                                             CoordinatorMemory memory,
                                                             absl::Time now);

  // What the calls since the last TakeEffects() have led to, for the owner to carry out in order.
  std::vector<Effect> TakeEffects() { return outbox_.Take(); }

  // Returns what Resume() takes. Not set means that there is no memory, and a process that comes
  // after this one chooses what to restore as after any other start. There is none before the
  // servers are ready, once they have lost something and start over, and when the job is over and
  // saved, or has failed for good.
  std::optional<CoordinatorMemory> Memory() const { return MemoryOf(state_); }
  // Changes whenever Memory() may have: what calls have answered and led to until then must not be
  // known outside before that memory is kept, if it is to be resumed from.
  uint64_t memory_version() const { return outbox_.memory_version(); }
  // Returns the ID of the journal that memories are kept in. 0 means that there is no journal.
  uint64_t journal_id() const { return state_.journal_id; }
  // The last record that was there when this process began.
  CoordinatorRecord found_record() const { return state_.config.journal.end; }
  // Whether nothing may be kept yet, because the journal may be older than what others know of it.
  bool may_not_keep() const {
    return state_.is_comparing() && !state_.config.journal.folder.empty();
  }
  // What the journal lacks, and is not accepted to be lost.
  const std::optional<JournalLoss>& journal_loss() const { return state_.comparison.loss; }
  // Says what that is, for people. Requires: journal_loss() is set.
  std::string journal_loss_reason() const {
    return JournalLossReason(state_.config.journal, *state_.comparison.loss);
  }
  // Whether calls of workers may be answered. Errors: Unavailable, as may_not_keep().
  absl::Status CheckCompared(absl::Time now) const { return lodestar::CheckCompared(state_, now); }

  // Whether all servers are there and serve the weights. Errors: Unavailable, saying what is waited
  // for; FailedPrecondition if the job has failed.
  absl::Status CheckAllServing(absl::Time now) const {
    return lodestar::CheckAllServing(state_, now);
  }

  // Workers. Errors of each: see proto/cluster_service.proto. Aborted: register again.
  absl::StatusOr<Registration> Register(const RegisterCall& call, absl::Time now);
  // Whether a process that registers so goes on with a life that it has.
  bool GoesOn(const RegisterCall& call) const { return state_.membership.GoesOn(call); }
  // Returns from where the other process was last heard of that lives under the name of `call`,
  // which is refused because of that process. If that connection is closed, `call` may say so, and
  // has the name once nothing was heard of the other process for longer than a heartbeat takes. Not
  // set means that there is no such process, or that it was not heard of since this process began.
  std::optional<std::string> PeerOfHolder(const RegisterCall& call) const {
    return state_.membership.PeerOfHolder(call);
  }
  // A call of this life has come from there.
  void NoteConnection(const WorkerLife& life, const std::string& peer) {
    state_.membership.OnHeard(life, peer);
  }
  // Before Register(), once for every call whose life does not go on: counts it. Errors:
  // ResourceExhausted with RetryAfter: there are too many of this peer, or in all.
  absl::Status CheckRegistrationRate(absl::string_view peer, absl::Time now) {
    return state_.membership.TakeRegistration(peer, now);
  }
  bool IsMember(const WorkerLife& life) const { return state_.membership.IsMember(life); }
  // Errors: Aborted if it is over, or was never given.
  absl::Status CheckLife(const WorkerLife& life) const { return state_.membership.Check(life); }
  // Empty means that no worker of that ID is known.
  std::string WorkerName(WorkerId worker) const;
  // Ends the lives of the workers whose names `which` says. Returns how many there were.
  int EvictWorkers(absl::FunctionRef<bool(absl::string_view name)> which, absl::string_view reason,
                   absl::Time now);
  // Ends the life of the worker of this name, and lets none in under it until it is readmitted,
  // also after a restart. Errors: NotFound.
  absl::Status Evict(absl::string_view name, absl::string_view reason, absl::Time now);
  // Does so for every name of the certificate that the worker `name` has; `name` may also be the
  // certificate's own. Returns the certificate. Errors: NotFound; FailedPrecondition (the worker
  // has no certificate).
  absl::StatusOr<std::string> EvictWithCertificate(absl::string_view name, absl::string_view reason,
                                                   absl::Time now);
  // Lets workers in again that were evicted, or shut out by --poison_limit. Errors: NotFound if
  // none has that name.
  absl::Status Readmit(absl::string_view name, absl::Time now);
  // All go back to the newest checkpoint of at most `round` rounds; there is one. Those of more are
  // set aside. It is so for good, also after a crash, once server_incarnation() is another one.
  // Returns how many rounds were done. Errors: those of CheckMayRollBack().
  absl::StatusOr<int64_t> RollBack(Round round, absl::string_view why, absl::Time now);
  // Errors: FailedPrecondition (nothing is saved, the job is not under way, or has not done more
  // than `round` rounds).
  absl::Status CheckMayRollBack(Round round, absl::Time now) const {
    return faults_.CheckMayRollBack(round, now);
  }
  // A worker was turned away, here or before the call came here; for log and status.
  void NoteRefusal(absl::string_view name, absl::string_view peer, const absl::Status& reason,
                   absl::Time now);
  absl::StatusOr<ViewId> Join(const WorkerLife& life, absl::string_view layout_hash,
                              const DatasetInfo& dataset, absl::Time now);
  absl::StatusOr<HeartbeatAnswer> Heartbeat(const HeartbeatCall& call, absl::Time now);
  // Counts the report (once, however often it comes), then answers with the worker's grant: the one
  // it holds and has not reported, to the bit as given before, or a new one, or none yet.
  absl::StatusOr<GrantAnswer> RequestGrant(const WorkerLife& life,
                                           const std::optional<RoundReport>& report,
                                           absl::Time now);
  // Whether not all servers have told yet that they have all that this life contributes to `round`,
  // which it has been granted.
  bool AwaitsContribution(const WorkerLife& life, Round round) const;
  // Records of a shard's journal up to this one are on disk. It is kept with the next report that
  // is counted: where workers ask ahead, that of the contribution that the server has told of.
  void NoteJournalEnd(int shard, uint64_t end) {
    if (state_.shards.Has(shard)) state_.shards.NoteJournalEnd(shard, end);
  }
  // Whether this life's report of a round has to wait until all servers have told where their
  // journals end with what the report is of. If the report counted before, a journal that lost that
  // end later would not be noticed. Once patience is over, only servers that are away are waited
  // for. Deferred contributions are not waited for, because servers tell nothing of them.
  bool AwaitsJournals(const WorkerLife& life, Round round, bool is_patience_over) const {
    return CheckLife(life).ok() && state_.AwaitsJournals(life.worker, round, is_patience_over);
  }
  // From now on RequestGrant() answers at once: with the grant that the worker has, or kDone.
  // Errors: those of RequestGrant().
  absl::Status BeginLeave(const WorkerLife& life, absl::Time now);
  // What RequestGrant() would answer now, for calls being held: renews no lease, counts nothing.
  absl::StatusOr<GrantAnswer> PollGrant(const WorkerLife& life, absl::Time now) const;
  // Why a member has no grant now, for people. Looks at all members: call it once for an answer,
  // not for every change while a call is held.
  std::string WhyNoGrant(const WorkerLife& life, absl::Time now) const;
  absl::Status Leave(const WorkerLife& life, absl::string_view reason,
                     const std::optional<RoundReport>& report, absl::Time now);
  // The process of this life has ended for good: the life ends now and not with its lease. The
  // lease of the last member stays, because no member waits for that one. Before the journals have
  // been compared, the lease decides as well, because nothing that happens then is kept.
  void OnProcessEnded(const WorkerLife& life, absl::Time now);
  // The connection from `peer`, over which this life held StayConnected, has ended. `by_peer` says
  // that the other end has closed it. See ClosedConnections for what follows.
  void OnConnectionEnded(const WorkerLife& life, const std::string& peer, bool by_peer,
                         absl::Time now);
  // Time passes: leases end.
  void Tick(absl::Time now);
  // This process did not run for `gap`, which is no part of `now` nor of the time before: what
  // others have waited for in it is this server.
  void OnGap(absl::Duration gap, absl::Time now);

  // Shards. A shard is attached and disconnected by its connection. Shard 0 is in this process and
  // attaches in the same way. A server that comes back with the memory that it had goes on, and is
  // told again what it may have missed. `memory_of` is the server incarnation that its memory is
  // of. 0 means that it has none. A server whose journal lacks records that were on disk takes all
  // servers back to the newest checkpoint. Errors: InvalidArgument (numbers do not fit),
  // AlreadyExists (another server holds the shard, and is not away), Aborted (the call comes late:
  // its server has loaded other memory since; or another process goes on with its journal).
  absl::Status OnShardAttached(int shard, int num_shards, uint64_t instance_id, uint64_t memory_of,
                               absl::string_view address, absl::Time now,
                               JournalPlace journal = {});
  // Whether a server that attaches so goes on.
  bool GoesOn(int shard, uint64_t instance_id, uint64_t memory_of) const;
  // Checks what comes from the server of a shard. Error: Aborted if another process has gone on
  // with its journal since. `first_segment`: see JournalPlace.
  absl::Status CheckNotFollowed(int shard, uint64_t first_segment) const {
    return state_.shards.IsFollowed(shard, first_segment) ? FollowedStatus() : absl::OkStatus();
  }
  void OnShardDisconnected(int shard, uint64_t instance_id, absl::Time now);
  // A sign of life. A server that gives none for a lease is away until the next one.
  void OnShardHeard(int shard, uint64_t instance_id, absl::Time now);
  // Called with each sign of life. If more is written down than --journal_limit, a checkpoint is
  // taken out of turn, once until there is less again. If there is no trouble, alarms that end with
  // it are over.
  void OnJournalState(int shard, JournalState journal, absl::Time now);
  // Called with each sign of life. A member that is held by the server is not waited for, and a
  // member that does not get on with what others wait for is dropped: see StragglerDetector.
  void OnPushSpace(int shard, const PushSpace& space, absl::Time now);
  void OnShardEvent(int shard, const ShardEvent& event, absl::Time now);
  // All of a contribution is acknowledged there. Returns true if this was the last server that a
  // report of the round waits for.
  bool OnContributed(int shard, uint64_t server_incarnation, const WorkerLife& life, Round round);
  void OnRestoreChosen(const absl::StatusOr<RestoreChoice>& choice, absl::Time now);
  void OnCheckpointPublished(absl::string_view directory,
                             const absl::StatusOr<PublishedCheckpoint>& published, absl::Time now);
  // The answer to a MarkTask.
  void OnCheckpointMarked(bool is_complete, const absl::Status& status, absl::Time now);

  // What was announced of this round is where it is to stay. That it was not, a process after this
  // one has to look at, and no more: memory_version() stays.
  void OnRecorded(const RoundSummary& summary) { state_.rounds.OnRecorded(summary); }

  // The calls of the uplink, which a site has (CoordinatorConfig::upstream). An order waits for
  // members. Returns its number.
  uint64_t TakeOrder(const SiteOrder& order, absl::Time now) {
    const uint64_t number = state_.rounds.TakeOrder(order);
    Advance(now);
    return number;
  }
  bool WithdrawUnlessBegun(uint64_t number) { return state_.rounds.WithdrawUnlessBegun(number); }
  // Empty while it is under way. Errors: Cancelled if it was withdrawn, or replaced by another, or
  // no work is handed out any more; the failure of the job.
  std::optional<absl::StatusOr<SiteOutcome>> OrderOutcome(uint64_t number) const {
    return OrderOutcomeOf(state_, number);
  }
  // Whether weights may be taken or given now: no round is open, and none opens without an order.
  bool is_between_rounds() const { return state_.is_ready() && state_.rounds.open().empty(); }
  // The members' data set; not set before there are as many members as a round needs.
  std::optional<DatasetInfo> SiteData(absl::Time now) const;
  // See SiteCourse.
  void TellUpstream(absl::string_view words, absl::Time now) {
    if (state_.rounds.TellUpstream(words, now)) outbox_.Touch();
  }
  // The uplink has ended. OK means that the job upstream is over, and this one with it. For any
  // other outcome this job fails, once it is saved. A job that is stopped has ended its uplink
  // itself, whatever the uplink has lost.
  void OnUpstreamEnd(const absl::Status& outcome, absl::Time now);

  // Operators. The ticket names the checkpoint that will serve the request; it is taken as soon as
  // no round is open. Errors: FailedPrecondition (no --checkpoint_dir, or not running), Unavailable
  // (a server is not there, now or before it is taken).
  absl::StatusOr<uint64_t> RequestCheckpoint(absl::Time now);
  void RequestStop(absl::string_view reason, absl::Time now);
  // No round is opened any more, until Resume() or RequestStop(), also after a restart. Rounds that
  // are open end as without a pause. A further call gives another reason. Errors:
  // FailedPrecondition (the job is over, or stops).
  absl::Status Pause(absl::string_view reason, absl::Time now) {
    const absl::Status paused = orders_.Pause(reason, now);
    Advance(now);
    return paused;
  }
  // Errors: FailedPrecondition, as Pause(), or the job is not paused.
  absl::Status Resume(absl::Time now) {
    const absl::Status resumed = orders_.Resume(now);
    Advance(now);
    return resumed;
  }
  // The next round has this one, and later ones what the schedule makes of it: all of it is scaled
  // alike. For good, as Pause() is. Errors: InvalidArgument (out of range); FailedPrecondition (the
  // learning rate is decided elsewhere, or the job is not under way).
  absl::StatusOr<LearningRateChange> SetLearningRate(double learning_rate, absl::Time now) {
    absl::StatusOr<LearningRateChange> change = orders_.SetLearningRate(learning_rate, now);
    Advance(now);
    return change;
  }
  // A server is about to stop, for the reason given: no worker gets new work, and what was done is
  // saved. A worker that still owes a contribution after half of `patience` is dropped from its
  // round. A further call for the same reason gets no more time, and what is under way goes on.
  void BeginLastSave(absl::string_view reason, absl::Duration patience, absl::Time now);
  void RaiseAlarm(absl::string_view text, absl::Time now, AlarmKind kind = AlarmKind::kAlarm) {
    outbox_.RaiseAlarm(text, now, kind);
  }
  // `outcome` says what became of the operator's command for a checkpoint. An error is an alarm,
  // which is over once the command has worked.
  void OnCheckpointCommand(const absl::Status& outcome, absl::Time now) {
    outbox_.SetAlarm("checkpoint command", outcome, now);
  }

  // How it stands. state_version() changes whenever a pending grant, registration or checkpoint
  // could have a new answer.
  uint64_t state_version() const { return outbox_.state_version(); }
  CoordinatorPhase phase() const { return state_.phase; }
  const JobSpec& job() const { return state_.model.job(); }
  uint64_t server_incarnation() const { return state_.shards.server_incarnation(); }
  // Whether a server above shard 0 that cannot load ends alone, and not the job.
  bool replaces_servers() const { return state_.shards.has_loaded(); }
  const std::string& life_key() const { return state_.membership.life_key(); }
  std::shared_ptr<const ClusterMap> map() const {
    return state_.model.map();
  }  // null if no layout yet
  // Returns the instance ID of the server process of each shard, by which these processes know the
  // coordinator from others. 0 means that the server is not there.
  std::vector<uint64_t> shard_instances() const;
  Round committed_round() const { return state_.rounds.committed_round(); }
  int64_t rounds_done() const { return state_.rounds.rounds_done(); }
  ClusterSnapshot Snapshot(absl::Time now) const { return SnapshotOf(state_, now); }
  // Empty while it is under way; NotFound for tickets long gone.
  std::optional<absl::StatusOr<PublishedCheckpoint>> CheckpointOutcome(uint64_t ticket) const {
    return state_.checkpoints.tracker().OutcomeOf(ticket);
  }
  // Not set before it is over. Errors: FailedPrecondition (nothing to save, or nowhere); else why
  // it failed. Each says what is in no checkpoint.
  const std::optional<LastSave::Outcome>& LastSaveOutcome() const {
    return state_.checkpoints.last_save().outcome();
  }
  // Returns true if a last save was begun in this life of the servers. It may be over, unless it
  // had to end at once.
  bool has_begun_last_save() const { return state_.checkpoints.last_save().is_begun(); }
  std::string Unsaved() const { return UnsavedText(state_); }
  std::string Lost() const { return LostText(state_); }
  std::optional<absl::StatusOr<JobOutcome>> Ending() const { return EndingOf(state_); }
  JobOutcome EndingIfCutOff() const { return CutOffEndingOf(state_); }
  // How it ended, failed or over. Not set before the workers have left and the servers were told to
  // exit.
  std::optional<absl::Status> outcome() const {
    if (!state_.comparison.refusal.ok()) return state_.comparison.refusal;
    return state_.ending.should_exit() ? std::optional(state_.ending.failure()) : std::nullopt;
  }
  // Whether a server may not have heard of the outcome, and would look for this one for ever if it
  // were gone: it has some time to connect again.
  bool AwaitsServers(absl::Time now) const { return state_.ending.AwaitsServers(now); }

 private:
  // Events of shards.
  void On(int shard, const ShardLoaded& loaded, absl::Time now);
  void On(int shard, const ShardSaved& saved, absl::Time now);
  void On(int shard, const ShardSquareSums& square_sums, absl::Time now);
  void On(int shard, const ShardDiverged& diverged, absl::Time now);
  void On(int shard, const ShardFailing& failing, absl::Time now);
  void On(int shard, const ShardConnections& connections, absl::Time now);
  void On(int shard, const ShardAlarm& alarm, absl::Time now);
  void On(int shard, const ShardExiting& exiting, absl::Time now);
  void On(int shard, const WorkerFault& fault, absl::Time now);
  Coordinator(Config config, JobModel model, absl::Time now);

  // Tells the log what has been waited for for a while, once.
  void TellWait(absl::Time now);
  void Enter(CoordinatorPhase phase);

  // Lives of workers.
  absl::StatusOr<Registration> Admit(const RegisterCall& call, absl::Time now);
  void TellRefusal(absl::string_view name, absl::string_view peer, const absl::Status& reason);
  // Raises an alarm, and ends the life that the caller's process has here. One worker's word moves
  // nothing else. Returns LacksReportStatus().
  absl::Status RefuseAcknowledged(const RegisterCall& call, absl::Time now);
  // Makes the model and the settings of this client the job's, if they count: see
  // JobModel::Judge(). Errors: those of ModelRefusalStatus(); Unavailable if the servers start over
  // with them.
  absl::Status Adopt(const RegisterCall& call, absl::Time now);
  void DropWorker(WorkerId worker, absl::string_view reason, absl::Time now);
  void DropAll(absl::string_view reason, absl::Time now);
  // Ends the life that others wait for alone, if its connections were closed for good.
  void EndUnconnected(absl::Time now);
  // Ends also the members that rest with the certificate of one of `lives`.
  void EndLives(std::vector<EndedLife> lives, absl::Time now);
  // Sends to all shards. Does nothing before the journals have been compared: until then shards may
  // know more than this process. RepeatCommands() makes up for that.
  void Command(ShardCommand command);
  void AnnounceMembers();
  MembersCommand Members() const;

  // Goes on as far as the facts allow. The functions below return whether anything has changed.
  void Advance(absl::Time now);
  bool AdvanceOnce(absl::Time now);
  bool AdvanceLoading(absl::Time now);
  bool AdvanceTraining(absl::Time now);
  // These two are for settings that the job is to choose itself. The first returns whether the
  // trial of settings is over.
  bool IsTrialOver() const;
  bool ChooseExchangeSettings(absl::Time now);
  bool AdvanceEvaluation(absl::Time now);
  bool AdvanceSaving(absl::Time now);
  bool AdvanceDone(absl::Time now);
  bool AdvanceFailed(absl::Time now);

  // Rounds and grants.
  GrantAnswer AnswerFor(WorkerId worker) const;
  // Says to workers why the job has ended, in kDone and kFailed.
  std::string ReasonOfEnd() const;
  // Returns what a worker that registers then is told.
  absl::Status JobIsOver() const;
  absl::Status CountReport(WorkerId worker, const RoundReport& report, absl::Time now);

  // Workers that hold up the others.
  void DropStalls(absl::Time now);
  // Drops the workers of those stalls that are over.
  void Drop(const std::vector<Stall>& stalls, absl::Time now);
  // Tells the StragglerDetector of `lives`, which have just ended. Drops the members that rest from
  // then on, and adds them to `lives`.
  void LetMembersRest(std::vector<EndedLife>& lives, absl::Time now);
  // A round is over: tells once of a worker that computes so slowly that rounds wait for it, and of
  // the flag that would help.
  void LookForStraggler();
  void DropLingering(absl::Time now);
  // When a worker that is still there after the end of the job is let go.
  absl::Time LeavesBy(WorkerId worker) const;

  // Whether the newest checkpoint must be reopened before work is handed out; sees to it.
  bool AwaitsReopening();
  bool GrantNext(WorkLedger::Computes computes, absl::Time now);
  // Work was given out.
  void OnGiven(const WorkLedger::Work& work);
  // The job ends with this error after a last checkpoint.
  void FailOnceSaved(const absl::Status& failure, absl::Time now);
  bool CloseRounds(absl::Time now);
  // Tells servers, operators and records of a round that is over.
  void TellClosed(const ClosedRound& closed, absl::Time now);

  void Follow(const FaultVerdict& verdict, absl::Time now);

  // Servers.
  absl::Status GoOnFrom(CoordinatorMemory memory, absl::Time now);
  absl::Status Restore(const RestoreChoice& choice, absl::Time now);
  absl::Status Assign(absl::Time now);
  // Compares journals, if that is still to be done and all shards have attached.
  void CompareOnceAllAttached(absl::Time now);
  void EndComparison(absl::Time now);
  // The operator accepts that this is lost.
  void AcceptLoss(const JournalLoss& loss, absl::Time now);
  void BeginRestoring(ChooseRestoreTask task);
  // The server has the memory that it had, and is told what it may have missed.
  absl::Status GoOnWith(const Attachment& attachment, const AttachVerdict& verdict, absl::Time now);
  // The server has not, or not any more, what the others of this life of the servers have: all
  // start over.
  void StartOver(int shard, const ShardLoss& loss, absl::Time now);
  // The server cannot take its place in a job that was under way, and ends with this failure. The
  // job waits for another one.
  void ReplaceServer(int shard, const std::string& failure, absl::Time now);
  // The rest of it, once the server counts as lost. `what`: has become of it, for people.
  void GoBackWithout(int shard, absl::string_view what, absl::Time now);
  // What that means, for people.
  std::string WayBack() const;
  void ForgetStop(int shard, absl::Time now);
  void OnShardAway(int shard, absl::Time now);
  void OnShardBack(int shard, absl::Time now);
  void RepeatCommands(int shard);
  void LookForSilence(absl::Time now);

  // The end of the job.
  void EndWithoutSaving(absl::Time now);
  bool AdvanceLastSave(absl::Time now);
  void DropMissing(absl::Time now);
  // The servers cannot go on.
  void Fail(const absl::Status& status, absl::Time now);
  void FailUnlessOk(const absl::Status& status, absl::Time now);
  // Ends the servers, once all that are to learn how the job ended have learned it.
  void Exit(absl::string_view why, absl::Time now);

  ClusterState state_;
  Outbox outbox_{&state_.alarms};
  ClusterSaves saves_{&state_, &outbox_};
  ClusterFaults faults_{&state_, &outbox_, &saves_};
  ClusterOrders orders_{&state_, &outbox_, &saves_};
};

}  // namespace lodestar
