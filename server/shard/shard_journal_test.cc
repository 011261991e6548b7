// SPDX-License-Identifier: Apache-2.0

#include "server/shard/shard_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/messages/contribution.h"
#include "common/testing/status_matchers.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/testing/test_cluster.h"

namespace lodestar::shard {
namespace {

using ::testing::HasSubstr;

constexpr int kWorkers = 3;
constexpr int kRounds = 5;

// MemoryJournal stores the appended records. Reports them as durable at once, or when the test says
// so.
class MemoryJournal final : public ShardJournal {
 public:
  struct Entry {
    ShardRecord record;
    std::vector<std::byte> payload;
  };

  void Append(ShardRecord record, absl::Span<const std::byte> payload, std::shared_ptr<const void>,
              std::function<void()> durable) override {
    entries.push_back({std::move(record), {payload.begin(), payload.end()}});
    if (!is_slow) return durable();
    waiting_.push_back(std::move(durable));
  }

  void MakeDurable() {
    while (!waiting_.empty()) {
      const std::function<void()> durable = std::move(waiting_.front());
      waiting_.pop_front();
      durable();
    }
  }

  bool is_slow = false;
  std::vector<Entry> entries;

 private:
  std::deque<std::function<void()>> waiting_;
};

struct Variant {
  std::string name;
  job::JobSpec job;
  bool has_averaged = false;
};

std::vector<Variant> Variants() {
  job::JobSpec job;
  job.mode = job::Mode::kSync;
  job.optimizer.kind = job::OptimizerKind::kAdamW;
  std::vector<Variant> variants = {{"Sync", job}};
  job.clip_norm = 0.5;
  variants.push_back({"SyncClipped", job});
  job.robust_mean = *job::ParseRobustMean("median");
  variants.push_back({"SyncMedianClipped", job});
  job.clip_norm = 0.0;
  job.robust_mean = *job::ParseRobustMean("trimmed:1");
  variants.push_back({"SyncTrimmed", job});
  job.robust_mean = job::RobustMean();
  job.push_encoding = params::Encoding::kInt8;
  job.pull_encoding = params::Encoding::kInt8;
  variants.push_back({"SyncInt8", job});
  job.error_feedback = false;
  variants.push_back({"SyncInt8WithoutFeedback", job});
  job = job::JobSpec();
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = 5;
  variants.push_back({"LocalSgd", job});
  job.outer_reduction = job::OuterReduction::kDirection;
  variants.push_back({"LocalSgdDirections", job});
  job.push_encoding = params::Encoding::kInt4;
  variants.push_back({"LocalSgdDirectionsInt4", job});
  job.push_encoding = params::Encoding::kFp32;
  job.outer_reduction = job::OuterReduction::kMean;
  job.outer_optimizer = job::OuterOptimizerKind::kAverage;
  variants.push_back({"LocalSgdWeights", job});
  job.robust_mean = *job::ParseRobustMean("trimmed:1");
  variants.push_back({"LocalSgdWeightsTrimmed", job});
  job.outer_optimizer = job::OuterOptimizerKind::kNesterov;
  job.push_encoding = params::Encoding::kBf16;
  job.robust_mean = *job::ParseRobustMean("median");
  variants.push_back({"LocalSgdMedianBf16", job});
  job = job::JobSpec();
  job.mode = job::Mode::kAsync;
  job.optimizer.kind = job::OptimizerKind::kMomentum;
  job.schedule.peak = 0.05;
  variants.push_back({"Async", job});
  job.pull_encoding = params::Encoding::kBf16;
  variants.push_back({"AsyncBf16", job});
  job = job::JobSpec();
  job.mode = job::Mode::kAsync;
  job.max_rounds_ahead = 0;
  job.optimizer.kind = job::OptimizerKind::kSgd;
  variants.push_back({"LockStep", job});
  job = job::JobSpec();
  job.mode = job::Mode::kAsyncLocalSgd;
  job.batch_size = 2;
  job.local_steps = 5;
  variants.push_back({"AsyncLocalSgd", job});
  job.momentum_correction = job::MomentumCorrectionKind::kHeloco;
  variants.push_back({"AsyncLocalSgdHeloco", job});
  job.anchor = job::Anchor::kServer;
  variants.push_back({"AsyncLocalSgdHelocoServer", job});
  job.anchor = job::Anchor::kWorker;
  job.quorum = 2;
  job.push_encoding = params::Encoding::kInt4;
  job.pull_encoding = params::Encoding::kInt4;
  variants.push_back({"AsyncLocalSgdInt4", job});
  for (const char* const name : {"SyncClipped", "SyncMedianClipped", "SyncInt8", "LocalSgd",
                                 "LocalSgdDirections", "LocalSgdWeights", "LocalSgdMedianBf16",
                                 "AsyncBf16", "AsyncLocalSgd", "AsyncLocalSgdHelocoServer"}) {
    const auto plain = std::find_if(variants.begin(), variants.end(),
                                    [name](const Variant& one) { return one.name == name; });
    variants.push_back({plain->name + "Averaged", plain->job, /*has_averaged=*/true});
  }
  return variants;
}

class ContributionLog final : public ShardObserver {
 public:
  void OnContributed(WorkerId worker, Incarnation, Round round) override {
    whole.emplace_back(worker, round);
  }
  std::vector<std::pair<WorkerId, Round>> whole;
};

class ShardJournalTest : public testing::TestWithParam<Variant> {
 protected:
  const job::JobSpec& job() const { return GetParam().job; }

  ContributionKey KeyOf(int worker, int round) const {
    // In asynchronous mode, each grant has a round number of its own.
    const int64_t number = job::HasRosters(job()) ? round : kWorkers * round + worker - 1;
    ContributionKey key = TestCluster::Key(worker, number, 0);
    key.kind = messages::RoundContributionKind(job());
    key.encoding = job().push_encoding;
    // A usual window has 10 samples.
    if (job().mode == job::Mode::kAsyncLocalSgd) key.num_samples = 10 - worker;
    if (IsSkipped(worker, round)) key.num_samples = messages::kSkippedSamples;
    return key;
  }

  // If contributions are gradients, worker 3 skips round 1 and all workers skip round 2.
  bool IsSkipped(int worker, int round) const {
    return messages::RoundContributionKind(job()) == messages::ContributionKind::kGradient &&
           ((round == 1 && worker == 3) || round == 2);
  }

  // Makes all calls of workers and coordinator, from the first round to the last. If the shard has
  // counted a contribution before, the call is a repeat.
  void Train(TestCluster& cluster) const {
    cluster.SetMembers(kWorkers);
    for (int round = 0; round < num_rounds(); ++round) {
      if (job::HasRosters(job())) cluster.OpenRound(round, {3, 1, 2}, 0.1);
      for (int worker = 1; worker <= kWorkers; ++worker) {
        std::vector<float> values = cluster.Vector(round * kWorkers + worker);
        // In the last round, when the usual norm is known, worker 2 sends a contribution that is
        // far too long. It does so in the first round too, when the usual norm is not known. The
        // exception is a job that measures weights from the servers' weights. There, one such
        // contribution would make all later ones look too long.
        const bool is_first = round == 0 && !job::IsAnchoredAtServer(job());
        if ((is_first || round == num_rounds() - 1) && worker == 2) {
          for (float& value : values) value *= 1000.0f;
        }
        const absl::StatusOr<PushOutcome> outcome = cluster.PushAll(KeyOf(worker, round), values);
        ASSERT_OK(outcome.status()) << "worker " << worker << " round " << round;
      }
    }
  }

  // If contributions are applied one by one, more of them are needed until the usual norm is known.
  int num_rounds() const { return job::HasRosters(job()) ? kRounds : 13; }
  int64_t num_versions() const {
    int64_t versions = 0;
    for (int round = 0; round < num_rounds(); ++round) {
      int64_t num_skipped = 0;
      for (int worker = 1; worker <= kWorkers; ++worker) num_skipped += IsSkipped(worker, round);
      versions +=
          job::HasRosters(job()) ? (num_skipped < kWorkers ? 1 : 0) : kWorkers - num_skipped;
    }
    return versions;
  }
  // Returns the weights after all rounds.
  absl::StatusOr<std::vector<float>> LastWeights(TestCluster& cluster) const {
    std::vector<float> weights;
    for (const params::Bucket& bucket : cluster.buckets()) {
      const absl::StatusOr<PublishedBucket> read =
          cluster.Read(bucket.index, job::HasRosters(job()) ? num_rounds() : 0);
      if (!read.ok()) return read.status();
      EXPECT_EQ(read->version, Version(num_versions()));
      weights.insert(weights.end(), read->data().begin(), read->data().end());
    }
    return weights;
  }

  std::vector<float> ShadowOf(TestCluster& cluster) const {
    std::vector<float> all;
    for (const params::Bucket& bucket : cluster.buckets()) {
      const absl::StatusOr<PublishedBucket> read = cluster.Read(bucket.index, 0, {.shadow = true});
      EXPECT_OK(read.status());
      all.insert(all.end(), read->data().begin(), read->data().end());
    }
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, ShardJournalTest, testing::ValuesIn(Variants()),
                         [](const auto& info) { return info.param.name; });

// The process may end after any number of records is on disk. For each such number, replays these
// records and then repeats all calls of workers and coordinator. The weights must equal those of a
// process that never ended.
TEST_P(ShardJournalTest, EveryPrefixLeadsToTheSameBits) {
  MemoryJournal journal;
  TestCluster undisturbed(
      {.job = job(), .has_averaged = GetParam().has_averaged, .journal = &journal});
  undisturbed.LoadInitial();
  Train(undisturbed);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> wanted, LastWeights(undisturbed));
  const std::vector<float> wanted_shadow = ShadowOf(undisturbed);
  ASSERT_GT(journal.entries.size(), kRounds * kWorkers);
  EXPECT_TRUE(std::any_of(journal.entries.begin(), journal.entries.end(), [](const auto& entry) {
    const auto* const step = std::get_if<StepRecord>(&entry.record);
    return step != nullptr && step->step.clip < 0.1f;
  })) << "nothing was beyond the limit";
  for (size_t size = 0; size <= journal.entries.size(); ++size) {
    MemoryJournal next_journal;
    TestCluster cluster(
        {.job = job(), .has_averaged = GetParam().has_averaged, .journal = &next_journal});
    cluster.LoadInitial();
    for (size_t i = 0; i < size; ++i) {
      const MemoryJournal::Entry& entry = journal.entries[i];
      ASSERT_OK(cluster.shard(0).Replay(entry.record, entry.payload)) << i;
    }
    cluster.shard(0).EndReplay();
    Train(cluster);
    SCOPED_TRACE(testing::Message() << size << " records");
    ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, LastWeights(cluster));
    ASSERT_TRUE(SameBits(weights, wanted));
    ASSERT_TRUE(SameBits(ShadowOf(cluster), wanted_shadow));
  }
}

// The first weights and their optimizer state come from a client. The journal may end between them.
TEST(ShardJournalOfFirstWeightsTest, FirstStateSurvivesEveryPrefix) {
  job::JobSpec job;
  job.mode = job::Mode::kSync;
  job.optimizer.kind = job::OptimizerKind::kMomentum;
  ContributionKey first = TestCluster::Key(1, 0, /*base_version=*/4);
  first.kind = messages::ContributionKind::kInitialWeights;
  const auto supply = [&first](TestCluster& cluster) {
    for (const uint32_t state_vector : {1u, 0u}) {
      first.state_vector = state_vector;
      const absl::StatusOr<PushOutcome> outcome =
          cluster.PushAll(first, cluster.Vector(static_cast<int>(state_vector)));
      ASSERT_OK(outcome.status());
    }
  };
  MemoryJournal journal;
  TestCluster undisturbed({.job = job, .journal = &journal});
  undisturbed.shard(0).AwaitClientWeights();
  supply(undisturbed);
  ASSERT_EQ(journal.entries.size(), 2 * undisturbed.buckets().size());
  for (size_t size = 0; size <= journal.entries.size(); ++size) {
    TestCluster cluster({.job = job});
    cluster.shard(0).AwaitClientWeights();
    for (size_t i = 0; i < size; ++i) {
      const MemoryJournal::Entry& entry = journal.entries[i];
      ASSERT_OK(cluster.shard(0).Replay(entry.record, entry.payload)) << i;
    }
    cluster.shard(0).EndReplay();
    supply(cluster);
    for (const uint32_t state_vector : {0u, 1u}) {
      std::vector<float> all;
      for (const params::Bucket& bucket : cluster.buckets()) {
        ASSERT_OK_AND_ASSIGN(const PublishedBucket read,
                             cluster.Read(bucket.index, 0, {.state_vector = state_vector}));
        EXPECT_EQ(read.version, Version(4));
        all.insert(all.end(), read.data().begin(), read.data().end());
      }
      EXPECT_TRUE(SameBits(all, cluster.Vector(static_cast<int>(state_vector))))
          << size << " records, vector " << state_vector;
    }
  }
}

// Restores a checkpoint that was taken during or after the run, and then replays the journal. Steps
// that the checkpoint includes are skipped. The checkpoint has no shadow, so the shadow comes from
// the journal.
TEST_P(ShardJournalTest, GoesOnFromACheckpoint) {
  MemoryJournal journal;
  TestCluster undisturbed(
      {.job = job(), .has_averaged = GetParam().has_averaged, .journal = &journal});
  undisturbed.LoadInitial();
  ShardState saved;
  const int64_t saved_round = kRounds / 2;
  const auto keep = [&saved](absl::StatusOr<ShardState> state) {
    ASSERT_OK(state.status());
    saved = *std::move(state);
  };
  if (job::HasRosters(job())) {
    undisturbed.shard(0).Snapshot(Round(saved_round), keep);
    Train(undisturbed);
  } else {
    Train(undisturbed);
    undisturbed.shard(0).Snapshot(std::nullopt, keep);
  }
  ASSERT_FALSE(saved.buckets.empty());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> wanted, LastWeights(undisturbed));
  TestCluster cluster({.job = job(), .has_averaged = GetParam().has_averaged});
  ASSERT_OK(RestoreFrom(saved, cluster.shard(0), Round(job::HasRosters(job()) ? saved_round : 0)));
  for (const MemoryJournal::Entry& entry : journal.entries) {
    ASSERT_OK(cluster.shard(0).Replay(entry.record, entry.payload));
  }
  cluster.shard(0).EndReplay();
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, LastWeights(cluster));
  EXPECT_TRUE(SameBits(weights, wanted));
  EXPECT_TRUE(SameBits(ShadowOf(cluster), ShadowOf(undisturbed)));
}

TEST_P(ShardJournalTest, NothingIsToldBeforeItIsOnDisk) {
  MemoryJournal journal;
  journal.is_slow = true;
  TestCluster cluster({.job = job(), .has_averaged = GetParam().has_averaged, .journal = &journal});
  cluster.LoadInitial();
  cluster.SetMembers(1);
  if (job::HasRosters(job())) cluster.OpenRound(0, {1}, 0.1);
  const std::vector<float> values = cluster.Vector(1);
  ContributionKey key = KeyOf(1, 0);
  key.round = Round(0);
  const auto push = cluster.PushBucket(key, 0, values);
  EXPECT_FALSE(push->outcome.has_value());
  const auto repeat = cluster.PushBucket(key, 0, values);
  EXPECT_FALSE(repeat->outcome.has_value()) << "nor that it is a repeat";
  std::optional<absl::StatusOr<PublishedBucket>> read;
  cluster.shard(0).ReadBucket(WorkerId(), Incarnation(), 0, Round(job::HasRosters(job()) ? 1 : 0),
                              [&](absl::StatusOr<PublishedBucket> answer) { read = answer; });
  EXPECT_FALSE(read.has_value());
  journal.MakeDurable();
  ASSERT_TRUE(push->outcome.has_value());
  EXPECT_THAT(*push->outcome, IsOkAndHolds(PushOutcome::kCounted));
  ASSERT_TRUE(repeat->outcome.has_value());
  EXPECT_THAT(*repeat->outcome, IsOkAndHolds(PushOutcome::kDuplicate));
  if (job().clip_norm > 0) {  // the norm needs the other buckets
    for (uint32_t bucket = 1; bucket < cluster.buckets().size(); ++bucket) {
      cluster.PushBucket(key, bucket, values);
    }
    EXPECT_FALSE(read.has_value());
    journal.MakeDurable();
  }
  ASSERT_TRUE(read.has_value());
  ASSERT_OK(read->status());
  EXPECT_EQ((*read)->version, Version(1));
}

TEST_P(ShardJournalTest, AWholeContributionIsToldOfOnceAndWhenItIsOnDisk) {
  MemoryJournal journal;
  journal.is_slow = true;
  ContributionLog log;
  TestCluster cluster({.job = job(),
                       .has_averaged = GetParam().has_averaged,
                       .observer = &log,
                       .journal = &journal});
  cluster.LoadInitial();
  cluster.SetMembers(1);
  if (job::HasRosters(job())) cluster.OpenRound(0, {1}, 0.1);
  ContributionKey key = KeyOf(1, 0);
  key.round = Round(0);
  const auto push_all = [&](uint32_t first) {
    for (uint32_t bucket = first; bucket < cluster.buckets().size(); ++bucket) {
      cluster.PushBucket(key, bucket, cluster.Vector(1));
    }
  };
  push_all(/*first=*/1);
  journal.MakeDurable();
  EXPECT_TRUE(log.whole.empty()) << "a bucket is missing";
  push_all(/*first=*/0);
  EXPECT_TRUE(log.whole.empty()) << "not on disk";
  journal.MakeDurable();
  EXPECT_EQ(log.whole, (std::vector{std::pair(WorkerId(1), Round(0))}));
  push_all(/*first=*/0);
  journal.MakeDurable();
  EXPECT_EQ(log.whole.size(), 1) << "a repeat";
}

TEST_P(ShardJournalTest, RecordsThatDoNotFollowAreRefused) {
  MemoryJournal journal;
  TestCluster undisturbed(
      {.job = job(), .has_averaged = GetParam().has_averaged, .journal = &journal});
  undisturbed.LoadInitial();
  Train(undisturbed);
  // Leaves out one step of bucket 0 in each replay, but never the last step. Some later step must
  // then be refused. The exceptions are explained below.
  const auto is_of_bucket_0 = [](const MemoryJournal::Entry& entry) {
    const auto* step = std::get_if<StepRecord>(&entry.record);
    return step != nullptr && step->bucket == 0 && step->step.kind != BucketStep::Kind::kSum;
  };
  size_t last = 0;
  for (size_t i = 0; i < journal.entries.size(); ++i) {
    if (is_of_bucket_0(journal.entries[i])) last = i;
  }
  int num_refused = 0, num_left_out = 0;
  for (size_t left_out = 0; left_out < last; ++left_out) {
    if (!is_of_bucket_0(journal.entries[left_out])) continue;
    ++num_left_out;
    TestCluster cluster({.job = job(), .has_averaged = GetParam().has_averaged});
    cluster.LoadInitial();
    absl::Status status;
    for (size_t i = 0; i < journal.entries.size() && status.ok(); ++i) {
      const MemoryJournal::Entry& entry = journal.entries[i];
      if (i != left_out) status = cluster.shard(0).Replay(entry.record, entry.payload);
    }
    if (status.ok()) continue;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bucket 0, in round ")));
    ++num_refused;
  }
  EXPECT_GT(num_left_out, 0);
  // Replay cannot notice that these steps are missing:
  // - one of several contributions to a round (a gap in the numbers of the journal's records shows
  //   that),
  // - a skipped contribution, if contributions are applied one by one, because it changes nothing.
  constexpr int kSkipped = kWorkers + 1;
  EXPECT_GE(num_refused, job::HasRosters(job()) ? kRounds - 1 : num_left_out - kSkipped);
  TestCluster cluster({.job = job(), .has_averaged = GetParam().has_averaged});
  cluster.LoadInitial();
  for (const MemoryJournal::Entry& entry : journal.entries) {
    if (entry.payload.empty()) continue;
    EXPECT_THAT(
        cluster.shard(0).Replay(
            entry.record, absl::MakeConstSpan(entry.payload.data(), entry.payload.size() - 1)),
        StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bytes of numbers, but ")));
  }
}

}  // namespace
}  // namespace lodestar::shard
