// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/worker_connections.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"

namespace lodestar::rpc {
namespace {

constexpr messages::WorkerLife LifeOf(uint32_t worker, uint64_t incarnation) {
  return {WorkerId(worker), Incarnation(incarnation)};
}

class WorkerConnectionsTest : public ::testing::Test {
 protected:
  std::map<std::string, firewall::ConnectionState> states_;
  WorkerConnections connections_{[this](absl::string_view peer) {
    const auto found = states_.find(std::string(peer));
    return found == states_.end() ? firewall::ConnectionState::kOpen : found->second;
  }};
};

TEST_F(WorkerConnectionsTest, AreClosedOnceTheOtherEndHasEndedAll) {
  EXPECT_TRUE(connections_.AreClosed(LifeOf(1, 7))) << "there are none";
  connections_.Note(LifeOf(1, 7), "a");
  connections_.Note(LifeOf(1, 7), "b");
  connections_.Note(LifeOf(2, 8), "c");
  EXPECT_FALSE(connections_.AreClosed(LifeOf(1, 7)));
  states_["a"] = firewall::ConnectionState::kClosed;
  EXPECT_FALSE(connections_.AreClosed(LifeOf(1, 7)));
  states_["b"] = firewall::ConnectionState::kClosed;
  EXPECT_TRUE(connections_.AreClosed(LifeOf(1, 7)));
  EXPECT_FALSE(connections_.AreClosed(LifeOf(2, 8)));
}

TEST_F(WorkerConnectionsTest, AreNotClosedIfOneHasTimedOutUntilAnotherReplacesIt) {
  connections_.Note(LifeOf(1, 7), "a");
  states_["a"] = firewall::ConnectionState::kUnknown;
  EXPECT_FALSE(connections_.AreClosed(LifeOf(1, 7)));
  connections_.Note(LifeOf(1, 7), "b");
  EXPECT_FALSE(connections_.AreClosed(LifeOf(1, 7)));
  states_["b"] = firewall::ConnectionState::kClosed;
  EXPECT_TRUE(connections_.AreClosed(LifeOf(1, 7)));
}

TEST_F(WorkerConnectionsTest, FollowTheNewestLife) {
  connections_.Note(LifeOf(1, 7), "a");
  connections_.Note(LifeOf(1, 9), "b");
  connections_.Note(LifeOf(1, 7), "c");  // a late call of an older incarnation
  states_["b"] = firewall::ConnectionState::kClosed;
  EXPECT_TRUE(connections_.AreClosed(LifeOf(1, 9)));
}

TEST_F(WorkerConnectionsTest, AreNotClosedIfThereAreMoreThanAreRemembered) {
  for (size_t i = 0; i <= WorkerConnections::kMaxConnections; ++i) {
    connections_.Note(LifeOf(1, 7), absl::StrCat("peer ", i));
  }
  for (size_t i = 0; i <= WorkerConnections::kMaxConnections; ++i) {
    states_[absl::StrCat("peer ", i)] = firewall::ConnectionState::kClosed;
  }
  EXPECT_FALSE(connections_.AreClosed(LifeOf(1, 7)));
  for (size_t i = 0; i < WorkerConnections::kMaxWorkers; ++i) {
    connections_.Note(LifeOf(static_cast<uint32_t>(i) + 2, 7), "gone");
  }
  states_["gone"] = firewall::ConnectionState::kClosed;
  EXPECT_FALSE(connections_.AreClosed(LifeOf(2, 7)));
}

}  // namespace
}  // namespace lodestar::rpc
