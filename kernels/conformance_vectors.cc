// Memory, vectors and optimizers.
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device_conformance.h"

namespace lodestar {
namespace {

const std::vector<int64_t> kSizes = {1, 31, 33, 64, 1000, 70001};

}  // namespace

TEST_P(DeviceConformanceTest, AllocatesAlignedMemory) {
  for (size_t bytes : {0, 1, 1000}) {
    absl::StatusOr<void*> memory = device_->Allocate(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 64, 0);
    device_->Release(*memory);
  }
}

TEST_P(DeviceConformanceTest, SynchronizesRecordedEvents) {
  const EventId event = device_->Record(StreamKind::kCompute);
  device_->Wait(StreamKind::kDeviceToHost, event);
  EXPECT_TRUE(device_->Synchronize(event).ok());
}

TEST_P(DeviceConformanceTest, FillsEveryType) {
  for (int64_t n : kSizes) {
    ExpectConforms(
        [n](DeviceTestRig& rig) {
          rig.device().Fill(rig.Output("y", n), 0.25);
          rig.device().Fill(rig.Output("integers", n, DType::kI32), 7.0);
          rig.device().Fill(rig.Output("bytes", n, DType::kU8), 3.0);
        },
        kExact);
  }
}

TEST_P(DeviceConformanceTest, CastsWithScale) {
  for (int64_t n : kSizes) {
    ExpectConforms(
        [n](DeviceTestRig& rig) {
          const Buf x = rig.Random(n);
          rig.device().Cast(rig.Output("same", n), x, 1.0, StreamKind::kCompute);
          rig.device().Cast(rig.Output("f32", n, DType::kF32), x, 0.5, StreamKind::kCompute);
        },
        kElementwise);
  }
}

TEST_P(DeviceConformanceTest, AddsScaled) {
  for (int64_t n : kSizes) {
    ExpectConforms(
        [n](DeviceTestRig& rig) { rig.device().AddScaled(rig.InOut("y", n), rig.Random(n), 0.75); },
        kElementwise);
  }
}

TEST_P(DeviceConformanceTest, SubtractsIntoEitherArgument) {
  for (int64_t n : kSizes) {
    ExpectConforms(
        [n](DeviceTestRig& rig) {
          rig.device().Subtract(rig.Output("z", n), rig.Random(n), rig.Random(n));
          const Buf x = rig.InOut("x", n);
          rig.device().Subtract(x, x, rig.Random(n));
          const Buf y = rig.InOut("y", n);
          rig.device().Subtract(y, rig.Random(n), y);
        },
        kElementwise);
  }
}

TEST_P(DeviceConformanceTest, SumsSquares) {
  for (int64_t n : kSizes) {
    ExpectConforms(
        [n](DeviceTestRig& rig) {
          rig.device().SumOfSquares(rig.Output("sum", 1, DType::kF64), rig.Random(n));
        },
        kElementwise);
  }
}

TEST_P(DeviceConformanceTest, MomentumMatchesTheFormula) {
  for (int64_t n : kSizes) {
    for (bool nesterov : {false, true}) {
      ExpectConforms(
          [&](DeviceTestRig& rig) {
            const MomentumStep step{.learning_rate = 0.1,
                                    .momentum = 0.9,
                                    .weight_decay = 0.05,
                                    .gradient_scale = 0.5,
                                    .nesterov = nesterov};
            const Buf weights = rig.InOut("weights", n);
            const Buf state = rig.InOut("state", n);
            rig.device().MomentumUpdate(weights, state, rig.Random(n), step);
            rig.device().MomentumUpdate(rig.InOut("sgd_weights", n), {}, rig.Random(n), step);
          },
          kElementwise);
    }
  }
}

TEST_P(DeviceConformanceTest, AdamWMatchesTheFormula) {
  for (int64_t n : kSizes) {
    ExpectConforms(
        [&](DeviceTestRig& rig) {
          const Buf weights = rig.InOut("weights", n);
          const Buf m = rig.Output("first_moment", n);
          const Buf v = rig.Output("second_moment", n);
          rig.device().Fill(m, 0.0);
          rig.device().Fill(v, 0.0);
          for (int64_t step = 1; step <= 3; ++step) {
            rig.device().AdamWUpdate(weights, m, v, rig.Random(n),
                                     {.learning_rate = 0.01,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .epsilon = 1e-8,
                                      .weight_decay = 0.1,
                                      .gradient_scale = 0.5,
                                      .step = step});
          }
        },
        kTranscendental);
  }
}

}  // namespace lodestar
