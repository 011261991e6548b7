// SPDX-License-Identifier: Apache-2.0

// Tests of whole rounds of one worker on the emulated card, whose streams run as late as allowed.
// The results must have the same bits for every order of work, and with transfers that overlap with
// computing.

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "kernels/factory/device_factory.h"
#include "worker/trainer/exchange_state.h"
#include "worker/trainer/round_runner_factory.h"
#include "worker/trainer/testing/training_rig.h"

namespace lodestar::trainer {
namespace {

job::JobSpec GradientJob() {
  job::JobSpec job;
  job.mode = job::Mode::kSync;
  return job;
}

job::JobSpec LocalStepsJob() {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = 2;
  job.clip_norm = 0.05;
  return job;
}

std::unique_ptr<kernels::Device> Card(kernels::DType compute, emulator::StreamOrder order) {
  return cuda::MakeEmulatedDevice({.compute = compute, .fusion = factory::FusionPolicy::kNever},
                                  {.streams = order});
}

TrainingOutcome TrainOnCard(const job::JobSpec& job, kernels::DType compute,
                            emulator::StreamOrder order, bool overlap) {
  return TrainThreeRounds(job, Card(compute, order).get(), overlap);
}

class CudaRoundsTest : public ::testing::TestWithParam<kernels::DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, CudaRoundsTest,
                         ::testing::Values(kernels::DType::kF32, kernels::DType::kBf16));

TEST_P(CudaRoundsTest, StreamsAndOverlapChangeNoBit) {
  for (const job::JobSpec& job : {GradientJob(), LocalStepsJob()}) {
    const TrainingOutcome expected =
        TrainOnCard(job, GetParam(), emulator::StreamOrder::kOnlyWhatIsNeeded, /*overlap=*/false);
    ASSERT_EQ(expected.losses.size(), 6u);
    EXPECT_EQ(
        TrainOnCard(job, GetParam(), emulator::StreamOrder::kOnlyWhatIsNeeded, /*overlap=*/true),
        expected);
    EXPECT_EQ(TrainOnCard(job, GetParam(), emulator::StreamOrder::kOthersFirst, /*overlap=*/true),
              expected);
  }
}

// Fixture for training on several cards. Each card computes a part of every step.
class CudaCardsTest : public ::testing::TestWithParam<std::tuple<int, kernels::DType>> {
 protected:
  int num_cards() const { return std::get<0>(GetParam()); }
  kernels::DType compute() const { return std::get<1>(GetParam()); }

  // Trains on `num_cards` cards. Each card computes up to `max_batch` samples at once.
  TrainingOutcome Train(const job::JobSpec& job, int num_cards, int64_t max_batch,
                        emulator::StreamOrder order, bool overlap) {
    const kernels::DeviceSet cards =
        cuda::MakeEmulatedDevices({.compute = compute(), .fusion = factory::FusionPolicy::kNever},
                                  {.streams = order, .num_devices = num_cards});
    TrainingRig rig(job, &cards.first(),
                    *model::MakeModel({.spec = SmallJob(job).model, .max_batch = max_batch}, cards),
                    overlap, /*trace=*/nullptr, &Clock::Real(), /*pulls_ahead=*/overlap);
    return TrainThreeRounds(rig);
  }
};

INSTANTIATE_TEST_SUITE_P(Cards, CudaCardsTest,
                         ::testing::Values(std::make_tuple(3, kernels::DType::kF32),
                                           std::make_tuple(2, kernels::DType::kBf16)));

TEST_P(CudaCardsTest, HaveTheBitsOfOneCardThatAccumulatesWhateverStreamsAndOverlap) {
  for (const job::JobSpec& job : {GradientJob(), LocalStepsJob()}) {
    const int64_t step_samples = kRigBatch / job.local_steps;
    const int64_t share = (step_samples + num_cards() - 1) / num_cards();
    const TrainingOutcome one =
        Train(job, 1, share, emulator::StreamOrder::kOnlyWhatIsNeeded, /*overlap=*/true);
    ASSERT_EQ(one.losses.size(), 6u);
    EXPECT_EQ(
        Train(job, num_cards(), share, emulator::StreamOrder::kOnlyWhatIsNeeded, /*overlap=*/false),
        one)
        << "local steps " << job.local_steps;
    for (const auto order :
         {emulator::StreamOrder::kOnlyWhatIsNeeded, emulator::StreamOrder::kOthersFirst}) {
      EXPECT_EQ(Train(job, num_cards(), share, order, /*overlap=*/true), one)
          << "local steps " << job.local_steps;
    }
  }
}

// Tests the amount of pinned memory. It is used for the host's copies of vectors that are sent or
// received.
TEST(CudaRoundsMemoryTest, PinnedMemoryOfARunnerIsAsForetold) {
  job::JobSpec encoded = GradientJob();
  encoded.push_encoding = params::Encoding::kInt8;
  job::JobSpec averaging = LocalStepsJob();
  averaging.outer_optimizer = job::OuterOptimizerKind::kAverage;
  job::JobSpec overlapped = LocalStepsJob();
  overlapped.overlap_steps = 1;
  for (const job::JobSpec& wanted :
       {GradientJob(), encoded, LocalStepsJob(), averaging, overlapped}) {
    const auto card = Card(kernels::DType::kF32, emulator::StreamOrder::kOnlyWhatIsNeeded);
    TrainingRig rig(wanted, card.get(), /*overlap=*/true);
    const job::JobSpec& job = rig.server().registration().job;
    const int64_t before = emulator::pinned_bytes();
    const auto runner = MakeRoundRunner(job, rig.runner_deps());
    ASSERT_OK(runner);
    EXPECT_EQ(
        emulator::pinned_bytes() - before,
        RunnerPinnedBytes(job, rig.server().registration().layout(), /*keeps_residual=*/false))
        << params::EncodingName(job.push_encoding) << ", local steps " << job.local_steps
        << ", overlap " << job.overlap_steps;
  }
}

TEST(CudaRoundsMemoryTest, PinnedMemoryOfAKeptResidualIsAsForetold) {
  job::JobSpec job = GradientJob();
  job.push_encoding = params::Encoding::kInt8;
  const auto card = Card(kernels::DType::kF32, emulator::StreamOrder::kOnlyWhatIsNeeded);
  TrainingRig rig(job, card.get(), /*overlap=*/true);
  const messages::Registration& registration = rig.server().registration();
  const int64_t before = emulator::pinned_bytes();
  const auto exchange = *ExchangeState::Create(registration.job, registration.layout(), card.get(),
                                               rig.model().parameters(), rig.model().gradients());
  ASSERT_NE(exchange->residual(), nullptr);
  ASSERT_OK(exchange->residual()->Foresee(registration, /*is_skipped=*/true));
  EXPECT_EQ(emulator::pinned_bytes() - before,
            RunnerPinnedBytes(registration.job, registration.layout(), /*keeps_residual=*/true));
}

// Runs two rounds and returns the report of the second. In the second round the worker must wait
// for its weights: the server first calls `while_awaited` and then sends them. With overlapped
// rounds, this pull begins at the end of the first round.
absl::StatusOr<messages::RoundReport> RunRoundThatWaits(
    const job::JobSpec& job, Clock* clock, const std::function<void()>& while_awaited) {
  const auto card = Card(kernels::DType::kF32, emulator::StreamOrder::kOnlyWhatIsNeeded);
  TrainingRig training(job, card.get(), /*overlap=*/true, /*trace=*/nullptr, clock);
  std::atomic<bool> is_second_round = false;
  absl::Notification waiting;
  training.on_activity_ = [&](absl::string_view activity) {
    if (activity == "pull" && is_second_round && !waiting.HasBeenNotified()) waiting.Notify();
  };
  std::atomic<int> num_pulls = 0;
  training.server().on_pull_ = [&] {
    if (++num_pulls != 2) return;
    waiting.WaitForNotification();
    while_awaited();
  };
  EXPECT_OK(training.RunRound(0));
  is_second_round = true;
  return training.RunRound(1);
}

job::JobSpec OverlappedJob() {
  job::JobSpec job = LocalStepsJob();
  job.overlap_rounds = true;
  return job;
}

// Upper limit of the time of one round of the rig's model, by the emulated card's clock.
constexpr absl::Duration kMoment = absl::Milliseconds(50);

TEST(CudaRoundsExposedTest, ACardWithNothingToDoUntilWeightsComeIsExposedCommunication) {
  for (const job::JobSpec& job : {GradientJob(), OverlappedJob()}) {
    SimulatedClock clock;
    const absl::StatusOr<messages::RoundReport> report = RunRoundThatWaits(job, &clock, [&] {
      clock.AdvanceTime(absl::Seconds(10));
      emulator::PassTime(10e6);
    });
    ASSERT_OK(report);
    EXPECT_GT(report->communication, absl::Seconds(10) - kMoment);
    EXPECT_LT(report->communication, absl::Seconds(10) + kMoment);
    EXPECT_LT(report->compute, kMoment);
  }
}

// If the card has enough queued work for the whole time that the host waits for weights, the wait
// does not count as communication.
TEST(CudaRoundsExposedTest, AHostThatWaitsWhileTheCardComputesIsNot) {
  for (const job::JobSpec& job : {GradientJob(), OverlappedJob()}) {
    SimulatedClock clock;
    const absl::StatusOr<messages::RoundReport> report =
        RunRoundThatWaits(job, &clock, [&] { clock.AdvanceTime(absl::Seconds(10)); });
    ASSERT_OK(report);
    EXPECT_LT(report->communication, kMoment);
    EXPECT_GT(report->compute, absl::Seconds(10) - kMoment);
  }
}

// The host never waits. The card waits for copies, each of which takes a microsecond.
TEST(CudaRoundsExposedTest, CopiesThatTheCardWaitsForAreExposedCommunication) {
  SimulatedClock clock;
  const auto card = Card(kernels::DType::kF32, emulator::StreamOrder::kOnlyWhatIsNeeded);
  TrainingRig training(GradientJob(), card.get(), /*overlap=*/true, /*trace=*/nullptr, &clock);
  const auto buckets = static_cast<int64_t>(training.server().registration().buckets().size());
  for (int64_t round = 0; round < 2; ++round) {
    const absl::StatusOr<messages::RoundReport> report = training.RunRound(round);
    ASSERT_OK(report);
    EXPECT_NEAR(absl::ToDoubleMicroseconds(report->communication), buckets, 0.1);
  }
}

// Returns the gradient of the rig's model after the last round.
std::vector<float> GradientOf(TrainingRig& training, kernels::Device& card) {
  const kernels::Buf gradient = training.model().gradients();
  std::vector<float> values(gradient.num_elements);
  card.Copy(values.data(), gradient.data, values.size() * sizeof(float),
            kernels::StreamKind::kCompute);
  EXPECT_OK(card.Synchronize(card.Record(kernels::StreamKind::kCompute)));
  return values;
}

class CudaEncodedRoundsTest : public ::testing::TestWithParam<params::Encoding> {};

INSTANTIATE_TEST_SUITE_P(Encodings, CudaEncodedRoundsTest,
                         ::testing::Values(params::Encoding::kBf16, params::Encoding::kFp16,
                                           params::Encoding::kInt8, params::Encoding::kInt4),
                         [](const auto& info) {
                           return std::string(params::EncodingName(info.param));
                         });

// Compares the bytes that the server gets with the bytes that the CPU makes from the same gradient.
// Error feedback is on, so the bytes also depend on the residual of earlier rounds.
void ExpectBytesOfTheCpu(const job::JobSpec& job, emulator::StreamOrder order) {
  const auto card = Card(kernels::DType::kF32, order);
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  TrainingRig training(job, card.get(), /*overlap=*/true);
  const messages::Registration& registration = training.server().registration();
  std::vector<float> vector(registration.layout().num_elements());
  const kernels::Buf buf = {vector.data(), kernels::DType::kF32,
                            registration.layout().num_elements()};
  const auto on_cpu = *ExchangeState::Create(job, registration.layout(), cpu.get(), buf, buf);
  ContributionBytes& expected = *on_cpu->contribution();
  for (int64_t round = 0; round < 3; ++round) {
    ASSERT_OK(training.RunRound(round));
    const std::vector<float> gradient = GradientOf(training, *card);
    vector.assign(gradient.begin(), gradient.end());
    expected.Begin(registration, Round(round), /*scale=*/1.0f);
    for (const params::Bucket& bucket : registration.buckets()) {
      expected.Prepare(bucket);
      const absl::Span<const std::byte> bytes = expected.Of(bucket);
      ASSERT_EQ(training.server().pushed()[bucket.index],
                std::vector<std::byte>(bytes.begin(), bytes.end()))
          << "round " << round << " bucket " << bucket.index;
    }
    expected.Commit({});
  }
}

TEST_P(CudaEncodedRoundsTest, TheServerGetsTheBytesThatTheCpuMakesOfTheSameGradient) {
  job::JobSpec job = GradientJob();
  job.push_encoding = GetParam();
  ExpectBytesOfTheCpu(job, emulator::StreamOrder::kOthersFirst);
}

TEST_P(CudaEncodedRoundsTest, TheServerGetsTheBytesThatTheCpuMakesOfTheSamePseudoGradient) {
  job::JobSpec job = LocalStepsJob();
  job.push_encoding = GetParam();
  ExpectBytesOfTheCpu(job, emulator::StreamOrder::kOnlyWhatIsNeeded);
}

}  // namespace
}  // namespace lodestar::trainer
