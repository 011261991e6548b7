// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/stragglers/straggler_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace lodestar::stragglers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WorkerId kA(1), kB(2), kC(3), kNewcomer(9);
constexpr Round kRound(4);
constexpr absl::Duration kLease = absl::Seconds(10);
constexpr absl::Duration kTimeout = absl::Hours(1);
constexpr absl::Duration kSupplierRest = absl::Seconds(6);
constexpr absl::Duration kUsual = absl::Seconds(2);
constexpr absl::Duration kForWork = absl::Seconds(620);  // ten minutes and two leases
constexpr absl::Duration kMoment = absl::Nanoseconds(1);
constexpr int64_t kBucketBytes = 1 << 20;

using Kind = Stall::Kind;

// Fixture in which A has reported round 4 and waits, and B and C compute the round. Each usually
// takes two seconds.
class StragglerDetectorTest : public testing::Test {
 protected:
  StragglerDetectorTest() {
    grant_.kind = messages::Grant::Kind::kTrain;
    grant_.round = kRound;
    grant_.num_samples = 8;
    facts_.is_working = true;
    facts_.usual_round = kUsual;
    facts_.servers.resize(2);
    facts_.servers[1] = {.heard_at = start_ + kTimeout, .runs_since = absl::InfinitePast()};
    facts_.rounds = {{kRound, start_, kB, start_}};
    for (const WorkerId id : {kA, kB, kC}) {
      detector_.BeginLife(id, /*is_same_process=*/false);
      detector_.OnReport(id, grant_, kUsual);
      Beat(id, "compute");
      facts_.members.push_back({.id = id,
                                .grant = &grant_,
                                .given_at = start_,
                                .idle_since = start_,
                                .has_reported = true});
    }
    Await(Of(kA));
  }

  WorkerFacts& Of(WorkerId id) {
    return *std::find_if(facts_.members.begin(), facts_.members.end(),
                         [id](const WorkerFacts& member) { return member.id == id; });
  }
  // Makes the worker wait for work. It then holds no grant.
  static void Await(WorkerFacts& worker) {
    worker.grant = nullptr;
    worker.is_waiting = true;
  }
  // Sends a heartbeat at `now_`. If `stalled_shard` is set, the heartbeat says that the path to
  // that shard has moved no byte for `age`.
  void Beat(WorkerId id, const std::string& activity, std::optional<int> stalled_shard = {},
            absl::Duration age = {}) {
    messages::HeartbeatCall call{.life = {id, Incarnation(1)}, .activity = activity};
    if (stalled_shard.has_value()) call.standstill = messages::Standstill{*stalled_shard, age};
    detector_.OnHeartbeat(call, now_);
  }
  // Makes the server of shard 1 report at `now_` that `received` bytes of B's push have come.
  void HearPush(int64_t received, bool others_wait = false, absl::Duration silence = {}) {
    sync::PushSpace space;
    space.unfinished = {{{kB, Incarnation(1)}, kRound, 3, received, kBucketBytes, silence}};
    if (others_wait) space.held = {{kA, Incarnation(1)}};
    detector_.OnPushSpace(1, space, {kB, Incarnation(1)}, now_);
  }
  void Hold(WorkerId id) {
    detector_.OnPushSpace(1, {.unfinished = {}, .held = {{id, Incarnation(1)}}},
                          {id, Incarnation(1)}, now_);
  }
  // Returns the stall of the worker at `now_`. Not set means that it has none.
  std::optional<Stall> StallOf(WorkerId id) {
    for (const Stall& stall : detector_.Stalls(facts_, now_)) {
      if (stall.worker == id) return stall;
    }
    return std::nullopt;
  }
  std::vector<WorkerId> PathStalled() {
    std::vector<WorkerId> workers;
    for (const Stall& stall : detector_.PathStalls(facts_, now_)) workers.push_back(stall.worker);
    return workers;
  }
  // Lets B push at `start_`. Lets B report, `later` after that, that its path to shard 1 has moved
  // no byte in this time.
  void StallPath(absl::Duration later) {
    now_ = start_;
    Beat(kB, "push");
    now_ = start_ + later;
    Beat(kB, "push", 1, later);
  }
  // Ends the incarnation of the worker while it holds its grant. Returns the members that rest
  // then.
  std::vector<WorkerId> End(WorkerId id) {
    const WorkerFacts ended = Of(id);
    std::erase_if(facts_.members, [id](const WorkerFacts& member) { return member.id == id; });
    return detector_.OnEnded({ended}, facts_, now_);
  }

  const absl::Time start_ = absl::FromUnixSeconds(1'700'000'000);
  absl::Time now_ = start_;
  messages::Grant grant_;
  StragglerFacts facts_;
  StragglerDetector detector_{
      {.lease = kLease, .round_timeout = kTimeout, .supplier_rest = kSupplierRest}};
};

TEST_F(StragglerDetectorTest, ReportIsOverAfterMuchMoreThanTheUsualTime) {
  now_ = start_ + kForWork - kMoment;
  std::optional<Stall> stall = StallOf(kB);
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->kind, Kind::kReport);
  EXPECT_EQ(stall->round, kRound);
  EXPECT_EQ(stall->usually, kUsual);
  EXPECT_EQ(stall->since, start_);
  EXPECT_EQ(stall->until, start_ + kForWork);
  EXPECT_EQ(stall->rest, kForWork - kMoment);
  EXPECT_FALSE(stall->IsOver(now_));
  EXPECT_TRUE(stall->IsOver(now_ + kMoment));
  EXPECT_EQ(detector_.ReportDueAt(Of(kB), start_, kUsual), stall->until);
}

TEST_F(StragglerDetectorTest, WorkerThatWasDroppedForAReportHasFourTimesAsLong) {
  now_ = start_ + absl::Minutes(5);
  detector_.OnDropped(*StallOf(kB), now_);
  EXPECT_EQ(StallOf(kB)->until, start_ + 4 * kForWork);
  detector_.OnReport(kB, grant_, kUsual);
  EXPECT_EQ(StallOf(kB)->until, start_ + kForWork);
}

TEST_F(StragglerDetectorTest, NoMemberIsStalledIfNoneWaits) {
  EXPECT_EQ(detector_.Stalls(facts_, now_).size(), 2);
  Of(kA).is_waiting = false;
  EXPECT_THAT(detector_.Stalls(facts_, now_), IsEmpty());
}

TEST_F(StragglerDetectorTest, NoMemberIsStalledWhileTheJobHasNoWork) {
  facts_.is_working = false;
  EXPECT_THAT(detector_.Stalls(facts_, now_), IsEmpty());
}

TEST_F(StragglerDetectorTest, TimeBeforeAServerWasBackDoesNotCount) {
  facts_.back_at = start_ + absl::Minutes(1);
  EXPECT_EQ(StallOf(kB)->since, facts_.back_at);
  HearPush(0);
  EXPECT_EQ(StallOf(kB)->kind, Kind::kPush);
  EXPECT_EQ(StallOf(kB)->since, facts_.back_at);
  facts_.supplier = {kC, start_};
  EXPECT_EQ(StallOf(kC)->since, facts_.back_at);
}

TEST_F(StragglerDetectorTest, MemberWithoutWorkIsStalledOnlyIfTheNextRoundAwaitsIt) {
  Of(kB).grant = nullptr;
  EXPECT_EQ(StallOf(kB), std::nullopt);
  facts_.awaits_asking = true;
  const std::optional<Stall> stall = StallOf(kB);
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->kind, Kind::kAsking);
  EXPECT_EQ(stall->until, start_ + kForWork);
  Of(kB).is_leaving = true;
  EXPECT_EQ(StallOf(kB), std::nullopt);
}

TEST_F(StragglerDetectorTest, ReportOfAClosedRoundIsDueOnlyIfTheNextRoundAwaitsTheMember) {
  facts_.rounds.clear();
  EXPECT_EQ(StallOf(kB), std::nullopt);
  facts_.awaits_asking = true;
  EXPECT_EQ(StallOf(kB)->kind, Kind::kReport);
}

TEST_F(StragglerDetectorTest, MemberThatPushesIsNotStalledWhileAnotherIsBeforeIt) {
  Beat(kB, "push");
  Beat(kC, "push");
  EXPECT_EQ(StallOf(kC), std::nullopt);
  facts_.rounds[0].front = kC;
  facts_.rounds[0].front_since = start_ + absl::Seconds(5);
  EXPECT_EQ(StallOf(kC)->since, start_ + absl::Seconds(5));
  Beat(kC, "compute");
  EXPECT_EQ(StallOf(kC)->since, start_);
}

TEST_F(StragglerDetectorTest, MemberWhosePushIsHeldIsNotStalledAndItsTimeBeginsAfterThat) {
  now_ = start_ + absl::Seconds(5);
  Hold(kB);
  EXPECT_EQ(StallOf(kB), std::nullopt);
  detector_.OnPushSpace(1, {}, {kB, Incarnation(1)}, now_ + absl::Seconds(1));
  EXPECT_EQ(StallOf(kB)->since, now_);
}

TEST_F(StragglerDetectorTest, SupplierOfTheFirstWeightsIsStalledAloneAndRestsShortly) {
  facts_.supplier = {kC, start_ + absl::Seconds(1)};
  const std::vector<Stall> stalls = detector_.Stalls(facts_, now_);
  ASSERT_EQ(stalls.size(), 1);
  EXPECT_EQ(stalls[0].worker, kC);
  EXPECT_EQ(stalls[0].kind, Kind::kWeights);
  EXPECT_EQ(stalls[0].until, start_ + absl::Seconds(1) + kForWork);
  EXPECT_EQ(stalls[0].rest, kSupplierRest);
  EXPECT_EQ(detector_.OnlyStalled(facts_, now_), std::nullopt);
}

TEST_F(StragglerDetectorTest, PushHasToComeAtItsPaceAsOfTheLastSignOfLifeOfItsServer) {
  HearPush(kBucketBytes / 8);
  const absl::Duration patience = absl::Minutes(1) + kTimeout / 8;
  now_ = start_ + patience;
  const std::optional<Stall> stall = StallOf(kB);
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->kind, Kind::kPush);
  ASSERT_TRUE(stall->push.has_value());
  EXPECT_EQ(stall->push->shard, 1);
  EXPECT_EQ(stall->push->received_bytes, kBucketBytes / 8);
  EXPECT_EQ(stall->until, now_);
  EXPECT_FALSE(stall->IsOver(now_)) << "more may have come since the server was heard";
  HearPush(kBucketBytes / 8);
  EXPECT_TRUE(StallOf(kB)->IsOver(now_));
}

TEST_F(StragglerDetectorTest, SilentPushIsOverAfterALeaseUnlessItsWorkerTellsOfAPathStall) {
  now_ = start_ + absl::Seconds(5);
  HearPush(0, /*others_wait=*/false, /*silence=*/absl::Seconds(3));
  EXPECT_EQ(StallOf(kB)->kind, Kind::kSilentPush);
  EXPECT_EQ(StallOf(kB)->until, start_ + absl::Seconds(2) + kLease);
  Beat(kB, "push", 1, absl::Seconds(3));
  EXPECT_EQ(StallOf(kB)->kind, Kind::kPush);
}

TEST_F(StragglerDetectorTest, SpaceThatOthersWaitForIsOverAfterTheTimeout) {
  HearPush(0, /*others_wait=*/true);
  now_ = start_ + absl::Minutes(30);
  // B pushes another bucket. The time for this push begins only now.
  sync::PushSpace space;
  space.unfinished = {{{kB, Incarnation(1)}, kRound, 4, kBucketBytes / 2, kBucketBytes}};
  space.held = {{kA, Incarnation(1)}};
  detector_.OnPushSpace(1, space, {kB, Incarnation(1)}, now_);
  Beat(kB, "push");
  Of(kB).given_at = now_;
  facts_.rounds[0].front = kC;
  const std::optional<Stall> stall = StallOf(kB);
  ASSERT_TRUE(stall.has_value());
  EXPECT_EQ(stall->kind, Kind::kSpace);
  EXPECT_EQ(stall->push->bucket, 4);
  EXPECT_EQ(stall->since, start_);
  EXPECT_EQ(stall->until, start_ + kTimeout);
}

TEST_F(StragglerDetectorTest, NoPushIsOverIfNoMemberGetsOn) {
  HearPush(0);
  now_ = start_ + absl::Minutes(1);
  HearPush(0);
  EXPECT_TRUE(StallOf(kB)->IsOver(now_));
  for (const WorkerId id : {kA, kC}) Beat(id, "push", 1);
  EXPECT_EQ(StallOf(kB)->kind, Kind::kReport);
  Hold(kC);
  EXPECT_TRUE(StallOf(kB)->IsOver(now_)) << "the path of C moves, and a server holds its push";
}

TEST_F(StragglerDetectorTest, PushToAServerThatDoesNotRunIsNotOver) {
  HearPush(0);
  facts_.servers[1].runs_since = start_ + absl::Seconds(30);
  EXPECT_EQ(StallOf(kB)->since, start_ + absl::Seconds(30));
  facts_.servers[1].heard_at = start_ - absl::Seconds(1);
  EXPECT_EQ(StallOf(kB)->kind, Kind::kReport);
}

TEST_F(StragglerDetectorTest, OnlyStalledNamesTheMemberThatAloneHoldsUpTheOthers) {
  EXPECT_EQ(detector_.OnlyStalled(facts_, now_), std::nullopt);
  Await(Of(kC));
  EXPECT_EQ(detector_.OnlyStalled(facts_, now_), kB);
}

TEST_F(StragglerDetectorTest, PathIsStalledAfterALeaseAndTheUsualRound) {
  StallPath(kLease + kUsual);
  EXPECT_THAT(PathStalled(), IsEmpty());
  now_ += kMoment;
  const std::vector<Stall> stalls = detector_.PathStalls(facts_, now_);
  ASSERT_EQ(stalls.size(), 1);
  EXPECT_EQ(stalls[0].worker, kB);
  EXPECT_EQ(stalls[0].kind, Kind::kPath);
  EXPECT_EQ(stalls[0].round, kRound);
  EXPECT_EQ(stalls[0].since, start_);
  EXPECT_EQ(stalls[0].rest, std::nullopt);
  detector_.OnDropped(stalls[0], now_);
  EXPECT_EQ(detector_.Of(kB).times_dropped(), 0);
}

TEST_F(StragglerDetectorTest, PathStallBeginsWithTheRoundTheActivityOrTheLastByte) {
  const auto since = [this] { return detector_.PathStalls(facts_, now_).at(0).since; };
  StallPath(absl::Minutes(1));
  Beat(kB, "push", 1, absl::Seconds(50));
  EXPECT_EQ(since(), start_ + absl::Seconds(10));
  facts_.rounds[0].opened_at = start_ - absl::Hours(1);
  Beat(kB, "push", 1, absl::Hours(1));
  EXPECT_EQ(since(), start_) << "it has computed until then";
  facts_.rounds[0].opened_at = start_ + absl::Seconds(20);
  EXPECT_EQ(since(), start_ + absl::Seconds(20));
}

TEST_F(StragglerDetectorTest, NewPathHasFourTimesAsLongAndAgainAfterEachDrop) {
  Of(kB).has_reported = false;
  for (const absl::Duration patience :
       {4 * (kLease + kUsual), 16 * (kLease + kUsual), absl::Minutes(10), absl::Minutes(10)}) {
    StallPath(patience);
    EXPECT_THAT(PathStalled(), IsEmpty());
    now_ += kMoment;
    const std::vector<Stall> stalls = detector_.PathStalls(facts_, now_);
    ASSERT_EQ(stalls.size(), 1);
    EXPECT_EQ(stalls[0].rest, patience);
    detector_.OnDropped(stalls[0], now_);
    EXPECT_EQ(detector_.RestOf(Of(kB), now_), (Rest{Rest::Kind::kOwn, patience}));
  }
}

TEST_F(StragglerDetectorTest, PullThatMovesNoByteIsStalledAfterTenMinutes) {
  Beat(kB, "pull");
  now_ = start_ + absl::Minutes(10);
  EXPECT_THAT(PathStalled(), IsEmpty());
  now_ += kMoment;
  EXPECT_THAT(PathStalled(), ElementsAre(kB));
  messages::HeartbeatCall moves{.life = {kB, Incarnation(1)}, .activity = "pull"};
  moves.bytes_pulled = 1;
  detector_.OnHeartbeat(moves, now_);
  EXPECT_THAT(PathStalled(), IsEmpty());
  now_ += absl::Minutes(10) + kMoment;
  EXPECT_THAT(PathStalled(), ElementsAre(kB));
  Beat(kB, "push");
  EXPECT_THAT(PathStalled(), IsEmpty());
}

TEST_F(StragglerDetectorTest, PathIsNotStalledWhileTheServerHoldsThePushOrDoesNotRun) {
  StallPath(absl::Minutes(1));
  EXPECT_THAT(PathStalled(), ElementsAre(kB));
  facts_.servers[1].heard_at = start_ - kMoment;
  EXPECT_THAT(PathStalled(), IsEmpty());
  facts_.servers[1].heard_at = start_;
  facts_.back_at = now_;
  EXPECT_THAT(PathStalled(), IsEmpty());
  facts_.back_at = absl::InfinitePast();
  Hold(kB);
  EXPECT_THAT(PathStalled(), IsEmpty());
}

TEST_F(StragglerDetectorTest, PathIsNotStalledWithoutAnOpenRound) {
  StallPath(absl::Minutes(1));
  facts_.rounds.clear();
  EXPECT_THAT(PathStalled(), IsEmpty());
}

TEST_F(StragglerDetectorTest, NoPathIsStalledIfNoOtherMemberGetsOn) {
  StallPath(absl::Minutes(1));
  for (const WorkerId id : {kA, kC}) Beat(id, "push", 1);
  EXPECT_THAT(PathStalled(), IsEmpty());
  Beat(kC, "push");
  EXPECT_THAT(PathStalled(), ElementsAre(kB));
}

TEST_F(StragglerDetectorTest, NoPathIsStalledIfEachMemberHasItsOwnRoundsAndNoneWaits) {
  StallPath(absl::Minutes(1));
  Of(kA).is_waiting = false;
  EXPECT_THAT(PathStalled(), ElementsAre(kB));
  facts_.uses_rosters = false;
  EXPECT_THAT(PathStalled(), IsEmpty());
}

TEST_F(StragglerDetectorTest, RestIsForTheProcessUnlessItKeptSpace) {
  now_ = start_ + absl::Minutes(5);
  detector_.OnDropped(*StallOf(kB), now_);
  const Rest rest = {Rest::Kind::kOwn, absl::Minutes(5)};
  EXPECT_EQ(detector_.RestOf(Of(kB), now_), rest);
  EXPECT_EQ(detector_.RestOf(Of(kB), now_ + absl::Minutes(5)), Rest());
  detector_.BeginLife(kB, /*is_same_process=*/true);
  EXPECT_EQ(detector_.RestOf(Of(kB), now_), rest);
  EXPECT_EQ(detector_.Of(kB).times_dropped(), 1);
  EXPECT_EQ(detector_.Of(kB).pace().UsualFor(grant_), kUsual);
  detector_.BeginLife(kB, /*is_same_process=*/false);
  EXPECT_EQ(detector_.RestOf(Of(kB), now_), Rest());
  EXPECT_EQ(detector_.Of(kB).times_dropped(), 0);
  EXPECT_EQ(detector_.Of(kB).pace().UsualFor(grant_), std::nullopt);
  HearPush(0);
  now_ += absl::Minutes(1);
  detector_.OnDropped(*StallOf(kB), now_);
  EXPECT_EQ(detector_.Of(kB).times_dropped(), 0) << "it did not lack time";
  detector_.BeginLife(kB, /*is_same_process=*/false);
  EXPECT_EQ(detector_.RestOf(Of(kB), now_).kind, Rest::Kind::kOwn);
}

TEST_F(StragglerDetectorTest, NewNamesOfACertificateRestForAsLongAsOthersHaveWaited) {
  Of(kB).certificate = "box";
  Of(kA).idle_since = start_ + absl::Seconds(2);
  now_ = start_ + absl::Seconds(12);
  EXPECT_THAT(End(kB), IsEmpty());
  WorkerFacts other = {.id = kNewcomer, .certificate = "box"};
  EXPECT_EQ(detector_.RestOf(other, now_), (Rest{Rest::Kind::kCertificate, absl::Seconds(10)}));
  EXPECT_EQ(detector_.RestOf(other, now_ + absl::Seconds(10)), Rest());
  other.has_completed_round = true;
  EXPECT_EQ(detector_.RestOf(other, now_), Rest());
  other = {.id = kNewcomer, .certificate = "ann"};
  EXPECT_EQ(detector_.RestOf(other, now_), Rest());
  EXPECT_EQ(detector_.RestOf({.id = kB, .certificate = "box"}, now_), Rest())
      << "others have waited for this name itself";
  EXPECT_THAT(End(kC), IsEmpty());
  EXPECT_EQ(detector_.RestOf({.id = kNewcomer}, now_), Rest()) << "it has no certificate";
}

TEST_F(StragglerDetectorTest, OthersWaitFromWhenTheyPushedBehindTheWorker) {
  Of(kA).is_waiting = false;
  Of(kB).certificate = "box";
  now_ = start_ + absl::Seconds(5);
  Beat(kC, "push");
  now_ = start_ + absl::Seconds(12);
  End(kB);
  EXPECT_EQ(detector_.RestOf({.id = kNewcomer, .certificate = "box"}, now_),
            (Rest{Rest::Kind::kCertificate, absl::Seconds(7)}));
}

TEST_F(StragglerDetectorTest, CertificateRestsOnlyIfOthersHaveWaitedForAnOpenRound) {
  const WorkerFacts other = {.id = kNewcomer, .certificate = "box"};
  for (const WorkerId id : {kA, kB, kC}) Of(id).certificate = "box";
  now_ = start_ + absl::Seconds(12);
  StragglerFacts facts = facts_;
  facts.members = {Of(kC)};
  detector_.OnEnded({Of(kB)}, facts, now_);
  EXPECT_EQ(detector_.RestOf(other, now_), Rest()) << "no member waits";
  facts.members = {Of(kA)};
  facts.rounds.clear();
  detector_.OnEnded({Of(kB)}, facts, now_);
  EXPECT_EQ(detector_.RestOf(other, now_), Rest()) << "the round is not open";
  facts.rounds = facts_.rounds;
  facts.back_at = now_;
  detector_.OnEnded({Of(kB)}, facts, now_);
  EXPECT_EQ(detector_.RestOf(other, now_), Rest()) << "all waited for a server";
  Of(kB).grant = nullptr;
  facts.back_at = start_;
  detector_.OnEnded({Of(kB)}, facts, now_);
  EXPECT_EQ(detector_.RestOf(other, now_), Rest()) << "it had no round";
}

TEST_F(StragglerDetectorTest, MembersWithoutAGrantRestWithTheirCertificateIfEnoughOthersAreLeft) {
  for (const WorkerId id : {kB, kC}) Of(id).certificate = "box";
  Await(Of(kC));
  now_ = start_ + absl::Seconds(12);
  facts_.required_members = 2;
  EXPECT_THAT(End(kB), IsEmpty());
  facts_.required_members = 1;
  EXPECT_THAT(detector_.OnEnded({}, facts_, now_), ElementsAre(kC));
  facts_.members.back().grant = &grant_;
  EXPECT_THAT(detector_.OnEnded({}, facts_, now_), IsEmpty());
}

TEST_F(StragglerDetectorTest, EndForgetsWhatTheIncarnationDidAndNotItsMemory) {
  now_ = start_ + absl::Minutes(5);
  detector_.OnDropped(*StallOf(kB), now_);
  Hold(kB);
  StallPath(absl::Minutes(6));
  const WorkerActivity::Memory memory = detector_.Of(kB).memory();
  End(kB);
  EXPECT_EQ(detector_.Of(kB).activity(), "");
  EXPECT_EQ(detector_.Of(kB).path_stall().has_value(), false);
  EXPECT_FALSE(detector_.Of(kB).pushes().is_held());
  EXPECT_EQ(detector_.Of(kB).memory(), memory);
  detector_.Forget(kB);
  EXPECT_EQ(detector_.Of(kB).memory(), WorkerActivity::Memory());
  detector_.Resume(kB, memory);
  EXPECT_EQ(detector_.Of(kB).times_dropped(), 1);
  detector_.ForgetWorkers();
  EXPECT_EQ(detector_.Of(kB).memory(), WorkerActivity::Memory());
}

}  // namespace
}  // namespace lodestar::stragglers
