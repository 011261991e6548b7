// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/round_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace lodestar::rounds {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kLease = absl::Seconds(10);
constexpr int kShards = 2;
constexpr WorkerId kAnna(1);
constexpr WorkerId kBert(2);
constexpr WorkerId kCleo(3);
constexpr ViewId kView(7);

messages::DatasetInfo Data() {
  return {.fingerprint = "f00d", .num_train_samples = 12, .num_heldout_samples = 6};
}

// Makes the job asynchronous: every member has rounds of its own.
job::JobSpec Asynchronous(job::JobSpec job) {
  job.mode = job::Mode::kAsync;
  job.max_rounds_ahead = -1;
  job.global_batch_size = 0;
  job.batch_size = 3;
  return job;
}

messages::RoundReport ReportOf(Round round, int64_t num_samples = 0) {
  messages::RoundReport report;
  report.round = round;
  report.num_samples = num_samples;
  return report;
}

std::vector<WorkerId> WorkersOf(const std::vector<sync::RosterMember>& roster) {
  std::vector<WorkerId> workers;
  for (const sync::RosterMember& member : roster) workers.push_back(member.worker);
  return workers;
}

std::vector<Round> RoundsOf(const std::vector<ClosedRound>& closed) {
  std::vector<Round> rounds;
  for (const ClosedRound& round : closed) rounds.push_back(round.summary.round);
  return rounds;
}

// Fixture with a synchronous job of 4 rounds of 6 samples. A test may change the job before
// Start().
class RoundSchedulerTest : public testing::Test {
 protected:
  RoundSchedulerTest() {
    job_.global_batch_size = 6;
    job_.schedule.total_rounds = 4;
    job_.schedule.peak = 1.0;
  }

  void Start(const std::string& upstream = "") {
    rounds_ = std::make_unique<RoundScheduler>(job_, kShards, kLease, upstream, now_);
  }
  void Add(WorkerId worker, const std::string& name, const messages::DatasetInfo& data = Data()) {
    messages::RegisterCall call;
    call.name = name;
    rounds_->BeginLife(worker, call, /*is_same_process=*/false, now_);
    ASSERT_EQ(rounds_->Admit(worker, name, data), std::nullopt);
    rounds_->BeginMembership(worker, members_, now_);
    members_.push_back({.id = worker, .incarnation = Incarnation(10), .name = name});
  }
  // Starts with the members anna and bert.
  void StartWithTwo(const std::string& upstream = "") {
    Start(upstream);
    Add(kAnna, "anna");
    Add(kBert, "bert");
  }
  void End(WorkerId worker) {
    rounds_->EndLife(worker, now_);
    std::erase_if(members_, [&](const RoundMember& member) { return member.id == worker; });
  }
  std::vector<sync::RosterMember> NextRoster() const { return rounds_->NextRoster(members_, now_); }
  WorkLedger::Work Open(WorkLedger::Computes computes = WorkLedger::Computes::kYes) {
    return rounds_->OpenNext(NextRoster(), members_, kView, computes, now_);
  }
  // Lets all members ask for work and opens the next round for all that wait.
  WorkLedger::Work AskAndOpen() {
    for (const RoundMember& member : members_) rounds_->AskForWork(member.id);
    return Open();
  }
  WorkLedger::Work AskAndEvaluate() {
    for (const RoundMember& member : members_) rounds_->AskForWork(member.id);
    return rounds_->OpenEvaluation(rounds_->EvaluationRoster(members_), kView, now_);
  }
  // Reports all samples of the grant that the worker holds.
  CountedReport Report(WorkerId worker, double loss_sum = 6.0) {
    const messages::Grant grant = *rounds_->Of(worker).grant();
    messages::RoundReport report = ReportOf(grant.round, grant.num_samples);
    report.num_predictions = grant.num_samples;
    report.loss_sum = loss_sum;
    report.compute = absl::Seconds(1);
    report.heldout_predictions = grant.num_heldout_samples;
    report.heldout_loss_sum = static_cast<double>(grant.num_heldout_samples);
    return rounds_->Count(worker, report, job_, now_);
  }
  std::vector<ClosedRound> Close() { return rounds_->CloseOver(members_, now_); }
  // Carries out a round with all members.
  void CarryOut() {
    AskAndOpen();
    for (const RoundMember& member : members_) Report(member.id);
    Close();
  }

  job::JobSpec job_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::unique_ptr<RoundScheduler> rounds_;
  std::vector<RoundMember> members_;
};

TEST_F(RoundSchedulerTest, OpensNoRoundBeforeEnoughMembersAsk) {
  job_.min_workers = 2;
  Start();
  Add(kAnna, "anna");
  EXPECT_TRUE(rounds_->AskForWork(kAnna));
  EXPECT_FALSE(rounds_->AskForWork(kAnna)) << "that is no news";
  EXPECT_THAT(NextRoster(), IsEmpty());
  Add(kBert, "bert");
  EXPECT_THAT(NextRoster(), IsEmpty()) << "bert has not asked";
  EXPECT_TRUE(rounds_->AskForWork(kBert));
  EXPECT_THAT(NextRoster(), ElementsAre(sync::RosterMember{kAnna, Incarnation(10), 0},
                                        sync::RosterMember{kBert, Incarnation(10), 0}));
}

TEST_F(RoundSchedulerTest, RosterHasOnlyMembersThatWait) {
  StartWithTwo();
  rounds_->AskForWork(kBert);
  EXPECT_THAT(WorkersOf(NextRoster()), ElementsAre(kBert));
}

TEST_F(RoundSchedulerTest, RosterHasNoMoreMembersThanTheBatchHasSamples) {
  job_.global_batch_size = 1;
  StartWithTwo();
  rounds_->AskForWork(kAnna);
  rounds_->AskForWork(kBert);
  EXPECT_THAT(WorkersOf(NextRoster()), ElementsAre(kAnna));
}

TEST_F(RoundSchedulerTest, OpenedRoundIsGivenToItsRoster) {
  StartWithTwo();
  const checkpoints::LedgerState before = rounds_->ledger().state();
  const WorkLedger::Work work = AskAndOpen();
  EXPECT_EQ(work.plan.round, Round(0));
  EXPECT_EQ(work.plan.view, kView);
  EXPECT_THAT(WorkersOf(work.plan.roster), ElementsAre(kAnna, kBert));
  ASSERT_EQ(rounds_->open().size(), 1u);
  EXPECT_EQ(rounds_->open().at(Round(0)).plan(), work.plan);
  EXPECT_EQ(rounds_->Of(kBert).grant()->num_samples, 3);
  EXPECT_EQ(rounds_->Of(kBert).given_at(), now_);
  EXPECT_FALSE(rounds_->Of(kBert).is_waiting());
  EXPECT_EQ(rounds_->before_open_round(), before);
  EXPECT_THAT(NextRoster(), IsEmpty()) << "one round at a time";
}

TEST_F(RoundSchedulerTest, GrantHasTheLossesOfTheJob) {
  StartWithTwo();
  CarryOut();
  AskAndOpen();
  EXPECT_EQ(rounds_->Of(kAnna).grant()->loss, rounds_->progress().loss());
  EXPECT_EQ(rounds_->Of(kAnna).grant()->loss.train, 2.0);
}

TEST_F(RoundSchedulerTest, BalancedRoundIsCutBySpeed) {
  job_.balance = job::Balance::kSpeed;
  StartWithTwo();
  AskAndOpen();
  messages::RoundReport report = ReportOf(Round(0), 3);
  report.compute = absl::Seconds(1);
  rounds_->Count(kAnna, report, job_, now_);
  report.compute = absl::Seconds(2);
  rounds_->Count(kBert, report, job_, now_);
  Close();
  AskAndOpen();
  EXPECT_EQ(rounds_->Of(kAnna).grant()->num_samples, 4);
  EXPECT_EQ(rounds_->Of(kBert).grant()->num_samples, 2);
}

TEST_F(RoundSchedulerTest, WithoutRostersStepsAreCutByTheFastestMember) {
  job_ = Asynchronous(job_);
  job_.mode = job::Mode::kAsyncLocalSgd;
  job_.local_steps = 8;
  job_.balance = job::Balance::kSpeed;
  StartWithTwo();
  rounds_->AskForWork(kAnna);
  Open();
  rounds_->AskForWork(kBert);
  Open();
  messages::RoundReport report = ReportOf(Round(0), 24);
  report.compute = absl::Seconds(1);
  rounds_->Count(kAnna, report, job_, now_);
  report.round = Round(1);
  report.compute = absl::Seconds(4);
  rounds_->Count(kBert, report, job_, now_);
  rounds_->AskForWork(kBert);
  EXPECT_THAT(WorkersOf(NextRoster()), ElementsAre(kBert));
  EXPECT_EQ(Open().grants[0].local_steps, 2) << "anna, which is not in the round, is the fastest";
}

TEST_F(RoundSchedulerTest, RoundIsClosedOnceAllHaveReported) {
  StartWithTwo();
  AskAndOpen();
  EXPECT_EQ(rounds_->committed_round(), Round(0));
  now_ += absl::Seconds(2);
  const CountedReport counted = Report(kAnna, /*loss_sum=*/3.0);
  EXPECT_EQ(counted.grant->round, Round(0));
  EXPECT_EQ(counted.took, absl::Seconds(2));
  EXPECT_FALSE(rounds_->Of(kAnna).grant().has_value());
  EXPECT_THAT(Close(), IsEmpty()) << "bert is missing";
  Report(kBert, /*loss_sum=*/9.0);
  const std::vector<ClosedRound> closed = Close();
  ASSERT_THAT(RoundsOf(closed), ElementsAre(Round(0)));
  EXPECT_THAT(WorkersOf(closed[0].round.Reported()), ElementsAre(kAnna, kBert));
  EXPECT_FALSE(closed[0].is_lost);
  EXPECT_TRUE(closed[0].is_announced);
  const RoundSummary& summary = closed[0].summary;
  EXPECT_EQ(summary.workers, 2);
  EXPECT_FALSE(summary.committed_short);
  EXPECT_EQ(summary.train_loss, 2.0);
  EXPECT_EQ(summary.total_rounds, 4);
  EXPECT_EQ(summary.total_samples, 6);
  EXPECT_EQ(summary.tokens_per_sample, 1);
  EXPECT_EQ(summary.epoch, 0.5);
  EXPECT_EQ(summary.trained_time, absl::Seconds(2));
  EXPECT_EQ(rounds_->progress().loss().train, 2.0);
  EXPECT_THAT(rounds_->unrecorded(), ElementsAre(summary));
  EXPECT_THAT(rounds_->open(), IsEmpty());
  EXPECT_EQ(rounds_->committed_round(), Round(1));
  EXPECT_EQ(rounds_->rounds_done(), 1);
}

TEST_F(RoundSchedulerTest, RoundGoesOnWithoutWorkersThatAreGone) {
  StartWithTwo();
  AskAndOpen();
  Report(kAnna);
  End(kBert);
  const std::vector<ClosedRound> closed = Close();
  ASSERT_THAT(RoundsOf(closed), ElementsAre(Round(0)));
  EXPECT_TRUE(closed[0].summary.committed_short);
  EXPECT_FALSE(closed[0].is_lost);
  EXPECT_EQ(rounds_->ledger().DataOf(kBert), nullptr);
  EXPECT_FALSE(rounds_->Of(kBert).grant().has_value());
  EXPECT_EQ(rounds_->Of(kBert).memory().last_granted, 0) << "until it is forgotten";
  rounds_->Forget(kBert);
  EXPECT_EQ(rounds_->Of(kBert).memory().last_granted, -1);
}

TEST_F(RoundSchedulerTest, AnotherRoundReplacesOneWithoutContribution) {
  StartWithTwo();
  AskAndOpen();
  End(kAnna);
  End(kBert);
  const std::vector<ClosedRound> closed = Close();
  ASSERT_THAT(RoundsOf(closed), ElementsAre(Round(0)));
  EXPECT_TRUE(closed[0].is_lost);
  EXPECT_EQ(closed[0].replaced_by, Round(4));
  EXPECT_TRUE(closed[0].is_announced);
  EXPECT_EQ(rounds_->ledger().lost_rounds(), 1);
  EXPECT_EQ(rounds_->unrecorded().size(), 1u);
}

TEST_F(RoundSchedulerTest, WithoutRostersALostRoundIsNotAnnounced) {
  job_ = Asynchronous(job_);
  StartWithTwo();
  rounds_->AskForWork(kAnna);
  Open();
  End(kAnna);
  const std::vector<ClosedRound> closed = Close();
  ASSERT_THAT(RoundsOf(closed), ElementsAre(Round(0)));
  EXPECT_TRUE(closed[0].is_lost);
  EXPECT_FALSE(closed[0].is_announced);
  EXPECT_THAT(rounds_->unrecorded(), IsEmpty());
  EXPECT_EQ(rounds_->progress().rounds_committed_short(), 1u);
  EXPECT_EQ(rounds_->ledger().lost_rounds(), 1);
}

TEST_F(RoundSchedulerTest, WithoutRostersRoundsEndInAnyOrder) {
  job_ = Asynchronous(job_);
  StartWithTwo();
  Add(kCleo, "cleo");
  for (const WorkerId worker : {kAnna, kBert, kCleo}) {
    rounds_->AskForWork(worker);
    EXPECT_THAT(WorkersOf(NextRoster()), ElementsAre(worker));
    Open();
  }
  EXPECT_EQ(rounds_->rounds_done(), 0);
  EXPECT_FALSE(rounds_->before_open_round().has_value());
  Report(kCleo);
  Report(kAnna);
  EXPECT_THAT(RoundsOf(Close()), ElementsAre(Round(0), Round(2)));
  EXPECT_EQ(rounds_->open().size(), 1u);
  EXPECT_EQ(rounds_->rounds_done(), 2);
  EXPECT_EQ(rounds_->committed_round(), Round(0)) << "any weights will do";
}

TEST_F(RoundSchedulerTest, MissingWorkerThatIsNoMemberIsWaitedFor) {
  StartWithTwo();
  AskAndOpen();
  Report(kAnna);
  members_.pop_back();
  EXPECT_THAT(Close(), IsEmpty());
  const ClusterView view = rounds_->View(members_, now_);
  ASSERT_EQ(view.missing.size(), 1u);
  EXPECT_EQ(view.missing[0].worker, kBert);
}

TEST_F(RoundSchedulerTest, ViewHasWhatMembersDoAndMiss) {
  StartWithTwo();
  members_[1].usual_round = absl::Seconds(3);
  CarryOut();
  AskAndOpen();
  now_ += absl::Seconds(5);
  Report(kAnna);
  now_ += absl::Seconds(1);
  rounds_->AskForWork(kAnna);
  const ClusterView view = rounds_->View(members_, now_);
  EXPECT_EQ(view.open_round, Round(1));
  EXPECT_EQ(view.reported, 1);
  ASSERT_EQ(view.members.size(), 2u);
  EXPECT_EQ(view.members[0].name, "anna");
  EXPECT_EQ(view.members[0].rounds_completed, 2);
  EXPECT_TRUE(view.members[0].waiting);
  EXPECT_FALSE(view.members[0].working);
  EXPECT_EQ(view.members[0].since, absl::Seconds(1));
  EXPECT_TRUE(view.members[1].working);
  EXPECT_EQ(view.members[1].since, absl::Seconds(6));
  EXPECT_EQ(view.members[1].usual_round, absl::Seconds(3));
  ASSERT_EQ(view.missing.size(), 1u);
  EXPECT_EQ(view.missing[0].name, "bert");
}

TEST_F(RoundSchedulerTest, ReportIsClassifiedByTheGrantHeld) {
  using Kind = ReportVerdict::Kind;
  StartWithTwo();
  const auto classify = [&](const messages::RoundReport& report) {
    return rounds_->Classify(kAnna, report, job_);
  };
  messages::RoundReport report = ReportOf(Round(0));
  EXPECT_EQ(classify(report), ReportVerdict{Kind::kNotGranted});
  AskAndOpen();
  EXPECT_EQ(classify(report).kind, Kind::kCurrent);
  report.num_samples = 4;
  EXPECT_EQ(classify(report), (ReportVerdict{Kind::kTooManySamples, 3}));
  report.num_samples = -1;
  EXPECT_EQ(classify(report), (ReportVerdict{Kind::kTooManySamples, 3}));
  report.num_samples = 3;
  report.heldout_correct = 1;
  EXPECT_EQ(classify(report).kind, Kind::kTooManyPredictions);
  report = ReportOf(Round(0));
  report.num_predictions = (int64_t{1} << 40) + 1;
  EXPECT_EQ(classify(report), (ReportVerdict{Kind::kTooManyPredictions, int64_t{1} << 40}));
  report = ReportOf(Round(1));
  EXPECT_EQ(classify(report), (ReportVerdict{Kind::kNotGranted, 0, Round(0)}));
  Report(kAnna);
  report = ReportOf(Round(0));
  EXPECT_EQ(classify(report).kind, Kind::kRepeat);
  EXPECT_EQ(rounds_->Classify(kCleo, report, job_).kind, Kind::kNotGranted) << "it is not known";
}

TEST_F(RoundSchedulerTest, ReportOfARoundThatIsNotOpenCompletesTheGrant) {
  StartWithTwo();
  AskAndOpen();
  rounds_->DropOpen();
  EXPECT_EQ(Report(kAnna).grant->round, Round(0));
  EXPECT_EQ(rounds_->Of(kAnna).memory().last_reported, 0);
  EXPECT_THAT(Close(), IsEmpty());
}

TEST_F(RoundSchedulerTest, NewcomerIsAsFarAsTheSlowestMember) {
  StartWithTwo();
  CarryOut();
  rounds_->AskForWork(kBert);
  Open();
  Report(kBert);
  Close();
  ASSERT_EQ(rounds_->Of(kAnna).progress(), 1);
  ASSERT_EQ(rounds_->Of(kBert).progress(), 2);
  Add(kCleo, "cleo");
  EXPECT_EQ(rounds_->Of(kCleo).progress(), 1);
}

TEST_F(RoundSchedulerTest, OtherDataIsRefused) {
  StartWithTwo();
  messages::DatasetInfo other = Data();
  other.fingerprint = "beef";
  const std::optional<DataRefusal> refusal = rounds_->Admit(kCleo, "cleo", other);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->kind, DataRefusal::Kind::kOtherData);
  EXPECT_EQ(rounds_->ledger().DataOf(kCleo), nullptr);
}

TEST_F(RoundSchedulerTest, WorkerMayLeaveOnceNothingOfItIsAwaited) {
  StartWithTwo();
  EXPECT_FALSE(rounds_->MayLeave(kAnna, /*is_ready=*/true)) << "it does not want to";
  AskAndOpen();
  rounds_->BeginLeave(kAnna);
  EXPECT_FALSE(rounds_->MayLeave(kAnna, /*is_ready=*/true)) << "it has a grant";
  EXPECT_TRUE(rounds_->MayLeave(kAnna, /*is_ready=*/false)) << "which no server takes any more";
  Report(kAnna);
  EXPECT_TRUE(rounds_->MayLeave(kAnna, /*is_ready=*/true));
  EXPECT_FALSE(rounds_->AskForWork(kAnna));
}

TEST_F(RoundSchedulerTest, WorkerLeavesAfterTheRoundThatTakesWhatItHasInHand) {
  job_.mode = job::Mode::kLocalSgd;
  job_.local_steps = 2;
  job_.overlap_rounds = true;
  StartWithTwo();
  CarryOut();
  EXPECT_TRUE(rounds_->OwesContribution(members_));
  rounds_->BeginLeave(kAnna);
  EXPECT_TRUE(rounds_->MayLeave(kAnna, /*is_ready=*/true)) << "it does not ask";
  rounds_->AskForWork(kAnna);
  EXPECT_FALSE(rounds_->MayLeave(kAnna, /*is_ready=*/true));
  rounds_->AskForWork(kBert);
  EXPECT_THAT(NextRoster(), ElementsAre(sync::RosterMember{kAnna, Incarnation(10), 6},
                                        sync::RosterMember{kBert, Incarnation(10), 6}));
  EXPECT_EQ(Open(WorkLedger::Computes::kNo).grants[0].num_samples, 0);
}

TEST_F(RoundSchedulerTest, NothingIsOwedIfNoRoundFollows) {
  job_.mode = job::Mode::kLocalSgd;
  job_.overlap_rounds = true;
  job_.schedule.total_rounds = 2;
  StartWithTwo();
  EXPECT_FALSE(rounds_->OwesContribution(members_));
  CarryOut();
  EXPECT_TRUE(rounds_->OwesContribution(members_));
  AskAndOpen();
  EXPECT_FALSE(rounds_->has_next_round());
  EXPECT_FALSE(rounds_->OwesContribution(members_));
}

TEST_F(RoundSchedulerTest, ReportWaitsForTheLastServer) {
  StartWithTwo();
  EXPECT_FALSE(rounds_->AwaitsContribution(kAnna, Round(0)));
  AskAndOpen();
  EXPECT_TRUE(rounds_->AwaitsContribution(kAnna, Round(0)));
  EXPECT_FALSE(rounds_->AwaitsContribution(kAnna, Round(1)));
  EXPECT_FALSE(rounds_->OnContributed(1, kAnna, Round(1))) << "of another round";
  EXPECT_FALSE(rounds_->OnContributed(1, kAnna, Round(0)));
  EXPECT_TRUE(rounds_->OnContributed(0, kAnna, Round(0)));
  EXPECT_FALSE(rounds_->AwaitsContribution(kAnna, Round(0)));
  EXPECT_FALSE(rounds_->OnContributed(0, kAnna, Round(0))) << "that is known";
}

TEST_F(RoundSchedulerTest, JournalOfAServerThatHasAttachedIsNotAwaited) {
  StartWithTwo();
  AskAndOpen();
  rounds_->OnServerAttached(1);
  EXPECT_FALSE(rounds_->Of(kBert).AwaitsJournal(Round(0), 1));
  EXPECT_TRUE(rounds_->Of(kBert).AwaitsJournal(Round(0), 0));
  EXPECT_TRUE(rounds_->OnContributed(0, kAnna, Round(0)));
}

TEST_F(RoundSchedulerTest, FewerMembersAreEnoughOnceTheJobHasBegun) {
  job_.min_workers = 2;
  job_.keep_workers = 1;
  StartWithTwo();
  rounds_->GatherMembers(now_);
  EXPECT_FALSE(rounds_->CanGoOnWith(0, now_));
  EXPECT_FALSE(rounds_->CanGoOnWith(1, now_));
  EXPECT_TRUE(rounds_->CanGoOnWith(2, now_));
  EXPECT_TRUE(rounds_->IsGathering(now_));
  AskAndOpen();
  EXPECT_FALSE(rounds_->IsGathering(now_));
  EXPECT_EQ(rounds_->Required(now_).count, 1);
  EXPECT_TRUE(rounds_->CanGoOnWith(1, now_));
  rounds_->GatherMembers(now_);
  EXPECT_FALSE(rounds_->CanGoOnWith(1, now_));
  EXPECT_TRUE(rounds_->CanGoOnWith(1, now_ + kLease));
}

TEST_F(RoundSchedulerTest, NoRoundGoesOnWithoutMembers) {
  job_.keep_workers = 0;
  StartWithTwo();
  AskAndOpen();
  ASSERT_EQ(rounds_->Required(now_).count, 0);
  EXPECT_FALSE(rounds_->CanGoOnWith(0, now_));
}

TEST_F(RoundSchedulerTest, EvaluationWaitsForEachDataSet) {
  job_.schedule.total_rounds = 1;
  Start();
  Add(kAnna, "anna");
  messages::DatasetInfo own = Data();
  own.own_partition = true;
  own.fingerprint = "beef";
  Add(kBert, "bert", own);
  CarryOut();
  EXPECT_THAT(rounds_->EvaluationRoster(members_), IsEmpty());
  rounds_->AskForWork(kAnna);
  EXPECT_THAT(rounds_->EvaluationRoster(members_), IsEmpty());
  EXPECT_THAT(rounds_->LackingForEvaluation(members_), ElementsAre(kBert));
  rounds_->AskForWork(kBert);
  EXPECT_THAT(rounds_->LackingForEvaluation(members_), IsEmpty());
  EXPECT_THAT(WorkersOf(rounds_->EvaluationRoster(members_)), ElementsAre(kAnna, kBert));
}

TEST_F(RoundSchedulerTest, EvaluationIsRepeatedUntilNoWorkerIsLost) {
  job_.schedule.total_rounds = 1;
  StartWithTwo();
  CarryOut();
  ASSERT_FALSE(rounds_->has_next_round());
  EXPECT_EQ(AskAndEvaluate().plan.round, Round(1));
  End(kBert);
  Report(kAnna);
  EXPECT_FALSE(rounds_->EndEvaluation(now_).has_value());
  EXPECT_THAT(rounds_->open(), IsEmpty());
  EXPECT_TRUE(rounds_->ledger().needs_final_evaluation());
  const WorkLedger::Work again = AskAndEvaluate();
  EXPECT_EQ(again.plan.round, Round(2)) << "reports of the first time do not count";
  EXPECT_EQ(again.grants[0].min_round, Round(1));
  EXPECT_EQ(rounds_->committed_round(), Round(1)) << "an evaluation changes no weights";
  now_ += absl::Seconds(1);
  Report(kAnna);
  const std::optional<ClosedRound> closed = rounds_->EndEvaluation(now_);
  ASSERT_TRUE(closed.has_value());
  EXPECT_FALSE(closed->summary.trained);
  EXPECT_EQ(closed->summary.heldout_loss, 1.0);
  EXPECT_TRUE(closed->summary.heldout_complete);
  EXPECT_FALSE(closed->is_lost);
  EXPECT_EQ(rounds_->progress().loss().heldout, 1.0);
  EXPECT_EQ(rounds_->ledger().trained_samples(), 6);
  EXPECT_FALSE(rounds_->ledger().needs_final_evaluation());
  EXPECT_EQ(rounds_->unrecorded().size(), 2u);
}

TEST_F(RoundSchedulerTest, RoundCarriesAnEvaluation) {
  job_.eval_every = 1;
  StartWithTwo();
  AskAndOpen();
  Report(kAnna);
  Report(kBert);
  Close();
  AskAndOpen();
  ASSERT_GT(rounds_->Of(kAnna).grant()->num_heldout_samples, 0);
  Report(kAnna);
  Report(kBert);
  const std::vector<ClosedRound> closed = Close();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_TRUE(closed[0].summary.trained);
  EXPECT_EQ(closed[0].summary.heldout_loss, 1.0);
}

TEST_F(RoundSchedulerTest, RecordedRoundsAreForgotten) {
  StartWithTwo();
  CarryOut();
  CarryOut();
  CarryOut();
  const std::deque<RoundSummary> all = rounds_->unrecorded();
  ASSERT_EQ(all.size(), 3u);
  rounds_->OnRecorded(all[1]);
  EXPECT_THAT(rounds_->unrecorded(), ElementsAre(all[2])) << "they are recorded in order";
  rounds_->OnRecorded(all[0]);
  EXPECT_THAT(rounds_->unrecorded(), ElementsAre(all[2]));
}

TEST_F(RoundSchedulerTest, OldestUnrecordedRoundsGo) {
  job_.schedule.total_rounds = 1000;
  Start();
  Add(kAnna, "anna");
  for (size_t i = 0; i < RoundScheduler::kMaxUnrecorded + 2; ++i) CarryOut();
  EXPECT_EQ(rounds_->unrecorded().size(), RoundScheduler::kMaxUnrecorded);
  EXPECT_EQ(rounds_->unrecorded().front().round, Round(2));
}

TEST_F(RoundSchedulerTest, PauseIsNoTimeOfTraining) {
  StartWithTwo();
  CarryOut();
  now_ += absl::Hours(1);
  rounds_->EndStandstill();
  AskAndOpen();
  now_ += absl::Seconds(2);
  rounds_->EndStandstill();  // A round is open, so the time counts as training.
  Report(kAnna);
  Report(kBert);
  Close();
  EXPECT_EQ(rounds_->progress().trained_time(), absl::Seconds(2));
}

TEST_F(RoundSchedulerTest, UntrainedSamplesAreThoseThatNoWorkerTellsOf) {
  StartWithTwo();
  AskAndOpen();
  EXPECT_EQ(rounds_->UntrainedSamples(job_), 0) << "both may still tell of theirs";
  Report(kAnna);
  EXPECT_EQ(rounds_->UntrainedSamples(job_), 0) << "the open round has hers";
  End(kBert);
  EXPECT_EQ(rounds_->UntrainedSamples(job_), 3);
  Close();
  EXPECT_EQ(rounds_->UntrainedSamples(job_), 3);
}

TEST_F(RoundSchedulerTest, ExtendedGrantHasTheNextSamplesAndTheSameWeight) {
  StartWithTwo();
  const WorkLedger::Work work = AskAndOpen();
  ASSERT_OK_AND_ASSIGN(const messages::Grant more, rounds_->Extend(kBert, work.plan.round));
  EXPECT_EQ(more.round, work.plan.round);
  EXPECT_EQ(more.first_sample, 6) << "after those of both members";
  EXPECT_EQ(more.num_samples, 3);
  EXPECT_EQ(more.first_position, 6);
  EXPECT_EQ(*rounds_->Of(kBert).grant(), work.grants[1]) << "asked for again, it is as before";
  EXPECT_EQ(rounds_->open().at(work.plan.round).plan(), work.plan);
  EXPECT_EQ(rounds_->UntrainedSamples(job_), 0);

  messages::RoundReport report = ReportOf(work.plan.round, 7);
  EXPECT_EQ(rounds_->Classify(kBert, report, job_).kind, ReportVerdict::Kind::kTooManySamples);
  report.num_samples = 6;
  EXPECT_EQ(rounds_->Classify(kBert, report, job_).kind, ReportVerdict::Kind::kCurrent);
  rounds_->Count(kBert, report, job_, now_);
  Report(kAnna);
  EXPECT_EQ(Close()[0].summary.samples, 9);
  EXPECT_EQ(rounds_->UntrainedSamples(job_), 0);
  EXPECT_EQ(AskAndOpen().grants[0].first_sample, 9);
  report = ReportOf(Round(1), 6);
  EXPECT_EQ(rounds_->Classify(kBert, report, job_).kind, ReportVerdict::Kind::kTooManySamples)
      << "the extension was of the round before";
}

TEST_F(RoundSchedulerTest, ExtensionNobodyReportsIsUntrained) {
  StartWithTwo();
  const WorkLedger::Work work = AskAndOpen();
  ASSERT_OK(rounds_->Extend(kBert, work.plan.round));
  Report(kBert);
  EXPECT_EQ(rounds_->UntrainedSamples(job_), 3);
}

TEST_F(RoundSchedulerTest, OnlyTheTrainingGrantAtHandIsExtended) {
  StartWithTwo();
  EXPECT_THAT(rounds_->Extend(kAnna, Round(0)), StatusIs(absl::StatusCode::kFailedPrecondition));
  AskAndOpen();
  EXPECT_THAT(rounds_->Extend(kAnna, Round(1)), StatusIs(absl::StatusCode::kFailedPrecondition));
  Report(kAnna);
  EXPECT_THAT(rounds_->Extend(kAnna, Round(0)), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(RoundSchedulerTest, GrantWithoutSamplesMovesNoCursor) {
  StartWithTwo();
  AskAndOpen();
  Report(kAnna);
  Report(kBert);
  Close();
  rounds_->AskForWork(kAnna, /*without_samples=*/true);
  rounds_->AskForWork(kBert);
  const WorkLedger::Work work = Open();
  EXPECT_EQ(work.plan.roster[0].num_samples, 3) << "the weight of her contribution";
  EXPECT_EQ(work.grants[1].first_sample, 6);
  EXPECT_EQ(rounds_->ledger().state().next_sample, 9);
  EXPECT_EQ(rounds_->UntrainedSamples(job_), 0);
  EXPECT_EQ(rounds_->Classify(kAnna, ReportOf(Round(1), 1), job_).kind,
            ReportVerdict::Kind::kTooManySamples);
  ASSERT_OK_AND_ASSIGN(const messages::Grant more, rounds_->Extend(kAnna, Round(1)));
  EXPECT_EQ(more.first_sample, 9);
  EXPECT_EQ(rounds_->Classify(kAnna, ReportOf(Round(1), 3), job_).kind,
            ReportVerdict::Kind::kCurrent);
  EXPECT_EQ(rounds_->Classify(kAnna, ReportOf(Round(1), 4), job_).kind,
            ReportVerdict::Kind::kTooManySamples);
}

TEST_F(RoundSchedulerTest, RateIsScaledFromTheNextRoundOn) {
  job_.schedule.kind = job::ScheduleKind::kConstant;
  StartWithTwo();
  AskAndOpen();
  rounds_->MultiplyLearningRateScale(0.5);
  EXPECT_EQ(rounds_->Of(kAnna).grant()->learning_rates[0], 1.0);
  Report(kAnna);
  Report(kBert);
  Close();
  EXPECT_EQ(AskAndOpen().grants[0].learning_rates[0], 0.5);
}

TEST_F(RoundSchedulerTest, AnotherJobKeepsThePlaceInTheData) {
  StartWithTwo();
  CarryOut();
  job_.schedule.total_rounds = 9;
  rounds_->SetJob(job_);
  EXPECT_EQ(rounds_->ledger().next_round(), Round(1));
  EXPECT_EQ(rounds_->ledger().total_rounds(), 9);
}

TEST_F(RoundSchedulerTest, MemoryGoesOnWhereItWas) {
  job_.min_workers = 2;
  job_.keep_workers = 1;
  StartWithTwo();
  CarryOut();
  AskAndOpen();
  Report(kAnna);
  const RoundScheduler::Memory memory = rounds_->memory();
  const WorkerAssignment::Memory anna = rounds_->Of(kAnna).memory();
  const WorkerAssignment::Memory bert = rounds_->Of(kBert).memory();
  Start();
  now_ += absl::Minutes(1);
  rounds_->Resume(job_, memory, now_);
  rounds_->Resume(kAnna, anna, now_);
  rounds_->Resume(kBert, bert, now_);
  EXPECT_EQ(rounds_->memory().ledger, memory.ledger);
  EXPECT_EQ(rounds_->memory().open, memory.open);
  EXPECT_EQ(rounds_->memory().progress, memory.progress);
  EXPECT_EQ(rounds_->memory().quota, memory.quota);
  EXPECT_EQ(rounds_->memory().last_rounds, memory.last_rounds);
  EXPECT_EQ(rounds_->Required(now_).count, 1);
  EXPECT_EQ(rounds_->unrecorded().size(), 1u);
  now_ += absl::Seconds(3);
  Report(kBert);
  const std::vector<ClosedRound> closed = Close();
  ASSERT_THAT(RoundsOf(closed), ElementsAre(Round(1)));
  EXPECT_EQ(closed[0].summary.workers, 2);
  EXPECT_EQ(closed[0].summary.trained_time, absl::Seconds(3)) << "the time away does not count";
}

TEST_F(RoundSchedulerTest, MemoryHasTheAttemptOfTheEvaluation) {
  job_.schedule.total_rounds = 1;
  StartWithTwo();
  CarryOut();
  AskAndEvaluate();
  End(kBert);
  Report(kAnna);
  ASSERT_FALSE(rounds_->EndEvaluation(now_).has_value());
  const RoundScheduler::Memory memory = rounds_->memory();
  const WorkerAssignment::Memory anna = rounds_->Of(kAnna).memory();
  Start();
  rounds_->Resume(job_, memory, now_);
  rounds_->Resume(kAnna, anna, now_);
  EXPECT_EQ(AskAndEvaluate().plan.round, Round(2));
}

TEST_F(RoundSchedulerTest, RestoreForgetsWorkersAndRounds) {
  job_.min_workers = 2;
  job_.keep_workers = 1;
  StartWithTwo();
  CarryOut();
  const checkpoints::LedgerState saved = rounds_->ledger().state();
  const checkpoints::ProgressState progress = rounds_->progress().Export();
  CarryOut();
  AskAndOpen();
  job_.schedule.total_rounds = 5;
  rounds_->Restore(job_, saved, progress);
  members_.clear();
  EXPECT_EQ(rounds_->ledger().next_round(), Round(1));
  EXPECT_EQ(rounds_->ledger().total_rounds(), 5);
  EXPECT_EQ(rounds_->progress().Export(), progress);
  EXPECT_THAT(rounds_->assignments(), IsEmpty());
  EXPECT_THAT(rounds_->open(), IsEmpty());
  EXPECT_THAT(rounds_->unrecorded(), IsEmpty());
  EXPECT_FALSE(rounds_->before_open_round().has_value());
  EXPECT_EQ(rounds_->Required(now_).count, 1) << "the quota stays";
  Add(kAnna, "anna");
  EXPECT_EQ(AskAndOpen().plan.round, Round(1));
}

TEST_F(RoundSchedulerTest, RestoreBeginsTheEvaluationAnew) {
  job_.schedule.total_rounds = 1;
  StartWithTwo();
  CarryOut();
  const checkpoints::LedgerState saved = rounds_->ledger().state();
  AskAndEvaluate();
  End(kBert);
  Report(kAnna);
  ASSERT_FALSE(rounds_->EndEvaluation(now_).has_value());
  rounds_->Restore(job_, saved, {});
  members_.clear();
  Add(kAnna, "anna");
  EXPECT_EQ(AskAndEvaluate().plan.round, Round(1));
}

TEST_F(RoundSchedulerTest, ServersAreToldNoRosterOfAnEvaluation) {
  StartWithTwo();
  WorkLedger::Work work = AskAndOpen();
  EXPECT_EQ(PlanForShards(work), work.plan);
  for (messages::Grant& grant : work.grants) grant.kind = messages::Grant::Kind::kEvaluate;
  EXPECT_THAT(PlanForShards(work).roster, IsEmpty());
  EXPECT_EQ(PlanForShards(work).round, Round(0));
}

class RoundsOfSiteTest : public RoundSchedulerTest {
 protected:
  RoundsOfSiteTest() { StartWithTwo("10.0.0.1:50051"); }

  OrderVerdict::Kind Judge(uint64_t number, bool has_failed = false, bool is_over = false) const {
    return rounds_->JudgeOrder(number, has_failed, is_over).kind;
  }

  SiteOrder order_ = {.num_samples = 4, .learning_rates = {0.5}};
};

TEST_F(RoundsOfSiteTest, RoundFollowsOnlyAnOrder) {
  EXPECT_TRUE(rounds_->is_site());
  EXPECT_FALSE(rounds_->has_next_round());
  rounds_->TakeOrder(order_);
  EXPECT_TRUE(rounds_->has_next_round());
  const WorkLedger::Work work = AskAndOpen();
  EXPECT_EQ(work.plan.total_samples(), 4);
  EXPECT_EQ(work.grants[0].learning_rates, order_.learning_rates);
  EXPECT_FALSE(rounds_->has_next_round());
}

TEST_F(RoundsOfSiteTest, OrderIsSharedByNoMoreMembersThanItHasSamples) {
  order_.num_samples = 1;
  rounds_->TakeOrder(order_);
  rounds_->AskForWork(kAnna);
  rounds_->AskForWork(kBert);
  EXPECT_THAT(WorkersOf(NextRoster()), ElementsAre(kAnna));
}

TEST_F(RoundsOfSiteTest, OutcomeIsThatOfTheClosedRound) {
  const uint64_t number = rounds_->TakeOrder(order_);
  EXPECT_EQ(Judge(number), OrderVerdict::Kind::kUnderWay);
  AskAndOpen();
  EXPECT_FALSE(rounds_->WithdrawUnlessBegun(number));
  Report(kAnna, 1.0);
  Report(kBert, 2.0);
  EXPECT_EQ(Judge(number), OrderVerdict::Kind::kUnderWay);
  Close();
  const OrderVerdict verdict = rounds_->JudgeOrder(number, /*has_failed=*/true, /*is_over=*/true);
  EXPECT_EQ(verdict.kind, OrderVerdict::Kind::kDone);
  EXPECT_EQ(verdict.outcome.loss_sum, 3.0);
  EXPECT_EQ(verdict.outcome.num_samples, 4);
}

TEST_F(RoundsOfSiteTest, OrderIsWithdrawnUnlessItHasBegun) {
  const uint64_t number = rounds_->TakeOrder(order_);
  EXPECT_TRUE(rounds_->WithdrawUnlessBegun(number));
  EXPECT_EQ(Judge(number), OrderVerdict::Kind::kWithdrawn);
  EXPECT_EQ(Judge(number, /*has_failed=*/true), OrderVerdict::Kind::kWithdrawn);
  const uint64_t next = rounds_->TakeOrder(order_);
  EXPECT_EQ(Judge(number), OrderVerdict::Kind::kWithdrawn);
  EXPECT_EQ(Judge(next), OrderVerdict::Kind::kUnderWay);
}

TEST_F(RoundsOfSiteTest, OrderOfAJobThatIsOverIsNotHandedOut) {
  const uint64_t number = rounds_->TakeOrder(order_);
  EXPECT_EQ(Judge(number, /*has_failed=*/true), OrderVerdict::Kind::kJobFailed);
  EXPECT_EQ(Judge(number, /*has_failed=*/false, /*is_over=*/true),
            OrderVerdict::Kind::kNotHandedOut);
  AskAndOpen();
  EXPECT_EQ(Judge(number, /*has_failed=*/false, /*is_over=*/true), OrderVerdict::Kind::kUnderWay)
      << "the round that carries it out is open";
}

TEST_F(RoundsOfSiteTest, OrderSurvivesARestore) {
  const uint64_t number = rounds_->TakeOrder(order_);
  rounds_->Restore(job_, {}, {});
  EXPECT_EQ(Judge(number), OrderVerdict::Kind::kUnderWay);
  EXPECT_TRUE(rounds_->has_next_round());
}

TEST_F(RoundsOfSiteTest, DataIsThatOfEnoughMembers) {
  EXPECT_EQ(rounds_->SiteData(members_, now_), Data());
  EXPECT_EQ(rounds_->SiteData({}, now_), std::nullopt);
}

TEST_F(RoundsOfSiteTest, WordsOfTheUplinkAreNewsOnce) {
  EXPECT_TRUE(rounds_->TellUpstream("its lease is over", now_));
  EXPECT_FALSE(rounds_->TellUpstream("its lease is over", now_ + absl::Seconds(1)));
  EXPECT_EQ(rounds_->site().told(), "its lease is over");
  EXPECT_EQ(rounds_->site().told_since(), now_);
}

}  // namespace
}  // namespace lodestar::rounds
