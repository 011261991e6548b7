// SPDX-License-Identifier: Apache-2.0

#include "proto/history_convert.h"

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::wire {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

history::RunHistory SomeHistory() {
  return {.trained = {{.first_round = Round(0),
                       .last_round = Round(1),
                       .samples = 24,
                       .seconds = 1.5,
                       .train_loss = 4.5,
                       .num_losses = 2,
                       .learning_rate = 0.125},
                      {.first_round = Round(2), .last_round = Round(2), .samples = 36}},
          .heldout = {{Round(2), 24, 1.5, 4.25}},
          .events = {{absl::FromUnixMicros(1000), false, "a worker joined"},
                     {absl::FromUnixMicros(1001), true, "it is gone"}},
          .rounds_per_point = 2,
          .tokens_per_sample = 64,
          .loss_unit = job::LossUnit::kBitsPerByte,
          .settings = {{"model", "tiny"}, {"batch_size", "2"}}};
}

TEST(HistoryConvertTest, ComesBackAsItWas) {
  EXPECT_THAT(HistoryFromProto(HistoryToProto(SomeHistory(), {})), IsOkAndHolds(SomeHistory()));
}

TEST(HistoryConvertTest, ReadsReplyOfServerWithoutLearningRates) {
  v1::HistoryReply reply = HistoryToProto(SomeHistory(), {});
  reply.mutable_trained()->clear_learning_rate();
  ASSERT_OK_AND_ASSIGN(const history::RunHistory history, HistoryFromProto(reply));
  EXPECT_EQ(history.trained[0].learning_rate, 0.0);
}

TEST(HistoryConvertTest, HasWhatIsAskedFor) {
  v1::HistoryRequest request;
  request.set_events_after_us(1000);
  request.set_without_curves(true);
  ASSERT_OK_AND_ASSIGN(const history::RunHistory history,
                       HistoryFromProto(HistoryToProto(SomeHistory(), request)));
  EXPECT_THAT(history.trained, IsEmpty());
  EXPECT_THAT(history.heldout, IsEmpty());
  EXPECT_THAT(history.settings, IsEmpty());
  ASSERT_EQ(history.events.size(), 1);
  EXPECT_EQ(history.events[0].text, "it is gone");
}

TEST(HistoryConvertTest, ColumnsOfOtherLengthsAreRefused) {
  v1::HistoryReply reply = HistoryToProto(SomeHistory(), {});
  reply.mutable_trained()->add_loss(3.0);
  EXPECT_THAT(HistoryFromProto(reply),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("trained.loss has 3 entries, and round has 2")));
  reply = HistoryToProto(SomeHistory(), {});
  reply.mutable_trained()->clear_first_round();
  EXPECT_THAT(HistoryFromProto(reply),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trained.first_round")));
  reply = HistoryToProto(SomeHistory(), {});
  reply.mutable_trained()->add_learning_rate(1.0);
  EXPECT_THAT(HistoryFromProto(reply),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trained.learning_rate")));
  reply = HistoryToProto(SomeHistory(), {});
  reply.mutable_heldout()->add_round(3);
  EXPECT_THAT(HistoryFromProto(reply),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("heldout.samples")));
}

}  // namespace
}  // namespace lodestar::wire
