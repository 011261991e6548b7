// SPDX-License-Identifier: Apache-2.0

// Tests a shard whose contributions and weights travel encoded. Everything runs inline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/codec/encoded_vectors.h"
#include "server/shard/testing/test_cluster.h"

namespace lodestar::shard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kCounted = PushOutcome::kCounted;

job::JobSpec EncodedJob(params::Encoding push, params::Encoding pull) {
  job::JobSpec job;
  job.mode = job::Mode::kSync;
  job.optimizer.kind = job::OptimizerKind::kSgd;
  job.push_encoding = push;
  job.pull_encoding = pull;
  return job;
}

ContributionKey EncodedKey(int worker, int64_t round, params::Encoding encoding) {
  ContributionKey key = TestCluster::Key(worker, round, round);
  key.encoding = encoding;
  return key;
}

// A Shadow is a copy of the weights, such as a worker has. It is updated by encoded changes.
class Shadow {
 public:
  explicit Shadow(TestCluster* cluster)
      : cluster_(cluster),
        elements_(cluster->layout().num_elements(), std::nanf("")),
        held_(cluster->buckets().size()) {}

  // Reads all buckets at `version`. Returns the number of buckets that were read as encoded changes
  // instead of whole vectors.
  int Update(int64_t version) {
    int num_changed = 0;
    for (const params::Bucket& bucket : cluster_->buckets()) {
      const ReadView view = {.shadow = true, .held = held_[bucket.index]};
      const absl::StatusOr<PublishedBucket> published = cluster_->Read(bucket.index, version, view);
      EXPECT_OK(published);
      float* const shadow = elements_.data() + bucket.range.begin;
      for (const std::shared_ptr<const Page>& change : published->changes) {
        codec::AccumulateDecoded(published->encoding,
                                 reinterpret_cast<const std::byte*>(change->data()),
                                 bucket.range.size(), 1.0f, shadow, kernels::Accumulate::kAdd);
      }
      if (published->changes.empty()) {
        std::copy(published->data().begin(), published->data().end(), shadow);
      } else {
        ++num_changed;
        EXPECT_EQ(published->version - *held_[bucket.index], published->changes.size());
      }
      held_[bucket.index] = published->version;
    }
    return num_changed;
  }
  const std::vector<float>& elements() const { return elements_; }

 private:
  TestCluster* const cluster_;
  std::vector<float> elements_;
  std::vector<std::optional<Version>> held_;
};

class EncodedShardTest : public testing::TestWithParam<params::Encoding> {
 protected:
  static void Train(TestCluster& cluster, int64_t round, params::Encoding push) {
    cluster.OpenRound(round, {1}, 0.01);
    ASSERT_THAT(cluster.PushAll(EncodedKey(1, round, push), cluster.Vector(round)),
                IsOkAndHolds(kCounted));
  }
};

INSTANTIATE_TEST_SUITE_P(AllCodecs, EncodedShardTest,
                         testing::Values(params::Encoding::kBf16, params::Encoding::kFp16,
                                         params::Encoding::kInt8, params::Encoding::kInt4),
                         [](const auto& info) {
                           return std::string(params::EncodingName(info.param));
                         });

// Every bit of the result must be as if decoded vectors had been pushed in fp32.
TEST_P(EncodedShardTest, SumsDecodedContributions) {
  const job::JobSpec job = EncodedJob(GetParam(), params::Encoding::kFp32);
  TestCluster encoded({.job = job});
  TestCluster plain({.job = EncodedJob(params::Encoding::kFp32, params::Encoding::kFp32)});
  for (TestCluster* cluster : {&encoded, &plain}) {
    cluster->LoadConstant(1.0f);
    cluster->SetMembers(2);
    cluster->OpenRound(0, {1, 3}, 0.5);
  }
  for (int worker : {1, 2}) {
    std::vector<float> values = encoded.Vector(worker);
    EXPECT_THAT(encoded.PushAll(EncodedKey(worker, 0, GetParam()), values), IsOkAndHolds(kCounted));
    for (const params::Bucket& bucket : plain.buckets()) {
      std::vector<std::byte> bytes(params::EncodedBytes(GetParam(), bucket.range.size()));
      float* const part = values.data() + bucket.range.begin;
      codec::CodecOf(GetParam()).Encode(part, bucket.range.size(), {}, bytes.data());
      codec::CodecOf(GetParam()).Decode(bytes.data(), bucket.range.size(), part);
    }
    EXPECT_THAT(plain.PushAll(TestCluster::Key(worker, 0, 0), values), IsOkAndHolds(kCounted));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<float> seen, encoded.Weights(1));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> wanted, plain.Weights(1));
  EXPECT_TRUE(SameBits(seen, wanted));
}

TEST_P(EncodedShardTest, AppliesEachContributionInAsync) {
  job::JobSpec job = EncodedJob(GetParam(), GetParam());
  job.mode = job::Mode::kAsync;
  job.schedule.peak = 0.5;
  TestCluster cluster({.job = job});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  Shadow shadow(&cluster);
  shadow.Update(0);
  // The value is exact in all encodings.
  const std::vector<float> values(cluster.layout().num_elements(), -7.0f);
  EXPECT_THAT(cluster.PushAll(EncodedKey(1, 0, GetParam()), values), IsOkAndHolds(kCounted));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, cluster.Weights(1));
  for (float weight : weights) ASSERT_FLOAT_EQ(weight, 3.5f);
  EXPECT_EQ(shadow.Update(1), cluster.buckets().size());
  EXPECT_NEAR(shadow.elements()[5], 3.5f, 1e-6);
}

TEST_P(EncodedShardTest, NonFiniteContributionIsRefused) {
  TestCluster cluster({.job = EncodedJob(GetParam(), params::Encoding::kFp32)});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 1.0);
  for (float bad : {std::nanf(""), INFINITY}) {
    std::vector<float> values = cluster.Vector(1);
    values[3] = bad;
    EXPECT_THAT(cluster.PushAll(EncodedKey(1, 0, GetParam()), values),
                StatusIs(absl::StatusCode::kAborted,
                         AllOf(HasSubstr("worker 1, tensor 'first.weight', element "),
                               HasSubstr("NaN, Inf, or"))));
  }
  EXPECT_EQ(cluster.shard(0).stats().contributions_counted, 0);
  EXPECT_THAT(cluster.PushAll(EncodedKey(1, 0, GetParam()), cluster.Vector(1)),
              IsOkAndHolds(kCounted));
}

TEST_P(EncodedShardTest, AnotherEncodingThanTheJobsIsRefused) {
  TestCluster cluster({.job = EncodedJob(GetParam(), params::Encoding::kFp32)});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 1.0);
  EXPECT_THAT(cluster.PushAll(TestCluster::Key(1, 0, 0), cluster.Vector(1)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("in fp32"),
                             HasSubstr(std::string(params::EncodingName(GetParam()))))));
}

TEST_P(EncodedShardTest, InitialWeightsOfAClientAreFp32) {
  TestCluster cluster({.job = EncodedJob(GetParam(), GetParam())});
  cluster.shard(0).AwaitClientWeights();
  ContributionKey key = TestCluster::Key(1, 0, 0);
  key.kind = messages::ContributionKind::kInitialWeights;
  EXPECT_THAT(cluster.PushAll(key, cluster.Vector(4)), IsOkAndHolds(kCounted));
  Shadow shadow(&cluster);
  shadow.Update(0);
  EXPECT_TRUE(SameBits(shadow.elements(), cluster.Vector(4)));
}

// `steady` is updated after every round, `late` only sometimes, and `fresh` begins anew each time.
// All three must be equal.
TEST_P(EncodedShardTest, AllShadowsOfAVersionAreTheSame) {
  TestCluster cluster({.job = EncodedJob(params::Encoding::kFp32, GetParam())});
  cluster.LoadInitial();
  cluster.SetMembers(1);
  Shadow steady(&cluster);
  Shadow late(&cluster);
  EXPECT_EQ(steady.Update(0), 0);
  EXPECT_EQ(late.Update(0), 0);
  for (int round = 0; round < 24; ++round) {
    Train(cluster, round, params::Encoding::kFp32);
    EXPECT_EQ(steady.Update(round + 1), cluster.buckets().size());
    Shadow fresh(&cluster);
    EXPECT_EQ(fresh.Update(round + 1), 0);
    EXPECT_TRUE(SameBits(fresh.elements(), steady.elements())) << round;
    if (round % 12 == 1 || round % 12 == 11) {
      // `late` was last updated 2 or 10 rounds ago. If the shard keeps two changes of each bucket,
      // 2 rounds arrive as changes. 10 rounds are too many, so the whole shadow arrives.
      const int num_changed = late.Update(round + 1);
      EXPECT_EQ(num_changed == 0, round % 12 == 11 || params::BlockElements(GetParam()) == 1)
          << round;
      EXPECT_TRUE(SameBits(late.elements(), steady.elements())) << round;
    }
  }
}

TEST_P(EncodedShardTest, ShadowStaysNearTheWeights) {
  TestCluster cluster({.job = EncodedJob(params::Encoding::kFp32, GetParam())});
  cluster.LoadInitial();
  cluster.SetMembers(1);
  Shadow shadow(&cluster);
  shadow.Update(0);
  for (int round = 0; round < 50; ++round) Train(cluster, round, params::Encoding::kFp32);
  shadow.Update(50);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, cluster.Weights(50));
  for (size_t i = 0; i < weights.size(); ++i) {
    // A round changes an element by at most 0.01. An encoding divides this range into steps of 0.01
    // / 127 (int8) or 0.01 / 7 (int4). Rounding loses at most half a step. The tolerance of 0.6
    // steps allows for losses of earlier rounds.
    const int largest_code = GetParam() == params::Encoding::kInt4 ? 7 : 127;
    ASSERT_NEAR(shadow.elements()[i], weights[i], 0.6 * 0.01 / largest_code) << i;
  }
}

TEST_P(EncodedShardTest, WithoutErrorFeedbackShadowsAgreeAndWander) {
  job::JobSpec job = EncodedJob(params::Encoding::kFp32, GetParam());
  double error[2] = {0.0, 0.0};
  for (bool error_feedback : {false, true}) {
    job.error_feedback = error_feedback;
    TestCluster cluster({.job = job});
    cluster.LoadInitial();
    cluster.SetMembers(1);
    Shadow steady(&cluster);
    steady.Update(0);
    for (int round = 0; round < 100; ++round) {
      Train(cluster, round, params::Encoding::kFp32);
      steady.Update(round + 1);
    }
    Shadow fresh(&cluster);
    fresh.Update(100);
    EXPECT_TRUE(SameBits(fresh.elements(), steady.elements()));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, cluster.Weights(100));
    for (size_t i = 0; i < weights.size(); ++i) {
      error[error_feedback] += std::abs(weights[i] - steady.elements()[i]);
    }
  }
  EXPECT_GT(error[false], 2 * error[true]);
}

TEST_P(EncodedShardTest, ReadsOfFp32GetTheWeights) {
  TestCluster cluster({.job = EncodedJob(params::Encoding::kFp32, GetParam())});
  cluster.LoadInitial();
  cluster.SetMembers(1);
  Shadow shadow(&cluster);
  shadow.Update(0);
  Train(cluster, 0, params::Encoding::kFp32);
  shadow.Update(1);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, cluster.Weights(1));
  EXPECT_FALSE(SameBits(weights, shadow.elements()));
}

TEST_P(EncodedShardTest, RestoredShardStartsFromItsWeights) {
  const job::JobSpec job = EncodedJob(GetParam(), GetParam());
  TestCluster cluster({.job = job});
  cluster.LoadInitial();
  cluster.SetMembers(1);
  for (int round = 0; round < 3; ++round) Train(cluster, round, GetParam());
  std::optional<ShardState> state;
  cluster.shard(0).Snapshot(Round(3), [&](absl::StatusOr<ShardState> answer) {
    ASSERT_OK(answer);
    state = *std::move(answer);
  });
  ASSERT_TRUE(state.has_value());
  TestCluster again({.job = job});
  ASSERT_OK(RestoreFrom(*state, again.shard(0), Round(3)));
  again.SetMembers(1);
  Shadow shadow(&again);
  EXPECT_EQ(shadow.Update(3), 0);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, again.Weights(3));
  EXPECT_TRUE(SameBits(shadow.elements(), weights));
  Train(again, 3, GetParam());
  EXPECT_EQ(shadow.Update(4), again.buckets().size());
}

constexpr params::Encoding kTopK = params::Encoding::TopK(64, 2);

// kTopK keeps the 64 largest elements of a block. Which elements are the largest depends on
// `phase`.
std::vector<float> Peaks(const TestCluster& cluster, int phase) {
  std::vector<float> values(cluster.layout().num_elements());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((static_cast<int>(i) * 37 + phase) % 101) - 50.0f;
  }
  return values;
}

// Returns the values after top-k encoding and decoding, bucket by bucket.
std::vector<float> Received(const TestCluster& cluster, std::vector<float> values) {
  for (const params::Bucket& bucket : cluster.buckets()) {
    std::vector<std::byte> bytes(params::EncodedBytes(kTopK, bucket.range.size()));
    float* const part = values.data() + bucket.range.begin;
    codec::CodecOf(kTopK).Encode(part, bucket.range.size(), {}, bytes.data());
    codec::CodecOf(kTopK).Decode(bytes.data(), bucket.range.size(), part);
  }
  return values;
}

TEST(TopKShardTest, DividesByAllWorkersOrByTheSendersOfAnElement) {
  for (const job::TopKDivisor divisor : {job::TopKDivisor::kWorkers, job::TopKDivisor::kSenders}) {
    job::JobSpec job = EncodedJob(kTopK, params::Encoding::kFp32);
    job.topk_divisor = divisor;
    TestCluster cluster({.job = job});
    cluster.LoadConstant(0.0f);
    cluster.SetMembers(2);
    cluster.OpenRound(0, {1, 3}, 1.0);
    std::vector<std::vector<float>> received;
    for (int worker : {1, 2}) {
      const std::vector<float> values = Peaks(cluster, worker * 13);
      received.push_back(Received(cluster, values));
      EXPECT_THAT(cluster.PushAll(EncodedKey(worker, 0, kTopK), values), IsOkAndHolds(kCounted));
    }
    ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, cluster.Weights(1));
    int num_alone = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const bool one = received[0][i] != 0.0f;
      const bool other = received[1][i] != 0.0f;
      if (one != other) ++num_alone;
      const float sum = received[0][i] + 3 * received[1][i];
      const float senders = (one ? 1.0f : 0.0f) + (other ? 3.0f : 0.0f);
      const float by = divisor == job::TopKDivisor::kWorkers ? 4.0f : std::max(senders, 1.0f);
      ASSERT_NEAR(weights[i], -sum / by, 1e-4) << i;
    }
    EXPECT_GT(num_alone, 10) << "else nothing is shown";
  }
}

// Worker 2 was lost before it contributed. With both divisors, the result must be the mean over
// worker 1 alone.
TEST(TopKShardTest, WhoIsMissingLeavesNoGapInTheMeanOfSenders) {
  for (const job::TopKDivisor divisor : {job::TopKDivisor::kWorkers, job::TopKDivisor::kSenders}) {
    job::JobSpec job = EncodedJob(kTopK, params::Encoding::kFp32);
    job.topk_divisor = divisor;
    TestCluster cluster({.job = job});
    cluster.LoadConstant(0.0f);
    cluster.SetMembers(2);
    cluster.OpenRound(0, {1, 1}, 1.0);
    const std::vector<float> values = Peaks(cluster, 5);
    const std::vector<float> received = Received(cluster, values);
    EXPECT_THAT(cluster.PushAll(EncodedKey(1, 0, kTopK), values), IsOkAndHolds(kCounted));
    cluster.Drop(2);
    cluster.SetMembers(1);
    ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, cluster.Weights(1));
    for (size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(weights[i], -received[i], 1e-5) << i;
  }
}

// A contribution with bad positions is not added. If the worker then sends a good contribution,
// that one counts.
TEST(TopKShardTest, PlacesThatAreNotAscendingAreRefused) {
  TestCluster cluster({.job = EncodedJob(kTopK, params::Encoding::kFp32)});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 1.0);
  const params::Bucket& bucket = cluster.buckets()[0];
  absl::Status refused;
  cluster.shard(bucket.shard)
      .BeginBucket(EncodedKey(1, 0, kTopK), bucket.index, [&](absl::StatusOr<StagedBucket> staged) {
        ASSERT_OK(staged);
        // Every position is 0.
        std::fill(staged->bytes().begin(), staged->bytes().end(), std::byte{0});
        cluster.shard(bucket.shard)
            .FinishBucket(*std::move(staged), [&](const absl::StatusOr<PushOutcome>& outcome) {
              refused = outcome.status();
            });
      });
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("worker 1"), HasSubstr("topk(64,2) do not ascend"))));
  const std::vector<float> values = Peaks(cluster, 5);
  EXPECT_THAT(cluster.PushAll(EncodedKey(1, 0, kTopK), values), IsOkAndHolds(kCounted));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, cluster.Weights(1));
  const std::vector<float> received = Received(cluster, values);
  for (size_t i = 0; i < weights.size(); ++i) ASSERT_EQ(weights[i], -received[i]) << i;
}

TEST(TopKShardTest, OtherParametersAreAnotherEncoding) {
  TestCluster cluster({.job = EncodedJob(kTopK, params::Encoding::kFp32)});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 1.0);
  for (const params::Encoding other :
       {params::Encoding::TopK(32, 2), params::Encoding::TopK(64, 4), params::Encoding::kInt4}) {
    EXPECT_THAT(
        cluster.PushAll(EncodedKey(1, 0, other), Peaks(cluster, 5)).status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(params::EncodingText(other)), HasSubstr("takes topk(64,2)"))));
  }
}

TEST(TopKShardTest, ABlockOfNanIsRefusedAsOfOtherEncodings) {
  TestCluster cluster({.job = EncodedJob(kTopK, params::Encoding::kFp32)});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 1.0);
  std::vector<float> values = Peaks(cluster, 5);
  values[3] = std::nanf("");
  EXPECT_THAT(cluster.PushAll(EncodedKey(1, 0, kTopK), values).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("NaN")));
}

}  // namespace
}  // namespace lodestar::shard
