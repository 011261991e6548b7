// SPDX-License-Identifier: Apache-2.0

#include "server/shard/staging_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace lodestar::shard {
namespace {

class StagingPoolTest : public testing::Test {
 protected:
  // Acquires a slot for another worker each time.
  StagingPool::Acquired Acquire(bool in_turn, int tag) {
    return AcquireFor(PusherOf(static_cast<uint32_t>(100 + tag)), in_turn, tag);
  }
  StagingPool::Acquired AcquireFor(const sync::Pusher& pusher, bool in_turn, int tag) {
    return pool_->Acquire(pusher, in_turn, [this, tag](std::shared_ptr<StagingSlot> slot) {
      granted_.push_back(tag);
      slots_.push_back(std::move(slot));
    });
  }
  static sync::Pusher PusherOf(uint32_t worker) { return {WorkerId(worker), Incarnation(1)}; }

  const std::shared_ptr<PagePool> pages_ = std::make_shared<PagePool>();
  const std::shared_ptr<StagingPool> pool_ = std::make_shared<StagingPool>(100, 3, pages_);
  std::vector<int> granted_;
  std::vector<std::shared_ptr<StagingSlot>> slots_;
};

TEST_F(StagingPoolTest, KeepsTheLastSlotForAContributionInTurn) {
  auto a = Acquire(false, 1);
  auto b = Acquire(false, 2);
  ASSERT_NE(a.slot, nullptr);
  ASSERT_NE(b.slot, nullptr);
  EXPECT_EQ(Acquire(false, 3).slot, nullptr);
  auto in_turn = Acquire(true, 4);
  ASSERT_NE(in_turn.slot, nullptr);
  EXPECT_EQ(pool_->num_used(), 3);

  in_turn.slot.reset();
  EXPECT_TRUE(granted_.empty()) << "the last slot went to one out of turn";
  a.slot.reset();
  EXPECT_EQ(granted_, std::vector<int>{3});
}

TEST_F(StagingPoolTest, ARevokedSlotGivesItsPlaceAtOnceAndItsPageToNobody) {
  auto frozen = Acquire(true, 1);
  auto other = Acquire(true, 2);
  auto third = Acquire(true, 3);
  auto waiting = Acquire(true, 4);
  ASSERT_EQ(waiting.slot, nullptr);
  frozen.slot->data()[0] = 1.0f;
  frozen.slot->Revoke();
  frozen.slot->Revoke();
  ASSERT_EQ(granted_, std::vector<int>{4});
  EXPECT_EQ(pool_->num_used(), 3);
  slots_[0]->data()[0] = 7.0f;
  frozen.slot->data()[0] = 2.0f;
  EXPECT_EQ(slots_[0]->data()[0], 7.0f);
  frozen.slot.reset();
  EXPECT_EQ(pool_->num_used(), 3) << "the place is another's";
}

TEST_F(StagingPoolTest, PromotionUsesTheKeptSlot) {
  auto a = Acquire(false, 1);
  auto b = Acquire(false, 2);
  auto waiting = Acquire(false, 3);
  ASSERT_NE(waiting.request, nullptr);
  EXPECT_NE(pool_->Promote(waiting.request), nullptr);
  EXPECT_FALSE(pool_->Remove(waiting.request)) << "still in the queue";
}

TEST_F(StagingPoolTest, PromotedWithoutAFreeSlotItIsFirstInLine) {
  auto a = Acquire(true, 1);
  auto b = Acquire(true, 2);
  auto c = Acquire(true, 3);
  auto out_of_turn = Acquire(false, 4);
  auto promoted = Acquire(false, 5);
  EXPECT_EQ(pool_->Promote(promoted.request), nullptr);
  a.slot.reset();
  EXPECT_EQ(granted_, std::vector<int>{5});
}

TEST_F(StagingPoolTest, ARemovedRequestIsNotGranted) {
  auto a = Acquire(true, 1);
  auto b = Acquire(true, 2);
  auto c = Acquire(true, 3);
  auto gone = Acquire(true, 4);
  auto next = Acquire(true, 5);
  EXPECT_TRUE(pool_->Remove(gone.request));
  a.slot.reset();
  EXPECT_EQ(granted_, std::vector<int>{5});
}

TEST_F(StagingPoolTest, NobodyHasTheLastTwo) {
  const auto pool = std::make_shared<StagingPool>(100, 6, pages_);
  std::vector<StagingPool::Acquired> hogs;
  std::vector<int> granted;
  const auto acquire = [&](uint32_t worker, int tag) {
    return pool->Acquire(PusherOf(worker), true, [&, tag](std::shared_ptr<StagingSlot> slot) {
      granted.push_back(tag);
      slots_.push_back(std::move(slot));
    });
  };
  for (int i = 0; i < 5; ++i) hogs.push_back(acquire(1, i));
  EXPECT_EQ(pool->num_used(), 4);
  EXPECT_FALSE(pool->IsOwedMore(PusherOf(1)));
  EXPECT_TRUE(pool->IsOwedMore(PusherOf(2)));
  std::vector<StagingPool::Acquired> others;
  for (int i = 0; i < 3; ++i) others.push_back(acquire(2, 10 + i));
  EXPECT_EQ(pool->num_used(), 6);
  others[0].slot.reset();
  EXPECT_EQ(granted, std::vector<int>{12}) << "what is free is for others";
  hogs[0].slot.reset();
  EXPECT_EQ(granted, (std::vector<int>{12, 4}));
  const sync::Pusher next_life = {WorkerId(1), Incarnation(2)};
  EXPECT_TRUE(pool->IsOwedMore(next_life));
}

// One slot is free, but only for a pusher in turn. Pusher 1 is in turn, but has its maximum of
// slots. When it gives one back, both pusher 1 and pusher 2 get a slot.
TEST_F(StagingPoolTest, ASlotThatComesBackMayServeTwo) {
  auto a = AcquireFor(PusherOf(1), true, 1);
  auto b = AcquireFor(PusherOf(1), true, 2);
  auto out_of_turn = AcquireFor(PusherOf(2), false, 4);
  auto capped = AcquireFor(PusherOf(1), true, 3);
  ASSERT_EQ(capped.slot, nullptr);
  ASSERT_EQ(out_of_turn.slot, nullptr);
  a.slot.reset();
  EXPECT_EQ(granted_, (std::vector<int>{4, 3}));
  EXPECT_EQ(pool_->num_used(), 3);
}

TEST_F(StagingPoolTest, MemoryIsThatOfTheSlotsTouched) {
  EXPECT_EQ(pages_->resident_bytes(), 0);
  for (int i = 0; i < 5; ++i) Acquire(true, i);
  EXPECT_EQ(pages_->resident_bytes(), 400);
}

TEST_F(StagingPoolTest, SpaceThatIsTakenIsReplacedAndComesBack) {
  std::shared_ptr<StagingSlot> slot = Acquire(true, 1).slot;
  std::shared_ptr<Page> taken = slot->TakePage();
  taken->data()[99] = 5.0f;
  slot.reset();
  EXPECT_EQ(pool_->num_used(), 0);
  slot = Acquire(true, 2).slot;
  EXPECT_NE(slot->data(), taken->data());
  EXPECT_EQ(taken->data()[99], 5.0f);
  EXPECT_EQ(pages_->resident_bytes(), 800);
  taken.reset();
  const auto other = Acquire(true, 3);
  EXPECT_EQ(pages_->resident_bytes(), 800) << "what was taken is used again";
}

TEST_F(StagingPoolTest, WithoutMemoryAContributionWaitsForASlotThatThereIs) {
  PagePool::Config config;
  config.create = [left = 2](int64_t elements) mutable {
    return left-- > 0 ? Page::Create(elements) : nullptr;
  };
  const auto pages = std::make_shared<PagePool>(std::move(config));
  const auto pool = std::make_shared<StagingPool>(100, 3, pages);
  int granted = 0;
  const auto acquire = [&] {
    return pool->Acquire({}, true, [&](std::shared_ptr<StagingSlot>) { ++granted; });
  };
  auto a = acquire();
  auto b = acquire();
  auto c = acquire();
  ASSERT_NE(b.slot, nullptr);
  ASSERT_EQ(c.slot, nullptr);
  EXPECT_EQ(pool->Promote(c.request), nullptr);
  a.slot.reset();
  EXPECT_EQ(granted, 1);
}

}  // namespace
}  // namespace lodestar::shard
