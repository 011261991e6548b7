// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"

namespace lodestar {
namespace {

TEST(ThreadPoolTest, RunsEverythingBeforeItEnds) {
  std::atomic<int> count = 0;
  {
    ThreadPool pool(3);
    for (int i = 0; i < 1000; ++i) pool.Schedule([&] { ++count; });
  }
  EXPECT_EQ(count, 1000);
}

TEST(ThreadPoolTest, RunsWhatTasksScheduleWhileItEnds) {
  std::atomic<int> depth = 0;
  std::function<void()> task;  // must outlive the pool, whose destructor still runs the task
  {
    ThreadPool pool(2);
    task = [&] {
      if (++depth < 50) pool.Schedule(task);
    };
    pool.Schedule(task);
    pool.Schedule([] {});
  }
  EXPECT_EQ(depth, 50);
}

TEST(ThreadPoolTest, RunsTasksAtTheSameTime) {
  ThreadPool pool(2);
  absl::BlockingCounter both_started(2);
  absl::Notification first_done;
  pool.Schedule([&] {
    both_started.DecrementCount();
    both_started.Wait();
    first_done.Notify();
  });
  pool.Schedule([&] { both_started.DecrementCount(); });
  first_done.WaitForNotification();
}

TEST(ThreadPoolTest, TakesTasksThatCanOnlyMove) {
  auto value = std::make_unique<int>(7);
  std::atomic<int> seen = 0;
  {
    ThreadPool pool(1);
    pool.Schedule([value = std::move(value), &seen] { seen = *value; });
  }
  EXPECT_EQ(seen, 7);
}

TEST(ParallelForTest, CallsEveryIndexOnce) {
  ThreadPool pool(3);
  InlineExecutor inline_executor;
  for (Executor* executor :
       {static_cast<Executor*>(&pool), static_cast<Executor*>(&inline_executor)}) {
    for (int64_t n : {0, 1, 2, 3, 1000}) {
      std::vector<std::atomic<int>> calls(n);
      ParallelFor(*executor, n, [&](int64_t i) { ++calls[i]; });
      for (const std::atomic<int>& count : calls) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ParallelForTest, WorksInsideATaskOfAFullPool) {
  ThreadPool pool(2);
  std::atomic<int> count = 0;
  ParallelFor(pool, 4, [&](int64_t) { ParallelFor(pool, 4, [&](int64_t) { ++count; }); });
  EXPECT_EQ(count, 16);
}

TEST(ParallelForTest, DoesNotWaitForThreadsThatAreBusy) {
  ThreadPool pool(1);
  absl::Notification release;
  pool.Schedule([&] { release.WaitForNotification(); });
  std::atomic<int> count = 0;
  ParallelFor(pool, 10, [&](int64_t) { ++count; });
  EXPECT_EQ(count, 10);
  release.Notify();
}

}  // namespace
}  // namespace lodestar
