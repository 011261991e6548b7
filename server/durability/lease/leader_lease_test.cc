// SPDX-License-Identifier: Apache-2.0

#include "server/durability/lease/leader_lease.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::lease {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTheirs = 100;

// SharedKey is the key and the leases in a store. The stores of several processes share it. A lease
// ends only when it is revoked.
class SharedKey {
 public:
  LeaseAnswer Call(const LeaseCall& call) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    num_reads_ += call.kind == LeaseCall::Kind::kRead;
    mutex_.Await(absl::Condition(this, &SharedKey::answers));
    if (is_away_) return {.status = absl::UnavailableError("nobody there")};
    switch (call.kind) {
      case LeaseCall::Kind::kGrant:
        return {.lease = ++last_lease_, .ttl = call.ttl};
      case LeaseCall::Kind::kClaim:
        if (!key_.has_value()) key_ = LeaseKey{call.value, call.lease};
        return {.key = key_};
      case LeaseCall::Kind::kKeepAlive:
        return {.ttl = absl::Seconds(5)};
      case LeaseCall::Kind::kRevoke:
        if (key_.has_value() && key_->lease == call.lease) key_.reset();
        return {};
      case LeaseCall::Kind::kRead:
        return {.key = key_};
    }
    return {};
  }

  // Sets the key. Returns how often it has been read so far.
  int Put(std::optional<LeaseKey> key) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    key_ = std::move(key);
    return num_reads_;
  }
  bool is_free() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return !key_.has_value();
  }
  void SetAway(bool is_away) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    is_away_ = is_away;
  }
  int num_reads() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return num_reads_;
  }
  // Blocks until the key has been read `count` times in all, for at most `patience` of real time.
  // Returns false if that time is over first.
  bool AwaitReads(int count, absl::Duration patience) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto has_come = [&]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_reads_ >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&has_come), patience);
  }
  // If `hangs` is true, calls block until SetHanging(false).
  void SetHanging(bool hangs) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    hangs_ = hangs;
  }

 private:
  bool answers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !hangs_; }

  absl::Mutex mutex_;
  std::optional<LeaseKey> key_ ABSL_GUARDED_BY(mutex_);
  int64_t last_lease_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_reads_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_away_ ABSL_GUARDED_BY(mutex_) = false;
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
};

class StoreOfSharedKey : public LeaseStore {
 public:
  explicit StoreOfSharedKey(SharedKey* key) : key_(key) {}
  int num_endpoints() const override { return 1; }
  LeaseAnswer Call(const LeaseCall& call) override { return key_->Call(call); }

 private:
  SharedKey* key_;
};

class LeaderLeaseTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<LeaderLease>> Take(std::function<bool()> is_interrupted = [] {
    return false;
  }) {
    LeaderLease::Deps deps;
    deps.store = std::make_unique<StoreOfSharedKey>(&key_);
    deps.clock = &clock_;
    deps.is_interrupted = std::move(is_interrupted);
    deps.on_lost = [this](const absl::Status& status) {
      loss_ = status;
      lost_.Notify();
    };
    return LeaderLease::Take(
        {.name = "the lease k", .claim = {storage::NewProcessIdentity(), "shard 0/1"}},
        std::move(deps));
  }
  void HoldByAnother(const std::string& role = "shard 0/1") {
    key_.Put(LeaseKey{FormatLeaderClaim({storage::NewProcessIdentity(), role}), kTheirs});
  }
  template <typename Condition>
  void AdvanceUntil(Condition condition) {
    while (!condition()) clock_.AdvanceTime(absl::Milliseconds(50));
  }

  SimulatedClock clock_;
  SharedKey key_;
  absl::Status loss_;
  absl::Notification lost_;
};

TEST_F(LeaderLeaseTest, TakesWhatIsFreeKeepsItAndGivesItBack) {
  auto lease = Take();
  ASSERT_OK(lease);
  EXPECT_FALSE(key_.is_free());
  for (int renewals = 1; renewals <= 10; ++renewals) {
    clock_.AdvanceTime(absl::Milliseconds(1700));
    // Each renewal is followed by a read. The lease's thread may not have been waiting when the
    // clock was advanced. So the clock is advanced again, in steps that are too small to lose the
    // lease.
    while (!key_.AwaitReads(1 + renewals, absl::Milliseconds(100))) {
      clock_.AdvanceTime(absl::Milliseconds(50));
    }
  }
  EXPECT_OK((*lease)->CheckHeld());
  lease->reset();
  EXPECT_TRUE(key_.is_free());
  EXPECT_FALSE(lost_.HasBeenNotified());
}

TEST_F(LeaderLeaseTest, StandsByUntilTheHolderIsGone) {
  HoldByAnother();
  absl::Notification taken;
  std::thread waiting([&] {
    EXPECT_OK(Take());
    taken.Notify();
  });
  AdvanceUntil([&] { return key_.num_reads() > 20; });
  EXPECT_FALSE(taken.HasBeenNotified());
  const int num_reads = key_.Put(std::nullopt);
  AdvanceUntil([&] { return key_.num_reads() > num_reads; });
  waiting.join();
}

TEST_F(LeaderLeaseTest, ASignalEndsTheWait) {
  key_.SetAway(true);
  std::atomic<bool> is_interrupted = false;
  std::thread waiting([&] {
    EXPECT_THAT(Take([&] { return is_interrupted.load(); }),
                StatusIs(absl::StatusCode::kCancelled));
    lost_.Notify();
  });
  AdvanceUntil([&] { return key_.num_reads() > 20; });
  is_interrupted = true;
  AdvanceUntil([&] { return lost_.HasBeenNotified(); });
  waiting.join();
}

TEST_F(LeaderLeaseTest, AServerOfAnotherShardIsNotWaitedFor) {
  HoldByAnother("shard 1/2");
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("shard 1/2")));
}

TEST_F(LeaderLeaseTest, SaysOnceThatItIsLost) {
  auto lease = Take();
  ASSERT_OK(lease);
  key_.SetAway(true);
  AdvanceUntil([&] { return lost_.HasBeenNotified(); });
  key_.SetAway(false);
  EXPECT_THAT((*lease)->CheckHeld(), StatusIs(absl::StatusCode::kAborted));
  lease->reset();
  EXPECT_THAT(loss_, StatusIs(absl::StatusCode::kAborted, HasSubstr("the lease k")));
}

TEST_F(LeaderLeaseTest, IsLostInTimeWhileACallHangs) {
  auto lease = Take();
  ASSERT_OK(lease);
  key_.SetHanging(true);
  const absl::Time start = clock_.Now();
  while (!lost_.HasBeenNotified()) {
    EXPECT_EQ((*lease)->CheckHeld().ok(), clock_.Now() < start + absl::Milliseconds(4500));
    clock_.AdvanceTime(absl::Milliseconds(50));
  }
  key_.SetHanging(false);
  EXPECT_THAT((*lease)->CheckHeld(), StatusIs(absl::StatusCode::kAborted));
}

}  // namespace
}  // namespace lodestar::lease
