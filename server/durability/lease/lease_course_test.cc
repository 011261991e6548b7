// SPDX-License-Identifier: Apache-2.0

#include "server/durability/lease/lease_course.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::lease {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = LeaseCall::Kind;

constexpr absl::Duration kTtl = absl::Seconds(5);
constexpr absl::Duration kHolds = absl::Milliseconds(4500);  // kTtl without the margin
constexpr int64_t kOurs = 7;
constexpr int64_t kOurRevision = 41;
constexpr int64_t kTheirs = 8;

LeaderClaim ClaimOf(const std::string& host, const std::string& role = "shard 0/1") {
  return {{.machine = "m", .host = host, .process = 12, .since = "today", .id = 1}, role};
}

LeaseKey TheirKey(const std::string& role = "shard 0/1") {
  return {FormatLeaderClaim(ClaimOf("there", role)), kTheirs};
}

class LeaseCourseTest : public testing::Test {
 protected:
  const LeaseCourse::Config config_ = {
      .name = "the lease k", .claim = ClaimOf("here"), .num_endpoints = 2};

  // Returns the call that is due. Expects that it is of this kind.
  LeaseCall Expect(Kind kind) {
    const auto call = course_->Next(now_);
    EXPECT_TRUE(call.has_value());
    EXPECT_EQ(static_cast<int>(call.value_or(LeaseCall{}).kind), static_cast<int>(kind));
    return call.value_or(LeaseCall{});
  }
  void ExpectNothing() { EXPECT_FALSE(course_->Next(now_).has_value()); }
  void Advance(absl::Duration duration) { now_ += duration; }

  void Answer(const LeaseAnswer& answer) { course_->OnAnswer(answer, now_); }
  void AnswerKey(const std::optional<LeaseKey>& key) { Answer({.key = key}); }
  void AnswerTtl(absl::Duration ttl) { Answer({.ttl = ttl}); }
  void Fail(absl::string_view text = "no route") {
    Answer({.status = absl::UnavailableError(text)});
  }

  void Grant(absl::Duration ttl = kTtl) {
    Expect(Kind::kRead);
    AnswerKey(std::nullopt);
    EXPECT_EQ(Expect(Kind::kGrant).ttl, kTtl);
    Answer({.lease = kOurs, .ttl = ttl});
  }
  LeaseKey OurKey() const { return {FormatLeaderClaim(ClaimOf("here")), kOurs, kOurRevision}; }
  // Takes the lease. Its time begins at now_.
  void Take(absl::Duration ttl = kTtl) {
    Grant(ttl);
    EXPECT_EQ(Expect(Kind::kClaim).lease, kOurs);
    AnswerKey(OurKey());
    EXPECT_OK(Held());
  }
  absl::Status Held() const { return course_->CheckHeld(now_); }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::optional<LeaseCourse> course_{config_};
};

TEST_F(LeaseCourseTest, TakesAFreeKeyAtOnceAndRenewsItEveryThirdOfItsTime) {
  EXPECT_THAT(Held(), StatusIs(absl::StatusCode::kFailedPrecondition));
  Take();
  EXPECT_EQ(course_->revision(), kOurRevision);
  for (int i = 0; i < 10; ++i) {
    ExpectNothing();
    Advance(kTtl / 3);
    EXPECT_EQ(Expect(Kind::kKeepAlive).lease, kOurs);
    AnswerTtl(kTtl);
    Expect(Kind::kRead);
    AnswerKey(OurKey());
  }
  EXPECT_OK(Held());
  EXPECT_OK(course_->lost());
}

TEST_F(LeaseCourseTest, StandsByAndTakesOverWhenTheKeyIsFree) {
  for (int i = 0; i < 5; ++i) {
    Expect(Kind::kRead);
    AnswerKey(TheirKey());
    EXPECT_THAT(course_->notice(), AllOf(HasSubstr("waits as a standby: the lease k is held by"),
                                         HasSubstr("host there")));
    ExpectNothing();
    Advance(absl::Milliseconds(500));
  }
  Take();
  EXPECT_THAT(course_->notice(), IsEmpty());
}

TEST_F(LeaseCourseTest, WhoComesSecondGivesItsLeaseBackAndStandsBy) {
  Grant();
  Expect(Kind::kClaim);
  AnswerKey(TheirKey());
  EXPECT_THAT(course_->notice(), HasSubstr("host there"));
  EXPECT_EQ(Expect(Kind::kRevoke).lease, kOurs);
  Answer({});
  ExpectNothing();
  Advance(absl::Milliseconds(500));
  Expect(Kind::kRead);
}

TEST_F(LeaseCourseTest, IsOverAtItsDeadlineAlthoughNobodyAnswers) {
  Take();
  const absl::Time start = now_;
  while (now_ < start + kHolds - absl::Milliseconds(100)) {
    if (course_->Next(now_).has_value()) Fail();
    EXPECT_OK(Held());
    Advance(absl::Milliseconds(50));
  }
  now_ = start + kHolds;
  EXPECT_THAT(Held(), StatusIs(absl::StatusCode::kAborted, HasSubstr("no route")));
  EXPECT_OK(course_->lost());
  ExpectNothing();
  EXPECT_THAT(course_->lost(), StatusIs(absl::StatusCode::kAborted, HasSubstr("no route")));
}

TEST_F(LeaseCourseTest, CountsFromWhenACallWasSentAndNotFromItsAnswer) {
  Grant();
  const absl::Time granted = now_;
  Advance(absl::Seconds(1));
  Expect(Kind::kClaim);
  Advance(absl::Seconds(1));
  AnswerKey(OurKey());
  Expect(Kind::kKeepAlive);
  const absl::Time sent = now_;
  Advance(absl::Seconds(1));
  AnswerTtl(kTtl);
  Expect(Kind::kRead);
  Advance(absl::Milliseconds(100));
  AnswerKey(OurKey());
  now_ = granted + kHolds;
  EXPECT_OK(Held());
  now_ = sent + kHolds - absl::Nanoseconds(1);
  EXPECT_OK(Held());
  now_ = sent + kHolds;
  EXPECT_THAT(Held(), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(LeaseCourseTest, ARenewalCountsOnceTheSameEndpointShowsTheKey) {
  Take();
  const absl::Time start = now_;
  Advance(kTtl / 3);
  for (int endpoint = 0; endpoint < 3; ++endpoint) {
    EXPECT_EQ(Expect(Kind::kKeepAlive).endpoint, endpoint % 2);
    AnswerTtl(kTtl);
    EXPECT_EQ(Expect(Kind::kRead).endpoint, endpoint % 2);
    Fail("no leader");
    Advance(absl::Milliseconds(200));
  }
  now_ = start + kHolds;
  EXPECT_THAT(Held(), StatusIs(absl::StatusCode::kAborted, HasSubstr("no leader")));
}

TEST_F(LeaseCourseTest, AnAnswerBehindTheDeadlineRenewsNothing) {
  Take();
  Advance(kTtl / 3);
  Expect(Kind::kKeepAlive);
  Advance(kHolds);
  AnswerTtl(kTtl);
  EXPECT_THAT(Held(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(course_->lost(), StatusIs(absl::StatusCode::kAborted));
  ExpectNothing();
}

TEST_F(LeaseCourseTest, AFrozenProcessHoldsNothingWhenItWakes) {
  Take();
  Advance(absl::Hours(1));
  EXPECT_THAT(Held(), StatusIs(absl::StatusCode::kAborted, HasSubstr("was stopped")));
  ExpectNothing();
  EXPECT_THAT(course_->lost(), StatusIs(absl::StatusCode::kAborted, HasSubstr("renewed 1h ago")));
}

TEST_F(LeaseCourseTest, TakesTheTimeThatItIsGrantedForWhatItIs) {
  Take(absl::Seconds(2));
  Advance(absl::Seconds(2) / 3);
  Expect(Kind::kKeepAlive);
  AnswerTtl(absl::Seconds(1));
  Expect(Kind::kRead);
  AnswerKey(OurKey());
  Advance(absl::Milliseconds(899));
  EXPECT_OK(Held());
  Advance(absl::Milliseconds(1));
  EXPECT_THAT(Held(), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(LeaseCourseTest, EndsWhenItsLeaseHasEndedOrItsKeyIsNotItsOwn) {
  Take();
  Advance(kTtl / 3);
  Expect(Kind::kKeepAlive);
  AnswerTtl(absl::ZeroDuration());
  EXPECT_THAT(course_->lost(), StatusIs(absl::StatusCode::kAborted, HasSubstr("revoked")));
  for (const auto& [key, why] : std::vector<std::pair<std::optional<LeaseKey>, std::string>>{
           {std::nullopt, "deleted"}, {TheirKey(), "held by the server on host there"}}) {
    course_.emplace(config_);
    Take();
    Advance(kTtl / 3);
    Expect(Kind::kKeepAlive);
    AnswerTtl(kTtl);
    Expect(Kind::kRead);
    AnswerKey(key);
    EXPECT_THAT(course_->lost(), StatusIs(absl::StatusCode::kAborted, HasSubstr(why)));
    EXPECT_THAT(Held(), StatusIs(absl::StatusCode::kAborted));
  }
}

TEST_F(LeaseCourseTest, AClaimWithoutAnswerIsMadeAgainAndFindsItsOwnKey) {
  Grant();
  EXPECT_EQ(Expect(Kind::kClaim).endpoint, 0);
  Fail();
  Advance(absl::Milliseconds(500));
  EXPECT_EQ(Expect(Kind::kClaim).endpoint, 1);
  AnswerKey(OurKey());
  EXPECT_OK(Held());
}

TEST_F(LeaseCourseTest, AKeyOfALeaseThatThisProcessHadBeforeIsNotItsOwn) {
  Grant();
  Expect(Kind::kClaim);
  Fail();
  // The rest of the lease is too short for another claim.
  Advance(kTtl / 2);
  EXPECT_EQ(Expect(Kind::kRevoke).lease, kOurs);
  Fail();
  Advance(absl::Milliseconds(500));
  Expect(Kind::kRead);
  AnswerKey(std::nullopt);
  Expect(Kind::kGrant);
  Answer({.lease = kOurs + 2, .ttl = kTtl});
  EXPECT_EQ(Expect(Kind::kClaim).lease, kOurs + 2);
  AnswerKey(OurKey());  // the first claim has come through after all
  EXPECT_THAT(Held(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(course_->notice(), HasSubstr("host here"));
}

TEST_F(LeaseCourseTest, AClaimAnsweredTooLateIsGivenBack) {
  Grant();
  Expect(Kind::kClaim);
  Advance(kHolds);
  AnswerKey(OurKey());
  EXPECT_THAT(Held(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(course_->lost());
  EXPECT_EQ(Expect(Kind::kRevoke).lease, kOurs);
}

TEST_F(LeaseCourseTest, BeginsAgainWhereTheLeaseHasEndedBeforeTheClaim) {
  Grant();
  Expect(Kind::kClaim);
  Answer({.status = absl::NotFoundError("requested lease not found")});
  Advance(absl::Milliseconds(500));
  Take();
}

TEST_F(LeaseCourseTest, AsksTheNextEndpointAndSaysThatNoneAnswers) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Expect(Kind::kRead).endpoint, i % 2);
    Fail("connection refused");
    EXPECT_TRUE(course_->is_store_away());
    EXPECT_THAT(course_->notice(),
                AllOf(HasSubstr("waits for the lease k"), HasSubstr("connection refused")));
    Advance(absl::Milliseconds(500));
  }
  Take();
  EXPECT_FALSE(course_->is_store_away());
  Advance(kTtl / 3);
  Expect(Kind::kKeepAlive);
  Fail();
  EXPECT_THAT(course_->notice(), HasSubstr("cannot renew the lease k"));
  EXPECT_OK(Held());
}

TEST_F(LeaseCourseTest, RefusesAKeyThatServersOfAnotherRoleHold) {
  Expect(Kind::kRead);
  AnswerKey(TheirKey("shard 1/2"));
  EXPECT_THAT(course_->refusal(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("shard 1/2"), HasSubstr("--leader_lease"))));
}

TEST_F(LeaseCourseTest, SaysThatAKeyWithoutALeaseStays) {
  Expect(Kind::kRead);
  AnswerKey(LeaseKey{"by\nhand", 0});
  EXPECT_THAT(course_->notice(), AllOf(HasSubstr("'by\\nhand'"), HasSubstr("until you delete it")));
  EXPECT_OK(course_->refusal());
}

TEST_F(LeaseCourseTest, ReleaseGivesBackWhatThereIs) {
  Take();
  course_->Release(now_);
  EXPECT_THAT(Held(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(course_->is_over());
  EXPECT_EQ(Expect(Kind::kRevoke).lease, kOurs);
  Answer({});
  EXPECT_TRUE(course_->is_over());
}

TEST_F(LeaseCourseTest, ReleaseEndsWithoutAnswersAndInTheMiddleOfEverything) {
  Take();
  course_->Release(now_);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(course_->is_over());
    Expect(Kind::kRevoke);
    Fail();
  }
  EXPECT_TRUE(course_->is_over());
  ExpectNothing();

  course_.emplace(config_);
  Expect(Kind::kRead);
  course_->Release(now_);
  EXPECT_FALSE(course_->is_over());
  AnswerKey(TheirKey());
  EXPECT_TRUE(course_->is_over());

  course_.emplace(config_);
  Expect(Kind::kRead);
  AnswerKey(std::nullopt);
  Expect(Kind::kGrant);
  course_->Release(now_);
  Answer({.lease = kOurs, .ttl = kTtl});
  EXPECT_EQ(Expect(Kind::kRevoke).lease, kOurs);
}

// RandomStore is a store with one key and its leases. RandomLeases uses it.
class RandomStore {
 public:
  // Carries out a call at `now`, the time of the store's own clock.
  LeaseAnswer Carry(const LeaseCall& call, absl::Time now) {
    for (auto lease = leases_.begin(); lease != leases_.end();) {
      lease = lease->second <= now ? End(lease) : std::next(lease);
    }
    const auto lease = leases_.find(call.lease);
    if (call.endpoint == 1 && is_one_stale_) {
      if (call.kind == Kind::kKeepAlive) return {.ttl = kTtl};
      return {.status = absl::UnavailableError("no leader")};
    }
    switch (call.kind) {
      case Kind::kRead:
        return {.key = key_};
      case Kind::kGrant:
        leases_[++last_lease_] = now + call.ttl;
        return {.lease = last_lease_, .ttl = call.ttl};
      case Kind::kClaim:
        if (lease == leases_.end()) return {.status = absl::NotFoundError("no such lease")};
        if (!key_.has_value()) key_ = LeaseKey{call.value, call.lease};
        return {.key = key_};
      case Kind::kKeepAlive:
        if (lease == leases_.end()) return {};
        lease->second = now + kTtl;
        return {.ttl = kTtl};
      case Kind::kRevoke:
        if (lease == leases_.end()) return {.status = absl::NotFoundError("no such lease")};
        End(lease);
        return {};
    }
    return {};
  }

  // If `is_stale`, endpoint 1 behaves like a member of the store that is no longer the leader and
  // does not know it.
  void SetOneStale(bool is_stale) { is_one_stale_ = is_stale; }

 private:
  std::map<int64_t, absl::Time>::iterator End(std::map<int64_t, absl::Time>::iterator lease) {
    if (key_.has_value() && key_->lease == lease->first) key_.reset();
    return leases_.erase(lease);
  }

  std::map<int64_t, absl::Time> leases_;  // value: when the lease ends
  int64_t last_lease_ = 0;
  std::optional<LeaseKey> key_;
  bool is_one_stale_ = false;
};

// RandomLeases runs several processes with one key. At random, calls and answers are lost or late,
// and processes freeze, end and start again. Each process has its own clock, which may be wrong.
class RandomLeases {
 public:
  static constexpr int kProcesses = 3;
  static constexpr double kClockError = 0.05;

  explicit RandomLeases(uint64_t seed) : random_(seed), store_rate_(Rate()) {
    for (int i = 0; i < kProcesses; ++i) processes_.push_back(Start());
  }

  void Step() {
    now_ += absl::Milliseconds(Below(20));
    Process& process = processes_[Below(kProcesses)];
    if (Below(3000) == 0) process = Start();  // the process was killed, or its machine lost
    if (Below(500) == 0) process.frozen_until = now_ + absl::Milliseconds(Below(12'000));
    if (Below(5000) == 0) process.course->Release(At(process));
    if (Below(300) == 0) store_.SetOneStale(Below(3) == 0);
    for (Process& running : processes_) {
      if (now_ >= running.frozen_until) Run(running);
    }
    if (!late_.empty() && Below(100) == 0) {
      store_.Carry(late_.front(), StoreTime());
      late_.pop_front();
    }
  }

  // Returns the processes, frozen or not, that hold the lease according to their own clocks.
  std::vector<int> Holders() const {
    std::vector<int> holders;
    for (const Process& process : processes_) {
      if (process.course->IsHeld(At(process))) holders.push_back(process.number);
    }
    return holders;
  }

 private:
  struct Process {
    int number = 0;
    double rate = 1.0;
    absl::Time frozen_until = absl::InfinitePast();
    std::unique_ptr<LeaseCourse> course;
    std::optional<std::pair<absl::Time, LeaseAnswer>> answer;  // the answer, and when it arrives
  };

  int64_t Below(int64_t limit) { return static_cast<int64_t>(random_() % limit); }
  double Rate() { return 1.0 + kClockError * static_cast<double>(Below(3) - 1); }
  absl::Time At(const Process& process) const { return start_ + (now_ - start_) * process.rate; }
  absl::Time StoreTime() const { return start_ + (now_ - start_) * store_rate_; }

  Process Start() {
    Process process;
    process.number = ++num_started_;
    process.rate = Rate();
    process.course = std::make_unique<LeaseCourse>(LeaseCourse::Config{
        .name = "k", .claim = ClaimOf(absl::StrCat("h", process.number)), .num_endpoints = 2});
    return process;
  }

  void Run(Process& process) {
    if (process.answer.has_value() && now_ >= process.answer->first) {
      process.course->OnAnswer(process.answer->second, At(process));
      process.answer.reset();
    }
    if (process.course->is_over()) process = Start();
    const std::optional<LeaseCall> call = process.course->Next(At(process));
    if (!call.has_value()) return;
    absl::Time back = now_ + absl::Milliseconds(Below(10) == 0 ? Below(1000) : Below(5));
    LeaseAnswer answer = {.status = absl::DeadlineExceededError("no answer")};
    switch (Below(12)) {
      case 0:  // the call never arrives
        back = now_ + call->timeout;
        break;
      case 1:  // the call arrives late, and no process waits for its answer
        back = now_ + call->timeout;
        late_.push_back(*call);
        break;
      case 2:  // the answer is lost
        back = now_ + call->timeout;
        store_.Carry(*call, StoreTime());
        break;
      default:
        answer = store_.Carry(*call, StoreTime());
    }
    process.answer = {back, answer};
  }

  std::mt19937_64 random_;
  const absl::Time start_ = absl::UnixEpoch();
  absl::Time now_ = start_;
  RandomStore store_;
  const double store_rate_;
  std::vector<Process> processes_;
  std::deque<LeaseCall> late_;
  int num_started_ = 0;
};

TEST(LeaseCourseRandomTest, NeverTwoHoldIt) {
  constexpr int kSeeds = 10;
  constexpr int kSteps = 100'000;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RandomLeases leases(seed);
    int num_changes = 0;
    int last_holder = 0;
    for (int step = 0; step < kSteps; ++step) {
      leases.Step();
      const std::vector<int> holders = leases.Holders();
      ASSERT_LE(holders.size(), 1) << "seed " << seed << ", step " << step;
      if (holders.empty()) continue;
      num_changes += std::exchange(last_holder, holders[0]) != holders[0];
    }
    EXPECT_GT(num_changes, 20) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lodestar::lease
