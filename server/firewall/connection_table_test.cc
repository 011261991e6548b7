// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/connection_table.h"

#include <gtest/gtest.h>

#include "common/testing/simulated_clock.h"

namespace lodestar::firewall {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

class ConnectionTableTest : public ::testing::Test {
 protected:
  ConnectionTable NewTable(int max_connections, int max_waiting, int max_per_address = 0) {
    return ConnectionTable(
        {max_connections, max_per_address, max_waiting, kPatience},
        [this](int fd) -> std::optional<ConnectionTable::FileIdentity> {
          const auto file = files_.find(fd);
          if (file == files_.end()) return std::nullopt;
          return ConnectionTable::FileIdentity{1, file->second};
        },
        [this](const ConnectionTable::FileIdentity& file) {
          return closed_inodes_.contains(file.inode);
        });
  }
  std::optional<int> Accept(ConnectionTable& table, int fd, const std::string& address) {
    files_[fd] = next_inode_++;
    return table.OnAccepted(fd, {address, 1000 + fd}, clock_.Now());
  }
  // Accepts a connection, and lets it in if possible.
  std::optional<RefusalReason> LetIn(ConnectionTable& table, int fd, const std::string& address) {
    Accept(table, fd, address);
    const std::optional<RefusalReason> refusal = table.LetIn(fd, clock_.Now());
    if (refusal.has_value()) table.Forget(fd);
    clock_.AdvanceTime(absl::Seconds(1));
    return refusal;
  }

  SimulatedClock clock_;
  std::map<int, uint64_t> files_;     // inode of each file descriptor
  std::set<uint64_t> closed_inodes_;  // the other end of these has ended the connection
  uint64_t next_inode_ = 100;
};

TEST_F(ConnectionTableTest, OldestSilentOneGivesWay) {
  ConnectionTable table = NewTable(10, 2);
  EXPECT_EQ(Accept(table, 5, "10.0.0.1"), std::nullopt);
  clock_.AdvanceTime(absl::Seconds(1));
  EXPECT_EQ(Accept(table, 4, "10.0.0.2"), std::nullopt);
  clock_.AdvanceTime(absl::Seconds(1));
  EXPECT_EQ(Accept(table, 6, "10.0.0.3"), 5);
  EXPECT_EQ(table.num_waiting(), 2);
}

TEST_F(ConnectionTableTest, HeldOnesGiveWayLast) {
  ConnectionTable table = NewTable(10, 2);
  Accept(table, 5, "10.0.0.1");
  table.OnHeld(5, clock_.Now() + absl::Minutes(1));
  clock_.AdvanceTime(absl::Seconds(1));
  Accept(table, 6, "10.0.0.1");
  EXPECT_EQ(Accept(table, 7, "10.0.0.1"), 6);
  table.OnHeld(7, clock_.Now() + absl::Minutes(1));
  EXPECT_EQ(table.MakeRoom(), std::nullopt);
  EXPECT_EQ(Accept(table, 8, "10.0.0.1"), 5);
}

// A refused connection is displaced before a silent one, because a new connection is silent at
// first.
TEST_F(ConnectionTableTest, RefusedOnesGiveWayToSilentOnes) {
  ConnectionTable table = NewTable(10, 2);
  Accept(table, 5, "10.0.0.1");
  clock_.AdvanceTime(absl::Seconds(1));
  Accept(table, 6, "10.0.0.1");
  table.OnRefused(6, clock_.Now() + absl::Minutes(1));
  EXPECT_EQ(Accept(table, 7, "10.0.0.1"), 6);
  EXPECT_EQ(table.MakeRoom(), 5);
}

TEST_F(ConnectionTableTest, CrowdOfOneAddressMakesRoomForItself) {
  ConnectionTable table = NewTable(10, 4);
  Accept(table, 5, "10.0.0.1");
  Accept(table, 6, "10.0.0.2");
  table.OnRefused(6, clock_.Now() + absl::Minutes(1));
  clock_.AdvanceTime(absl::Seconds(1));
  for (const int fd : {7, 8}) Accept(table, fd, "10.0.0.3");
  for (const int fd : {9, 10, 11}) {
    clock_.AdvanceTime(absl::Seconds(1));
    EXPECT_EQ(Accept(table, fd, "10.0.0.3"), fd - 2);
  }
  for (const int fd : {10, 11}) table.OnRefused(fd, clock_.Now() + absl::Minutes(1));
  EXPECT_EQ(Accept(table, 12, "10.0.0.3"), 10) << "refused by now, but no fewer";
}

TEST_F(ConnectionTableTest, OthersGiveWayBeforeThisMachine) {
  ConnectionTable table = NewTable(10, 3);
  Accept(table, 5, "127.0.0.1");
  Accept(table, 6, "127.0.0.1");
  clock_.AdvanceTime(absl::Seconds(1));
  Accept(table, 7, "10.0.0.1");
  EXPECT_EQ(Accept(table, 8, "10.0.0.2"), 7);
  EXPECT_EQ(Accept(table, 9, "127.0.0.1"), 8);
  EXPECT_EQ(Accept(table, 10, "127.0.0.1"), 5);
  EXPECT_EQ(table.MakeRoom(), 6);
}

TEST_F(ConnectionTableTest, KnowsWhetherAPeerIsConnected) {
  ConnectionTable table = NewTable(10, 10);
  LetIn(table, 5, "10.0.0.1");
  Accept(table, 6, "10.0.0.1");
  EXPECT_EQ(table.Find({"10.0.0.1", 1005}), 5);
  EXPECT_EQ(table.Find({"10.0.0.1", 1006}), std::nullopt) << "it waits";
  EXPECT_EQ(table.Find({"10.0.0.1", 1004}), std::nullopt);
  EXPECT_EQ(table.Find({"10.0.0.2", 1005}), std::nullopt);
  files_[5] = next_inode_++;
  EXPECT_EQ(table.Find({"10.0.0.1", 1005}), std::nullopt) << "the number is another file's";
}

TEST_F(ConnectionTableTest, PatienceEnds) {
  ConnectionTable table = NewTable(10, 10);
  EXPECT_EQ(table.next_deadline(), absl::InfiniteFuture());
  Accept(table, 5, "10.0.0.1");
  Accept(table, 6, "10.0.0.1");
  table.OnHeld(6, clock_.Now() + absl::Minutes(1));
  EXPECT_EQ(table.next_deadline(), clock_.Now() + kPatience);
  clock_.AdvanceTime(kPatience - absl::Milliseconds(1));
  EXPECT_TRUE(table.Overdue(clock_.Now()).empty());
  clock_.AdvanceTime(absl::Milliseconds(1));
  EXPECT_EQ(table.Overdue(clock_.Now()), std::vector<int>({5}));
}

TEST_F(ConnectionTableTest, SomePlacesAreForThisMachineOnly) {
  ConnectionLimits limits;
  limits.max_connections = 3;
  limits.max_per_address = 3;
  limits.kept_for_this_machine = 1;
  ConnectionTable table(
      limits,
      [this](int fd) {
        return std::optional(ConnectionTable::FileIdentity{1, files_[fd]});
      },
      [](const ConnectionTable::FileIdentity&) { return false; });
  EXPECT_EQ(LetIn(table, 5, "10.0.0.1"), std::nullopt);
  EXPECT_EQ(LetIn(table, 6, "10.0.0.1"), std::nullopt);
  EXPECT_EQ(LetIn(table, 7, "10.0.0.2"), RefusalReason::kTooMany);
  EXPECT_EQ(LetIn(table, 7, "127.0.0.1"), std::nullopt);
  EXPECT_EQ(LetIn(table, 8, "::1"), RefusalReason::kTooMany);
}

TEST_F(ConnectionTableTest, NoMoreAreLetInThanAllowed) {
  ConnectionTable table = NewTable(2, 10, 2);
  EXPECT_EQ(LetIn(table, 5, "10.0.0.1"), std::nullopt);
  EXPECT_EQ(LetIn(table, 6, "10.0.0.2"), std::nullopt);
  EXPECT_EQ(LetIn(table, 7, "10.0.0.3"), RefusalReason::kTooMany);
  EXPECT_EQ(table.num_waiting(), 0);
}

TEST_F(ConnectionTableTest, OneThatHasEndedMakesRoom) {
  ConnectionTable table = NewTable(2, 10, 2);
  LetIn(table, 5, "10.0.0.1");
  LetIn(table, 6, "10.0.0.1");
  files_.erase(5);
  EXPECT_EQ(LetIn(table, 7, "10.0.0.1"), std::nullopt);
  // Descriptor 6 now belongs to another file, with inode 7.
  files_[6] = 7;
  table.Sweep(clock_.Now());
  EXPECT_EQ(table.num_let_in(), 1);
}

// If many connections are refused in a short time, the table does not sweep for each of them.
TEST_F(ConnectionTableTest, DoesNotLookForEndedOnesAllTheTime) {
  ConnectionTable table = NewTable(1, 10);
  Accept(table, 5, "127.0.0.1");
  EXPECT_EQ(table.LetIn(5, clock_.Now()), std::nullopt);
  Accept(table, 6, "127.0.0.1");
  EXPECT_EQ(table.LetIn(6, clock_.Now()), RefusalReason::kTooMany);
  files_.erase(5);
  EXPECT_EQ(table.LetIn(6, clock_.Now()), RefusalReason::kTooMany);
  clock_.AdvanceTime(absl::Seconds(1));
  EXPECT_EQ(table.LetIn(6, clock_.Now()), std::nullopt);
}

TEST_F(ConnectionTableTest, NumberThatComesAgainIsOfAnotherConnection) {
  ConnectionTable table = NewTable(1, 10);
  LetIn(table, 5, "10.0.0.1");
  EXPECT_EQ(LetIn(table, 5, "10.0.0.2"), std::nullopt);
  EXPECT_EQ(table.num_let_in(), 1);
}

TEST_F(ConnectionTableTest, OneAddressMayHaveAQuarter) {
  ConnectionTable table = NewTable(8, 10);
  EXPECT_EQ(LetIn(table, 5, "10.0.0.1"), std::nullopt);
  EXPECT_EQ(LetIn(table, 6, "10.0.0.1"), std::nullopt);
  EXPECT_EQ(LetIn(table, 7, "10.0.0.1"), RefusalReason::kTooManyOfAddress);
  EXPECT_EQ(LetIn(table, 8, "10.0.0.2"), std::nullopt);
  files_.erase(6);
  EXPECT_EQ(LetIn(table, 9, "10.0.0.1"), std::nullopt);
}

TEST_F(ConnectionTableTest, ThisMachineMayHaveAll) {
  ConnectionTable table = NewTable(4, 10);
  EXPECT_EQ(LetIn(table, 5, "127.0.0.1"), std::nullopt);
  EXPECT_EQ(LetIn(table, 6, "127.0.0.1"), std::nullopt);
  EXPECT_EQ(LetIn(table, 7, "::1"), std::nullopt);
  EXPECT_EQ(LetIn(table, 8, "::1"), std::nullopt);
  EXPECT_EQ(LetIn(table, 9, "127.0.0.1"), RefusalReason::kTooMany);
}

TEST_F(ConnectionTableTest, OneAddressMayNotConnectAgainAndAgainAsFastAsItCan) {
  ConnectionTable table = NewTable(4096, 256);
  const int burst = table.limits().max_new_per_address;
  const auto come_and_go = [&](absl::string_view address) {
    Accept(table, 5, std::string(address));
    const std::optional<RefusalReason> refusal = table.LetIn(5, clock_.Now());
    table.Forget(5);
    files_.erase(5);
    table.Sweep(clock_.Now());
    return refusal;
  };
  for (int i = 0; i < burst; ++i) ASSERT_EQ(come_and_go("10.0.0.1"), std::nullopt) << i;
  EXPECT_EQ(come_and_go("10.0.0.1"), RefusalReason::kTooFast);
  EXPECT_EQ(come_and_go("10.0.0.2"), std::nullopt) << "others do not have to wait";
  for (int i = 0; i < 2 * burst; ++i) ASSERT_EQ(come_and_go("127.0.0.1"), std::nullopt) << i;
  clock_.AdvanceTime(absl::Minutes(1) / 10);
  for (int i = 0; i < table.limits().new_per_minute / 10; ++i) {
    ASSERT_EQ(come_and_go("10.0.0.1"), std::nullopt) << i;
  }
  EXPECT_EQ(come_and_go("10.0.0.1"), RefusalReason::kTooFast);
  clock_.AdvanceTime(absl::Hours(1));
  for (int i = 0; i < burst; ++i) ASSERT_EQ(come_and_go("10.0.0.1"), std::nullopt) << i;
  EXPECT_EQ(come_and_go("10.0.0.1"), RefusalReason::kTooFast) << "no more than at the start";
}

TEST(ConnectionLimitsTest, FilesBoundConnections) {
  const ConnectionLimits wanted;
  EXPECT_EQ(LimitToFiles(wanted, 1 << 20).max_connections, 4096);
  EXPECT_EQ(LimitToFiles(wanted, 1 << 20).max_waiting, 256);
  for (const int max_files : {8, 64, 1024, 4096}) {
    const ConnectionLimits limits = LimitToFiles(wanted, max_files);
    EXPECT_GE(limits.max_connections, max_files / 2) << max_files;
    EXPECT_GE(limits.max_waiting, 1) << max_files;
    EXPECT_LE(limits.max_connections + limits.max_waiting, max_files - max_files / 8) << max_files;
  }
}

TEST(RefusalTest, EachHasAName) {
  for (size_t i = 0; i < kNumRefusals; ++i) {
    EXPECT_NE(RefusalName(static_cast<RefusalReason>(i)), "") << i;
  }
}

TEST_F(ConnectionTableTest, TellsWhetherTheOtherEndHasClosedTheNewestConnectionOfAPeer) {
  ConnectionTable table = NewTable(10, 10);
  const net::HostPort peer = {"10.0.0.1", 1005};
  EXPECT_EQ(table.StateOf(peer), ConnectionState::kUnknown);
  LetIn(table, 5, "10.0.0.1");
  EXPECT_EQ(table.StateOf(peer), ConnectionState::kOpen);
  closed_inodes_.insert(files_[5]);
  EXPECT_EQ(table.StateOf(peer), ConnectionState::kClosed) << "gRPC has the file still";
  files_.erase(5);
  EXPECT_EQ(table.StateOf(peer), ConnectionState::kClosed);
  table.Sweep(clock_.Now());
  EXPECT_EQ(table.StateOf(peer), ConnectionState::kClosed);
  LetIn(table, 5, "10.0.0.1");
  EXPECT_EQ(table.StateOf(peer), ConnectionState::kOpen) << "the port is in use again";
  files_.erase(5);
  EXPECT_EQ(table.StateOf(peer), ConnectionState::kUnknown) << "this end has closed it";
  table.Sweep(clock_.Now());
  EXPECT_EQ(table.StateOf(peer), ConnectionState::kUnknown);
}

}  // namespace
}  // namespace lodestar::firewall
