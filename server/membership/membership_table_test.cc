// SPDX-License-Identifier: Apache-2.0

#include "server/membership/membership_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/runtime/status_hints.h"

namespace lodestar::membership {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::Duration kLease = absl::Seconds(10);

class MembershipTableTest : public ::testing::Test {
 protected:
  MembershipTable::Admission Register(const std::string& name, uint64_t instance) {
    auto admission = table_.Register(name, instance, now_);
    EXPECT_TRUE(admission.ok()) << admission.status();
    return admission.value_or(MembershipTable::Admission{});
  }

  MembershipTable::Admission Join(const std::string& name, uint64_t instance) {
    const MembershipTable::Admission admission = Register(name, instance);
    EXPECT_TRUE(table_.Join(admission.id, admission.incarnation, now_).ok());
    return admission;
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  MembershipTable table_{MembershipTable::Config{.lease = kLease}};
};

TEST_F(MembershipTableTest, NumbersWorkersByFirstRegistration) {
  EXPECT_EQ(Register("b", 1).id, WorkerId(1));
  EXPECT_EQ(Register("a", 2).id, WorkerId(2));
  EXPECT_EQ(Register("a", 2).id, WorkerId(2));
  EXPECT_EQ(table_.view(), ViewId(0)) << "the registered are not members yet";
}

TEST_F(MembershipTableTest, ReconnectKeepsTheLifeAndTheMembership) {
  const auto first = Join("a", 7);
  now_ += absl::Seconds(9);
  const auto again = Register("a", 7);
  EXPECT_TRUE(again.is_reconnect);
  EXPECT_EQ(again.incarnation, first.incarnation);
  EXPECT_THAT(table_.Members(), SizeIs(1));
  now_ += absl::Seconds(9);
  EXPECT_TRUE(table_.Expire(now_).empty()) << "the reconnect renewed the lease";
}

TEST_F(MembershipTableTest, NameOfALiveWorkerIsTakenAndTheTextSaysWhatToDo) {
  Register("a", 7);
  now_ += absl::Seconds(4);
  const auto second = table_.Register("a", 8, now_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()),
              ::testing::AllOf(HasSubstr("'a'"), HasSubstr("4s ago"), HasSubstr("in 6s")));
  EXPECT_EQ(RetryAfterOf(second.status()), absl::Seconds(6));
}

TEST_F(MembershipTableTest, RefusalsSayHowOftenTheHolderHasRenewedItsLease) {
  const auto times_renewed = [](MembershipTable& table, absl::Time now) {
    return TimesRenewedOf(table.Register("a", 8, now).status());
  };
  const auto holder = Join("a", 7);
  EXPECT_EQ(times_renewed(table_, now_), 1) << "by joining";
  EXPECT_TRUE(table_.Renew(holder.id, holder.incarnation, now_).ok());
  Register("a", 7);
  EXPECT_EQ(times_renewed(table_, now_), 3);
  auto resumed = MembershipTable::Resume(table_.config(), table_.memory(), now_);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(times_renewed(*resumed, now_), 0) << "the lease is the new server's gift";
}

TEST_F(MembershipTableTest, ExpiredNameComesBackWithTheSameIdAndANewIncarnation) {
  const auto first = Join("a", 7);
  now_ += kLease + absl::Milliseconds(1);
  const auto ended = table_.Expire(now_);
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_TRUE(ended[0].was_member);
  EXPECT_THAT(ended[0].reason, HasSubstr("lease expired"));
  const auto second = Register("a", 8);
  EXPECT_EQ(second.id, first.id);
  EXPECT_GT(second.incarnation, first.incarnation);
  EXPECT_EQ(table_.Renew(first.id, first.incarnation, now_).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(table_.Renew(second.id, second.incarnation, now_).ok());
}

TEST_F(MembershipTableTest, LeaseEndsOnlyAfterItsWholeLength) {
  const auto worker = Join("a", 7);
  now_ += kLease;
  EXPECT_TRUE(table_.Expire(now_).empty());
  EXPECT_TRUE(table_.Renew(worker.id, worker.incarnation, now_).ok());
  now_ += kLease;
  EXPECT_TRUE(table_.Expire(now_).empty());
  now_ += absl::Nanoseconds(1);
  EXPECT_THAT(table_.Expire(now_), SizeIs(1));
  EXPECT_TRUE(table_.Expire(now_).empty()) << "a life ends once";
}

TEST_F(MembershipTableTest, ViewChangesExactlyWithTheMembers) {
  const auto a = Join("a", 1);
  EXPECT_EQ(table_.view(), ViewId(1));
  EXPECT_TRUE(table_.Join(a.id, a.incarnation, now_).ok());
  EXPECT_EQ(table_.view(), ViewId(1)) << "a repeated Join";
  const auto b = Register("b", 2);
  EXPECT_TRUE(table_.Leave(b.id, b.incarnation, "", now_).ok());
  EXPECT_EQ(table_.view(), ViewId(1)) << "b was never a member";
  EXPECT_TRUE(table_.Leave(a.id, a.incarnation, "SIGTERM", now_).ok());
  EXPECT_EQ(table_.view(), ViewId(2));
  const absl::Status again = table_.Leave(a.id, a.incarnation, "", now_).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(again.message()), HasSubstr("has ended (left: SIGTERM; incarnation "));
}

TEST_F(MembershipTableTest, RefusesBadNames) {
  for (const std::string& name : {std::string(), std::string(65, 'a'), std::string("a b"),
                                  std::string("a\0b", 3), std::string("\xc3\xa4")}) {
    EXPECT_EQ(table_.Register(name, 1, now_).status().code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_TRUE(table_.Register(std::string(64, 'a'), 1, now_).ok());
}

TEST_F(MembershipTableTest, RestoreKeepsIdsAndNeverRepeatsAnIncarnation) {
  const auto a = Join("a", 1);
  const auto b = Join("b", 2);
  const MembershipState state = table_.Export();
  auto restored = MembershipTable::Restore({.lease = kLease}, state, Incarnation(1000), now_);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->Renew(a.id, a.incarnation, now_).code(), absl::StatusCode::kAborted);
  EXPECT_GT(restored->view(), table_.view());
  const auto again = restored->Register("b", 2, now_);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->id, b.id);
  EXPECT_GT(again->incarnation, Incarnation(1000));
}

TEST_F(MembershipTableTest, WhoHadEndedBeforeTheJobWentBackHasEndedAsItHad) {
  const auto a = Join("a", 1);
  Join("b", 2);
  const MembershipState saved = table_.Export();
  EXPECT_TRUE(table_.Drop(a.id, a.incarnation, "its identity was revoked", now_).ok());
  const absl::Time dropped_at = now_;
  now_ += absl::Seconds(1);
  auto restored = MembershipTable::Restore({.lease = kLease}, saved, Incarnation(1000), now_);
  ASSERT_TRUE(restored.ok()) << restored.status();
  restored->RememberEnds(table_);
  EXPECT_EQ(restored->Find(a.id)->state, WorkerState::kDropped);
  EXPECT_EQ(restored->Find(a.id)->end_reason, "dropped: its identity was revoked");
  EXPECT_EQ(restored->Find(a.id)->ended_at, dropped_at);
  EXPECT_FALSE(restored->Find(a.id)->is_away);
  EXPECT_TRUE(restored->FindByName("b")->is_away) << "it lived, and is waited for";
}

TEST_F(MembershipTableTest, EndedLifeKeepsItsReasonUntilTheWorkerIsBack) {
  const auto a = Join("a", 1);
  now_ += absl::Seconds(1);
  EXPECT_TRUE(table_.Drop(a.id, a.incarnation, "it sends NaN", now_).ok());
  EXPECT_EQ(table_.Find(a.id)->state, WorkerState::kDropped);
  EXPECT_EQ(table_.Find(a.id)->end_reason, "dropped: it sends NaN");
  EXPECT_EQ(table_.Find(a.id)->ended_at, now_);
  EXPECT_EQ(Register("a", 1).id, a.id);
  EXPECT_EQ(table_.Find(a.id)->end_reason, "");
}

TEST_F(MembershipTableTest, WhoseLifeEndsWithWhatTheServersHadIsAwayUntilItComes) {
  const auto a = Join("a", 1);
  const auto left = Join("left", 2);
  EXPECT_TRUE(table_.Leave(left.id, left.incarnation, "", now_).ok());
  ASSERT_EQ(table_.EndAll("nothing can be loaded", now_).size(), 1);
  EXPECT_THAT(std::string(table_.Check(a.id, a.incarnation).message()),
              HasSubstr("nothing can be loaded"));
  EXPECT_TRUE(table_.Find(a.id)->is_away);
  EXPECT_FALSE(table_.Find(left.id)->is_away);
  Join("a", 3);
  EXPECT_FALSE(table_.Find(a.id)->is_away);
}

TEST_F(MembershipTableTest, ForgetsTheOldestOfThoseWhoHaveEndedAndNeverRepeatsTheirIds) {
  const auto stays = Join("stays", 1);
  const auto first = Join("first", 2);
  EXPECT_TRUE(table_.Leave(first.id, first.incarnation, "", now_).ok());
  const auto second = Join("second", 3);
  EXPECT_TRUE(table_.Leave(second.id, second.incarnation, "", now_).ok());
  EXPECT_EQ(Join("first", 4).id, first.id) << "it is young again";
  for (int i = 0; i < MembershipTable::kMaxEnded; ++i) {
    const auto passing = Join(std::to_string(i), 5);
    EXPECT_TRUE(table_.Leave(passing.id, passing.incarnation, "", now_).ok());
  }
  EXPECT_THAT(table_.workers(), SizeIs(MembershipTable::kMaxEnded + 2));
  EXPECT_EQ(table_.Find(second.id), nullptr);
  EXPECT_NE(table_.Find(stays.id), nullptr);
  EXPECT_GT(Register("second", 3).id, WorkerId(MembershipTable::kMaxEnded));

  const auto restored = MembershipTable::Restore({}, table_.Export(), Incarnation(0), now_);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->Export().last_id, table_.Export().last_id);
  EXPECT_THAT(restored->Find(stays.id)->end_reason, HasSubstr("has not come back"));
  EXPECT_EQ(restored->workers().rbegin()->second.name, "second");
}

TEST_F(MembershipTableTest, RestoreRefusesStatesThatContradictThemselves) {
  MembershipState state;
  state.names = {{"a", WorkerId(1)}, {"a", WorkerId(2)}};
  EXPECT_FALSE(MembershipTable::Restore({}, state, Incarnation(0), now_).ok());
  state.names = {{"b", WorkerId(2)}, {"a", WorkerId(1)}};
  EXPECT_FALSE(MembershipTable::Restore({}, state, Incarnation(0), now_).ok());
  state.names = {{"", WorkerId(1)}};
  EXPECT_FALSE(MembershipTable::Restore({}, state, Incarnation(0), now_).ok());
}

}  // namespace
}  // namespace lodestar::membership
