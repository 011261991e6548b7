// SPDX-License-Identifier: Apache-2.0

// Tests of WeightsPull and ContributionPush with a device that does its work as late as events
// allow, or that does its copies as early as events allow.

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/client/cancellable_transport.h"
#include "worker/trainer/contribution_push.h"
#include "worker/trainer/exchange_state.h"
#include "worker/trainer/testing/delayed_device.h"
#include "worker/trainer/testing/scripted_transport.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar::trainer {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Ne;
using ::testing::Pair;

class DelayedTransfersTest : public ::testing::TestWithParam<DelayedDevice::Order> {
 protected:
  DelayedTransfersTest()
      : registration_(TwoBlocks()),
        device_(GetParam()),
        vector_{*device_.Allocate(4 * sizeof(float)), kernels::DType::kF32, 4},
        exchange_(MakeExchange(params::Encoding::kFp32)) {}
  ~DelayedTransfersTest() override { device_.Release(vector_.data); }

  kernels::Buf Block(int block) const { return vector_.Slice(2 * block, 2); }
  // Makes the exchange state for one vector, which is both pulled and pushed.
  std::unique_ptr<ExchangeState> MakeExchange(params::Encoding encoding) {
    job::JobSpec job;
    job.push_encoding = encoding;
    return *ExchangeState::Create(job, registration_.layout(), &device_, vector_, vector_);
  }
  float* host() const { return exchange_->weights()->data(); }
  std::vector<float> OnHost() const { return {host(), host() + 4}; }
  // Returns the vector after all queued work is done.
  std::vector<float> OnDevice() {
    std::vector<float> values(4);
    device_.Copy(values.data(), vector_.data, 4 * sizeof(float), kernels::StreamKind::kCompute);
    EXPECT_OK(device_.Synchronize(device_.Record(kernels::StreamKind::kCompute)));
    return values;
  }
  std::unique_ptr<WeightsPull> Pull(client::ParameterTransport* transport) {
    return std::make_unique<WeightsPull>(registration_, Round(3), AllBuckets(registration_),
                                         exchange_->weights(), nullptr, transport, &clock_);
  }
  std::unique_ptr<ContributionPush> Push(WeightsPull* base, client::ParameterTransport* transport) {
    return std::make_unique<ContributionPush>(registration_,
                                              client::ContributionHeader{.round = Round(3)},
                                              exchange_->contribution(), base, transport, &clock_);
  }

  const messages::Registration registration_;
  DelayedDevice device_;
  const kernels::Buf vector_;
  std::unique_ptr<ExchangeState> exchange_;
  ScriptedTransport transport_;
  InstantClock clock_;
};

INSTANTIATE_TEST_SUITE_P(Orders, DelayedTransfersTest,
                         ::testing::Values(DelayedDevice::Order::kLate,
                                           DelayedDevice::Order::kCopiesFirst));

TEST_P(DelayedTransfersTest, ComputingSeesPulledWeightsAndTheHostDoesNotWaitForTheCopy) {
  device_.Fill(vector_, 1.0);
  const auto pull = Pull(&transport_);
  ASSERT_OK(pull->WaitForAll());
  EXPECT_THAT(device_.waiters(), ElementsAre());
  EXPECT_THAT(OnDevice(), ElementsAre(10.0f, 10.0f, 11.0f, 11.0f));
}

TEST_P(DelayedTransfersTest, PulledWeightsDoNotOverwriteWhatIsStillRead) {
  device_.Fill(vector_, 1.0);
  std::vector<float> read(4);
  device_.Copy(read.data(), vector_.data, 4 * sizeof(float), kernels::StreamKind::kCompute);
  const auto pull = Pull(&transport_);
  ASSERT_OK(pull->WaitForAll());
  EXPECT_THAT(OnDevice(), ElementsAre(10.0f, 10.0f, 11.0f, 11.0f));
  EXPECT_THAT(read, Each(1.0f));
}

TEST_P(DelayedTransfersTest, WhatComesStraightToTheDeviceDoesNotOverwriteWhatIsStillRead) {
  transport_.reaches_device_ = true;
  std::fill_n(host(), 4, 5.0f);
  device_.Fill(vector_, 1.0);
  std::vector<float> read(4);
  device_.Copy(read.data(), vector_.data, 4 * sizeof(float), kernels::StreamKind::kCompute);
  const auto pull = Pull(&transport_);
  ASSERT_OK(pull->WaitForAll());
  EXPECT_THAT(OnDevice(), ElementsAre(10.0f, 10.0f, 11.0f, 11.0f));
  EXPECT_THAT(read, Each(1.0f));
  EXPECT_THAT(OnHost(), Each(5.0f)) << "it goes past the mirror";
  EXPECT_EQ(pull->version(1), Version(4));
}

TEST_P(DelayedTransfersTest, WhatLeavesStraightFromTheDeviceIsComputedAndSentAgainEitherWay) {
  for (const params::Encoding encoding : {params::Encoding::kFp32, params::Encoding::kBf16}) {
    transport_.reaches_device_ = true;
    exchange_ = MakeExchange(encoding);
    const auto pull = Pull(&transport_);
    ASSERT_OK(pull->WaitForAll());
    transport_.pushes_.clear();
    transport_.script_ = {absl::UnavailableError("gone"), absl::UnavailableError("gone")};
    int added = 0;
    // Each attempt adds two buckets. After the second attempt, the transport cannot read device
    // memory.
    transport_.on_add_ = [&](uint32_t) { transport_.reaches_device_ = ++added < 4; };
    const auto push = Push(pull.get(), &transport_);
    device_.Fill(vector_, 7.0);
    ASSERT_OK(push->AllBlocksReady());
    ASSERT_OK(push->Finish());
    ASSERT_EQ(transport_.pushes_.size(), 3u);
    for (const auto& sent : transport_.pushes_) {
      ASSERT_EQ(sent.size(), 2u);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(sent[i].is_from_device, &sent != &transport_.pushes_.back());
        EXPECT_EQ(sent[i].data, transport_.pushes_[0][i].data);
        if (encoding == params::Encoding::kFp32) {
          EXPECT_THAT(sent[i].values(), Each(7.0f));
        } else {
          EXPECT_EQ(sent[i].data[1], std::byte{0x40}) << "bf16 of 7 is 0x40e0";
        }
      }
    }
  }
}

TEST_P(DelayedTransfersTest, ASecondPullDoesNotDisturbTheCopiesOfTheFirst) {
  const auto first = Pull(&transport_);
  ASSERT_OK(first->WaitForAll());
  std::vector<float> read(4);
  device_.Copy(read.data(), vector_.data, 4 * sizeof(float), kernels::StreamKind::kCompute);
  const auto second = Pull(&transport_);
  std::fill_n(host(), 4, 5.0f);
  EXPECT_OK(device_.Synchronize(device_.Record(kernels::StreamKind::kCompute)));
  EXPECT_THAT(read, ElementsAre(10.0f, 10.0f, 11.0f, 11.0f));
}

TEST_P(DelayedTransfersTest, BucketsLeaveBeforeBackwardOfEarlierBlocksHasBeenWaitedFor) {
  const auto pull = Pull(&transport_);
  ASSERT_OK(pull->WaitForAll());
  // Each entry is a bucket that was sent, and the number of computations that had run by then.
  std::vector<std::pair<uint32_t, int64_t>> left;
  transport_.on_add_ = [&](uint32_t bucket) {
    left.emplace_back(bucket, device_.num_run(kernels::StreamKind::kCompute));
  };
  const auto push = Push(pull.get(), &transport_);
  device_.Fill(Block(1), 1.0);
  ASSERT_OK(push->BlockReady(1));
  device_.Fill(Block(0), 2.0);
  ASSERT_OK(push->BlockReady(0));
  ASSERT_OK(push->Finish());
  EXPECT_THAT(left, ElementsAre(Pair(1u, 1), Pair(0u, 2)));
  EXPECT_THAT(transport_.pushes_[0][0].values(), Each(1.0f));
  EXPECT_THAT(transport_.pushes_[0][1].values(), Each(2.0f));
  EXPECT_THAT(device_.waiters(), Each(Ne(std::this_thread::get_id())));
}

TEST_P(DelayedTransfersTest, UnacknowledgedContributionIsSentAgainFromTheHostsCopy) {
  const auto pull = Pull(&transport_);
  ASSERT_OK(pull->WaitForAll());
  transport_.script_ = {absl::UnavailableError("gone")};
  const auto push = Push(pull.get(), &transport_);
  device_.Fill(vector_, 7.0);
  ASSERT_OK(push->AllBlocksReady());
  ASSERT_OK(push->Finish());
  ASSERT_EQ(transport_.pushes_.size(), 2u);
  for (const auto& sent : transport_.pushes_) {
    ASSERT_EQ(sent.size(), 2u);
    for (const auto& bucket : sent) EXPECT_THAT(bucket.values(), Each(7.0f));
  }
}

// The first of three contributions is sent twice. The second is aborted, and the third repeats it.
TEST_P(DelayedTransfersTest, EncodedContributionsWaitForTheirVectorAndForWhatTheLastOneLost) {
  const auto pull = Pull(&transport_);
  ASSERT_OK(pull->WaitForAll());
  const auto encoded = MakeExchange(params::Encoding::kBf16);
  transport_.script_ = {absl::UnavailableError("gone"), absl::OkStatus(),
                        absl::AbortedError("this life is over")};
  // At 1, bf16 has steps of 2^-7. Rounding drops 0.375 of a step. The second contribution has 0.75
  // of a step, because the dropped part is added, so it is rounded up.
  constexpr float kDropped = 0x1p-7f * 0.375f;
  const auto push = [&](int64_t round) {
    ContributionPush contribution(registration_, {.round = Round(round)}, encoded->contribution(),
                                  pull.get(), &transport_, &clock_);
    device_.Fill(vector_, 1.0f + kDropped);
    EXPECT_OK(contribution.AllBlocksReady());
    const absl::Status status = contribution.Finish();
    device_.Fill(vector_, -5.0);  // Overwrites the vector.
    return status;
  };
  EXPECT_OK(push(7));
  EXPECT_THAT(push(8), StatusIs(absl::StatusCode::kAborted));
  EXPECT_OK(push(8));
  ASSERT_EQ(transport_.pushes_.size(), 4u);
  const auto bf16 = [](uint8_t low) {
    return std::vector<std::byte>{std::byte{low}, std::byte{0x3F}, std::byte{low}, std::byte{0x3F}};
  };
  for (int bucket : {0, 1}) {
    EXPECT_EQ(transport_.pushes_[0][bucket].data, bf16(0x80));
    EXPECT_EQ(transport_.pushes_[1][bucket].data, bf16(0x80));
    EXPECT_EQ(transport_.pushes_[2][bucket].data, bf16(0x81));
    EXPECT_EQ(transport_.pushes_[3][bucket].data, bf16(0x81));
  }
  EXPECT_THAT(device_.waiters(), Each(Ne(std::this_thread::get_id())));
}

TEST_P(DelayedTransfersTest, WhatAFailedDeviceComputedIsNotSent) {
  const auto pull = Pull(&transport_);
  ASSERT_OK(pull->WaitForAll());
  device_.FailAt(kernels::StreamKind::kDeviceToHost, 2);
  const auto push = Push(pull.get(), &transport_);
  device_.Fill(vector_, 7.0);
  // Either AllBlocksReady() or Finish() returns the device's error.
  absl::Status status = push->AllBlocksReady();
  if (status.ok()) status = push->Finish();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr("made to fail")));
  for (const auto& sent : transport_.pushes_[0]) EXPECT_EQ(sent.bucket, 1u);
}

TEST_P(DelayedTransfersTest, PullToAFailedDeviceTellsItsFailure) {
  device_.FailAt(kernels::StreamKind::kHostToDevice, 1);
  const auto first = Pull(&transport_);
  ASSERT_OK(first->WaitForAll());
  const auto second = Pull(&transport_);
  EXPECT_THAT(second->WaitForAll(), StatusIs(absl::StatusCode::kInternal, HasSubstr("to fail")));
  EXPECT_EQ(transport_.pulls_.size(), 1u);
}

TEST_P(DelayedTransfersTest, RefusedPushEnds) {
  const auto pull = Pull(&transport_);
  ASSERT_OK(pull->WaitForAll());
  transport_.script_ = {absl::AbortedError("register again")};
  const auto push = Push(pull.get(), &transport_);
  device_.Fill(vector_, 7.0);
  ASSERT_OK(push->AllBlocksReady());
  EXPECT_THAT(push->Finish(), StatusIs(absl::StatusCode::kAborted));
}

TEST_P(DelayedTransfersTest, CancellingTheTransportEndsAPush) {
  const auto pull = Pull(&transport_);
  ASSERT_OK(pull->WaitForAll());
  auto stuck = std::make_unique<StuckTransport>();
  absl::Notification& waiting = stuck->waiting_;
  client::CancellableTransport transport(std::move(stuck));
  std::thread canceller([&] {
    waiting.WaitForNotification();
    transport.Cancel();
  });
  const auto push = Push(pull.get(), &transport);
  device_.Fill(vector_, 7.0);
  ASSERT_OK(push->AllBlocksReady());
  EXPECT_THAT(push->Finish(), StatusIs(absl::StatusCode::kCancelled));
  canceller.join();
}

TEST_P(DelayedTransfersTest, CancellingTheTransportEndsAPull) {
  auto stuck = std::make_unique<StuckTransport>();
  absl::Notification& waiting = stuck->waiting_;
  client::CancellableTransport transport(std::move(stuck));
  std::thread canceller([&] {
    waiting.WaitForNotification();
    transport.Cancel();
  });
  const auto pull = Pull(&transport);
  EXPECT_THAT(pull->WaitForBlock(0), StatusIs(absl::StatusCode::kCancelled));
  canceller.join();
}

TEST_P(DelayedTransfersTest, AnAbandonedPushLeavesNothingThatSpoilsTheNextPull) {
  {
    const auto pull = Pull(&transport_);
    ASSERT_OK(pull->WaitForAll());
    const auto push = Push(pull.get(), &transport_);
    device_.Fill(vector_, 7.0);
    ASSERT_OK(push->AllBlocksReady());
  }
  const auto pull = Pull(&transport_);
  ASSERT_OK(pull->WaitForAll());
  EXPECT_OK(device_.Synchronize(device_.Record(kernels::StreamKind::kDeviceToHost)));
  EXPECT_THAT(OnHost(), ElementsAre(10.0f, 10.0f, 11.0f, 11.0f));
  EXPECT_THAT(OnDevice(), ElementsAre(10.0f, 10.0f, 11.0f, 11.0f));
}

}  // namespace
}  // namespace lodestar::trainer
