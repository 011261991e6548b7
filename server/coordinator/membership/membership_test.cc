// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/membership/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_hints.h"
#include "common/testing/status_matchers.h"

namespace lodestar::membership {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Verdict = ClosedConnections::Verdict;

constexpr absl::Duration kLease = absl::Seconds(9);
constexpr absl::Duration kCallerPatience = absl::Seconds(6);
constexpr uint64_t kMapVersion = 5;
constexpr char kBox[] = "box";

class MembershipTest : public ::testing::Test {
 protected:
  // Returns the call of a process with the ID `instance`, whose address has `instance` as its port.
  static messages::RegisterCall Call(const std::string& name, uint64_t instance,
                                     const std::string& identity = "") {
    messages::RegisterCall call;
    call.name = name;
    call.instance_id = instance;
    call.device = "cpu";
    call.peer = PeerOf(instance);
    call.identity = identity;
    return call;
  }
  static std::string PeerOf(uint64_t instance) { return absl::StrCat("ipv4:10.0.0.1:", instance); }
  static messages::RegisterCall Acknowledged(messages::RegisterCall call,
                                             uint64_t server_incarnation, int64_t round,
                                             Incarnation life = Incarnation(1)) {
    call.process.acknowledged =
        messages::AcknowledgedReport{server_incarnation, life, Round(round)};
    return call;
  }
  Membership::Admitted Register(const messages::RegisterCall& call) {
    const auto admitted = membership_.Register(call, kMapVersion, now_);
    EXPECT_OK(admitted.status());
    return admitted.value_or(Membership::Admitted());
  }
  messages::WorkerLife Join(const std::string& name, uint64_t instance) {
    const messages::WorkerLife life = Register(Call(name, instance)).life;
    EXPECT_OK(membership_.Join(life, now_));
    return life;
  }
  std::optional<uint32_t> IndexOf(WorkerId worker) const {
    return membership_.ConnectionOf(worker).memory().index;
  }
  static messages::HeartbeatCall Heartbeat(const messages::WorkerLife& life,
                                           absl::Duration round_trip) {
    messages::HeartbeatCall call;
    call.life = life;
    call.path.round_trip = round_trip;
    return call;
  }
  void Pass(absl::Duration duration) { now_ += duration; }
  // Starts the servers from a checkpoint that contains the worker "known".
  void Begin() {
    MembershipState state;
    state.names = {{"known", WorkerId(1), /*was_alive=*/false}};
    state.last_id = WorkerId(1);
    state.last_incarnation = Incarnation(5);
    ASSERT_OK(membership_.Restore(
        state, {.server_incarnation = 200, .beginning = StartingCheckpoint{100, 200, 10}}, now_));
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  Membership membership_{{.num_shards = 1,
                          .lease = kLease,
                          .caller_patience = kCallerPatience,
                          .life_key = "key",
                          .registrations = {.per_origin = 2}}};
};

TEST_F(MembershipTest, RegistrationOfNewProcessBeginsLifeAndConnection) {
  const auto first = Register(Call("a", 7, kBox));
  EXPECT_TRUE(first.is_new_life);
  EXPECT_FALSE(first.is_same_process);
  EXPECT_EQ(membership_.ConnectionOf(first.life.worker).memory(),
            (WorkerConnection::Memory{7, "cpu", kBox, kMapVersion, "", 0}));
  EXPECT_EQ(membership_.ConnectionOf(first.life.worker).peer(), PeerOf(7));
  ASSERT_TRUE(membership_.Drop(first.life.worker, "", now_).has_value());
  EXPECT_TRUE(Register(Call("a", 7)).is_same_process);
}

TEST_F(MembershipTest, RepeatedRegistrationGoesOnFromWhereItCalls) {
  const messages::WorkerLife life = Register(Call("a", 7)).life;
  messages::RegisterCall again = Call("a", 7);
  again.peer = PeerOf(8);
  EXPECT_TRUE(membership_.GoesOn(again));
  const auto admitted = Register(again);
  EXPECT_FALSE(admitted.is_new_life);
  EXPECT_EQ(admitted.life, life);
  EXPECT_EQ(membership_.ConnectionOf(life.worker).peer(), PeerOf(8));
  EXPECT_FALSE(membership_.GoesOn(Call("a", 8)));
  ASSERT_TRUE(membership_.Drop(life.worker, "", now_).has_value());
  EXPECT_FALSE(membership_.GoesOn(again)) << "the life is over";
}

TEST_F(MembershipTest, NewLifeGetsLowestIndexThatNoLivingWorkerHolds) {
  const WorkerId a = Join("a", 7).worker;
  const WorkerId b = Join("b", 8).worker;
  const WorkerId c = Register(Call("c", 9)).life.worker;  // has not joined
  EXPECT_EQ(IndexOf(a), 0);
  EXPECT_EQ(IndexOf(b), 1);
  EXPECT_EQ(IndexOf(c), 2);
  ASSERT_TRUE(membership_.Drop(a, "", now_).has_value());
  ASSERT_TRUE(membership_.Drop(b, "", now_).has_value());
  EXPECT_EQ(IndexOf(Join("d", 10).worker), 0);
  EXPECT_EQ(IndexOf(Join("a", 7).worker), 1) << "its earlier life had 0, which d holds";
  EXPECT_EQ(IndexOf(Join("e", 11).worker), 3);
  EXPECT_EQ(IndexOf(c), 2);
}

TEST_F(MembershipTest, NewLifeDoesNotAvoidIndexOfItsEarlierLife) {
  const messages::WorkerLife a = Join("a", 7);
  ASSERT_TRUE(membership_.Drop(a.worker, "", now_).has_value());
  EXPECT_EQ(IndexOf(Join("a", 7).worker), 0);
}

TEST_F(MembershipTest, RepeatedRegistrationKeepsIndex) {
  const WorkerId a = Join("a", 7).worker;
  const WorkerId b = Join("b", 8).worker;
  ASSERT_TRUE(membership_.Drop(a, "", now_).has_value());
  EXPECT_FALSE(Register(Call("b", 8)).is_new_life);
  EXPECT_EQ(IndexOf(b), 1);
}

TEST_F(MembershipTest, IndexOutlivesTheProcess) {
  const WorkerId a = Join("a", 7).worker;
  const WorkerId b = Join("b", 8).worker;
  ASSERT_TRUE(membership_.Drop(a, "", now_).has_value());
  Membership resumed({.lease = kLease});
  ASSERT_OK(resumed.Resume(membership_.memory(), now_));
  resumed.Resume(b, membership_.ConnectionOf(b).memory());
  EXPECT_EQ(resumed.ConnectionOf(b).memory().index, 1);
  ASSERT_OK_AND_ASSIGN(const Membership::Admitted c,
                       resumed.Register(Call("c", 9), kMapVersion, now_));
  EXPECT_EQ(resumed.ConnectionOf(c.life.worker).memory().index, 0);
  ASSERT_OK_AND_ASSIGN(const Membership::Admitted d,
                       resumed.Register(Call("d", 10), kMapVersion, now_));
  EXPECT_EQ(resumed.ConnectionOf(d.life.worker).memory().index, 2);
}

TEST_F(MembershipTest, LifeOfEarlierReleaseGetsIndexWhenItRegistersAgain) {
  const WorkerId a = Join("a", 7).worker;
  WorkerConnection::Memory memory = membership_.ConnectionOf(a).memory();
  memory.index.reset();
  membership_.Resume(a, memory);
  EXPECT_EQ(membership_.live_workers(), (messages::LiveWorkers{1, 0}));
  EXPECT_EQ(IndexOf(Join("b", 8).worker), 0);
  EXPECT_EQ(membership_.live_workers(), (messages::LiveWorkers{2, 0}));
  EXPECT_FALSE(Register(Call("a", 7)).is_new_life);
  EXPECT_EQ(IndexOf(a), 1);
}

TEST_F(MembershipTest, LiveWorkersAreRegisteredOnesAndMembers) {
  EXPECT_EQ(membership_.live_workers(), messages::LiveWorkers());
  const WorkerId a = Join("a", 7).worker;
  const messages::WorkerLife b = Join("b", 8);
  Register(Call("c", 9));
  EXPECT_EQ(membership_.live_workers(), (messages::LiveWorkers{3, 0}));
  ASSERT_TRUE(membership_.Drop(a, "", now_).has_value());
  EXPECT_EQ(membership_.live_workers(), (messages::LiveWorkers{2, 1}));
  ASSERT_OK(membership_.Leave(b, "", now_).status());
  EXPECT_EQ(membership_.live_workers(), (messages::LiveWorkers{1, 2}));
}

TEST_F(MembershipTest, UnknownWorkerHasEmptyConnection) {
  EXPECT_TRUE(membership_.ConnectionOf(WorkerId(3)).identity().empty());
}

TEST_F(MembershipTest, WorkersWithoutCertificateAreOfNone) {
  Join("a", 7);
  EXPECT_THAT(membership_.WorkersOf(""), IsEmpty());
}

TEST_F(MembershipTest, MemberIsWhatHasJoinedAndLives) {
  const messages::WorkerLife a = Register(Call("a", 7)).life;
  EXPECT_FALSE(membership_.IsMember(a));
  ASSERT_OK(membership_.Join(a, now_));
  EXPECT_TRUE(membership_.IsMember(a));
  EXPECT_TRUE(membership_.IsLastMember(a.worker));
  const messages::WorkerLife b = Join("b", 8);
  EXPECT_FALSE(membership_.IsLastMember(a.worker));
  ASSERT_TRUE(membership_.Drop(b.worker, "", now_).has_value());
  EXPECT_FALSE(membership_.IsMember(b));
  EXPECT_FALSE(membership_.IsLastMember(b.worker));
}

TEST_F(MembershipTest, DropOfEndedLifeIsNothing) {
  const messages::WorkerLife life = Join("a", 7);
  EXPECT_TRUE(membership_.Drop(life.worker, "", now_).has_value());
  EXPECT_FALSE(membership_.Drop(life.worker, "", now_).has_value());
}

TEST_F(MembershipTest, DropWhereEndsLivingWorkersOfThoseNames) {
  const messages::WorkerLife a = Join("a", 7);
  Join("b", 8);
  const messages::WorkerLife c = Register(Call("c", 9)).life;
  const auto not_b = [](absl::string_view name) { return name != "b"; };
  const auto ended = membership_.DropWhere(not_b, "", now_);
  ASSERT_THAT(ended, SizeIs(2));
  EXPECT_EQ(ended[0].id, a.worker);
  EXPECT_EQ(ended[1].id, c.worker);
  EXPECT_THAT(membership_.DropWhere(not_b, "", now_), IsEmpty());
}

TEST_F(MembershipTest, ConnectionsOfForgottenWorkersStayUntilForgetGone) {
  WorkerId first;
  for (int i = 0; i <= MembershipTable::kMaxEndedStrangers; ++i) {
    const messages::WorkerLife life = Register(Call(absl::StrCat("w", i), 100 + i, kBox)).life;
    if (i == 0) first = life.worker;
    membership_.Drop(life.worker, "", now_);
  }
  ASSERT_EQ(membership_.table().Find(first), nullptr);
  EXPECT_TRUE(membership_.ConnectionOf(first).IsProcess(100));
  EXPECT_THAT(membership_.WorkersOf(kBox), Not(Contains(first)));
  EXPECT_THAT(membership_.ForgetGone(), ElementsAre(first));
  EXPECT_FALSE(membership_.ConnectionOf(first).IsProcess(100));
  EXPECT_THAT(membership_.ForgetGone(), IsEmpty());
}

TEST_F(MembershipTest, HolderThatIsSilentIsGoneIfCallerSaysThatItsConnectionIsClosed) {
  const messages::WorkerLife holder = Join("a", 7);
  messages::RegisterCall call = Call("a", 8);
  EXPECT_EQ(membership_.PeerOfHolder(call), PeerOf(7));
  call.holder_is_gone = true;
  Pass(kLease / 3 + absl::Milliseconds(499));
  EXPECT_FALSE(membership_.GoneHolder(call, now_).has_value());
  Pass(absl::Milliseconds(1));
  EXPECT_EQ(membership_.GoneHolder(call, now_), holder.worker);
  call.holder_is_gone = false;
  EXPECT_FALSE(membership_.GoneHolder(call, now_).has_value());
}

TEST_F(MembershipTest, HolderIsAnotherLivingProcessThatWasHeardOf) {
  const messages::WorkerLife life = Join("a", 7);
  EXPECT_FALSE(membership_.PeerOfHolder(Call("a", 7)).has_value()) << "the same process";
  EXPECT_FALSE(membership_.PeerOfHolder(Call("b", 8)).has_value()) << "a free name";
  membership_.OnHeard(life, "");
  EXPECT_FALSE(membership_.PeerOfHolder(Call("a", 8)).has_value()) << "not heard of";
  membership_.OnHeard(life, PeerOf(9));
  EXPECT_EQ(membership_.PeerOfHolder(Call("a", 8)), PeerOf(9));
  ASSERT_TRUE(membership_.Drop(life.worker, "", now_).has_value());
  membership_.OnHeard(life, PeerOf(10));
  EXPECT_EQ(membership_.ConnectionOf(life.worker).peer(), PeerOf(9)) << "the life is over";
  EXPECT_FALSE(membership_.PeerOfHolder(Call("a", 8)).has_value());
}

TEST_F(MembershipTest, FrozenWeightsAreComparedWithThoseOfOtherLivingWorkers) {
  const auto call = [](const std::string& name, const std::string& hash) {
    messages::RegisterCall call = Call(name, 7);
    call.frozen_hash = hash;
    return call;
  };
  Register(call("none", ""));
  EXPECT_FALSE(membership_.CheckFrozen(call("a", "x")).has_value());
  const messages::WorkerLife life = Register(call("a", "x")).life;
  const MemberRefusal refusal{.kind = MemberRefusal::Kind::kOtherFrozen, .subject = "a"};
  EXPECT_EQ(membership_.CheckFrozen(call("b", "y")), refusal);
  EXPECT_FALSE(membership_.CheckFrozen(call("b", "x")).has_value());
  EXPECT_FALSE(membership_.CheckFrozen(call("b", "")).has_value()) << "not compared";
  EXPECT_FALSE(membership_.CheckFrozen(call("a", "y")).has_value()) << "its own, of before";
  ASSERT_TRUE(membership_.Drop(life.worker, "", now_).has_value());
  EXPECT_FALSE(membership_.CheckFrozen(call("b", "y")).has_value()) << "the life is over";
}

TEST_F(MembershipTest, RoomIsTakenByOtherMembersOnly) {
  Join("a", 7);
  Join("b", 8);
  Register(Call("c", 9));
  EXPECT_EQ(membership_.CheckRoom("c", 2),
            (MemberRefusal{.kind = MemberRefusal::Kind::kNoRoom, .present = 2, .allowed = 2}));
  EXPECT_FALSE(membership_.CheckRoom("c", 3).has_value());
  EXPECT_FALSE(membership_.CheckRoom("a", 2).has_value()) << "it has its place";
}

TEST_F(MembershipTest, CertificateMayHaveAsManyNamesAsAreAllowedOrNeededOrEarned) {
  for (int i = 0; i < Membership::kNamesPerCertificate; ++i) {
    EXPECT_FALSE(membership_.CheckNames(Call(absl::StrCat(i), 100 + i, kBox), {}).has_value());
    Register(Call(absl::StrCat(i), 100 + i, kBox));
  }
  Register(Call("other", 50, "other"));
  const messages::RegisterCall call = Call("more", 99, kBox);
  constexpr int64_t kAll = Membership::kNamesPerCertificate;
  EXPECT_EQ(membership_.CheckNames(call, {}),
            (MemberRefusal{MemberRefusal::Kind::kTooManyNames, kBox, kAll, kAll, 0}));
  EXPECT_FALSE(membership_.CheckNames(call, {.workers_needed = kAll + 1}).has_value());
  EXPECT_FALSE(membership_.CheckNames(call, {.rounds_completed = 1}).has_value());
  EXPECT_EQ(membership_.CheckNames(call, {.workers_needed = kAll - 3}),
            (MemberRefusal{MemberRefusal::Kind::kTooManyNames, kBox, kAll, kAll, 0}));
  EXPECT_FALSE(membership_.CheckNames(Call("more", 99), {}).has_value()) << "no certificate";
  Register(call);
  EXPECT_FALSE(membership_.CheckNames(Call("0", 100, kBox), {}).has_value()) << "it lives";
}

TEST_F(MembershipTest, NameThatHasEndedCountsOnlyIfItHasCompletedRound) {
  const messages::WorkerLife ended = Register(Call("ended", 98, kBox)).life;
  membership_.Drop(ended.worker, "", now_);
  EXPECT_THAT(membership_.WorkersOf(kBox), ElementsAre(ended.worker));
  for (int i = 0; i < Membership::kNamesPerCertificate - 1; ++i) {
    Register(Call(absl::StrCat(i), 100 + i, kBox));
  }
  EXPECT_FALSE(membership_.CheckNames(Call("more", 99, kBox), {}).has_value());
  Register(Call("more", 99, kBox));
  const messages::RegisterCall again = Call("ended", 97, kBox);
  EXPECT_TRUE(membership_.CheckNames(again, {}).has_value());
  EXPECT_FALSE(membership_.CheckNames(again, {.has_completed_round = true}).has_value());
}

TEST_F(MembershipTest, ReportIsLackedIfServersAreOlderThanIt) {
  const messages::RegisterCall call = Call("a", 7);
  const KnownReports known = {.server_incarnation = 100, .next_round = Round(5)};
  const messages::WorkerLife life = Join("a", 7);
  const auto lacks = [&](uint64_t server_incarnation, int64_t round, Incarnation of_life,
                         const KnownReports& facts) {
    return membership_.LacksAcknowledged(Acknowledged(call, server_incarnation, round, of_life),
                                         facts);
  };
  EXPECT_FALSE(membership_.LacksAcknowledged(call, known)) << "it tells of none";
  EXPECT_TRUE(lacks(101, 0, life.incarnation, known)) << "later servers";
  EXPECT_FALSE(lacks(99, 9, life.incarnation, known)) << "earlier servers";
  EXPECT_TRUE(lacks(100, 6, life.incarnation, known)) << "a later round";
  EXPECT_TRUE(lacks(100, 2, life.incarnation + 1, known)) << "a life that was not given";
  EXPECT_TRUE(lacks(100, 5, life.incarnation, {100, Round(5), 4}));
  EXPECT_FALSE(lacks(100, 5, life.incarnation, {100, Round(5), 5}));
  EXPECT_FALSE(membership_.LacksAcknowledged(Acknowledged(Call("a", 8), 101, 0), known))
      << "another process holds the name";
  membership_.Drop(life.worker, "", now_);
  EXPECT_FALSE(lacks(100, 5, life.incarnation, known)) << "the life is over";
  EXPECT_TRUE(membership_.LacksAcknowledged(Acknowledged(Call("a", 8), 101, 0), known));
}

TEST_F(MembershipTest, AlarmsOfLackedReportsAreOneForAllAfterSome) {
  const messages::RegisterCall call = Acknowledged(Call("a", 7), 100, 6);
  for (int i = 0; i < Membership::kMostNamed; ++i) {
    EXPECT_EQ(
        membership_.CountLacking(call),
        (MemberAlarm{.kind = MemberAlarm::Kind::kLacksReport, .worker = "a", .round = Round(6)}));
  }
  EXPECT_TRUE(membership_.CountLacking(call).is_one_of_many);
}

TEST_F(MembershipTest, FormerStartIsToldOnceIfFolderWasEmpty) {
  const messages::RegisterCall former = Acknowledged(Call("a", 7), 199, 6);
  EXPECT_FALSE(membership_.TakeFormerStart(former, 200).has_value()) << "the folder is not empty";
  ASSERT_OK(membership_.Restore({}, {.server_incarnation = 200, .empty_folder = "/data"}, now_));
  EXPECT_FALSE(membership_.TakeFormerStart(Call("a", 7), 200).has_value());
  EXPECT_FALSE(membership_.TakeFormerStart(Acknowledged(Call("a", 7), 200, 6), 200).has_value());
  EXPECT_EQ(membership_.TakeFormerStart(former, 200),
            (MemberAlarm{.kind = MemberAlarm::Kind::kFormerStart,
                         .worker = "a",
                         .round = Round(6),
                         .folder = "/data"}));
  EXPECT_FALSE(membership_.TakeFormerStart(former, 200).has_value());
}

TEST_F(MembershipTest, WorkerOfOtherServersIsNamedWhenItRegisters) {
  Begin();
  EXPECT_EQ(
      Register(Acknowledged(Call("stranger", 7), 150, 12)).alarm,
      (MemberAlarm{
          .kind = MemberAlarm::Kind::kOtherServers, .worker = "stranger", .round = Round(12)}));
  EXPECT_FALSE(Register(Acknowledged(Call("stranger", 7), 150, 2)).alarm.has_value())
      << "its life goes on";
  EXPECT_FALSE(Register(Call("new", 8)).alarm.has_value());
  EXPECT_FALSE(Register(Acknowledged(Call("of_writer", 9), 100, 2)).alarm.has_value());
  EXPECT_FALSE(Register(Acknowledged(Call("of_these", 10), 200, 2)).alarm.has_value());
}

TEST_F(MembershipTest, KnownNameIsOfOtherServersIfItsRoundCannotBeOfThoseThatWentOn) {
  const auto alarm_of = [this](uint64_t server_incarnation, int64_t round) {
    Begin();
    return Register(Acknowledged(Call("known", 7), server_incarnation, round)).alarm;
  };
  EXPECT_TRUE(alarm_of(150, 9).has_value());
  EXPECT_FALSE(alarm_of(150, 10).has_value()) << "those servers went on from the checkpoint";
  EXPECT_FALSE(alarm_of(99, 9).has_value()) << "the checkpoint has it";
}

TEST_F(MembershipTest, AlarmsOfOtherServersAreOneForAllAfterSome) {
  Begin();
  for (int i = 0; i < Membership::kMostNamed; ++i) {
    EXPECT_FALSE(
        Register(Acknowledged(Call(absl::StrCat(i), 100 + i), 150, 2)).alarm->is_one_of_many);
  }
  EXPECT_TRUE(Register(Acknowledged(Call("more", 99), 150, 2)).alarm->is_one_of_many);
}

TEST_F(MembershipTest, RefusedRegistrationCountsNoWorkerOfOtherServers) {
  Begin();
  Register(Acknowledged(Call("known", 7), 99, 2));
  for (int i = 0; i < 9; ++i) {
    EXPECT_THAT(membership_.Register(Acknowledged(Call("known", 8), 150, 2), kMapVersion, now_),
                StatusIs(absl::StatusCode::kAlreadyExists));
  }
  EXPECT_FALSE(Register(Acknowledged(Call("a", 9), 150, 2)).alarm->is_one_of_many);
}

TEST_F(MembershipTest, LaterStartWithoutBeginningKeepsTheFirst) {
  Begin();
  ASSERT_OK(membership_.Restore({}, {.server_incarnation = 300}, now_));
  EXPECT_TRUE(Register(Acknowledged(Call("a", 7), 150, 2)).alarm.has_value());
}

TEST_F(MembershipTest, RestoreForgetsLivesAndConnectionsButNotHowLivesEnded) {
  const messages::WorkerLife life = Join("a", 7);
  ASSERT_OK(membership_.Leave(life, "gone", now_).status());
  ASSERT_OK(membership_.Restore(membership_.table().Export(), {.server_incarnation = 300}, now_));
  EXPECT_TRUE(membership_.connections().empty());
  EXPECT_THAT(membership_.Check(life), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(membership_.table().Find(life.worker)->end_reason, "left: gone");
  EXPECT_GT(Register(Call("a", 7)).life.incarnation, Incarnation(300));
}

TEST_F(MembershipTest, ResumesLivesKeyAndConnectionsButNotFromWhereTheyCall) {
  const messages::WorkerLife life = Join("a", 7);
  Membership other({.lease = kLease, .life_key = "other"});
  ASSERT_OK(other.Resume(membership_.memory(), now_));
  other.Resume(life.worker, membership_.ConnectionOf(life.worker).memory());
  EXPECT_EQ(other.memory(), membership_.memory());
  EXPECT_EQ(other.life_key(), "key");
  EXPECT_TRUE(other.IsMember(life));
  EXPECT_TRUE(other.ConnectionOf(life.worker).IsProcess(7));
  EXPECT_FALSE(other.PeerOfHolder(Call("a", 8)).has_value());
}

TEST_F(MembershipTest, WorkerOfOlderMapIsNotFollowedUnlessItTakesAddresses) {
  messages::HeartbeatCall call = Heartbeat(Join("a", 7), absl::Seconds(1));
  const WorkerConnection& connection = membership_.ConnectionOf(call.life.worker);
  EXPECT_FALSE(membership_.OnHeartbeat(call, kMapVersion + 1));
  EXPECT_EQ(connection.path().round_trip, absl::ZeroDuration());
  EXPECT_TRUE(membership_.OnHeartbeat(call, kMapVersion));
  EXPECT_EQ(connection.path().round_trip, absl::Seconds(1));
  call.map_version = kMapVersion;
  EXPECT_TRUE(membership_.OnHeartbeat(call, kMapVersion + 1));
}

TEST_F(MembershipTest, RegistrationsOfOneOriginAreLimited) {
  EXPECT_OK(membership_.TakeRegistration(PeerOf(1), now_));
  EXPECT_OK(membership_.TakeRegistration(PeerOf(2), now_));
  EXPECT_THAT(membership_.TakeRegistration(PeerOf(3), now_),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

class UnconnectedTest : public MembershipTest {
 protected:
  Verdict Judge(absl::Duration long_round = absl::ZeroDuration()) {
    return membership_.JudgeUnconnected(a_.worker, long_round, now_).verdict;
  }
  void End() { membership_.OnConnectionEnded(a_, PeerOf(7), /*by_peer=*/true, now_); }

  const messages::WorkerLife a_ = Join("a", 7);
  const messages::WorkerLife b_ = Join("b", 8);
};

TEST_F(UnconnectedTest, LifeEndsOnceItsPatienceIsOverAndServersAgree) {
  EXPECT_FALSE(membership_.has_closed_connections());
  End();
  EXPECT_TRUE(membership_.has_closed_connections());
  Pass(absl::Milliseconds(999));
  EXPECT_EQ(Judge(), Verdict::kWait);
  Pass(absl::Milliseconds(1));
  const auto asked = membership_.JudgeUnconnected(a_.worker, absl::ZeroDuration(), now_);
  EXPECT_EQ(asked.verdict, Verdict::kAsk);
  EXPECT_EQ(asked.life, a_);
  membership_.OnConnectionsAnswer(0, a_, /*are_closed=*/true);
  const auto ended = membership_.JudgeUnconnected(a_.worker, absl::ZeroDuration(), now_);
  EXPECT_EQ(ended.verdict, Verdict::kEnd);
  EXPECT_EQ(ended.closed_for, absl::Seconds(1));
}

TEST_F(UnconnectedTest, PatienceGrowsWithRoundTripAndLongRounds) {
  ASSERT_TRUE(membership_.OnHeartbeat(Heartbeat(a_, absl::Milliseconds(500)), kMapVersion));
  End();
  Pass(absl::Milliseconds(1999));
  EXPECT_EQ(Judge(), Verdict::kWait) << "four round trips";
  Pass(absl::Milliseconds(1));
  EXPECT_EQ(Judge(/*long_round=*/absl::Seconds(41)), Verdict::kWait) << "a share of the round";
  EXPECT_EQ(Judge(/*long_round=*/absl::Seconds(40)), Verdict::kAsk);
}

TEST_F(UnconnectedTest, LastMemberIsNotEnded) {
  End();
  membership_.Drop(b_.worker, "", now_);
  Pass(absl::Seconds(1));
  EXPECT_EQ(Judge(), Verdict::kWait);
}

TEST_F(UnconnectedTest, LifeIsHeardOfByOtherConnectionOrRegistration) {
  End();
  membership_.OnHeard(a_, PeerOf(9));
  Pass(absl::Seconds(1));
  EXPECT_EQ(Judge(), Verdict::kWait);
  End();
  messages::RegisterCall again = Call("a", 7);
  again.peer = PeerOf(10);
  Register(again);
  Pass(absl::Seconds(1));
  EXPECT_EQ(Judge(), Verdict::kWait);
}

TEST_F(UnconnectedTest, GapBeginsPatienceAnew) {
  End();
  Pass(absl::Seconds(1));
  membership_.OnGap(now_);
  EXPECT_EQ(Judge(), Verdict::kWait);
}

TEST_F(UnconnectedTest, ConnectionOfEndedLifeIsNotKept) {
  membership_.Drop(a_.worker, "", now_);
  End();
  EXPECT_FALSE(membership_.has_closed_connections());
}

class TurnedAwayTest : public MembershipTest {
 protected:
  bool Answer(const absl::Status& answer) {
    return membership_.NoteAnswer("a", PeerOf(7), answer, now_);
  }
  const absl::Status not_ready_ = absl::UnavailableError("not ready");
  const absl::Status refused_ = absl::InvalidArgumentError("other model");
};

TEST_F(TurnedAwayTest, CallerThatIsToCallAgainWaitsForItsPatience) {
  for (const absl::Status& answer : {not_ready_, absl::AlreadyExistsError("held")}) {
    EXPECT_FALSE(Answer(answer));
    ASSERT_THAT(membership_.Callers(now_), SizeIs(1));
    EXPECT_EQ(membership_.Callers(now_)[0].reason, answer.message());
    EXPECT_EQ(membership_.Callers(now_)[0].peer, PeerOf(7));
  }
  EXPECT_THAT(membership_.Refused(now_), IsEmpty());
  Pass(kCallerPatience);
  EXPECT_THAT(membership_.Callers(now_), SizeIs(1));
  Pass(absl::Nanoseconds(1));
  EXPECT_THAT(membership_.Callers(now_), IsEmpty());
}

TEST_F(TurnedAwayTest, RefusalIsNewsOnceAndEndsWaiting) {
  Answer(not_ready_);
  EXPECT_TRUE(Answer(refused_));
  EXPECT_FALSE(Answer(refused_));
  EXPECT_THAT(membership_.Callers(now_), IsEmpty());
  EXPECT_THAT(membership_.Refused(now_), SizeIs(1));
  Pass(Membership::kRefusalsShownFor + absl::Nanoseconds(1));
  EXPECT_THAT(membership_.Refused(now_), IsEmpty());
}

TEST_F(TurnedAwayTest, AnswerThatIsToBeRepeatedIsNoRefusal) {
  EXPECT_FALSE(Answer(absl::AbortedError("again")));
  EXPECT_FALSE(membership_.NoteRefusal("a", "", not_ready_, now_));
  EXPECT_THAT(membership_.Refused(now_), IsEmpty());
}

TEST_F(TurnedAwayTest, EndOfJobIsNoRefusalAndEndsWaiting) {
  Answer(not_ready_);
  EXPECT_FALSE(Answer(WithJobOver(absl::FailedPreconditionError("over"))));
  EXPECT_THAT(membership_.Callers(now_), IsEmpty());
  EXPECT_THAT(membership_.Refused(now_), IsEmpty());
}

TEST_F(TurnedAwayTest, AdmissionForgetsRefusalAndWaiting) {
  Answer(refused_);
  Answer(not_ready_);
  EXPECT_FALSE(Answer(absl::OkStatus()));
  EXPECT_THAT(membership_.Callers(now_), IsEmpty());
  EXPECT_THAT(membership_.Refused(now_), IsEmpty());
}

TEST_F(TurnedAwayTest, JoinEndsWaitingAndReadmissionEndsRefusal) {
  const messages::WorkerLife life = Register(Call("a", 7)).life;
  membership_.NoteWaiting("a", "", not_ready_, now_);
  EXPECT_TRUE(membership_.NoteRefusal("a", "", refused_, now_));
  EXPECT_THAT(membership_.Callers(now_), SizeIs(1)) << "that ends no waiting";
  ASSERT_OK(membership_.Join(life, now_));
  EXPECT_THAT(membership_.Callers(now_), IsEmpty());
  EXPECT_THAT(membership_.Refused(now_), SizeIs(1));
  membership_.OnReadmitted("a");
  EXPECT_THAT(membership_.Refused(now_), IsEmpty());
}

}  // namespace
}  // namespace lodestar::membership
