// SPDX-License-Identifier: Apache-2.0

// Tests of WeightsPull and ContributionPush with a transport that fails on demand.

#include <memory>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/testing/synthetic_training.h"
#include "worker/trainer/contribution_push.h"
#include "worker/trainer/exchange_state.h"
#include "worker/trainer/pull_order.h"
#include "worker/trainer/retry.h"
#include "worker/trainer/testing/local_parameter_server.h"
#include "worker/trainer/testing/scripted_transport.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar::trainer {
namespace {

using ::testing::ElementsAre;

class TransfersTest : public ::testing::Test {
 protected:
  TransfersTest()
      : device_(*factory::MakeDevice("cpu", 1, nullptr)),
        registration_(TwoBlocks()),
        values_(4, 0.0f),
        exchange_(MakeExchange({})) {}

  // Makes the exchange state for one vector, which is both pulled and pushed.
  std::unique_ptr<ExchangeState> MakeExchange(const job::JobSpec& job) {
    const kernels::Buf vector = {values_.data(), kernels::DType::kF32, 4};
    return *ExchangeState::Create(job, registration_.layout(), device_.get(), vector, vector);
  }

  std::unique_ptr<kernels::Device> device_;
  const messages::Registration registration_;
  std::vector<float> values_;
  std::unique_ptr<ExchangeState> exchange_;
  ScriptedTransport transport_;
  InstantClock clock_;
};

TEST_F(TransfersTest, PullFetchesBucketsInOrderOfBlocks) {
  WeightsPull pull(registration_, Round(3), AllBuckets(registration_), exchange_->weights(),
                   nullptr, &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  EXPECT_THAT(transport_.pulls_, ElementsAre(ElementsAre(0u, 1u)));
  EXPECT_THAT(values_, ElementsAre(10.0f, 10.0f, 11.0f, 11.0f));
  EXPECT_EQ(pull.version(0), Version(3));
  EXPECT_EQ(pull.version(1), Version(4));
}

TEST_F(TransfersTest, SomeBucketsArePulledAndPushedWithoutTheOthers) {
  WeightsPull pull(registration_, Round(3), {1}, exchange_->weights(), nullptr, &transport_,
                   &clock_);
  ASSERT_OK(pull.WaitForAll());
  EXPECT_THAT(transport_.pulls_, ElementsAre(ElementsAre(1u)));
  EXPECT_THAT(values_, ElementsAre(0.0f, 0.0f, 11.0f, 11.0f));
  ContributionPush push(registration_, {.round = Round(3)}, exchange_->contribution(), &pull,
                        &transport_, &clock_);
  ASSERT_OK(push.BucketsReady({1}));
  EXPECT_THAT(push.made().buckets, ElementsAre(1u));
  EXPECT_THAT(push.made().base_versions, ElementsAre(Version(4)));
  ASSERT_OK(push.Finish());
  ASSERT_EQ(transport_.pushes_.size(), 1u);
  ASSERT_EQ(transport_.pushes_[0].size(), 1u);
  EXPECT_EQ(transport_.pushes_[0][0].bucket, 1u);
}

TEST_F(TransfersTest, WhatAServerWaitsForOthersIsNoTransfer) {
  WeightsPull pull(registration_, Round(3), AllBuckets(registration_), exchange_->weights(),
                   nullptr, &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  const auto push = [&](client::PushWait wait) {
    transport_.wait_ = wait;
    transport_.script_ = {absl::UnavailableError("time passes until it is tried again")};
    auto push =
        std::make_unique<ContributionPush>(registration_, client::ContributionHeader{},
                                           exchange_->contribution(), &pull, &transport_, &clock_);
    EXPECT_OK(push->AllBlocksReady());
    const absl::Time start = clock_.Now();
    EXPECT_OK(push->Finish());
    EXPECT_GT(clock_.Now(), start);
    EXPECT_EQ(push->blocked() + push->waited(), clock_.Now() - start);
    return push;
  };
  EXPECT_EQ(push({})->waited(), absl::ZeroDuration());
  EXPECT_EQ(push({.since_received = absl::Hours(1)})->blocked(), absl::ZeroDuration());
  EXPECT_EQ(push({.since_received = absl::Nanoseconds(7)})->waited(), absl::Nanoseconds(7));
}

TEST(PushWaitTest, CountsWhatTheTimeBeforeTheAnswerHadOfIt) {
  const client::PushWait wait = {
      .held = absl::Seconds(4), .since_held = absl::Seconds(3), .since_received = absl::Seconds(1)};
  EXPECT_EQ(wait.Within(absl::Milliseconds(500)), absl::Milliseconds(500));
  EXPECT_EQ(wait.Within(absl::Seconds(2)), absl::Seconds(1)) << "its bytes came";
  EXPECT_EQ(wait.Within(absl::Seconds(5)), absl::Seconds(3));
  EXPECT_EQ(wait.Within(absl::Seconds(20)), absl::Seconds(5));
}

TEST_F(TransfersTest, ACancelledPullIsCancelledForWhoWaits) {
  job::JobSpec job;
  job.model = model::SmallGptSpec();
  job.bucket_bytes = 4096;
  LocalParameterServer server(job, /*learning_rate=*/0.5);
  std::vector<float> weights(server.weights().size());
  const kernels::Buf vector = {weights.data(), kernels::DType::kF32,
                               static_cast<int64_t>(weights.size())};
  const auto exchange =
      *ExchangeState::Create(job, server.registration().layout(), device_.get(), vector, vector);
  // Round 0 has no contribution yet, so the pull of the weights after round 0 waits.
  WeightsPull pull(server.registration(), Round(1), AllBuckets(server.registration()),
                   exchange->weights(), nullptr, &server, &clock_);
  pull.Cancel();
  EXPECT_THAT(pull.WaitForAll(), StatusIs(absl::StatusCode::kCancelled));
  pull.Cancel();
}

TEST_F(TransfersTest, BrokenPullFetchesOnlyWhatIsMissing) {
  transport_.script_ = {absl::UnavailableError("gone")};
  WeightsPull pull(registration_, Round(0), AllBuckets(registration_), exchange_->weights(),
                   nullptr, &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  EXPECT_THAT(transport_.pulls_, ElementsAre(ElementsAre(0u, 1u), ElementsAre(1u)));
}

TEST_F(TransfersTest, PullOfAnEndedLifeIsNotTriedAgain) {
  transport_.script_ = {absl::AbortedError("register again")};
  WeightsPull pull(registration_, Round(0), AllBuckets(registration_), exchange_->weights(),
                   nullptr, &transport_, &clock_);
  EXPECT_OK(pull.WaitForBlock(0));
  EXPECT_THAT(pull.WaitForBlock(1), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(transport_.pulls_.size(), 1u);
}

TEST_F(TransfersTest, PushSendsBlocksAsTheyBecomeReadyWithTheirBaseVersions) {
  WeightsPull pull(registration_, Round(3), AllBuckets(registration_), exchange_->weights(),
                   nullptr, &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  values_ = {1.0f, 2.0f, 3.0f, 4.0f};
  ContributionPush push(registration_, {.round = Round(3)}, exchange_->contribution(), &pull,
                        &transport_, &clock_);
  ASSERT_OK(push.BlockReady(1));
  ASSERT_OK(push.BlockReady(0));
  ASSERT_OK(push.Finish());
  ASSERT_EQ(transport_.pushes_.size(), 1u);
  const auto& sent = transport_.pushes_[0];
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].bucket, 1u);
  EXPECT_EQ(sent[0].base_version, Version(4));
  EXPECT_THAT(sent[0].values(), ElementsAre(3.0f, 4.0f));
  EXPECT_THAT(sent[1].values(), ElementsAre(1.0f, 2.0f));
}

TEST_F(TransfersTest, UnacknowledgedPushIsSentAgainWholeUnderTheSameKey) {
  WeightsPull pull(registration_, Round(0), AllBuckets(registration_), exchange_->weights(),
                   nullptr, &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  transport_.script_ = {absl::UnavailableError("gone"), absl::DataLossError("checksum")};
  ContributionPush push(registration_, {.round = Round(7)}, exchange_->contribution(), &pull,
                        &transport_, &clock_);
  ASSERT_OK(push.AllBlocksReady());
  ASSERT_OK(push.Finish());
  ASSERT_EQ(transport_.pushes_.size(), 3u);
  for (const auto& sent : transport_.pushes_) EXPECT_EQ(sent.size(), 2u);
  for (const auto& header : transport_.headers_) EXPECT_EQ(header.round, Round(7));
}

TEST_F(TransfersTest, EncodedPushIsSentAgainWithTheSameBytes) {
  WeightsPull pull(registration_, Round(0), AllBuckets(registration_), exchange_->weights(),
                   nullptr, &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  // bf16 rounds the halved value down. The rest is in the residual, so the next contribution is
  // rounded up.
  values_.assign(4, 2.0f + 3 * 0x1p-9f);
  job::JobSpec job;
  job.push_encoding = params::Encoding::kBf16;
  const auto encoded = MakeExchange(job);
  const auto push = [&](int64_t round) {
    ContributionPush contribution(registration_, {.round = Round(round), .scale = 0.5f},
                                  encoded->contribution(), &pull, &transport_, &clock_);
    EXPECT_OK(contribution.AllBlocksReady());
    return contribution.Finish();
  };
  transport_.script_ = {absl::UnavailableError("gone"), absl::OkStatus(),
                        absl::AbortedError("this life is over")};
  EXPECT_OK(push(7));
  EXPECT_THAT(push(8), StatusIs(absl::StatusCode::kAborted));
  EXPECT_OK(push(8));
  ASSERT_EQ(transport_.pushes_.size(), 4u);
  for (const client::ContributionHeader& header : transport_.headers_) {
    EXPECT_EQ(header.encoding, params::Encoding::kBf16);
    // The worker applies the scale before it encodes, so the servers must not scale.
    EXPECT_EQ(header.scale, 1.0f);
  }
  for (int bucket : {0, 1}) {
    EXPECT_EQ(transport_.pushes_[0][bucket].data, transport_.pushes_[1][bucket].data);
    EXPECT_EQ(transport_.pushes_[2][bucket].data, transport_.pushes_[3][bucket].data);
    EXPECT_NE(transport_.pushes_[1][bucket].data, transport_.pushes_[2][bucket].data);
  }
  const std::vector<std::byte> halved = {std::byte{0x80}, std::byte{0x3F}, std::byte{0x80},
                                         std::byte{0x3F}};
  EXPECT_EQ(transport_.pushes_[0][0].data, halved);
}

// A push may be refused because bits have flipped on the way. So a refused push is repeated.
TEST_F(TransfersTest, RepeatsRefusedPushThreeTimes) {
  WeightsPull pull(registration_, Round(0), AllBuckets(registration_), exchange_->weights(),
                   nullptr, &transport_, &clock_);
  ASSERT_OK(pull.WaitForAll());
  const auto push = [&](int num_refusals) {
    transport_.pushes_.clear();
    // The script has refusals and one other failure, which does not count as a refusal.
    transport_.script_.assign(num_refusals, absl::InvalidArgumentError("encoding is 0"));
    transport_.script_.insert(transport_.script_.begin() + 1, absl::DataLossError("checksum"));
    ContributionPush push(registration_, {.round = Round(7)}, exchange_->contribution(), &pull,
                          &transport_, &clock_);
    EXPECT_OK(push.AllBlocksReady());
    return push.Finish();
  };
  EXPECT_OK(push(3));
  EXPECT_EQ(transport_.pushes_.size(), 5u);
  EXPECT_THAT(push(4), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(transport_.pushes_.size(), 5u);
}

TEST(TransferRetryTest, RepeatsRefusedTransferThreeTimes) {
  InstantClock clock;
  TransferRetry retry(&clock);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(retry.MayHelp(absl::InvalidArgumentError("encoding is 0"))) << i;
    EXPECT_TRUE(retry.MayHelp(absl::DataLossError("checksum"))) << i;
  }
  EXPECT_FALSE(retry.MayHelp(absl::InvalidArgumentError("encoding is 0")));
  EXPECT_TRUE(retry.MayHelp(absl::DataLossError("checksum"))) << "of which there may be any number";
  EXPECT_FALSE(retry.MayHelp(absl::AbortedError("register again")));
}

// Fixture with blocks that have more than one bucket.
class PartsOfBlocksTest : public ::testing::Test {
 protected:
  PartsOfBlocksTest()
      : device_(*factory::MakeDevice("cpu", 1, nullptr)),
        registration_(ABlockOfFourBuckets()),
        values_(10, 0.0f),
        exchange_(MakeExchange()) {}

  std::unique_ptr<ExchangeState> MakeExchange() {
    const kernels::Buf vector = {values_.data(), kernels::DType::kF32, 10};
    return *ExchangeState::Create({}, registration_.layout(), device_.get(), vector, vector);
  }
  std::unique_ptr<WeightsPull> Pull(std::vector<uint32_t> order) {
    return std::make_unique<WeightsPull>(registration_, Round(0), std::move(order),
                                         exchange_->weights(), nullptr, &transport_, &clock_);
  }
  std::unique_ptr<ContributionPush> Push(
      WeightsPull* base, ContributionPush::Leaves leaves = ContributionPush::Leaves::kAtOnce) {
    return std::make_unique<ContributionPush>(
        registration_, client::ContributionHeader{.round = Round(0)}, exchange_->contribution(),
        base, &transport_, &clock_, nullptr, leaves);
  }
  std::vector<uint32_t> Sent() const {
    std::vector<uint32_t> buckets;
    for (const auto& sent : transport_.pushes_.back()) buckets.push_back(sent.bucket);
    return buckets;
  }

  std::unique_ptr<kernels::Device> device_;
  const messages::Registration registration_;
  std::vector<float> values_;
  std::unique_ptr<ExchangeState> exchange_;
  ScriptedTransport transport_;
  InstantClock clock_;
};

TEST_F(PartsOfBlocksTest, PullAsksInTheOrderThatItIsGivenAndOfAPartNeedsNoMore) {
  // The first bucket of the pull, bucket 3, arrives. Then the pull fails.
  transport_.script_ = {absl::AbortedError("register again")};
  const auto pull = Pull({3, 0, 1, 2, 4});
  EXPECT_OK(pull->WaitForParts(0, {{7, 8}}));
  EXPECT_EQ(values_[7], 13.0f);
  EXPECT_THAT(pull->waited(), ElementsAre(3u));
  EXPECT_THAT(pull->WaitForParts(0, {{0, 1}}), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(transport_.pulls_, ElementsAre(ElementsAre(3u, 0u, 1u, 2u, 4u)));
}

TEST_F(PartsOfBlocksTest, PullTellsInWhichOrderItWasWaitedFor) {
  const auto pull = Pull(AllBuckets(registration_));
  ASSERT_OK(pull->WaitForParts(0, {{2, 3}, {7, 8}}));
  ASSERT_OK(pull->WaitForBlock(1));
  ASSERT_OK(pull->WaitForBlock(0));
  ASSERT_OK(pull->WaitForAll());
  EXPECT_THAT(pull->waited(), ElementsAre(1u, 3u, 4u, 0u, 2u));
  EXPECT_THAT(values_,
              ElementsAre(10.0f, 10.0f, 11.0f, 11.0f, 12.0f, 12.0f, 13.0f, 13.0f, 14.0f, 14.0f));
}

TEST_F(PartsOfBlocksTest, BucketsThatLieInAPartLeaveAtOnceAndTheOthersWithTheirBlock) {
  const auto pull = Pull(AllBuckets(registration_));
  ASSERT_OK(pull->WaitForAll());
  const auto push = Push(pull.get());
  ASSERT_OK(push->PartsReady(0, {{0, 3}, {4, 8}}));
  EXPECT_THAT(Sent(), ElementsAre(0u, 2u, 3u));
  ASSERT_OK(push->BlockReady(1));
  ASSERT_OK(push->BlockReady(0));
  EXPECT_THAT(Sent(), ElementsAre(0u, 2u, 3u, 4u, 1u));
  ASSERT_OK(push->Finish());
}

TEST_F(PartsOfBlocksTest, PushTellsWhatHasNotLeft) {
  const auto pull = Pull(AllBuckets(registration_));
  ASSERT_OK(pull->WaitForAll());
  const auto push = Push(pull.get());
  ASSERT_OK(push->AllBlocksReady());
  EXPECT_THAT(push->leaving(), ElementsAre());
  // The buckets are sent in the order 4, 0, 1, 2, 3. The unsent bytes are half of bucket 1, and
  // buckets 2 and 3.
  transport_.bytes_unsent_ = 20;
  EXPECT_THAT(push->leaving(),
              ElementsAre(LeavingBucket{1, 4}, LeavingBucket{2, 12}, LeavingBucket{3, 20}));
  ASSERT_OK(push->Finish());
  EXPECT_THAT(push->leaving(), ElementsAre());
}

TEST_F(PartsOfBlocksTest, NothingHasLeftThatLeavesWithFinish) {
  const auto pull = Pull(AllBuckets(registration_));
  ASSERT_OK(pull->WaitForAll());
  const auto push = Push(pull.get(), ContributionPush::Leaves::kWithFinish);
  ASSERT_OK(push->AllBlocksReady());
  EXPECT_THAT(push->leaving(),
              ElementsAre(LeavingBucket{4, 8}, LeavingBucket{0, 16}, LeavingBucket{1, 24},
                          LeavingBucket{2, 32}, LeavingBucket{3, 40}));
}

}  // namespace
}  // namespace lodestar::trainer
