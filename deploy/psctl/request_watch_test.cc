// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/request_watch.h"

#include <gtest/gtest.h>

namespace lodestar::psctl {
namespace {

v1::ClusterStatus Waiting(const std::string& what, const std::string& age,
                          const std::string& way_out) {
  v1::ClusterStatus status;
  v1::PendingRequest* request = status.add_requests();
  request->set_what("stop");
  request->set_waiting_for_undated(what);
  request->set_waiting_for(what + age);
  request->set_way_out(way_out);
  return status;
}

TEST(RequestWatchTest, SaysWhatIsWaitedForAgainOnlyWhenItChanges) {
  RequestWatch watch("stop");
  EXPECT_EQ(watch.Look({}), "");
  EXPECT_EQ(watch.Look(Waiting("waits for shard 1", " for 1s", "start it")),
            "the stop: waits for shard 1 for 1s; start it");
  EXPECT_EQ(watch.Look(Waiting("waits for shard 1", " for 2s", "start it")), "");
  EXPECT_EQ(watch.Look(Waiting("round 7 waits for a", " for 1s", "")),
            "the stop: round 7 waits for a for 1s");
  EXPECT_EQ(watch.Look(Waiting("", "", "")), "");
  EXPECT_EQ(watch.Look(Waiting("round 7 waits for a", " for 9s", "")),
            "the stop: round 7 waits for a for 9s");
}

TEST(RequestWatchTest, RequestsOfOtherKindsAreNotItsOwn) {
  EXPECT_EQ(RequestWatch("checkpoint").Look(Waiting("waits for shard 1", "", "")), "");
}

}  // namespace
}  // namespace lodestar::psctl
