// SPDX-License-Identifier: Apache-2.0

// Tests shards with real threads. The tests are most useful under ThreadSanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/runtime/executor.h"
#include "common/testing/status_matchers.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/testing/test_cluster.h"

namespace lodestar::shard {
namespace {

job::JobSpec SgdJob() {
  job::JobSpec job;
  job.mode = job::Mode::kSync;
  job.optimizer.kind = job::OptimizerKind::kSgd;
  return job;
}

// Pushes one bucket, and blocks until it is counted.
absl::StatusOr<PushOutcome> PushAndWait(ParameterShard& shard, const ContributionKey& key,
                                        const params::Bucket& bucket,
                                        const std::vector<float>& values) {
  absl::Notification done;
  absl::StatusOr<PushOutcome> result = absl::UnknownError("");
  shard.BeginBucket(key, bucket.index, [&](absl::StatusOr<StagedBucket> staged) {
    if (!staged.ok()) {
      result = staged.status();
      done.Notify();
      return;
    }
    std::copy_n(values.begin() + bucket.range.begin, staged->data().size(), staged->data().begin());
    shard.FinishBucket(*std::move(staged), [&](absl::StatusOr<PushOutcome> outcome) {
      result = std::move(outcome);
      done.Notify();
    });
  });
  done.WaitForNotification();
  return result;
}

absl::StatusOr<PublishedBucket> ReadAndWait(ParameterShard& shard, uint32_t bucket,
                                            Round min_round) {
  absl::Notification done;
  absl::StatusOr<PublishedBucket> result = absl::UnknownError("");
  shard.ReadBucket(WorkerId(), Incarnation(), bucket, min_round,
                   [&](absl::StatusOr<PublishedBucket> answer) {
                     result = std::move(answer);
                     done.Notify();
                   });
  done.WaitForNotification();
  return result;
}

TEST(ShardThreadsTest, EightWorkersShareTwoSlotsWithoutDeadlock) {
  constexpr int kWorkers = 8;
  constexpr int kRounds = 3;
  ThreadPool pool(3);
  for (double clip_norm : {0.0, 1e6}) {
    job::JobSpec job = SgdJob();
    job.clip_norm = clip_norm;
    TestCluster cluster({.job = job, .num_shards = 2, .staging_bytes = 1, .executor = &pool});
    cluster.LoadConstant(0.0f);
    cluster.SetMembers(kWorkers);
    const std::vector<float> ones(cluster.layout().num_elements(), 1.0f);
    std::vector<std::thread> workers;
    for (int worker = 1; worker <= kWorkers; ++worker) {
      workers.emplace_back([&, worker] {
        for (int64_t round = 0; round < kRounds; ++round) {
          // Each worker pushes the buckets in an order of its own.
          for (size_t i = 0; i < cluster.buckets().size(); ++i) {
            const params::Bucket& bucket =
                cluster.buckets()[(i + worker) % cluster.buckets().size()];
            EXPECT_OK(PushAndWait(cluster.shard(bucket.shard),
                                  TestCluster::Key(worker, round, round), bucket, ones));
          }
        }
      });
    }
    for (int64_t round = 0; round < kRounds; ++round) {
      cluster.OpenRound(round, std::vector<int64_t>(kWorkers, 1), 1.0);
      for (const params::Bucket& bucket : cluster.buckets()) {
        EXPECT_OK(ReadAndWait(cluster.shard(bucket.shard), bucket.index, Round(round + 1)));
      }
    }
    for (std::thread& worker : workers) worker.join();
    auto weights = cluster.Weights(kRounds);
    ASSERT_OK(weights);
    for (float weight : *weights) ASSERT_EQ(weight, -static_cast<float>(kRounds));
    // The bound is for the weights, at most two more vectors of the same size (such as an
    // accumulator), and two staging slots of 2048 bytes.
    const ShardStats stats = cluster.shard(0).stats();
    EXPECT_LE(stats.resident_bytes, 3 * stats.weight_bytes + 2 * 2048);
  }
}

TEST(ShardThreadsTest, ReadersSeeWholeVersionsOnly) {
  constexpr int64_t kUpdates = 300;
  job::JobSpec job = SgdJob();
  job.mode = job::Mode::kAsync;
  job.schedule.peak = 1.0;
  ThreadPool pool(3);
  TestCluster cluster({.job = job, .executor = &pool});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(2);
  ParameterShard& shard = cluster.shard(0);
  const std::vector<float> ones(cluster.layout().num_elements(), 1.0f);
  const params::Bucket& bucket = cluster.buckets()[0];
  std::atomic<bool> is_over{false};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      while (!is_over.load()) {
        auto published = ReadAndWait(shard, bucket.index, Round(0));
        ASSERT_OK(published);
        const float expected = -static_cast<float>(published->version.value());
        for (float weight : published->data()) ASSERT_EQ(weight, expected);
      }
    });
  }
  std::thread saver([&] {
    while (!is_over.load()) {
      absl::Notification done;
      shard.Snapshot(std::nullopt, [&](absl::StatusOr<ShardState> state) {
        ASSERT_OK(state);
        const BucketState& saved = state->buckets[0];
        for (int64_t i = 0; i < saved.range.size(); ++i) {
          ASSERT_EQ(saved.weights->data()[i], -static_cast<float>(saved.version.value()));
        }
        done.Notify();
      });
      done.WaitForNotification();
    }
  });
  std::vector<std::thread> writers;
  for (int worker = 1; worker <= 2; ++worker) {
    writers.emplace_back([&, worker] {
      for (int64_t round = 0; round < kUpdates; ++round) {
        EXPECT_OK(PushAndWait(shard, TestCluster::Key(worker, round, 0), bucket, ones));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  is_over.store(true);
  for (std::thread& reader : readers) reader.join();
  saver.join();
  auto last = ReadAndWait(shard, bucket.index, Round(0));
  ASSERT_OK(last);
  EXPECT_EQ(last->version, Version(2 * kUpdates));
}

TEST(ShardThreadsTest, DropsAndCancelledPushesLeaveNothingHanging) {
  constexpr int kWorkers = 4;
  ThreadPool pool(2);
  TestCluster cluster({.job = SgdJob(), .staging_bytes = 1, .executor = &pool});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(kWorkers);
  cluster.OpenRound(0, std::vector<int64_t>(kWorkers, 1), 1.0);
  const std::vector<float> ones(cluster.layout().num_elements(), 1.0f);
  std::vector<std::thread> workers;
  // Worker 2 never sends. Worker 1 opens streams and breaks them, then sends.
  for (int worker : {1, 3, 4}) {
    workers.emplace_back([&, worker] {
      for (const params::Bucket& bucket : cluster.buckets()) {
        const ContributionKey key = TestCluster::Key(worker, 0, 0);
        if (worker == 1) {
          cluster.shard(0)
              .BeginBucket(key, bucket.index, [](absl::StatusOr<StagedBucket>) {})
              .Cancel();
        }
        EXPECT_OK(PushAndWait(cluster.shard(0), key, bucket, ones));
      }
    });
  }
  std::thread dropper([&] { cluster.Drop(2); });
  for (std::thread& worker : workers) worker.join();
  dropper.join();
  for (const params::Bucket& bucket : cluster.buckets()) {
    auto published = ReadAndWait(cluster.shard(0), bucket.index, Round(1));
    ASSERT_OK(published);
    EXPECT_FLOAT_EQ(published->data()[0], -1.0f);
  }
}

TEST(ShardThreadsTest, ShuttingDownUnderLoadAnswersEveryone) {
  ThreadPool pool(2);
  job::JobSpec job = SgdJob();
  job.mode = job::Mode::kAsync;
  TestCluster cluster({.job = job, .staging_bytes = 1, .executor = &pool});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(3);
  const std::vector<float> ones(cluster.layout().num_elements(), 1.0f);
  std::atomic<int> num_counted{0};
  std::vector<std::thread> workers;
  for (int worker = 1; worker <= 3; ++worker) {
    workers.emplace_back([&, worker] {
      for (int64_t round = 0;; ++round) {
        for (const params::Bucket& bucket : cluster.buckets()) {
          auto outcome =
              PushAndWait(cluster.shard(0), TestCluster::Key(worker, round, 0), bucket, ones);
          if (!outcome.ok()) {
            EXPECT_THAT(outcome, StatusIs(absl::StatusCode::kUnavailable));
            return;
          }
          ++num_counted;
        }
      }
    });
  }
  while (num_counted.load() < 50) std::this_thread::yield();
  cluster.shard(0).Shutdown(absl::UnavailableError("closing"));
  for (std::thread& worker : workers) worker.join();
}

TEST(ShardThreadsTest, ACallbackMayEndItsShard) {
  absl::Notification go;
  ThreadPool pool(1);
  TestCluster cluster({.job = SgdJob(), .executor = &pool});
  cluster.LoadConstant(0.0f);
  // The only thread of the pool is blocked until the test has released the shard. So the callback
  // has the last reference to the shard.
  pool.Schedule([&go] { go.WaitForNotification(); });
  cluster.SetMembers(1);
  std::shared_ptr<ParameterShard> shard = cluster.TakeShard(0);
  absl::StatusOr<PublishedBucket> answer = absl::UnknownError("");
  shard->ReadBucket(
      WorkerId(1), Incarnation(1), cluster.buckets()[0].index, Round(1),
      [&answer, shard](absl::StatusOr<PublishedBucket> read) { answer = std::move(read); });
  // Dropping the worker ends the wait of the reader.
  shard->Drop(WorkerId(1), Incarnation(1), "its lease is over");
  shard.reset();
  absl::Notification ended;
  go.Notify();
  pool.Schedule([&ended] { ended.Notify(); });
  ended.WaitForNotification();
  EXPECT_THAT(answer.status(), StatusIs(absl::StatusCode::kAborted));
}

}  // namespace
}  // namespace lodestar::shard
