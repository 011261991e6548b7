// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/shard_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "common/testing/status_matchers.h"

namespace lodestar::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns the event that the coordinator gets if shard 3 sends `event`.
template <typename Event>
Event SentAndReceived(const Event& event) {
  v1::ShardReport report;
  report.set_shard(3);
  SetEvent(event, &report);
  v1::ShardReport received;
  EXPECT_TRUE(received.ParseFromString(report.SerializeAsString()));
  const absl::StatusOr<shards::ShardEvent> of_report = EventOf(received);
  EXPECT_OK(of_report);
  if (!of_report.ok() || !std::holds_alternative<Event>(*of_report)) {
    ADD_FAILURE() << "it comes as another event";
    return event;
  }
  return std::get<Event>(*of_report);
}

TEST(ShardConvertTest, AnswersToCommandsArriveWithTheirLifeOfTheServers) {
  EXPECT_OK(SentAndReceived(shards::ShardLoaded{7, absl::OkStatus()}).status);
  const auto failed = SentAndReceived(shards::ShardLoaded{7, absl::DataLossError("tensor x")});
  EXPECT_EQ(failed.server_incarnation, 7);
  EXPECT_THAT(failed.status, StatusIs(absl::StatusCode::kInternal, "tensor x"));

  const auto saved = SentAndReceived(shards::ShardSaved{7, "runs/round-00000001.tmp", "part"});
  EXPECT_EQ(saved.server_incarnation, 7);
  EXPECT_EQ(saved.directory, "runs/round-00000001.tmp");
  EXPECT_THAT(saved.manifest_part, IsOkAndHolds("part"));
  EXPECT_THAT(
      SentAndReceived(shards::ShardSaved{7, "runs", absl::DataLossError("full")}).manifest_part,
      StatusIs(absl::StatusCode::kInternal, "full"));
  EXPECT_THAT(
      SentAndReceived(shards::ShardSaved{7, "runs", std::string(8 << 20, 'x')}).manifest_part,
      StatusIs(absl::StatusCode::kInternal, HasSubstr("shard 3")));

  const auto sums = SentAndReceived(shards::ShardSquareSums{7, Round(5), {1.5, 2.5}});
  EXPECT_EQ(sums.server_incarnation, 7);
  EXPECT_EQ(sums.round, Round(5));
  EXPECT_THAT(sums.sums, ElementsAre(1.5, 2.5));
}

TEST(ShardConvertTest, WhatAShardFindsByItselfArrives) {
  const auto diverged = SentAndReceived(shards::ShardDiverged{7, Round(5), "bucket 2"});
  EXPECT_EQ(diverged.server_incarnation, 7);
  EXPECT_EQ(diverged.round, Round(5));
  EXPECT_EQ(diverged.text, "bucket 2");

  const auto failing =
      SentAndReceived(shards::ShardFailing{7, absl::ResourceExhaustedError("memory")});
  EXPECT_EQ(failing.server_incarnation, 7);
  EXPECT_THAT(failing.error, StatusIs(absl::StatusCode::kResourceExhausted, "memory"));

  const messages::WorkerLife life = {WorkerId(2), Incarnation(9)};
  EXPECT_EQ(SentAndReceived(shards::ShardConnections{life, true}).life, life);
  EXPECT_TRUE(SentAndReceived(shards::ShardConnections{life, true}).are_closed);
  EXPECT_FALSE(SentAndReceived(shards::ShardConnections{life, false}).are_closed);

  for (const shards::ShardAlarm::Ends ends :
       {shards::ShardAlarm::Ends::kNever, shards::ShardAlarm::Ends::kWithJournalTrouble,
        shards::ShardAlarm::Ends::kWithNextOfCertificate}) {
    const auto alarm = SentAndReceived(shards::ShardAlarm{"the disk is full", ends});
    EXPECT_EQ(alarm.text, "the disk is full");
    EXPECT_EQ(alarm.ends, ends);
  }
  SentAndReceived(shards::ShardExiting{});
}

TEST(ShardConvertTest, FaultsOfEveryKindArriveAndNameTheShard) {
  for (const sync::WorkerFault::Kind kind :
       {sync::WorkerFault::Kind::kNotFinite, sync::WorkerFault::Kind::kNotPushed,
        sync::WorkerFault::Kind::kTooLong, sync::WorkerFault::Kind::kOpposed,
        sync::WorkerFault::Kind::kUnrelated}) {
    const auto fault = SentAndReceived(sync::WorkerFault{.worker = WorkerId(2),
                                                         .incarnation = Incarnation(9),
                                                         .round = Round(5),
                                                         .kind = kind,
                                                         .text = "NaN"});
    EXPECT_EQ(fault.worker, WorkerId(2));
    EXPECT_EQ(fault.incarnation, Incarnation(9));
    EXPECT_EQ(fault.round, Round(5));
    EXPECT_EQ(fault.kind, kind);
    EXPECT_EQ(fault.text, "shard 3: NaN");
  }
}

TEST(ShardConvertTest, WhatIsNoEventIsRefused) {
  v1::ShardReport report;
  EXPECT_THAT(EventOf(report), StatusIs(absl::StatusCode::kInvalidArgument));
  report.mutable_fault();
  EXPECT_THAT(EventOf(report), StatusIs(absl::StatusCode::kInvalidArgument));
  report.mutable_stats();
  EXPECT_THAT(EventOf(report), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lodestar::rpc
