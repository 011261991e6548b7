// Whole rounds of one worker on the emulated card, whose streams run as late as they may: whether
// transfers overlap with computing, and what runs first, changes no bit.

#include <memory>

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/emulator/emulator.h"
#include "worker/trainer/testing/training_rig.h"

namespace lodestar {
namespace {

JobSpec GradientJob() {
  JobSpec job;
  job.mode = Mode::kSync;
  return job;
}

JobSpec LocalStepsJob() {
  JobSpec job;
  job.mode = Mode::kLocalSgd;
  job.local_steps = 2;
  job.clip_norm = 0.05;
  return job;
}

TrainingOutcome TrainOnCard(const JobSpec& job, DType compute, emulator::StreamOrder order,
                            bool overlap) {
  emulator::Configure({.streams = order});
  const auto device =
      cuda::CudaDevice::Create({.compute = compute, .fusion = FusionPolicy::kNever});
  EXPECT_OK(device);
  return TrainThreeRounds(job, device->get(), overlap);
}

class CudaRoundsTest : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, CudaRoundsTest, ::testing::Values(DType::kF32, DType::kBf16));

TEST_P(CudaRoundsTest, StreamsAndOverlapChangeNoBit) {
  for (const JobSpec& job : {GradientJob(), LocalStepsJob()}) {
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

}  // namespace
}  // namespace lodestar
