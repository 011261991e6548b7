// SPDX-License-Identifier: Apache-2.0

#include "server/shard/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/crc32c/crc32c.h"

namespace lodestar::shard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(PageTest, StartsOnACacheLineAndZeroed) {
  for (int64_t elements : {1, 17, 1 << 20}) {
    const auto page = Page::Create(elements);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(page->data()) % Page::kAlignmentBytes, 0);
    EXPECT_EQ(page->span().back(), 0.0f);
    EXPECT_EQ(page->span().size(), elements);
  }
}

TEST(PageTest, IsLentAsLongAsAnyHandleIsHeld) {
  std::shared_ptr<Page> page = Page::Create(4);
  auto first = Page::Lend(page);
  auto second = first;
  auto third = Page::Lend(page);
  first.reset();
  third.reset();
  EXPECT_TRUE(page->is_lent());
  second.reset();
  EXPECT_FALSE(page->is_lent());
}

TEST(PageTest, AHandleKeepsThePageAlive) {
  std::shared_ptr<Page> page = Page::Create(4);
  page->data()[2] = 5.0f;
  const auto handle = Page::Lend(page);
  page.reset();
  EXPECT_EQ(handle->data()[2], 5.0f);
}

TEST(PageTest, AChecksumIsKnownAsLongAsThePageIsLent) {
  std::shared_ptr<Page> page = Page::Create(100);
  const auto sum = [&page] { return crc32c::Crc32c(page->data() + 10, 200); };
  auto handle = Page::Lend(page);
  const uint32_t of_zeros = sum();
  EXPECT_EQ(handle->Crc32cOf(40, 200), of_zeros);
  // Real code must not write to a lent page. This write shows that the bytes are not read a second
  // time.
  page->data()[20] = 1.0f;
  EXPECT_EQ(handle->Crc32cOf(40, 200), of_zeros);
  const auto other = Page::Lend(page);
  EXPECT_EQ(other->Crc32cOf(40, 200), of_zeros);
  EXPECT_EQ(other->Crc32cOf(44, 200), crc32c::Crc32c(page->data() + 11, 200));
  EXPECT_EQ(other->Crc32cOf(40, 196), crc32c::Crc32c(page->data() + 10, 196));
  handle.reset();
  EXPECT_EQ(other->Crc32cOf(40, 200), of_zeros);
}

TEST(PageTest, AChecksumIsForgottenOnceThePageWasBack) {
  std::shared_ptr<Page> page = Page::Create(100);
  Page::Lend(page)->Crc32cOf(0, 400);
  page->data()[20] = 1.0f;
  EXPECT_EQ(Page::Lend(page)->Crc32cOf(0, 400), crc32c::Crc32c(page->data(), 400));
}

TEST(PagePoolTest, UsesReturnedPagesAgain) {
  PagePool pool;
  for (int i = 0; i < 10; ++i) pool.Allocate(100);
  EXPECT_EQ(pool.resident_bytes(), 400);
  auto a = pool.Allocate(100);
  auto b = pool.Allocate(100);
  auto other_size = pool.Allocate(50);
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.resident_bytes(), 1000);
}

// Number of floats for which no system has memory. These tests are left out with sanitizers,
// because a sanitizer ends the program if an allocation fails.
#ifndef LODESTAR_SANITIZER
constexpr int64_t kTooMany = int64_t{1} << 50;

TEST(PageTest, WithoutMemoryThereIsNone) { EXPECT_EQ(Page::Create(kTooMany), nullptr); }

TEST(PagePoolTest, WhatTheSystemDoesNotGiveIsNotCounted) {
  PagePool pool;
  EXPECT_EQ(pool.Allocate(kTooMany), nullptr);
  EXPECT_EQ(pool.resident_bytes(), 0);
}

#endif

class PageShortageTest : public testing::Test {
 protected:
  using Shortage = PagePool::Shortage;

  // Returns the config of a pool on a system with this number of bytes.
  PagePool::Config ConfigOf(int64_t system_bytes) {
    PagePool::Config config;
    config.on_shortage = [this](Shortage shortage, int64_t bytes) {
      told_.emplace_back(shortage, bytes);
    };
    config.create = [this, system_bytes](int64_t elements) {
      const bool has_memory = pool_->resident_bytes() <= system_bytes;
      return has_memory ? Page::Create(elements) : nullptr;
    };
    return config;
  }

  std::unique_ptr<PagePool> pool_;
  std::vector<std::pair<Shortage, int64_t>> told_;
};

TEST_F(PageShortageTest, BeyondTheLimitPagesAreGivenAndItIsToldOnce) {
  PagePool::Config config = ConfigOf(1 << 20);
  config.max_bytes = 1000;
  pool_ = std::make_unique<PagePool>(std::move(config));
  auto a = pool_->Allocate(100);
  const auto b = pool_->Allocate(100);
  EXPECT_THAT(told_, IsEmpty());
  const auto c = pool_->Allocate(60);
  const auto d = pool_->Allocate(60);
  ASSERT_NE(d, nullptr);
  EXPECT_THAT(told_, ElementsAre(Pair(Shortage::kLimit, 240)));
}

TEST_F(PageShortageTest, FreePagesOfOtherSizesMakeRoomBelowTheLimit) {
  PagePool::Config config = ConfigOf(1 << 20);
  config.max_bytes = 1000;
  pool_ = std::make_unique<PagePool>(std::move(config));
  auto a = pool_->Allocate(100);
  const auto b = pool_->Allocate(100);
  a.reset();
  const auto c = pool_->Allocate(120);
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_EQ(pool_->resident_bytes(), 880);
}

TEST_F(PageShortageTest, WhatTheSystemRefusesIsToldOnceAndComesBackWithWhatIsFreed) {
  pool_ = std::make_unique<PagePool>(ConfigOf(1000));
  auto a = pool_->Allocate(100);
  const auto b = pool_->Allocate(100);
  EXPECT_EQ(pool_->Allocate(100), nullptr);
  EXPECT_EQ(pool_->Allocate(60), nullptr);
  EXPECT_THAT(told_, ElementsAre(Pair(Shortage::kSystem, 400)));
  EXPECT_EQ(pool_->resident_bytes(), 800);
  a.reset();
  EXPECT_NE(pool_->Allocate(120), nullptr) << "a free page of another size makes room";
  EXPECT_EQ(pool_->resident_bytes(), 880);
}

TEST(PagePoolTest, APageMayOutliveThePool) {
  auto pool = std::make_unique<PagePool>();
  auto page = pool->Allocate(8);
  pool.reset();
  page->data()[7] = 1.0f;
  page.reset();
}

}  // namespace
}  // namespace lodestar::shard
