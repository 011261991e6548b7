#include "server/shard/page.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

namespace lodestar {
namespace {

TEST(PageTest, StartsOnACacheLineAndZeroed) {
  for (int64_t elements : {1, 17, 1 << 20}) {
    const Page page(elements);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(page.data()) % Page::kAlignmentBytes, 0);
    EXPECT_EQ(page.span().back(), 0.0f);
    EXPECT_EQ(page.span().size(), elements);
  }
}

TEST(PageTest, IsLentAsLongAsAnyHandleIsHeld) {
  auto page = std::make_shared<Page>(4);
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
  auto page = std::make_shared<Page>(4);
  page->data()[2] = 5.0f;
  const auto handle = Page::Lend(page);
  page.reset();
  EXPECT_EQ(handle->data()[2], 5.0f);
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

TEST(PagePoolTest, APageMayOutliveThePool) {
  auto pool = std::make_unique<PagePool>();
  auto page = pool->Allocate(8);
  pool.reset();
  page->data()[7] = 1.0f;
  page.reset();
}

}  // namespace
}  // namespace lodestar
