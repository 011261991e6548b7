// SPDX-License-Identifier: Apache-2.0

// Tests the rules of a shard: what counts, what waits, what is refused. Everything runs inline.
#include "server/shard/parameter_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/process/trace_recorder.h"
#include "common/runtime/clock.h"
#include "common/runtime/file_io.h"
#include "common/runtime/json.h"
#include "common/testing/status_matchers.h"
#include "server/shard/testing/test_cluster.h"

namespace lodestar::shard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr auto kCounted = PushOutcome::kCounted;

job::JobSpec SgdJob() {
  job::JobSpec job;
  job.mode = job::Mode::kSync;
  job.optimizer.kind = job::OptimizerKind::kSgd;
  return job;
}

job::JobSpec AsyncJob() {
  job::JobSpec job = SgdJob();
  job.mode = job::Mode::kAsync;
  job.schedule.peak = 0.5;
  return job;
}

std::vector<float> Ones(const TestCluster& cluster, float value = 1.0f) {
  return std::vector<float>(cluster.layout().num_elements(), value);
}

void ExpectAll(TestCluster& cluster, int64_t version, float value) {
  auto weights = cluster.Weights(version);
  ASSERT_OK(weights);
  for (float weight : *weights) ASSERT_FLOAT_EQ(weight, value);
}

TEST(ParameterShardTest, ABucketAdvancesWhenAllHaveContributed) {
  TestCluster cluster({.job = SgdJob()});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(2);
  cluster.OpenRound(0, {1, 3}, 0.5);
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster, 4.0f)),
              IsOkAndHolds(kCounted));
  EXPECT_THAT(cluster.Weights(1), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(cluster.shard(0).stats().pending_buckets, cluster.buckets().size());
  EXPECT_THAT(cluster.shard(0).stats().missing, ElementsAre(WorkerId(2)));
  EXPECT_THAT(cluster.shard(0).WaitingFor(), HasSubstr("worker 2"));
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(2, 0, 0), Ones(cluster, 8.0f)),
              IsOkAndHolds(kCounted));
  // The mean is weighted by samples: (1 * 4 + 3 * 8) / 4 = 7.
  ExpectAll(cluster, 1, -0.5f * 7.0f);
  EXPECT_EQ(cluster.shard(0).stats().version, Version(1));
  EXPECT_EQ(cluster.shard(0).stats().pending_buckets, 0);
}

TEST(ParameterShardTest, AWorkerThatOtherServersHaveKnownGetsNoWeightsOfThese) {
  TestCluster cluster({.job = SgdJob(), .last_of_others = Incarnation(1)});
  cluster.LoadConstant(0.0f);
  absl::StatusOr<PublishedBucket> read = PublishedBucket();
  cluster.shard(0).ReadBucket(WorkerId(1), Incarnation(1), 0, Round(0),
                              [&](absl::StatusOr<PublishedBucket> answer) { read = answer; });
  EXPECT_THAT(read, StatusIs(absl::StatusCode::kAborted, HasSubstr("register again")));
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster)),
              StatusIs(absl::StatusCode::kAborted));
}

// A worker of earlier servers may send a bucket or an encoding that this job does not have. The
// worker must then be told to register again.
TEST(ParameterShardTest, AWorkerThatOtherServersHaveKnownIsToldSoWhateverElseIsWrong) {
  TestCluster cluster({.job = SgdJob(), .last_of_others = Incarnation(1)});
  cluster.LoadConstant(0.0f);
  ContributionKey key = TestCluster::Key(1, 0, 0);
  absl::Status status;
  const auto ready = [&](absl::StatusOr<StagedBucket> staged) { status = staged.status(); };
  cluster.shard(0).BeginBucket(key, /*bucket=*/99, ready);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("register again")));
  key.encoding = params::Encoding::kInt8;
  cluster.shard(0).BeginBucket(key, /*bucket=*/0, ready);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("register again")));
  cluster.shard(0).ReadBucket(
      WorkerId(1), Incarnation(1), /*bucket=*/99, Round(0),
      [&](absl::StatusOr<PublishedBucket> answer) { status = answer.status(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("register again")));
  cluster.shard(0).ReadBucket(
      WorkerId(), Incarnation(), /*bucket=*/99, Round(0),
      [&](absl::StatusOr<PublishedBucket> answer) { status = answer.status(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument)) << "whoever it is";
}

TEST(ParameterShardTest, ABrokenStreamLeavesNoTrace) {
  TestCluster cluster({.job = SgdJob()});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 1.0);
  bool was_ready = false;
  cluster.shard(0).BeginBucket(TestCluster::Key(1, 0, 0), 0,
                               [&](absl::StatusOr<StagedBucket> staged) {
                                 ASSERT_OK(staged);
                                 was_ready = true;
                                 staged->data()[0] = 1e9f;
                               });
  ASSERT_TRUE(was_ready);
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster)), IsOkAndHolds(kCounted));
  ExpectAll(cluster, 1, -1.0f);
}

TEST(ParameterShardTest, QuorumCommitsAndTheRestIsLate) {
  job::JobSpec job = SgdJob();
  job.quorum = 2;
  TestCluster cluster({.job = job});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(3);
  cluster.OpenRound(0, {1, 1, 1}, 1.0);
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(3, 0, 0), Ones(cluster, 3.0f)),
              IsOkAndHolds(kCounted));
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster, 1.0f)),
              IsOkAndHolds(kCounted));
  ExpectAll(cluster, 1, -2.0f);
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(2, 0, 0), Ones(cluster, 100.0f)),
              IsOkAndHolds(PushOutcome::kLate));
  ExpectAll(cluster, 1, -2.0f);
  EXPECT_EQ(cluster.shard(0).stats().contributions_late, cluster.buckets().size());
}

TEST(ParameterShardTest, ASkippedStepLeavesTheMeanOfTheOthers) {
  for (const char* mean : {"none", "trimmed:1"}) {
    job::JobSpec job = SgdJob();
    job.robust_mean = *job::ParseRobustMean(mean);
    TestCluster cluster({.job = job});
    cluster.LoadConstant(0.0f);
    cluster.SetMembers(3);
    cluster.OpenRound(0, {2, 4, 2}, 1.0);
    ContributionKey skipped = TestCluster::Key(2, 0, 0);
    skipped.num_samples = messages::kSkippedSamples;
    // A skipped contribution has no numbers: this NaN must not be read.
    const std::vector<float> nothing = Ones(cluster, std::numeric_limits<float>::quiet_NaN());
    EXPECT_THAT(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster, 3.0f)),
                IsOkAndHolds(kCounted));
    EXPECT_THAT(cluster.PushAll(skipped, nothing), IsOkAndHolds(kCounted));
    EXPECT_THAT(cluster.PushAll(skipped, nothing), IsOkAndHolds(PushOutcome::kDuplicate));
    EXPECT_THAT(cluster.PushAll(TestCluster::Key(3, 0, 0), Ones(cluster, 5.0f)),
                IsOkAndHolds(kCounted));
    ExpectAll(cluster, 1, -4.0f);
    EXPECT_EQ(cluster.shard(0).stats().contributions_skipped, cluster.buckets().size());
    EXPECT_EQ(cluster.shard(0).stats().contributions_rejected, 0);
  }
}

TEST(ParameterShardTest, OnlyGradientsAreSkipped) {
  job::JobSpec job = SgdJob();
  job.mode = job::Mode::kLocalSgd;
  TestCluster cluster({.job = job});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 1.0);
  ContributionKey key = TestCluster::Key(1, 0, 0);
  key.kind = messages::RoundContributionKind(job);
  key.num_samples = messages::kSkippedSamples;
  EXPECT_THAT(cluster.PushAll(key, Ones(cluster)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("skipped step")));
}

TEST(ParameterShardTest, NewWeightsTakeThePlaceOfOldOnesAndTheOptimizerGoesOn) {
  job::JobSpec job = SgdJob();
  job.optimizer.kind = job::OptimizerKind::kMomentum;
  job.optimizer.momentum = 0.5;
  TestCluster cluster({.job = job});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 1.0);
  EXPECT_OK(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster, 4.0f)));
  const auto before = cluster.Read(0, 1);
  ASSERT_OK(before);
  absl::Status replaced = absl::UnknownError("");
  const std::vector<float> weights = Ones(cluster, 100.0f);
  cluster.shard(0).ReplaceWeights(Round(1), weights,
                                  [&](const absl::Status& status) { replaced = status; });
  EXPECT_OK(replaced);
  ExpectAll(cluster, 1, 100.0f);
  EXPECT_EQ(before->data().front(), -4.0f) << "whoever reads keeps what is read";
  cluster.OpenRound(1, {1}, 1.0);
  EXPECT_OK(cluster.PushAll(TestCluster::Key(1, 1, 1), Ones(cluster, 1.0f)));
  // With momentum 0.5 and gradients 4 and 1, the step is 0.5 * 4 + 1 = 3.
  ExpectAll(cluster, 2, 97.0f);
  std::vector<float> spoilt = Ones(cluster);
  spoilt.back() = std::numeric_limits<float>::infinity();
  cluster.shard(0).ReplaceWeights(Round(2), spoilt,
                                  [&](const absl::Status& status) { replaced = status; });
  EXPECT_THAT(replaced, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(cluster.Read(cluster.buckets().size() - 1, 2)->data().back(), 97.0f);
}

TEST(ParameterShardTest, ALostWorkerMidRoundLeavesTheRightDivisor) {
  TestCluster cluster({.job = SgdJob()});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(3);
  cluster.OpenRound(0, {2, 3, 5}, 1.0);
  EXPECT_OK(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster, 10.0f)));
  // In one bucket, the lost worker's contribution had been counted already.
  EXPECT_TRUE(cluster.PushBucket(TestCluster::Key(2, 0, 0), 0, Ones(cluster, 20.0f))->outcome);
  const auto held = cluster.PushBucket(TestCluster::Key(3, 0, 0), 1, Ones(cluster, 40.0f));
  EXPECT_FALSE(held->outcome.has_value()) << "worker 3 comes after worker 2";
  cluster.Drop(2);
  EXPECT_TRUE(held->outcome.has_value());
  EXPECT_OK(cluster.PushAll(TestCluster::Key(3, 0, 0), Ones(cluster, 40.0f)));
  auto weights = cluster.Weights(1);
  ASSERT_OK(weights);
  const float in_first = -(2 * 10 + 3 * 20 + 5 * 40) / 10.0f;
  const float in_others = -(2 * 10 + 5 * 40) / 7.0f;
  EXPECT_FLOAT_EQ((*weights)[0], in_first);
  EXPECT_FLOAT_EQ((*weights)[cluster.buckets()[1].range.begin], in_others);
  EXPECT_FLOAT_EQ(weights->back(), in_others);
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(2, 1, 1), Ones(cluster)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("register again")));
}

TEST(ParameterShardTest, ADroppedWorkersSpaceIsFreeAtOnceWhateverItsStreamsDo) {
  TestCluster cluster({.job = SgdJob(), .staging_bytes = 1});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(3);
  cluster.OpenRound(0, {1, 1, 2}, 1.0);
  ParameterShard& shard = cluster.shard(0);
  // Workers 1 and 2 stop in the middle of a bucket each, and so hold all of the space.
  std::vector<StagedBucket> frozen;
  for (int worker : {1, 2}) {
    shard.BeginBucket(TestCluster::Key(worker, 0, 0), worker - 1,
                      [&](absl::StatusOr<StagedBucket> staged) {
                        ASSERT_OK(staged);
                        frozen.push_back(*std::move(staged));
                      });
    if (worker == 1) {
      EXPECT_OK(*cluster.PushBucket(TestCluster::Key(1, 0, 0), 1, Ones(cluster))->outcome);
    }
  }
  ASSERT_EQ(frozen.size(), 2);
  const auto waiting = cluster.PushBucket(TestCluster::Key(3, 0, 0), 2, Ones(cluster));
  EXPECT_FALSE(waiting->outcome.has_value());
  cluster.Drop(1);
  cluster.Drop(2);
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(3, 0, 0), Ones(cluster, 3.0f)), IsOk());
  // The two workers now finish their buckets.
  for (StagedBucket& late : frozen) {
    std::fill(late.data().begin(), late.data().end(), 1e9f);
    shard.FinishBucket(std::move(late), [](absl::StatusOr<PushOutcome> outcome) {
      EXPECT_THAT(outcome, StatusIs(absl::StatusCode::kAborted));
    });
  }
  EXPECT_EQ((*cluster.Weights(1))[0], -3.0f);
}

TEST(ParameterShardTest, TellsWhoHasSpaceAndIsNotDoneAndWhoWaitsForIt) {
  TestCluster cluster({.job = SgdJob(), .staging_bytes = 1});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(2);
  cluster.OpenRound(0, {1, 1}, 1.0);
  ParameterShard& shard = cluster.shard(0);
  EXPECT_EQ(shard.stats().push_space, sync::PushSpace());
  // Worker 2 begins two buckets: one before its turn, and one after worker 1 has done its part.
  std::vector<StagedBucket> staged;
  const auto begin = [&](uint32_t bucket) {
    shard.BeginBucket(TestCluster::Key(2, 0, 0), bucket, [&](absl::StatusOr<StagedBucket> begun) {
      ASSERT_OK(begun);
      staged.push_back(*std::move(begun));
    });
  };
  begin(0);
  EXPECT_OK(*cluster.PushBucket(TestCluster::Key(1, 0, 0), 1, Ones(cluster))->outcome);
  begin(1);
  ASSERT_EQ(staged.size(), 2);
  const std::vector<float> ones = Ones(cluster);
  const auto held = cluster.PushBucket(TestCluster::Key(1, 0, 0), 2, ones);
  ASSERT_FALSE(held->outcome.has_value()) << "although it is its turn";
  staged[0].OnArrived(8, {});
  staged[1].OnArrived(4, {});
  const sync::Pusher first = {WorkerId(1), Incarnation(1)};
  const sync::Pusher second = {WorkerId(2), Incarnation(1)};
  const int64_t total_bytes = cluster.buckets()[1].range.size() * sizeof(float);
  EXPECT_EQ(
      shard.stats().push_space,
      (sync::PushSpace{.unfinished = {{second, Round(0), 1, 4, total_bytes}}, .held = {first}}));

  staged[1].OnArrived(total_bytes, {});
  EXPECT_EQ(shard.stats().push_space.unfinished[0].bucket, 0) << "the other is whole";
  staged.clear();
  EXPECT_TRUE(held->outcome.has_value());
  EXPECT_EQ(shard.stats().push_space, sync::PushSpace());
}

TEST(ParameterShardTest, WhoSendsABucketAgainDoesNotWaitForItsFormerCall) {
  TestCluster cluster({.job = SgdJob(), .staging_bytes = 1});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(2);
  cluster.OpenRound(0, {1, 1}, 1.0);
  ParameterShard& shard = cluster.shard(0);
  // Worker 1, whose turn it is, has the last space. Then its connection dies without a message.
  const auto ahead = cluster.PushBucket(TestCluster::Key(2, 0, 0), 0, Ones(cluster));
  EXPECT_FALSE(ahead->outcome.has_value()) << "worker 2 comes after worker 1";
  std::optional<StagedBucket> dead;
  shard.BeginBucket(TestCluster::Key(1, 0, 0), 0, [&](absl::StatusOr<StagedBucket> staged) {
    ASSERT_OK(staged);
    dead = *std::move(staged);
  });
  ASSERT_TRUE(dead.has_value());
  EXPECT_OK(*cluster.PushBucket(TestCluster::Key(1, 0, 0), 0, Ones(cluster, 3.0f))->outcome);
  EXPECT_TRUE(ahead->outcome.has_value());
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster, 3.0f)), IsOk());
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(2, 0, 0), Ones(cluster)), IsOk());
  // The dead call still holds its space. What it writes and finishes now does not count.
  std::fill(dead->data().begin(), dead->data().end(), 1e9f);
  shard.FinishBucket(*std::move(dead), [](absl::StatusOr<PushOutcome> outcome) {
    ASSERT_OK(outcome);
    EXPECT_NE(*outcome, PushOutcome::kCounted);
  });
  EXPECT_EQ((*cluster.Weights(1))[0], -2.0f);
}

TEST(ParameterShardTest, LeavingIsToldAndOnlyARoundThatGetsNothingIsNoticed) {
  class Log final : public ShardObserver {
   public:
    void OnDropped(absl::string_view text) override { dropped.emplace_back(text); }
    void OnNotice(absl::string_view text) override { notices.emplace_back(text); }
    std::vector<std::string> dropped;
    std::vector<std::string> notices;
  } log;
  TestCluster cluster({.job = SgdJob(), .observer = &log});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(2);
  cluster.Drop(2);
  EXPECT_THAT(log.dropped,
              ElementsAre("worker 2 does not take part any more (test; incarnation 1)"));
  EXPECT_THAT(log.notices, ElementsAre());
  cluster.OpenRound(0, {1});
  cluster.Drop(1);
  EXPECT_THAT(log.dropped, ElementsAre(HasSubstr("worker 2"), HasSubstr("worker 1")));
  EXPECT_EQ(log.notices.size(), cluster.buckets().size());
}

TEST(ParameterShardTest, ARoundThatLosesEveryoneIsOverWithoutAVersion) {
  for (double clip_norm : {0.0, 1.0}) {
    job::JobSpec job = SgdJob();
    job.optimizer.kind = job::OptimizerKind::kMomentum;
    job.clip_norm = clip_norm;
    TestCluster cluster({.job = job, .num_shards = 2});
    cluster.LoadConstant(2.0f);
    cluster.SetMembers(1);
    cluster.OpenRound(0, {1}, 1.0);
    cluster.Drop(1);
    for (const params::Bucket& bucket : cluster.buckets()) {
      const absl::StatusOr<PublishedBucket> read = cluster.Read(bucket.index, /*round=*/1);
      ASSERT_OK(read);
      EXPECT_EQ(read->version, Version(0));
      EXPECT_EQ(read->data()[0], 2.0f);
    }
    EXPECT_EQ(cluster.shard(0).stats().open_round, Round(1));
  }
}

TEST(ParameterShardTest, NaNIsRefusedByNameAndNothingCounts) {
  TestCluster cluster({.job = SgdJob()});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 1.0);
  for (float poison :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> poisoned = Ones(cluster);
    poisoned[cluster.buckets()[1].range.begin + 17] = poison;
    EXPECT_THAT(
        *cluster.PushBucket(TestCluster::Key(1, 0, 0), 1, poisoned)->outcome,
        StatusIs(absl::StatusCode::kAborted,
                 AllOf(HasSubstr("worker 1"), HasSubstr("bucket 1"), HasSubstr("element 17"))));
  }
  EXPECT_EQ(cluster.shard(0).stats().contributions_rejected, 2);
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster)), IsOkAndHolds(kCounted));
  ExpectAll(cluster, 1, -1.0f);
}

TEST(ParameterShardTest, MembershipFences) {
  TestCluster cluster({.job = SgdJob()});
  cluster.LoadConstant(0.0f);
  cluster.OpenRound(0, {1}, 1.0);
  const std::vector<float> ones = Ones(cluster);
  const auto early = cluster.PushBucket(TestCluster::Key(1, 0, 0), 0, ones);
  EXPECT_FALSE(early->outcome.has_value()) << "waits for the list of members";
  cluster.SetMembers(1);
  EXPECT_TRUE(early->outcome.has_value());

  ContributionKey reborn = TestCluster::Key(1, 1, 1);
  reborn.incarnation = Incarnation(2);
  cluster.shard(0).SetMembers(ViewId(2), {{WorkerId(1), Incarnation(2), 0}});
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(1, 1, 1), ones),
              StatusIs(absl::StatusCode::kAborted));
  cluster.shard(0).ReadBucket(WorkerId(1), Incarnation(1), 0, Round(0),
                              [](absl::StatusOr<PublishedBucket> answer) {
                                EXPECT_THAT(answer, StatusIs(absl::StatusCode::kAborted));
                              });
}

TEST(ParameterShardTest, WrongBucketsAndKindsAreRefused) {
  TestCluster cluster({.job = SgdJob(), .num_shards = 2});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 1.0);
  const uint32_t last = cluster.buckets().back().index;
  absl::Status status;
  cluster.shard(0).BeginBucket(
      TestCluster::Key(1, 0, 0), last,
      [&](absl::StatusOr<StagedBucket> staged) { status = staged.status(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not on this")));
  ContributionKey key = TestCluster::Key(1, 0, 0);
  key.kind = messages::ContributionKind::kWeights;
  EXPECT_THAT(cluster.PushAll(key, Ones(cluster)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("takes gradient")));
  key.kind = messages::ContributionKind::kInitialWeights;
  EXPECT_THAT(cluster.PushAll(key, Ones(cluster)), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ParameterShardTest, AClientSuppliesTheWeightsOfVersionZero) {
  TestCluster cluster({.job = SgdJob()});
  EXPECT_THAT(cluster.Weights(0), StatusIs(absl::StatusCode::kUnavailable));
  cluster.shard(0).AwaitClientWeights();
  EXPECT_THAT(cluster.Weights(0), StatusIs(absl::StatusCode::kNotFound));
  ContributionKey key = TestCluster::Key(7, 0, 0);
  key.kind = messages::ContributionKind::kInitialWeights;
  const std::vector<float> weights = cluster.Vector(3);
  EXPECT_TRUE(cluster.PushBucket(key, 0, weights)->outcome.has_value());
  EXPECT_FALSE(cluster.shard(0).HasWeights());
  EXPECT_OK(cluster.PushAll(key, weights));
  EXPECT_TRUE(cluster.shard(0).HasWeights());
  auto supplied = cluster.Weights(0);
  ASSERT_OK(supplied);
  EXPECT_TRUE(SameBits(*supplied, weights));
  // Weights of a new incarnation of the client replace the earlier weights.
  key.incarnation = Incarnation(2);
  EXPECT_THAT(cluster.PushAll(key, cluster.Vector(4)), IsOkAndHolds(kCounted));
  EXPECT_TRUE(SameBits(*cluster.Weights(0), cluster.Vector(4)));
  cluster.SetMembers(1);
  EXPECT_THAT(cluster.PushAll(key, weights), StatusIs(absl::StatusCode::kFailedPrecondition));
}

// A job whose optimizer has two state vectors.
job::JobSpec AdamWJob() {
  job::JobSpec job = SgdJob();
  job.optimizer.kind = job::OptimizerKind::kAdamW;
  return job;
}

// Returns a vector of the optimizer's state, or, with 0, the weights, over all buckets. All must be
// at `version`.
std::vector<float> StateOf(TestCluster& cluster, uint32_t state_vector, int64_t version) {
  std::vector<float> all;
  for (const params::Bucket& bucket : cluster.buckets()) {
    const absl::StatusOr<PublishedBucket> read =
        cluster.Read(bucket.index, 0, {.state_vector = state_vector});
    EXPECT_OK(read.status());
    if (!read.ok()) return {};
    EXPECT_EQ(read->version, Version(version));
    all.insert(all.end(), read->data().begin(), read->data().end());
  }
  return all;
}

TEST(ParameterShardTest, OptimizerStateIsReadWithItsVersionAndDoesNotChangeWhileItIsHeld) {
  TestCluster cluster({.job = AdamWJob()});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 0.5);
  EXPECT_EQ(StateOf(cluster, 1, 0)[0], 0.0f);
  ASSERT_OK(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster, 2.0f)));
  const absl::StatusOr<PublishedBucket> held = cluster.Read(0, 0, {.state_vector = 1});
  ASSERT_OK(held);
  const float first = (1.0f - static_cast<float>(AdamWJob().optimizer.beta1)) * 2.0f;
  EXPECT_FLOAT_EQ(StateOf(cluster, 1, 1)[0], first);
  EXPECT_FLOAT_EQ(StateOf(cluster, 2, 1)[0],
                  (1.0f - static_cast<float>(AdamWJob().optimizer.beta2)) * 4.0f);
  cluster.OpenRound(1, {1}, 0.5);
  ASSERT_OK(cluster.PushAll(TestCluster::Key(1, 1, 1), Ones(cluster, 2.0f)));
  EXPECT_GT(StateOf(cluster, 1, 2)[0], first * 1.5f);
  EXPECT_FLOAT_EQ(held->data()[0], first);
}

TEST(ParameterShardTest, OptimizerStateIsReadInFp32IfWeightsAreEncoded) {
  job::JobSpec job = AdamWJob();
  job.pull_encoding = params::Encoding::kInt8;
  TestCluster cluster({.job = job});
  cluster.LoadConstant(1.0f);
  const absl::StatusOr<PublishedBucket> read =
      cluster.Read(0, 0, {.shadow = true, .held = Version(0), .state_vector = 2});
  ASSERT_OK(read);
  EXPECT_EQ(read->encoding, params::Encoding::kFp32);
  EXPECT_TRUE(read->changes.empty());
  EXPECT_EQ(read->data()[0], 0.0f);
}

TEST(ParameterShardTest, AStateVectorThatTheOptimizerDoesNotHaveIsRefused) {
  TestCluster cluster({.job = AdamWJob()});
  cluster.LoadConstant(0.0f);
  for (const uint32_t wrong : {3u, 0xffffffffu}) {
    EXPECT_THAT(cluster.Read(0, 0, {.state_vector = wrong}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(absl::StrCat(wrong))));
  }
}

TEST(ParameterShardTest, AClientSuppliesTheStateThatTheOptimizerBeginsWith) {
  TestCluster cluster({.job = AdamWJob()});
  cluster.shard(0).AwaitClientWeights();
  ContributionKey key = TestCluster::Key(7, 0, /*base_version=*/5);
  key.kind = messages::ContributionKind::kInitialWeights;
  for (const uint32_t vector : {1u, 2u}) {
    key.state_vector = vector;
    ASSERT_THAT(cluster.PushAll(key, cluster.Vector(vector)), IsOkAndHolds(kCounted));
    EXPECT_THAT(cluster.PushAll(key, cluster.Vector(8)), IsOkAndHolds(PushOutcome::kDuplicate));
    EXPECT_THAT(cluster.Weights(0), StatusIs(absl::StatusCode::kNotFound));
  }
  key.state_vector = 0;
  ASSERT_THAT(cluster.PushAll(key, cluster.Vector(3)), IsOkAndHolds(kCounted));
  EXPECT_TRUE(SameBits(StateOf(cluster, 0, 5), cluster.Vector(3)));
  EXPECT_TRUE(SameBits(StateOf(cluster, 1, 5), cluster.Vector(1)));
  EXPECT_TRUE(SameBits(StateOf(cluster, 2, 5), cluster.Vector(2)));
  // The first incarnation's state does not belong to the weights of the next.
  key.incarnation = Incarnation(2);
  key.base_version = Version(0);
  ASSERT_THAT(cluster.PushAll(key, cluster.Vector(4)), IsOkAndHolds(kCounted));
  EXPECT_TRUE(SameBits(*cluster.Weights(0), cluster.Vector(4)));
  EXPECT_TRUE(SameBits(StateOf(cluster, 1, 0), Ones(cluster, 0.0f)));
}

TEST(ParameterShardTest, AnIncompleteStateOfAnEarlierClientIsDropped) {
  TestCluster cluster({.job = AdamWJob()});
  cluster.shard(0).AwaitClientWeights();
  ContributionKey key = TestCluster::Key(7, 0, 5);
  key.kind = messages::ContributionKind::kInitialWeights;
  key.state_vector = 1;
  ASSERT_OK(cluster.PushAll(key, cluster.Vector(1)));
  key.worker = WorkerId(8);
  key.base_version = Version(0);
  key.state_vector = 2;
  ASSERT_THAT(cluster.PushAll(key, cluster.Vector(2)), IsOkAndHolds(kCounted));
  key.state_vector = 0;
  ASSERT_THAT(cluster.PushAll(key, cluster.Vector(3)), IsOkAndHolds(kCounted));
  EXPECT_TRUE(SameBits(StateOf(cluster, 1, 0), Ones(cluster, 0.0f)));
  EXPECT_TRUE(SameBits(StateOf(cluster, 2, 0), cluster.Vector(2)));
}

TEST(ParameterShardTest, StateThatTheOptimizerDoesNotHaveCannotBeSupplied) {
  TestCluster cluster({.job = AdamWJob()});
  cluster.shard(0).AwaitClientWeights();
  ContributionKey key = TestCluster::Key(7, 0, 0);
  key.kind = messages::ContributionKind::kInitialWeights;
  key.state_vector = 3;
  EXPECT_THAT(cluster.PushAll(key, Ones(cluster)), StatusIs(absl::StatusCode::kInvalidArgument));
  key.state_vector = 0;
  key.base_version = Version(std::numeric_limits<int64_t>::max());
  EXPECT_THAT(cluster.PushAll(key, Ones(cluster)), StatusIs(absl::StatusCode::kInvalidArgument));
  key.base_version = Version(0);
  ASSERT_OK(cluster.PushAll(key, Ones(cluster)));
  cluster.SetMembers(7);
  cluster.OpenRound(0, {1, 1, 1, 1, 1, 1, 1});
  key.kind = messages::ContributionKind::kGradient;
  key.state_vector = 1;
  EXPECT_THAT(cluster.PushAll(key, Ones(cluster)), StatusIs(absl::StatusCode::kInvalidArgument))
      << "only first weights have state";
}

TEST(ParameterShardTest, AsyncCountsStalenessAndScalesByIt) {
  job::JobSpec job = AsyncJob();
  job.staleness_scaling = job::StalenessScaling::kInverse;
  TestCluster cluster({.job = job});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(2);
  EXPECT_OK(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster)));
  ExpectAll(cluster, 1, -0.5f);
  EXPECT_OK(cluster.PushAll(TestCluster::Key(2, 1, 0), Ones(cluster)));
  ExpectAll(cluster, 2, -0.75f);
  const ShardStats stats = cluster.shard(0).stats();
  EXPECT_EQ(stats.staleness_histogram[0], cluster.buckets().size());
  EXPECT_EQ(stats.staleness_histogram[1], cluster.buckets().size());
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(2, 1, 0), Ones(cluster)),
              IsOkAndHolds(PushOutcome::kDuplicate));
}

TEST(ParameterShardTest, TheClientsScaleIsApplied) {
  for (const job::JobSpec& job : {SgdJob(), AsyncJob()}) {
    TestCluster cluster({.job = job});
    cluster.LoadConstant(0.0f);
    cluster.SetMembers(1);
    cluster.OpenRound(0, {1}, 0.5);
    ContributionKey key = TestCluster::Key(1, 0, 0);
    key.scale = 0.25f;
    EXPECT_OK(cluster.PushAll(key, Ones(cluster)));
    ExpectAll(cluster, 1, -0.125f);
  }
}

// Buckets learn of a plan one after the other. So a worker may finish its round in the buckets that
// know the plan, and push for the next round to a bucket that does not know it yet.
TEST(ParameterShardTest, ABucketThatHasNotHeardOfARoundYetHoldsThePushOfTheNext) {
  job::JobSpec job = SgdJob();
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = 2;
  job.fragments = 2;
  TestCluster cluster({.job = job});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  const auto key = [](int64_t round) {
    ContributionKey key = TestCluster::Key(1, round, 0);
    key.kind = messages::ContributionKind::kPseudoGradient;
    return key;
  };
  const auto last = static_cast<uint32_t>(cluster.buckets().size() - 1);
  const auto ones = Ones(cluster);
  std::shared_ptr<TestCluster::Push> of_next;
  // Bucket 0 holds this push until OpenRound(0). Bucket 0 then learns the plan before the last
  // bucket does. At this moment the callback pushes round 1 to the last bucket.
  const PendingCall held =
      cluster.shard(0).BeginBucket(key(0), 0, [&](const absl::StatusOr<StagedBucket>& staged) {
        ASSERT_OK(staged);
        of_next = cluster.PushBucket(key(1), last, ones);
      });
  ASSERT_EQ(of_next, nullptr);
  cluster.OpenRound(0, {1});
  ASSERT_NE(of_next, nullptr);
  EXPECT_FALSE(of_next->outcome.has_value()) << of_next->outcome->status();
  cluster.OpenRound(1, {1});
  ASSERT_TRUE(of_next->outcome.has_value());
  EXPECT_THAT(*of_next->outcome, IsOkAndHolds(kCounted));
}

TEST(ParameterShardTest, ACancelledReadIsNotAnswered) {
  TestCluster cluster({.job = SgdJob()});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 1.0);
  int num_answers = 0;
  const auto count = [&](absl::StatusOr<PublishedBucket>) { ++num_answers; };
  ParameterShard& shard = cluster.shard(0);
  PendingCall cancelled = shard.ReadBucket(WorkerId(1), Incarnation(1), 0, Round(1), count);
  PendingCall kept = shard.ReadBucket(WorkerId(1), Incarnation(1), 0, Round(1), count);
  EXPECT_TRUE(cancelled.Cancel());
  EXPECT_OK(cluster.PushAll(TestCluster::Key(1, 0, 0), Ones(cluster)));
  EXPECT_EQ(num_answers, 1);
  EXPECT_FALSE(kept.Cancel());
}

TEST(ParameterShardTest, ShutdownEndsWhateverWaits) {
  TestCluster cluster({.job = SgdJob(), .staging_bytes = 1});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(3);
  cluster.OpenRound(0, {1, 1, 1}, 1.0);
  const std::vector<float> ones = Ones(cluster);
  const auto held = cluster.PushBucket(TestCluster::Key(3, 0, 0), 0, ones);
  const auto without_slot = cluster.PushBucket(TestCluster::Key(2, 0, 0), 0, ones);
  absl::Status read;
  absl::Status snapshot;
  ParameterShard& shard = cluster.shard(0);
  shard.ReadBucket(WorkerId(1), Incarnation(1), 0, Round(1),
                   [&](absl::StatusOr<PublishedBucket> answer) { read = answer.status(); });
  shard.Snapshot(Round(1), [&](absl::StatusOr<ShardState> answer) { snapshot = answer.status(); });
  ASSERT_FALSE(held->outcome.has_value());
  ASSERT_FALSE(without_slot->outcome.has_value());
  shard.Shutdown(absl::UnavailableError("closing"));
  for (const auto& push : {held, without_slot}) {
    ASSERT_TRUE(push->outcome.has_value());
    EXPECT_THAT(*push->outcome, StatusIs(absl::StatusCode::kUnavailable, "closing"));
  }
  EXPECT_THAT(read, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(snapshot, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(cluster.Weights(0), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(ParameterShardTest, ItsTraceShowsEveryStageOfEveryBucketOfARound) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/shard-", getpid(), ".json");
  process::TraceRecorder trace(
      {.path = path, .process = "server", .skip_rounds = 0, .num_rounds = 1}, &Clock::Real());
  job::JobSpec job;
  job.optimizer.kind = job::OptimizerKind::kSgd;
  TestCluster cluster({.job = job, .trace = &trace});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(2);
  for (int64_t round = 0; round < 3; ++round) {
    cluster.OpenRound(round, {1, 1});
    for (int worker : {1, 2}) {
      ASSERT_OK(cluster.PushAll(TestCluster::Key(worker, round, round), cluster.Vector(1)));
    }
  }
  const absl::StatusOr<std::string> text = ReadWholeFile(path, 1 << 24);
  unlink(path.c_str());
  ASSERT_OK(text);
  const absl::StatusOr<Json> document = ParseJson(*text);
  ASSERT_OK(document);
  // The trace has only round 1: it began when all buckets had version 1, and ended when all had
  // version 2.
  std::map<std::string, int> spans_of_round_1;
  for (const Json& event : (*document)["traceEvents"]) {
    if (event["ph"] != "X" || event["args"]["round"] != 1) continue;
    ++spans_of_round_1[event["name"].get<std::string>()];
  }
  const int buckets = static_cast<int>(cluster.buckets().size());
  EXPECT_THAT(spans_of_round_1,
              UnorderedElementsAre(Pair("receive", 2 * buckets), Pair("check", 2 * buckets),
                                   Pair("accumulate", 2 * buckets), Pair("apply", buckets - 1)))
      << "the last update ends the recording while it runs";
}

}  // namespace
}  // namespace lodestar::shard
