// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/stream_quota.h"

#include <memory>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::rpc {
namespace {

using ::testing::HasSubstr;
using Caller = StreamQuota::Caller;

class StreamQuotaTest : public testing::Test {
 protected:
  // Opens `num` streams, and returns how many of them are let in. They stay open.
  int Open(int num, WorkerId worker, Caller caller) {
    int taken = 0;
    for (int i = 0; i < num; ++i) {
      auto seat = quota_->Take(worker, caller);
      if (!seat.ok()) continue;
      seats_.push_back(*std::move(seat));
      ++taken;
    }
    return taken;
  }

  const std::shared_ptr<StreamQuota> quota_ = std::make_shared<StreamQuota>(
      StreamQuota::Config{.per_worker = 4, .strangers = 10, .per_stranger = 3});
  std::vector<std::unique_ptr<StreamQuota::Seat>> seats_;
};

TEST_F(StreamQuotaTest, AWorkerHasSoManyAtOnce) {
  EXPECT_EQ(Open(100, WorkerId(1), Caller::kMember), 4);
  EXPECT_THAT(quota_->Take(WorkerId(1), Caller::kMember).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("worker 1 has 4")));
  EXPECT_EQ(Open(100, WorkerId(2), Caller::kMember), 4) << "others are not in its way";
  seats_.clear();
  EXPECT_EQ(Open(100, WorkerId(1), Caller::kMember), 4);
}

TEST_F(StreamQuotaTest, StrangersTakeNoPlaceOfMembers) {
  int taken = Open(100, WorkerId(), Caller::kStranger);  // these streams name no worker
  for (int worker = 1; worker < 100; ++worker)
    taken += Open(3, WorkerId(worker), Caller::kStranger);
  EXPECT_EQ(taken, 10);
  EXPECT_THAT(quota_->Take(WorkerId(7), Caller::kStranger).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("10 pushes and pulls")));
  EXPECT_EQ(Open(1, WorkerId(7), Caller::kMember), 1);
  seats_.clear();
  EXPECT_EQ(Open(100, WorkerId(7), Caller::kStranger), 3);
}

}  // namespace
}  // namespace lodestar::rpc
