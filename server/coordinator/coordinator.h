// SPDX-License-Identifier: Apache-2.0

// The coordinator of one job: it decides on membership, work, rounds and all that depends on them.
// Pure: it has no lock, clock, thread, proto or I/O, and calls no code of its owner. The owner
// serializes all calls, passes the time, calls Tick() a few times per lease, and carries out the
// effects. The same calls always give the same answers and effects.
//
//   kAwaitingShards --> kRestoring --> [kAwaitingLayout] --> kLoading --> kRunning --> kEvaluating
//         ^                                                                  |             |
//         | any shard is lost                                                v             v
//         +------------- (from every state)               kDone <-------- kSaving <--------+
//
// kAwaitingLayout comes only for the model `client` without a checkpoint. RequestStop() leads from
// kRunning to kSaving as soon as no round is open. In kDone, workers are told to leave, and a last
// save that failed is tried again. A run that diverges goes to kDone without saving, or back to
// kRestoring: see DivergencePolicy. An error after which the servers cannot go on, such as weights
// that cannot be loaded, leads to kFailed. There, workers are told the error and that they have to
// leave.
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
#include "server/coordinator/verdict_words.h"
#include "server/sync/push_space.h"
#include "server/sync/worker_fault.h"

namespace lodestar::coordinator {

// The answer to a worker that asks for work. If `grant` is not set, the caller holds the worker's
// call:
// - Whenever state_version() has changed, it calls PollGrant().
// - When it cannot hold the call any longer, it sets `pending_reason` and answers with OrWait().
struct GrantAnswer {
  std::optional<messages::Grant> grant;
  std::string pending_reason;  // see Coordinator::WhyNoGrant()
  // The living workers. Set if there is a grant.
  std::optional<messages::LiveWorkers> live_workers = {};

  // Returns the answer to the worker: the grant, or kWait if there is none.
  messages::Grant OrWait() const {
    if (grant.has_value()) {
      messages::Grant answer = *grant;
      answer.live_workers = live_workers;
      return answer;
    }
    messages::Grant wait;
    wait.kind = messages::Grant::Kind::kWait;
    wait.reason = pending_reason;
    return wait;
  }
};

class Coordinator {
 public:
  using Config = CoordinatorConfig;
  // Creates a coordinator without a memory. Errors: InvalidArgument (`num_shards` of the config is
  // wrong); those of ValidateJobSpec() and BuildLayout().
  static absl::StatusOr<std::unique_ptr<Coordinator>> Create(Config config, absl::Time now);
  // Creates a coordinator that goes on from the memory of a process that has ended. Workers keep
  // their lives and grants. Servers are away until they attach with the memory that they had.
  // Errors: those of Create(); FailedPrecondition (as CheckSameJob()); DataLoss (parts of the
  // memory contradict each other).
  static absl::StatusOr<std::unique_ptr<Coordinator>> Resume(Config config,
                                                             CoordinatorMemory memory,
                                                             absl::Time now);

  // Returns the effects of all calls since the last TakeEffects(). The owner has to carry them out
  // in order.
  std::vector<Effect> TakeEffects() { return outbox_.Take(); }

  // Returns the memory for Resume(). Not set means that the next process has to start without a
  // memory and chooses what to restore. It is not set in three cases: before the servers are ready;
  // while they start over after a loss; after the job is over and saved, or has failed for good.
  std::optional<CoordinatorMemory> Memory() const { return MemoryOf(state_); }
  // Returns a number that changes whenever Memory() may have changed. If the owner stores memories,
  // it must store the new memory first. Only then may it send answers or carry out effects of the
  // calls that changed the memory.
  uint64_t memory_version() const { return outbox_.memory_version(); }
  // Returns the ID of the journal in which the owner stores memories. 0 means that there is no
  // journal.
  uint64_t journal_id() const { return state_.journal_id; }
  // Returns the last record that the journal had when this process began.
  shards::CoordinatorRecord found_record() const { return state_.config.journal.end; }
  // Returns true if the owner must not write into its journal yet. The comparison may still show
  // that the journal has lost records that shards or checkpoints know of.
  bool may_not_keep() const {
    return state_.is_comparing() && !state_.config.journal.folder.empty();
  }
  // Returns what the journal has lost. Not set means that nothing is lost, or that the operator has
  // accepted the loss.
  const std::optional<shards::JournalLoss>& journal_loss() const { return state_.comparison.loss; }
  // Returns a message for operators about journal_loss(). Requires: journal_loss() is set.
  std::string journal_loss_reason() const {
    return JournalLossReason(state_.config.journal, *state_.comparison.loss);
  }
  // Checks that calls of workers may be answered. Errors: Unavailable (the journals have not been
  // compared yet).
  absl::Status CheckCompared(absl::Time now) const {
    return coordinator::CheckCompared(state_, now);
  }

  // Checks that all servers are there and serve the weights. Errors: Unavailable (says what the
  // cluster waits for); FailedPrecondition (the job has failed).
  absl::Status CheckAllServing(absl::Time now) const {
    return coordinator::CheckAllServing(state_, now);
  }

  // Calls of workers. For the errors of each call see proto/cluster_service.proto. Aborted means
  // that the worker has to register again.
  absl::StatusOr<messages::Registration> Register(const messages::RegisterCall& call,
                                                  absl::Time now);
  // Returns true if the process that makes this call already has a life under its name. It then
  // goes on with this life.
  bool GoesOn(const messages::RegisterCall& call) const { return state_.membership.GoesOn(call); }
  // Call if `call` was refused because another process has its name. Returns the peer of the last
  // call of that process. If the connection from this peer is closed, the caller may say so in a
  // new call. The new call gets the name once the other process has been silent for longer than a
  // heartbeat takes. Not set means that no other process has the name, or that it has not called
  // this server process.
  std::optional<std::string> PeerOfHolder(const messages::RegisterCall& call) const {
    return state_.membership.PeerOfHolder(call);
  }
  // Notes that a call of this life has come from `peer`.
  void NoteConnection(const messages::WorkerLife& life, const std::string& peer) {
    state_.membership.OnHeard(life, peer);
  }
  // Counts a registration. Call before Register(), once for every call for which GoesOn() is false.
  // Errors: ResourceExhausted with RetryAfter (too many registrations from this peer, or in all).
  absl::Status CheckRegistrationRate(absl::string_view peer, absl::Time now) {
    return state_.membership.TakeRegistration(peer, now);
  }
  bool IsMember(const messages::WorkerLife& life) const { return state_.membership.IsMember(life); }
  // Checks that this life has not ended. Errors: Aborted (the life has ended, or was never begun).
  absl::Status CheckLife(const messages::WorkerLife& life) const {
    return state_.membership.Check(life);
  }
  // Returns the name of a worker. Empty means that no worker with this ID is known.
  std::string WorkerName(WorkerId worker) const;
  // Ends the lives of the workers for whose names `which` returns true. Returns their number.
  int EvictWorkers(absl::FunctionRef<bool(absl::string_view name)> which, absl::string_view reason,
                   absl::Time now);
  // Evicts the worker `name` and refuses that name until Readmit(). A restart of the servers does
  // not undo this. Errors: those of CheckKnowsOrders(); NotFound (there is no such worker).
  absl::Status Evict(absl::string_view name, absl::string_view reason, absl::Time now);
  // Evicts all workers of one certificate and refuses their names until Readmit(). `name` is that
  // of the certificate or of one of its workers. Returns the name of the certificate. Errors: those
  // of CheckKnowsOrders(); NotFound (there is no such worker); FailedPrecondition (the worker has
  // no certificate).
  absl::StatusOr<std::string> EvictWithCertificate(absl::string_view name, absl::string_view reason,
                                                   absl::Time now);
  // Ends the refusal of the worker or the certificate `name`, which was evicted, or shut out by
  // --poison_limit. Errors: those of CheckKnowsOrders(); NotFound (nothing with that name is shut
  // out).
  absl::Status Readmit(absl::string_view name, absl::Time now);
  // Sends the job back to the newest checkpoint of at most `round` rounds, and marks checkpoints of
  // more rounds as bad. Requires: such a checkpoint exists. Returns how many rounds were done
  // before the rollback. A crash does not undo the rollback if server_incarnation() has changed
  // before the crash. Errors: those of CheckMayRollBack().
  absl::StatusOr<int64_t> RollBack(Round round, absl::string_view why, absl::Time now);
  // Checks that the job can go back to `round`. Errors: FailedPrecondition (the job saves no
  // checkpoints, is not under way, is a site, or has not done more than `round` rounds).
  absl::Status CheckMayRollBack(Round round, absl::Time now) const {
    return faults_.CheckMayRollBack(round, now);
  }
  // Notes for log and status that a worker was refused, by the coordinator or before its call
  // reached the coordinator.
  void NoteRefusal(absl::string_view name, absl::string_view peer, const absl::Status& reason,
                   absl::Time now);
  absl::StatusOr<ViewId> Join(const messages::WorkerLife& life, absl::string_view layout_hash,
                              const messages::DatasetInfo& dataset, absl::Time now);
  absl::StatusOr<messages::HeartbeatAnswer> Heartbeat(const messages::HeartbeatCall& call,
                                                      absl::Time now);
  // Counts `report`, if it is set and was not counted before. Then returns the worker's grant:
  // - If the worker has a grant that it has not reported, exactly this grant.
  // - Otherwise a new grant. Not set means that there is no work yet.
  // `without_samples` means that no samples are handed out with a new grant.
  absl::StatusOr<GrantAnswer> RequestGrant(const messages::WorkerLife& life,
                                           const std::optional<messages::RoundReport>& report,
                                           absl::Time now, bool without_samples = false);
  // Hands out more samples for the contribution to `round`, as many as the worker's grant has.
  // Errors: those of RequestGrant() and of RoundScheduler::Extend(); Unavailable while the servers
  // are not ready.
  absl::StatusOr<messages::Grant> ExtendGrant(const messages::WorkerLife& life, Round round,
                                              absl::Time now);
  // Returns true if this life has been granted `round` and some server has not yet reported that it
  // has the whole contribution.
  bool AwaitsContribution(const messages::WorkerLife& life, Round round) const;
  // Notes that the records of a shard's journal up to `end` are on disk. `end` is stored with the
  // next report that is counted. If workers send reports before their contributions are
  // acknowledged, this is the report of the contribution that the server has just acknowledged.
  void NoteJournalEnd(int shard, uint64_t end) {
    if (state_.shards.Has(shard)) state_.shards.NoteJournalEnd(shard, end);
  }
  // Returns true if this life's report of `round` has to wait for servers. It waits until each
  // server has said which record of its journal is the last of the contribution. If the report
  // counted earlier, a later loss of this record would not be noticed. `is_patience_over` means
  // that the report waits only for servers that are away. Reports of deferred contributions never
  // wait, because servers report nothing about these.
  bool AwaitsJournals(const messages::WorkerLife& life, Round round, bool is_patience_over) const {
    return CheckLife(life).ok() && state_.AwaitsJournals(life.worker, round, is_patience_over);
  }
  // Notes that the worker wants to leave. From now on RequestGrant() answers at once, with the
  // grant that the worker has or with kDone. Errors: those of RequestGrant().
  absl::Status BeginLeave(const messages::WorkerLife& life, absl::Time now);
  // Returns what RequestGrant() would answer now to a call that is held. Renews no lease and counts
  // no report.
  absl::StatusOr<GrantAnswer> PollGrant(const messages::WorkerLife& life, absl::Time now) const;
  // Says for operators why a member has no grant now. The cost grows with the number of members:
  // call it once per answer, not after every change while a call is held.
  std::string WhyNoGrant(const messages::WorkerLife& life, absl::Time now) const;
  absl::Status Leave(const messages::WorkerLife& life, absl::string_view reason,
                     const std::optional<messages::RoundReport>& report, absl::Time now);
  // Call if the process of this life has ended for good. Ends the life now, without waiting for the
  // end of its lease. Does nothing in two cases, so that the life ends with its lease:
  // - The life is that of the only member. No other member waits for it.
  // - The journals have not been compared. Nothing may be written into the journal until then.
  void OnProcessEnded(const messages::WorkerLife& life, absl::Time now);
  // Call if the connection has ended over which this life had made its StayConnected call. `peer`
  // is the address of the worker's end. `by_peer` means that the worker's end closed the
  // connection. ClosedConnections decides whether the life ends before its lease.
  void OnConnectionEnded(const messages::WorkerLife& life, const std::string& peer, bool by_peer,
                         absl::Time now);
  // Does what is due at `now`, such as ending lives whose leases are over. Call a few times per
  // lease.
  void Tick(absl::Time now);
  // Call if this process did not run for `gap`. The owner must leave the gap out of the times that
  // it passes. Workers are not blamed for transfers that stood still during the gap.
  void OnGap(absl::Duration gap, absl::Time now);

  // Calls of shards. A server attaches when it connects, and is disconnected when the connection
  // ends. Shard 0 is in this process and attaches in the same way. `memory_of` is the server
  // incarnation of the server's memory. 0 means that the server has no memory. A server that comes
  // back with its memory goes on, and gets again the commands that it may have missed. If its
  // journal lacks records that were on disk, all servers go back to the newest checkpoint. Errors:
  // - InvalidArgument: The shard numbers do not fit this job.
  // - AlreadyExists: Another server that is not away has the shard.
  // - Aborted: The call is late, and its server has loaded other memory since. Or another process
  //   goes on with the server's journal.
  absl::Status OnShardAttached(int shard, int num_shards, uint64_t instance_id, uint64_t memory_of,
                               absl::string_view address, absl::Time now,
                               shards::JournalPlace journal = {});
  // Returns true if a server that attaches with these values goes on with its memory.
  bool GoesOn(int shard, uint64_t instance_id, uint64_t memory_of) const;
  // Checks that no other process has gone on with the journal of the server that makes this call.
  // For `first_segment` see JournalPlace. Error: Aborted (another process has).
  absl::Status CheckNotFollowed(int shard, uint64_t first_segment) const {
    return state_.shards.IsFollowed(shard, first_segment) ? FollowedStatus() : absl::OkStatus();
  }
  void OnShardDisconnected(int shard, uint64_t instance_id, absl::Time now);
  // Call with each sign of life of a server. A server that gives no sign for the length of a lease
  // counts as away until its next sign.
  void OnShardHeard(int shard, uint64_t instance_id, absl::Time now);
  // Call with each sign of life. If the journal has grown beyond --journal_limit, an extra
  // checkpoint is taken. If the journal has no trouble, ends the alarms about its trouble.
  void OnJournalState(int shard, shards::JournalState journal, absl::Time now);
  // Call with each sign of life. If the server makes a member's pushes wait, the member is not
  // blamed for holding up the others. If a member makes no progress while it occupies space that
  // others wait for, it is dropped: see StragglerDetector.
  void OnPushSpace(int shard, const sync::PushSpace& space, absl::Time now);
  void OnShardEvent(int shard, const shards::ShardEvent& event, absl::Time now);
  // Call if the server of `shard` has acknowledged the whole contribution of this life to `round`.
  // Returns true if this was the last server that the report of the round waits for.
  bool OnContributed(int shard, uint64_t server_incarnation, const messages::WorkerLife& life,
                     Round round);
  void OnRestoreChosen(const absl::StatusOr<RestoreChoice>& choice, absl::Time now);
  void OnCheckpointPublished(absl::string_view directory,
                             const absl::StatusOr<checkpoints::PublishedCheckpoint>& published,
                             absl::Time now);
  // Must be called with the answer to a MarkTask.
  void OnCheckpointMarked(bool is_complete, const absl::Status& status, absl::Time now);

  // Notes that the announced summary of this round has been stored. memory_version() does not
  // change: if this note is lost, the next process only announces the summary again.
  void OnRecorded(const rounds::RoundSummary& summary) { state_.rounds.OnRecorded(summary); }

  // Calls of the uplink, which only a site has (CoordinatorConfig::upstream). Accepts an order of
  // the servers upstream. The order waits until there are enough members. Returns the number of the
  // order.
  uint64_t TakeOrder(const rounds::SiteOrder& order, absl::Time now) {
    const uint64_t number = state_.rounds.TakeOrder(order);
    Advance(now);
    return number;
  }
  bool WithdrawUnlessBegun(uint64_t number) { return state_.rounds.WithdrawUnlessBegun(number); }
  // Returns the outcome of an order. Not set means that the order is under way. Errors: Cancelled
  // (the order was withdrawn or replaced by another order, or no work is handed out any more); the
  // failure of the job.
  std::optional<absl::StatusOr<rounds::SiteOutcome>> OrderOutcome(uint64_t number) const {
    return OrderOutcomeOf(state_, number);
  }
  // Returns true if the uplink may read or replace the weights now: no round is open, and none
  // opens without an order.
  bool is_between_rounds() const { return state_.is_ready() && state_.rounds.open().empty(); }
  // Returns the data set of the members. Not set means that there are fewer members than a round
  // needs.
  std::optional<messages::DatasetInfo> SiteData(absl::Time now) const;
  // Stores `words`, a message for operators that says why the uplink brings no order. Empty means
  // that the uplink brings orders. See SiteCourse::TellUpstream().
  void TellUpstream(absl::string_view words, absl::Time now) {
    if (state_.rounds.TellUpstream(words, now)) outbox_.Touch();
  }
  // Call if the uplink has ended:
  // - If `outcome` is OK, the job upstream is over, and this job stops.
  // - If this job is being stopped already, an error does not matter: the stop has ended the
  //   uplink.
  // - Any other error makes this job fail. If the servers are ready, a last save comes first.
  void OnUpstreamEnd(const absl::Status& outcome, absl::Time now);

  // Calls of operators. Returns a ticket for the checkpoint that will serve the request. The
  // checkpoint begins as soon as no round is open. Errors: FailedPrecondition (there is no
  // --checkpoint_dir, or nothing to save yet); Unavailable (a server is not there).
  absl::StatusOr<uint64_t> RequestCheckpoint(absl::Time now);
  void RequestStop(absl::string_view reason, absl::Time now);
  // Pauses the job: no round is opened until Resume() or RequestStop(), also after a restart. Open
  // rounds end as without a pause. A further call replaces the reason. Errors: those of
  // CheckKnowsOrders(); FailedPrecondition (the job is over, has failed, or stops).
  absl::Status Pause(absl::string_view reason, absl::Time now) {
    const absl::Status paused = orders_.Pause(reason, now);
    Advance(now);
    return paused;
  }
  // Ends a pause. Errors: those of Pause(); FailedPrecondition (the job is not paused).
  absl::Status Resume(absl::Time now) {
    const absl::Status resumed = orders_.Resume(now);
    Advance(now);
    return resumed;
  }
  // Sets the learning rate of the next round. The whole schedule is multiplied by the same factor,
  // so later rounds change in proportion. A restart does not undo this. Errors: those of
  // CheckKnowsOrders(); InvalidArgument (out of range); FailedPrecondition (something else decides
  // the learning rate, or the job is not under way).
  absl::StatusOr<LearningRateChange> SetLearningRate(double learning_rate, absl::Time now) {
    absl::StatusOr<LearningRateChange> change = orders_.SetLearningRate(learning_rate, now);
    Advance(now);
    return change;
  }
  // Call if a server is about to stop, for `reason`. No worker gets new work, and a last save
  // begins. A worker that still owes a contribution after half of `patience` is dropped. A further
  // call with the same reason does not extend the time, and the save that is under way goes on.
  void BeginLastSave(absl::string_view reason, absl::Duration patience, absl::Time now);
  void RaiseAlarm(absl::string_view text, absl::Time now, AlarmKind kind = AlarmKind::kAlarm,
                  absl::string_view subject = "") {
    outbox_.RaiseAlarm(text, now, kind, subject);
  }
  // Raises or ends the alarm of a subject: see Outbox::SetAlarm().
  void SetAlarm(absl::string_view subject, const absl::Status& status, absl::Time now) {
    outbox_.SetAlarm(subject, status, now);
  }

  // The state of the job. state_version() changes whenever a call that waits for a grant, a
  // registration or a checkpoint may have a new answer.
  uint64_t state_version() const { return outbox_.state_version(); }
  CoordinatorPhase phase() const { return state_.phase; }
  const job::JobSpec& job() const { return state_.model.job(); }
  uint64_t server_incarnation() const { return state_.shards.server_incarnation(); }
  // Says what follows if a server of a shard above 0 cannot load its weights. True means that the
  // server is replaced, because servers have loaded weights before. False means that the job ends.
  bool replaces_servers() const { return state_.shards.has_loaded(); }
  const std::string& life_key() const { return state_.membership.life_key(); }
  std::shared_ptr<const messages::ClusterMap> map() const {
    return state_.model.map();
  }  // null before the layout is known
  // Returns the instance ID of the server process of each shard. 0 means that the server is not
  // there. Server processes know these IDs, so they can recognize a message of this coordinator.
  std::vector<uint64_t> shard_instances() const;
  Round committed_round() const { return state_.rounds.committed_round(); }
  int64_t rounds_done() const { return state_.rounds.rounds_done(); }
  ClusterSnapshot Snapshot(absl::Time now) const { return SnapshotOf(state_, now); }
  // Returns the outcome of the checkpoint for `ticket`. Not set means that the checkpoint is under
  // way. Errors: NotFound (the ticket is too old); the error of the checkpoint.
  std::optional<absl::StatusOr<checkpoints::PublishedCheckpoint>> CheckpointOutcome(
      uint64_t ticket) const {
    return state_.checkpoints.tracker().OutcomeOf(ticket);
  }
  // Returns the outcome of the last save. Not set means that it is not over. Errors:
  // FailedPrecondition (there was nothing to save, or no folder); otherwise the error of the save.
  // Each message says which rounds are in no checkpoint.
  const std::optional<checkpoints::LastSave::Outcome>& LastSaveOutcome() const {
    return state_.checkpoints.last_save().outcome();
  }
  // Returns true if the tries of a last save have begun in this life of the servers, even if that
  // save is over.
  bool has_begun_last_save() const { return state_.checkpoints.last_save().is_begun(); }
  std::string Unsaved() const { return UnsavedText(state_); }
  std::string Lost() const { return LostText(state_); }
  std::optional<absl::StatusOr<JobOutcome>> Ending() const { return EndingOf(state_); }
  JobOutcome EndingIfCutOff() const { return CutOffEndingOf(state_); }
  // Returns how the job ended: OK or its failure. Not set before the workers have left and the
  // servers were told to exit.
  std::optional<absl::Status> outcome() const {
    if (!state_.comparison.refusal.ok()) return state_.comparison.refusal;
    return state_.ending.should_exit() ? std::optional(state_.ending.failure()) : std::nullopt;
  }
  // Returns true if a server may not know the outcome yet and still has time to connect again. If
  // this process exited now, that server would try to reach it for ever.
  bool AwaitsServers(absl::Time now) const { return state_.ending.AwaitsServers(now); }

 private:
  // Parts of OnShardEvent().
  void OnLoaded(int shard, const shards::ShardLoaded& loaded, absl::Time now);
  void OnConnections(int shard, const shards::ShardConnections& connections, absl::Time now);
  void OnAlarm(int shard, const shards::ShardAlarm& alarm, absl::Time now);
  Coordinator(Config config, model::JobModel model, absl::Time now);

  // Reports a wait to the log, once, after the wait has lasted for some time.
  void TellWait(absl::Time now);
  void Enter(CoordinatorPhase phase);

  // Functions about the lives of workers.
  absl::StatusOr<messages::Registration> Admit(const messages::RegisterCall& call, absl::Time now);
  void TellRefusal(absl::string_view name, absl::string_view peer, const absl::Status& reason);
  // Refuses a worker with an acknowledged report that these servers lack. Raises an alarm and ends
  // the worker's life. The job itself goes on, because a single worker may be wrong. Returns
  // LacksReportStatus().
  absl::Status RefuseAcknowledged(const messages::RegisterCall& call, absl::Time now);
  // Makes the model and the settings of this client those of the job, if JobModel::Judge() accepts
  // them. Errors: those of ModelRefusalStatus(); Unavailable (the servers start over with the new
  // model).
  absl::Status Adopt(const messages::RegisterCall& call, absl::Time now);
  void DropWorker(WorkerId worker, absl::string_view reason, absl::Time now);
  void DropAll(absl::string_view reason, absl::Time now);
  // Ends the life of the only member that others wait for, if its connections were closed and it
  // makes no new ones.
  void EndUnconnected(absl::Time now);
  // Does what follows from the end of `lives`. Some members may have to rest because they share a
  // certificate with one of `lives`. Their lives are ended, too.
  void EndLives(std::vector<membership::EndedLife> lives, absl::Time now);
  // Sends a command to all shards. Does nothing before the journals have been compared, because
  // shards may know more than this process until then. RepeatCommands() sends the commands
  // afterwards.
  void Command(shards::ShardCommand command);
  void AnnounceMembers();
  shards::MembersCommand Members() const;

  // Does all steps that are possible now. The other Advance functions do one step at most, and
  // return true if anything has changed.
  void Advance(absl::Time now);
  bool AdvanceOnce(absl::Time now);
  bool AdvanceLoading(absl::Time now);
  bool AdvanceTraining(absl::Time now);
  // For a job that chooses settings itself. IsTrialOver() returns true if the trial of settings is
  // over. ChooseExchangeSettings() then starts the job over with the best settings.
  bool IsTrialOver() const;
  bool ChooseExchangeSettings(absl::Time now);
  bool AdvanceEvaluation(absl::Time now);
  bool AdvanceSaving(absl::Time now);
  bool AdvanceDone(absl::Time now);
  bool AdvanceFailed(absl::Time now);

  // Functions about rounds and grants.
  GrantAnswer AnswerFor(WorkerId worker) const;
  // Returns the reason, for workers, why the job has ended. Requires: kDone or kFailed.
  std::string ReasonOfEnd() const;
  // Returns the answer to a worker that registers after the end of the job.
  absl::Status JobIsOver() const;
  absl::Status CountReport(WorkerId worker, const messages::RoundReport& report, absl::Time now);

  // Functions about workers that hold up the others.
  void DropStalls(absl::Time now);
  // Drops the workers whose stall has lasted as long as it may.
  void Drop(const std::vector<stragglers::Stall>& stalls, absl::Time now);
  // Reports `lives`, which have just ended, to the StragglerDetector. Drops the members that have
  // to rest because of that, and adds their lives to `lives`.
  void LetMembersRest(std::vector<membership::EndedLife>& lives, absl::Time now);
  // Call after each round. If rounds wait for a worker that computes slowly, reports the worker to
  // the log once, and names the flag that would help.
  void LookForStraggler();
  void DropLingering(absl::Time now);
  // Returns the time after the end of the job at which the worker is dropped if it has not left.
  absl::Time LeavesBy(WorkerId worker) const;

  // Returns true if no work may be handed out yet, because a checkpoint is marked as complete. This
  // is the newest checkpoint, or one that is being published. If the mark can be removed now, emits
  // the MarkTask that removes it.
  bool AwaitsReopening();
  bool GrantNext(rounds::WorkLedger::Computes computes, absl::Time now);
  // Must be called after the members of the roster got their grants of `work`.
  void OnGiven(const rounds::WorkLedger::Work& work);
  // Ends the job with this error after a last save.
  void FailOnceSaved(const absl::Status& failure, absl::Time now);
  bool CloseRounds(absl::Time now);
  // Reports the end of a round to servers, to the log and to metrics.
  void TellClosed(const rounds::ClosedRound& closed, absl::Time now);

  void Follow(const FaultVerdict& verdict, absl::Time now);

  // Functions about servers.
  absl::Status GoOnFrom(CoordinatorMemory memory, absl::Time now);
  absl::Status Restore(const RestoreChoice& choice, absl::Time now);
  absl::Status Assign(absl::Time now);
  // Compares the journals if they have not been compared yet and all shards have attached.
  void CompareOnceAllAttached(absl::Time now);
  void EndComparison(absl::Time now);
  // Sends all servers back to the newest checkpoint, because the operator accepts the loss.
  void AcceptLoss(const shards::JournalLoss& loss, absl::Time now);
  void BeginRestoring(ChooseRestoreTask task);
  // Lets a server go on with its memory, and repeats the commands that it may have missed.
  absl::Status GoOnWith(const shards::Attachment& attachment, const shards::AttachVerdict& verdict,
                        absl::Time now);
  // Makes all servers start over, because the server of this shard does not have the memory of this
  // life of the servers.
  void StartOver(int shard, const shards::ShardLoss& loss, absl::Time now);
  // Ends a server that cannot load the weights of a job that was under way. The job waits for
  // another server of the shard.
  void ReplaceServer(int shard, const std::string& failure, absl::Time now);
  // Raises the alarm and sends the job back after the server of the shard was lost. `what` says,
  // for operators, what happened to the server.
  void GoBackWithout(int shard, absl::string_view what, absl::Time now);
  // Says for operators what the loss of a server means for the job.
  std::string WayBack() const;
  void ForgetStop(int shard, absl::Time now);
  void OnShardAway(int shard, absl::Time now);
  void OnShardBack(int shard, absl::Time now);
  void RepeatCommands(int shard);
  void LookForSilence(absl::Time now);

  // Functions about the end of the job.
  void EndWithoutSaving(absl::Time now);
  bool AdvanceLastSave(absl::Time now);
  void DropMissing(absl::Time now);
  // Enters kFailed with this error, because the servers cannot go on.
  void Fail(const absl::Status& status, absl::Time now);
  void FailUnlessOk(const absl::Status& status, absl::Time now);
  // Tells the servers to exit. Call when all workers that have to learn how the job ended know it.
  void Exit(absl::string_view why, absl::Time now);

  ClusterState state_;
  Outbox outbox_{&state_.alarms};
  ClusterSaves saves_{&state_, &outbox_};
  ClusterFaults faults_{&state_, &outbox_, &saves_};
  ClusterOrders orders_{&state_, &outbox_, &saves_};
};

}  // namespace lodestar::coordinator
