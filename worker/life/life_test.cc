// SPDX-License-Identifier: Apache-2.0

// Tests of a worker's life as a sequence of events and tasks. There are no threads or connections,
// and the test sets the time.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_hints.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/life/heartbeat_pace.h"
#include "worker/life/lifecycle.h"
#include "worker/life/redial_pace.h"

namespace lodestar::life {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const LifeId kFirstLife = {.server_incarnation = 9, .incarnation = Incarnation(1)};
const LifeId kSecondLife = {.server_incarnation = 9, .incarnation = Incarnation(2)};
const LifeId kOtherServers = {.server_incarnation = 10, .incarnation = Incarnation(1)};

std::string ReportText(const std::optional<messages::RoundReport>& report) {
  return report.has_value() ? absl::StrCat(" report=", report->round.value()) : "";
}

// Returns each effect as a text, which the tests compare.
struct Words {
  std::string operator()(const Lifecycle::Connect&) const { return "connect"; }
  std::string operator()(const Lifecycle::Prepare&) const { return "prepare"; }
  std::string operator()(const Lifecycle::TryPaths&) const { return "try paths"; }
  std::string operator()(const Lifecycle::Join&) const { return "join"; }
  std::string operator()(const Lifecycle::AskForGrant& ask) const {
    return absl::StrCat("ask", ReportText(ask.report), ask.leaving ? " leaving" : "");
  }
  std::string operator()(const Lifecycle::CarryOut& order) const {
    return absl::StrCat("work ", order.grant.round.value());
  }
  std::string operator()(const Lifecycle::SayGoodbye& goodbye) const {
    return absl::StrCat("leave (", goodbye.reason, ")", ReportText(goodbye.report));
  }
  std::string operator()(const Lifecycle::Finish& finish) const {
    return absl::StrCat("finish ", finish.status.ToString());
  }
  std::string operator()(const Lifecycle::Task& task) const { return std::visit(*this, task); }
  std::string operator()(const Lifecycle::CancelCalls&) const { return "cancel calls"; }
  std::string operator()(const Lifecycle::CancelTransfers&) const { return "cancel transfers"; }
  std::string operator()(const Lifecycle::Tell& tell) const { return "tell: " + tell.text; }
  std::string operator()(const Lifecycle::TellWait& wait) const { return "wait: " + wait.reason; }
};

messages::Grant GrantOf(messages::Grant::Kind kind, int64_t round = 0) {
  messages::Grant grant;
  grant.kind = kind;
  grant.round = Round(round);
  grant.reason = "so it is";
  return grant;
}

messages::RoundReport Report(int64_t round) {
  messages::RoundReport report;
  report.round = Round(round);
  return report;
}

// Fixture with a Lifecycle. Each method below passes an event to it and returns the effects as
// text. Log messages are not returned; told_ has the last one.
class LifecycleTest : public testing::Test {
 protected:
  std::string Take(const Lifecycle::Effects& effects) {
    std::vector<std::string> words;
    for (const Lifecycle::Effect& effect : effects) {
      if (std::holds_alternative<Lifecycle::Tell>(effect) ||
          std::holds_alternative<Lifecycle::TellWait>(effect)) {
        told_ = std::visit(Words(), effect);
      } else {
        words.push_back(std::visit(Words(), effect));
      }
    }
    return absl::StrJoin(words, ", ");
  }
  std::string Register(const absl::StatusOr<LifeId>& life = kFirstLife) {
    return Take(lifecycle_->OnRegistered(now_, life));
  }
  std::string Try(const absl::Status& status) {
    return Take(lifecycle_->OnPathsTried(now_, status));
  }
  std::string Get(const absl::StatusOr<messages::Grant>& grant) {
    return Take(lifecycle_->OnGrant(now_, grant));
  }
  std::string Work(const absl::StatusOr<messages::RoundReport>& report, bool leaves_steps = false) {
    return Take(lifecycle_->OnCarriedOut(now_, report, leaves_steps));
  }
  std::string Stop(const StopRequest& request = {}) {
    return Take(lifecycle_->OnStopRequested(now_, request));
  }
  std::string Lose() {
    return Take(lifecycle_->OnLifeLost(now_, absl::AbortedError("lease is over")));
  }
  std::string Left(const absl::Status& status = absl::OkStatus()) {
    return Take(lifecycle_->OnLeft(now_, status));
  }
  std::string Tick(absl::Duration passed) {
    now_ += passed;
    return Take(lifecycle_->OnTick(now_));
  }
  std::string Wake() {
    now_ = lifecycle_->next_wake();
    return Take(lifecycle_->OnTick(now_));
  }
  // Goes from Connect to the first request for a grant. Returns the text of that request.
  std::string Begin(const LifeId& life = kFirstLife) {
    EXPECT_EQ(Register(life), "prepare");
    EXPECT_EQ(Take(lifecycle_->OnPrepared(now_, absl::OkStatus())), "try paths");
    EXPECT_EQ(Try(absl::OkStatus()), "join");
    return Take(lifecycle_->OnJoined(now_, absl::OkStatus()));
  }
  std::string Start() {
    EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
    return Begin();
  }
  // Starts the worker and goes on until round `round` begins.
  void StartRound(int64_t round) {
    EXPECT_EQ(Start(), "ask");
    EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kTrain, round)), absl::StrCat("work ", round));
  }

  absl::Time now_ = absl::UnixEpoch();
  std::optional<Lifecycle> lifecycle_{std::in_place, Lifecycle::Config{}};
  std::string told_;
};

const absl::Status kAway = absl::UnavailableError("nobody answers");

TEST_F(LifecycleTest, WorksFromGrantToGrantUntilTheJobIsDone) {
  StartRound(0);
  EXPECT_EQ(lifecycle_->activity(), "compute");
  EXPECT_EQ(Work(Report(0)), "ask report=0");
  EXPECT_EQ(lifecycle_->activity(), "wait");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kWait)), "ask");
  EXPECT_EQ(told_, "wait: so it is");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kEvaluate, 1)), "work 1");
  EXPECT_EQ(Work(Report(1)), "ask report=1");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kDone)), "leave (job is done)");
  EXPECT_EQ(Left(kAway), "finish OK");
}

class ConnectTimeoutTest : public LifecycleTest {
 protected:
  ConnectTimeoutTest() {
    lifecycle_.emplace(Lifecycle::Config{
        .connect = {.timeout = absl::Minutes(5), .servers = "server-of-the-job:1"}});
  }
  // Registers and gets `answer`, again and again for the time `passed`. Returns the last effects.
  std::string RegisterInVain(const absl::Status& answer, absl::Duration passed) {
    const absl::Time end = now_ + passed;
    std::string effects = Register(answer);
    while (effects.empty() && now_ < end) {
      EXPECT_EQ(Wake(), "connect");
      effects = Register(answer);
    }
    return effects;
  }
};

TEST_F(ConnectTimeoutTest, EndsWithUnavailableIfNoServerIsEverReached) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(kAway), "");
  EXPECT_THAT(told_, AllOf(HasSubstr("server-of-the-job:1"), HasSubstr(" 5m ")));
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(RegisterInVain(kAway, absl::Minutes(4)), "");
  EXPECT_EQ(Wake(), "connect");
  EXPECT_THAT(RegisterInVain(kAway, absl::Minutes(1)),
              AllOf(HasSubstr("finish UNAVAILABLE"), HasSubstr("server-of-the-job:1")));
}

TEST_F(ConnectTimeoutTest, CountsFromTheLastAnswer) {
  StartRound(0);
  now_ += absl::Hours(9);
  EXPECT_EQ(Work(kAway), "");
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(RegisterInVain(kAway, absl::Minutes(4)), "");
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Begin(kOtherServers), "ask");
  now_ += absl::Hours(9);
  EXPECT_EQ(Get(kAway), "");
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(RegisterInVain(kAway, absl::Minutes(4)), "");
  EXPECT_EQ(Wake(), "connect");
  EXPECT_THAT(RegisterInVain(kAway, absl::Minutes(1)), HasSubstr("finish UNAVAILABLE"));
}

TEST_F(ConnectTimeoutTest, WaitsForAServerThatAnswersThatItIsNotReady) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(RegisterInVain(WithAnswered(absl::UnavailableError("loads shard 0")), absl::Hours(1)),
            "");
}

TEST_F(ConnectTimeoutTest, EndsWithSuccessIfTheJobIsKnownToBeOver) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(WithJobOver(absl::FailedPreconditionError("the job is over"))), "finish OK");
}

TEST_F(ConnectTimeoutTest, SaysWhatItHasNotHandedIn) {
  StartRound(3);
  EXPECT_EQ(Work(kAway), "");
  EXPECT_EQ(Wake(), "connect");
  EXPECT_THAT(RegisterInVain(kAway, absl::Minutes(6)),
              HasSubstr("the contribution to round 3 is not delivered"));
}

TEST_F(LifecycleTest, SaysWhatKeepsItFromComputing) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(lifecycle_->Standing(), "connects");
  EXPECT_EQ(Register(kAway), "");
  EXPECT_EQ(lifecycle_->Standing(), "not connected: nobody answers");
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(lifecycle_->Standing(), "not connected: nobody answers");
  EXPECT_EQ(Begin(), "ask");
  EXPECT_EQ(lifecycle_->Standing(), "asks for work");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kWait)), "ask");
  EXPECT_EQ(lifecycle_->Standing(), "so it is");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kTrain, 0)), "work 0");
  EXPECT_EQ(lifecycle_->Standing(), "");
  lifecycle_->OnActivity(now_, "push");
  EXPECT_EQ(lifecycle_->Standing(), "sends its contribution");
  lifecycle_->OnHeartbeatUnanswered(absl::UnavailableError("nobody answers"));
  EXPECT_EQ(lifecycle_->Standing(), "not connected: nobody answers");
  lifecycle_->OnHeartbeat("");
  EXPECT_EQ(lifecycle_->Standing(), "sends its contribution");
  EXPECT_EQ(Work(Report(0)), "ask report=0");
  EXPECT_EQ(lifecycle_->Standing(), "asks for work");
}

TEST_F(LifecycleTest, SaysWhatItDoesByItself) {
  EXPECT_EQ(lifecycle_->OwnWork(), "");
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(kAway), "");
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(lifecycle_->OwnWork(), "") << "it waits for servers";
  EXPECT_EQ(Register(LifeId{1, Incarnation(1)}), "prepare");
  EXPECT_EQ(lifecycle_->OwnWork(), "prepares model and data");
  EXPECT_EQ(Take(lifecycle_->OnPrepared(now_, absl::OkStatus())), "try paths");
  EXPECT_EQ(lifecycle_->OwnWork(), "");
  EXPECT_EQ(Take(lifecycle_->OnPathsTried(now_, absl::OkStatus())), "join");
  EXPECT_EQ(Take(lifecycle_->OnJoined(now_, absl::OkStatus())), "ask");
  EXPECT_EQ(lifecycle_->OwnWork(), "");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kTrain, 0)), "work 0");
  EXPECT_EQ(lifecycle_->OwnWork(), "computes");
  for (const char* waits : {"pull", "push"}) {
    lifecycle_->OnActivity(now_, waits);
    EXPECT_EQ(lifecycle_->OwnWork(), "");
  }
  Lose();
  EXPECT_EQ(lifecycle_->OwnWork(), "ends its incarnation") << "what it waited for was cancelled";
  lifecycle_->OnActivity(now_, "compute");
  EXPECT_EQ(lifecycle_->OwnWork(), "computes") << "a step takes its time";
  Work(absl::AbortedError("lease is over"));
  EXPECT_EQ(lifecycle_->OwnWork(), "");
}

TEST_F(LifecycleTest, AJobThatIsOverBeforeItBeganIsNoFailure) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(WithJobOver(absl::FailedPreconditionError("stopped: psctl stop"))),
            "finish OK");
  EXPECT_EQ(told_, "tell: done: stopped: psctl stop");
}

TEST_F(LifecycleTest, AReportTellsHowLongItsGrantsWereWaitedFor) {
  EXPECT_EQ(Start(), "ask");
  now_ += absl::Seconds(5);
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kWait)), "ask");
  now_ += absl::Seconds(2);
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kTrain, 0)), "work 0");
  now_ += absl::Seconds(100);
  const Lifecycle::Effects effects = lifecycle_->OnCarriedOut(now_, Report(0));
  const auto& ask = std::get<Lifecycle::AskForGrant>(std::get<Lifecycle::Task>(effects.back()));
  EXPECT_EQ(ask.report->wait, absl::Seconds(7));
}

TEST_F(LifecycleTest, ALostAnswerToAReportLeavesTheReportOwedAndTheRoundDone) {
  StartRound(3);
  EXPECT_EQ(Work(Report(3)), "ask report=3");
  EXPECT_EQ(Get(kAway), "");
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Begin(kFirstLife), "ask report=3");
}

TEST_F(LifecycleTest, WhatIsOwedIsVoidInAnotherLifeAndToServersThatBeganAnew) {
  for (const LifeId& other : {kSecondLife, kOtherServers}) {
    lifecycle_.emplace(Lifecycle::Config{});
    StartRound(3);
    EXPECT_EQ(Work(Report(3)), "ask report=3");
    EXPECT_EQ(Get(absl::AbortedError("began anew")), "");
    EXPECT_EQ(Wake(), "connect");
    EXPECT_EQ(Begin(other), "ask");
  }
}

TEST_F(LifecycleTest, PausesGrowWhileNothingWorksAndBeginAnewAfterWork) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  for (const int milliseconds : {100, 200, 400, 800, 1000, 1000}) {
    EXPECT_EQ(Register(kAway), "");
    EXPECT_EQ(lifecycle_->next_wake() - now_, absl::Milliseconds(milliseconds));
    EXPECT_EQ(Tick(absl::Milliseconds(milliseconds - 1)), "");
    EXPECT_EQ(Tick(absl::Milliseconds(1)), "connect");
  }
  EXPECT_THAT(
      told_, AllOf(HasSubstr("not connected (nobody answers)"), HasSubstr("without a time limit")));
  EXPECT_EQ(Begin(), "ask");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kTrain, 0)), "work 0");
  EXPECT_EQ(Work(Report(0)), "ask report=0");
  EXPECT_EQ(Get(kAway), "");
  EXPECT_EQ(lifecycle_->next_wake() - now_, absl::Milliseconds(100));
}

TEST_F(LifecycleTest, WhyItMayNotJoinIsToldOnce) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(kAway), "");
  const auto be_refused = [this] {
    EXPECT_EQ(Tick(absl::Seconds(1)), "connect");
    EXPECT_EQ(Register(), "prepare");
    EXPECT_EQ(Take(lifecycle_->OnPrepared(now_, absl::OkStatus())), "try paths");
    EXPECT_EQ(Try(absl::OkStatus()), "join");
    EXPECT_EQ(Take(lifecycle_->OnJoined(now_, absl::UnavailableError("others go on first"))), "");
  };
  be_refused();
  EXPECT_THAT(told_,
              HasSubstr("cannot take part in the job yet: others go on first; trying again"));
  told_.clear();
  be_refused();
  EXPECT_EQ(told_, "");
}

TEST_F(LifecycleTest, AServerThatCannotBeReachedForBulkKeepsTheWorkerOutOfTheRosterAndIsNamed) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(), "prepare");
  EXPECT_EQ(Take(lifecycle_->OnPrepared(now_, absl::OkStatus())), "try paths");
  EXPECT_EQ(lifecycle_->activity(), "start");
  EXPECT_EQ(Try(absl::UnavailableError("shard 1 at b:2 does not answer")), "");
  EXPECT_THAT(told_, HasSubstr("cannot take part in the job yet: shard 1 at b:2 does not answer"));
  EXPECT_EQ(lifecycle_->activity(), "no path");
  EXPECT_EQ(Wake(), "try paths");
  EXPECT_EQ(lifecycle_->activity(), "no path");
  EXPECT_EQ(Try(absl::OkStatus()), "join");
}

TEST_F(LifecycleTest, ServerOfAnotherJobKeepsTheWorkerOutUntilItsAddressIsRight) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(), "prepare");
  EXPECT_EQ(Take(lifecycle_->OnPrepared(now_, absl::OkStatus())), "try paths");
  EXPECT_EQ(Try(absl::AbortedError("pull from b:2: another secret")), "");
  EXPECT_THAT(told_, AllOf(HasSubstr("b:2"), HasSubstr("--advertise")));
  EXPECT_EQ(lifecycle_->activity(), "no path");
  EXPECT_EQ(Wake(), "try paths");
  EXPECT_EQ(Try(absl::OkStatus()), "join");
}

TEST_F(LifecycleTest, ALifeThatEndsWhilePathsAreTriedIsFollowedByAnother) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(), "prepare");
  EXPECT_EQ(Take(lifecycle_->OnPrepared(now_, absl::OkStatus())), "try paths");
  EXPECT_EQ(Try(kAway), "");
  EXPECT_EQ(Lose(), "");
  EXPECT_EQ(Wake(), "connect");
}

TEST_F(LifecycleTest, AHeldNameIsGivenUpOnceItsHolderHasRenewedItsLeaseAgainAndAgain) {
  const auto held_for = [](absl::Duration rest) {
    return WithRetryAfter(absl::AlreadyExistsError("held"), rest);
  };
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  const absl::Time asked_first_at = now_;
  EXPECT_EQ(Register(held_for(absl::Seconds(3))), "");
  EXPECT_THAT(told_, HasSubstr("held; this program waits at most 3s"));
  // The holder of the name sends heartbeats more often than this worker asks. So each answer says
  // that nearly a whole lease is left.
  int times_asked = 0;
  std::string next;
  for (; times_asked < 20 && next.empty(); ++times_asked) {
    EXPECT_EQ(Wake(), "connect");
    next = Register(held_for(absl::Seconds(3) - absl::Milliseconds(times_asked)));
  }
  EXPECT_EQ(next, "leave (held)");
  EXPECT_GT(times_asked, 3);
  EXPECT_LE(now_ - asked_first_at, absl::Seconds(4)) << "about a lease";
  EXPECT_THAT(Left(), HasSubstr("finish ALREADY_EXISTS"));
}

// A server that was frozen may end leases late, and messages of a process may arrive after its end.
// So the worker must wait longer than the lease.
TEST_F(LifecycleTest, AHeldNameWhoseHolderIsGoneIsWaitedForHoweverLateItsLeaseEnds) {
  const auto held_for = [](absl::Duration rest) {
    return WithRetryAfter(absl::AlreadyExistsError("held"), rest);
  };
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  const absl::Time free_at = now_ + absl::Seconds(3);
  EXPECT_EQ(Register(held_for(free_at - now_)), "");
  for (const int late_news : {0, 1, 0}) {
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(Wake(), "connect");
      const absl::Duration rest = free_at + late_news * absl::Seconds(3) - now_;
      EXPECT_EQ(Register(held_for(std::max(rest, absl::ZeroDuration()))), "");
    }
  }
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Register(), "prepare");
}

TEST_F(LifecycleTest, AHeldNameIsWaitedForUntilTheLastOfMuchLateNewsOfItsHolder) {
  const auto held_for = [](absl::Duration rest) {
    return WithRetryAfter(absl::AlreadyExistsError("held"), rest);
  };
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(held_for(absl::Seconds(1))), "");
  // The time that is left of the lease at each attempt of this worker. At 400 ms, the last renewal
  // was some time ago.
  for (const int rest_ms : {1000, 1000, 900, 400}) {
    EXPECT_EQ(Wake(), "connect");
    EXPECT_EQ(Register(held_for(absl::Milliseconds(rest_ms))), "");
  }
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Register(), "prepare");
}

TEST_F(LifecycleTest, LeasesThatAServerGivesWhenItIsStartedAgainAreNoSignsOfLife) {
  const auto held = [](int64_t times_renewed) {
    return WithTimesRenewed(
        WithRetryAfter(absl::AlreadyExistsError("held"), absl::Milliseconds(2900)), times_renewed);
  };
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(held(7)), "");
  // Each restart of the server sets the number of renewals to 0. In the end the holder renews its
  // lease with the last server, so the holder is alive.
  for (const int64_t times_renewed : {7, 0, 0, 0, 0, 1, 1, 2}) {
    now_ += absl::Seconds(1);
    EXPECT_EQ(Wake(), "connect");
    EXPECT_EQ(Register(held(times_renewed)), "") << times_renewed;
  }
  now_ += absl::Seconds(1);
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Register(held(3)), "leave (held)");
}

TEST_F(LifecycleTest, ARefusalIsToldToTheServersAndIsTheOutcome) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(), "prepare");
  EXPECT_EQ(Take(lifecycle_->OnPrepared(now_, absl::ResourceExhaustedError("no memory"))),
            "leave (no memory)");
  EXPECT_EQ(Left(kAway), "finish FAILED_PRECONDITION: no memory");
}

TEST_F(LifecycleTest, AFailedJobFailsItsWorkersAlsoThoseThatStop) {
  StartRound(0);
  EXPECT_EQ(Stop(), "");
  EXPECT_EQ(Work(Report(0)), "ask report=0 leaving");
  messages::Grant done = GrantOf(messages::Grant::Kind::kDone);
  done.has_failed = true;
  EXPECT_EQ(Get(done), "leave (the job has failed: so it is)");
  EXPECT_THAT(Left(), HasSubstr("finish FAILED_PRECONDITION"));
}

TEST_F(LifecycleTest, DamagedAnswersEndNoWorkerButAServerThatKnowsNoCallDoes) {
  const absl::Status unknown = absl::UnimplementedError("what?");
  StartRound(0);
  EXPECT_EQ(Work(unknown), "");
  for (int i = 1; i < UnknownCalls::kMaxInARow - 1; ++i) {
    EXPECT_EQ(Wake(), "connect");
    EXPECT_EQ(Register(unknown), "");
  }
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Register(unknown), "leave (what?)");
  EXPECT_THAT(Left(), HasSubstr("finish UNIMPLEMENTED"));
}

TEST_F(LifecycleTest, ToldToStopItFinishesItsRoundAndAsksWhatItWasGrantedMeanwhile) {
  StartRound(0);
  EXPECT_EQ(Stop(), "");
  EXPECT_EQ(Work(Report(0)), "ask report=0 leaving");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kTrain, 1)), "work 1");
  EXPECT_EQ(Work(Report(1)), "ask report=1 leaving");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kDone)), "leave (told to stop)");
  EXPECT_EQ(Left(), "finish OK");
}

TEST_F(LifecycleTest, ToldToStopWhileItAsksItAsksAgainSinceAGrantMayHaveBeenOnItsWay) {
  EXPECT_EQ(Start(), "ask");
  EXPECT_EQ(Stop(), "cancel calls");
  EXPECT_EQ(Stop(), "");
  EXPECT_EQ(Get(absl::CancelledError("")), "ask leaving");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kTrain, 0)), "work 0");
}

TEST_F(LifecycleTest, ToldToStopBeforeItHasWorkItLeavesAtOnce) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Stop(), "cancel calls");
  EXPECT_EQ(Register(absl::CancelledError("")), "leave (told to stop)");
  EXPECT_EQ(Left(), "finish OK");
}

TEST_F(LifecycleTest, ToldToStopWhileItPausesItDoesNotWaitForThePause) {
  EXPECT_EQ(Take(lifecycle_->Start(now_)), "connect");
  EXPECT_EQ(Register(kAway), "");
  EXPECT_EQ(Stop(), "leave (told to stop)");
}

TEST_F(LifecycleTest, ToldToStopWhileAnotherConnectionIsMadeItStillOwesItsReport) {
  StartRound(0);
  EXPECT_EQ(Work(Report(0)), "ask report=0");
  EXPECT_EQ(Get(kAway), "");
  EXPECT_EQ(Stop(), "leave (told to stop) report=0");
  EXPECT_THAT(Left(kAway), HasSubstr("finish DEADLINE_EXCEEDED: stopped on request, and the "
                                     "servers have the contribution to round 0"));
}

TEST_F(LifecycleTest, StopWhileServersAreAwaySaysWhatIsOwedAndUntilWhenItWaits) {
  StartRound(7);
  EXPECT_EQ(Work(Report(7)), "ask report=7");
  EXPECT_EQ(Get(kAway), "");
  EXPECT_EQ(Stop(), "leave (told to stop) report=7");
  EXPECT_THAT(told_, AllOf(HasSubstr("round 7"), HasSubstr("00:00:30 UTC"), HasSubstr("30s")));
}

TEST_F(LifecycleTest, StopWhileARoundWaitsForServersSaysUntilWhenItWaits) {
  StartRound(5);
  lifecycle_->OnActivity(now_, "push");
  EXPECT_EQ(Stop(), "");
  EXPECT_THAT(told_, AllOf(HasSubstr("round 5"), HasSubstr("00:00:30 UTC")));
}

TEST_F(LifecycleTest, StopWhileServersDoNotAnswerSaysUntilWhenItWaits) {
  EXPECT_EQ(Start(), "ask");
  lifecycle_->OnHeartbeatUnanswered(kAway);
  EXPECT_EQ(Stop(), "cancel calls");
  EXPECT_THAT(told_, HasSubstr("00:00:30 UTC"));
}

TEST_F(LifecycleTest, StopWhileServersAnswerSaysNothingOfWaiting) {
  EXPECT_EQ(Start(), "ask");
  told_.clear();
  EXPECT_EQ(Stop(), "cancel calls");
  EXPECT_EQ(Get(absl::CancelledError("")), "ask leaving");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kDone)), "leave (told to stop)");
  EXPECT_EQ(told_, "");
}

TEST_F(LifecycleTest, ServersThatKeepAStoppingWorkerWaitingAreLeftAfterItsPatience) {
  StartRound(5);
  EXPECT_EQ(Stop(), "");
  EXPECT_EQ(lifecycle_->next_wake(), absl::InfiniteFuture()) << "computing takes its time";
  lifecycle_->OnActivity(now_, "push");
  EXPECT_EQ(Tick(absl::Seconds(29)), "");
  lifecycle_->OnActivity(now_, "pull");
  EXPECT_EQ(Tick(absl::Seconds(29)), "");
  EXPECT_EQ(Tick(absl::Seconds(1)), "cancel calls, cancel transfers");
  EXPECT_EQ(Tick(absl::Hours(1)), "");
  EXPECT_THAT(Work(absl::CancelledError("")),
              HasSubstr("--leave_timeout): the contribution to round 5 is not delivered"));
}

TEST_F(LifecycleTest, ASignalLeavesItsTimeForLocalStepsAndEachWaitThePatienceOfAWorker) {
  StartRound(5);
  EXPECT_EQ(Stop({.grace = absl::Seconds(30)}), "");
  EXPECT_EQ(lifecycle_->time_left(now_ + absl::Seconds(12)), absl::Seconds(18));
  EXPECT_EQ(lifecycle_->time_left(now_ + absl::Seconds(31)), absl::ZeroDuration());
  now_ += absl::Seconds(25);
  lifecycle_->OnActivity(now_, "push");
  EXPECT_EQ(Tick(absl::Seconds(29)), "");
  EXPECT_EQ(Tick(absl::Seconds(1)), "cancel calls, cancel transfers");
}

TEST_F(LifecycleTest, WithoutAWordOfTimeNoFurtherLocalStepsAreMade) {
  StartRound(5);
  EXPECT_EQ(Stop(), "");
  EXPECT_EQ(lifecycle_->time_left(now_), absl::ZeroDuration());
}

TEST_F(LifecycleTest, BeforeItsMachineGoesAWorkerSaysWhatItCouldNotHandIn) {
  StartRound(5);
  EXPECT_EQ(Stop({.grace = absl::Minutes(2), .machine_goes = true}), "");
  lifecycle_->OnActivity(now_, "push");
  // The leave_timeout is over, but the machine still exists, so the worker continues to wait.
  EXPECT_EQ(Tick(absl::Seconds(118)), "");
  lifecycle_->OnActivity(now_, "pull");
  EXPECT_EQ(Tick(absl::Seconds(1)), "cancel calls, cancel transfers");
  EXPECT_THAT(
      Work(absl::CancelledError("")),
      HasSubstr("before this machine is taken away: the contribution to round 5 is not delivered"));
}

TEST_F(LifecycleTest, AMachineThatIsStillThereAfterItsTimeIsUsedForAMomentMore) {
  StartRound(5);
  EXPECT_EQ(Stop({.grace = absl::Seconds(30), .machine_goes = true}), "");
  // The present step takes 40 s.
  now_ += absl::Seconds(40);
  lifecycle_->OnActivity(now_, "push");
  EXPECT_EQ(Tick(absl::Milliseconds(900)), "");
  EXPECT_EQ(Tick(absl::Milliseconds(100)), "cancel calls, cancel transfers");
}

TEST_F(LifecycleTest, OfANoticeAndASignalTheShortestTimeCounts) {
  StartRound(5);
  EXPECT_EQ(Stop({.grace = absl::Minutes(2), .machine_goes = true}), "");
  EXPECT_EQ(lifecycle_->time_left(now_), absl::Minutes(2));
  lifecycle_->OnActivity(now_, "push");
  EXPECT_EQ(Tick(absl::Seconds(60)), "");
  EXPECT_EQ(Stop({.grace = absl::Seconds(30)}), "");
  EXPECT_EQ(lifecycle_->time_left(now_), absl::Seconds(30));
  EXPECT_EQ(Tick(absl::Seconds(29)), "") << "the signal has begun its patience";
  EXPECT_EQ(Tick(absl::Seconds(1)), "cancel calls, cancel transfers");
  EXPECT_THAT(Work(absl::CancelledError("")),
              HasSubstr("--leave_timeout): the contribution to round 5 is not delivered"));

  lifecycle_.emplace(Lifecycle::Config{});
  StartRound(5);
  EXPECT_EQ(Stop({.grace = absl::Seconds(30)}), "");
  EXPECT_EQ(Stop({.grace = absl::Seconds(10), .machine_goes = true}), "");
  EXPECT_EQ(lifecycle_->time_left(now_), absl::Seconds(10));
  lifecycle_->OnActivity(now_, "push");
  EXPECT_EQ(Tick(absl::Seconds(9)), "cancel calls, cancel transfers");
}

TEST_F(LifecycleTest, AStoppingWorkerWhoseLifeEndsSaysThatItsRoundWentWithIt) {
  StartRound(5);
  EXPECT_EQ(Stop(), "");
  EXPECT_EQ(Lose(), "cancel calls, cancel transfers");
  EXPECT_TRUE(lifecycle_->is_life_over());
  EXPECT_EQ(Work(absl::AbortedError("")), "leave (told to stop)");
  EXPECT_THAT(Left(), HasSubstr("the contribution to round 5 is not delivered (lease is over)"));
}

TEST_F(LifecycleTest, AStoppingWorkerThatWasCutOffSaysWhyItsRoundIsNotHandedIn) {
  const absl::Status cancelled = absl::CancelledError("");
  const auto cut_off = [this] {
    lifecycle_.emplace(Lifecycle::Config{});
    StartRound(5);
    EXPECT_EQ(Work(kAway), "");
  };
  const auto expect_end = [this](const std::string& last) {
    EXPECT_EQ(last, "leave (told to stop)");
    EXPECT_EQ(Left(),
              "finish DEADLINE_EXCEEDED: stopped on request while the worker was connecting to the "
              "servers again: the contribution to round 5 is not delivered");
  };
  cut_off();
  expect_end(Stop());
  cut_off();
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Stop(), "cancel calls");
  expect_end(Register(cancelled));
  cut_off();
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Register(), "prepare");
  EXPECT_EQ(Stop(), "");
  expect_end(Take(lifecycle_->OnPrepared(now_, cancelled)));
  cut_off();
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Register(), "prepare");
  EXPECT_EQ(Take(lifecycle_->OnPrepared(now_, absl::OkStatus())), "try paths");
  EXPECT_EQ(Stop(), "cancel transfers");
  expect_end(Try(cancelled));
}

TEST_F(LifecycleTest, AStoppingWorkerWhoseConnectionFailsSaysSo) {
  StartRound(5);
  EXPECT_EQ(Stop(), "");
  EXPECT_EQ(Work(kAway), "leave (told to stop)");
  EXPECT_THAT(Left(), HasSubstr("stopped on request, but the connection to the servers failed: "
                                "the contribution to round 5 is not delivered (nobody answers)"));
}

// Fixture with deferred contributions. The worker has computed steps on the grant of round 5. They
// can only go into the contribution to a later round.
class StepsInHandTest : public LifecycleTest {
 protected:
  void BeginAnew() {
    lifecycle_.emplace(Lifecycle::Config{});
    StartRound(5);
  }
  // Stops the worker, which still has steps. It asks for one more round, to hand in the steps.
  void StopWithSteps() {
    BeginAnew();
    EXPECT_EQ(Stop(), "");
    EXPECT_EQ(Work(Report(5), /*leaves_steps=*/true), "ask report=5 leaving");
  }
  void ExpectLoss(const std::string& why, const std::string& after = "") {
    EXPECT_EQ(Left(),
              absl::StrCat("finish DEADLINE_EXCEEDED: stopped on request", why,
                           ": the steps that were computed in round 5 are not delivered", after));
  }
};

TEST_F(StepsInHandTest, ARoundThatTakesThemLeavesNothing) {
  StopWithSteps();
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kTrain, 6)), "work 6");
  EXPECT_EQ(Work(Report(6)), "ask report=6 leaving");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kDone)), "leave (told to stop)");
  EXPECT_EQ(Left(), "finish OK");
  EXPECT_EQ(told_, "tell: stopped; everything that was computed is delivered");
}

TEST_F(StepsInHandTest, ServersThatAnswerButOpenNoRoundAreLeftAfterItsPatience) {
  StopWithSteps();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Tick(absl::Seconds(5)), "");
    EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kWait)), "ask leaving");
  }
  EXPECT_EQ(Tick(absl::Seconds(5)), "cancel calls, cancel transfers");
  EXPECT_EQ(Get(absl::CancelledError("")), "leave (told to stop)") << "others need not wait";
  ExpectLoss(", but the servers did not answer within 30s (--leave_timeout)",
             ". For more time, give a larger --leave_timeout");
}

TEST_F(StepsInHandTest, ARoundThatIsNotHandedInTakesThemWithIt) {
  StopWithSteps();
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kTrain, 6)), "work 6");
  lifecycle_->OnActivity(now_, "push");
  EXPECT_EQ(Tick(absl::Seconds(30)), "cancel calls, cancel transfers");
  EXPECT_THAT(Work(absl::CancelledError("")),
              HasSubstr("within 30s (--leave_timeout): the contribution to round 6 and the steps "
                        "that were computed in round 5 are not delivered. For more time"));
}

TEST_F(StepsInHandTest, AnyOtherEndOfAStopSaysThatTheyAreLost) {
  StopWithSteps();
  EXPECT_EQ(Get(kAway), "leave (told to stop) report=5");
  ExpectLoss(", but the connection to the servers failed", " (nobody answers)");

  StopWithSteps();
  EXPECT_EQ(Lose(), "cancel calls, cancel transfers");
  EXPECT_EQ(Get(absl::CancelledError("")), "leave (told to stop) report=5");
  ExpectLoss(", but the servers have ended this worker's incarnation", " (lease is over)");

  StopWithSteps();
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kDone)), "leave (told to stop)");
  ExpectLoss(", but the servers have no further round", " (so it is)");
}

TEST_F(StepsInHandTest, AStopBetweenTwoConnectionsSaysThatTheyAreLost) {
  const auto cut_off = [this] {
    BeginAnew();
    EXPECT_EQ(Work(Report(5), /*leaves_steps=*/true), "ask report=5");
    EXPECT_EQ(Get(kAway), "");
  };
  cut_off();
  EXPECT_EQ(Stop(), "leave (told to stop) report=5");
  ExpectLoss(" while the worker was connecting to the servers again");

  cut_off();
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Stop(), "cancel calls");
  EXPECT_EQ(Register(kSecondLife), "leave (told to stop)") << "an answer that was on its way";
  ExpectLoss(" while the worker was connecting to the servers again");

  // The new life must not report the steps of the old life as lost.
  cut_off();
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Begin(kSecondLife), "ask");
  EXPECT_EQ(Stop(), "cancel calls");
  EXPECT_EQ(Get(absl::CancelledError("")), "ask leaving");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kDone)), "leave (told to stop)");
  EXPECT_EQ(Left(), "finish OK");
}

TEST_F(StepsInHandTest, TheEndOfTheJobWithoutThemIsTold) {
  BeginAnew();
  EXPECT_EQ(Work(Report(5), /*leaves_steps=*/true), "ask report=5");
  EXPECT_EQ(Get(GrantOf(messages::Grant::Kind::kDone)), "leave (job is done)");
  EXPECT_EQ(told_,
            "tell: done: so it is; the steps that were computed in round 5 are not delivered");
  EXPECT_EQ(Left(), "finish OK");
}

TEST_F(LifecycleTest, AnErrorOfThisMachineIsTheOutcomeAlsoInALifeThatIsOver) {
  StartRound(5);
  EXPECT_EQ(Lose(), "cancel calls, cancel transfers");
  EXPECT_EQ(Work(absl::FailedPreconditionError("broken disk")), "leave (broken disk)");
}

TEST_F(LifecycleTest, ALostLifeIsFollowedByAnotherThatBeginsAtItsFirstGrant) {
  StartRound(5);
  EXPECT_EQ(Lose(), "cancel calls, cancel transfers");
  EXPECT_EQ(Lose(), "");
  EXPECT_EQ(Work(absl::CancelledError("")), "");
  EXPECT_EQ(Wake(), "connect");
  EXPECT_EQ(Begin(kSecondLife), "ask");
  EXPECT_FALSE(lifecycle_->is_life_over());
}

TEST_F(LifecycleTest, HeartbeatsTellWhatIsWaitedForOnlyWhileServersAreWaitedFor) {
  StartRound(0);
  EXPECT_TRUE(lifecycle_->OnHeartbeat("for b").empty());
  lifecycle_->OnActivity(now_, "push");
  Take(lifecycle_->OnHeartbeat("for b"));
  EXPECT_EQ(told_, "wait: for b");
}

TEST(HeartbeatPaceTest, ALostHeartbeatUsesUpOneThirdOfALeaseAndTheNextFollowsAtOnce) {
  const absl::Duration interval = absl::Seconds(10) / 3;
  absl::Time now = absl::UnixEpoch();
  HeartbeatPace pace(interval, now);
  int sent = 0;
  // All heartbeats are lost. Counts the heartbeats that are sent before the lease is over.
  while (now < absl::UnixEpoch() + absl::Seconds(10)) {
    ++sent;
    pace.OnSent(now);
    now += pace.patience();
    pace.OnSilence(now);
    EXPECT_LE(pace.next(), now);
  }
  EXPECT_EQ(sent, 4);
}

TEST(HeartbeatPaceTest, OverASlowPathAnswersAreWaitedForLongerButNotForMoreThanALease) {
  const absl::Duration interval = absl::Seconds(1);
  absl::Time now = absl::UnixEpoch();
  HeartbeatPace pace(interval, now);
  int num_lost = 0;
  bool is_answered = false;
  // Each answer takes 1.5 s. It arrives only if the worker waits that long.
  for (; num_lost < 10 && !is_answered; num_lost += is_answered ? 0 : 1) {
    pace.OnSent(now);
    is_answered = pace.patience() >= absl::Seconds(1.5);
    if (is_answered) {
      pace.OnAnswered(now += absl::Seconds(1.5));
    } else {
      now += pace.patience();
      pace.OnSilence(now);
    }
  }
  EXPECT_TRUE(is_answered);
  EXPECT_EQ(num_lost, 3);
  EXPECT_EQ(pace.patience(), 3 * interval);
  for (int i = 0; i < 50; ++i) {
    pace.OnSent(now);
    pace.OnAnswered(now += absl::Seconds(1.5));
  }
  EXPECT_GE(pace.patience(), absl::Seconds(1.5));
  EXPECT_LT(pace.patience(), absl::Seconds(1.6));
}

TEST(RedialPaceTest, DialsAtOnceIfTheConnectionHasLastedAndElseAfterPausesThatGrow) {
  RedialPace pace;
  absl::Time now = absl::UnixEpoch();
  pace.OnHeld(now);
  now += RedialPace::kLasting;
  EXPECT_EQ(pace.OnFailed(now), absl::ZeroDuration());
  EXPECT_EQ(pace.OnFailed(now), RedialPace::kFirstPause);
  EXPECT_EQ(pace.OnFailed(now), 2 * RedialPace::kFirstPause);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(pace.OnFailed(now), RedialPace::kLongestPause);
  pace.OnHeld(now);
  now += RedialPace::kLasting - absl::Milliseconds(1);
  EXPECT_EQ(pace.OnFailed(now), RedialPace::kLongestPause) << "it has not lasted";
  pace.OnHeld(now);
  now += RedialPace::kLasting;
  EXPECT_EQ(pace.OnFailed(now), absl::ZeroDuration());
}

TEST(HeartbeatPaceTest, ASilentConnectionIsReplacedButABusyServerIsGivenASecond) {
  absl::Time now = absl::UnixEpoch();
  HeartbeatPace pace(absl::Milliseconds(400), now);
  pace.OnAnswered(now += absl::Milliseconds(100));
  EXPECT_EQ(pace.next(), absl::InfinitePast());
  pace.OnSent(now);
  EXPECT_EQ(pace.next() - now, absl::Milliseconds(400));
  EXPECT_FALSE(pace.OnSilence(now += absl::Milliseconds(400)));
  EXPECT_FALSE(pace.OnSilence(now += absl::Milliseconds(400)));
  EXPECT_TRUE(pace.OnSilence(now += absl::Milliseconds(400)));
  EXPECT_FALSE(pace.OnSilence(now += absl::Milliseconds(400))) << "the new one has its own second";
}

}  // namespace
}  // namespace lodestar::life
