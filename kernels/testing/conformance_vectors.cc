// SPDX-License-Identifier: Apache-2.0

// Tests memory, vector operations and optimizers.
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/params/encoding.h"
#include "gtest/gtest.h"
#include "kernels/testing/device_conformance.h"

namespace lodestar::kernels {
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

TEST_P(DeviceConformanceTest, CastsIntoTheComputeType) {
  for (int64_t n : kSizes) {
    ExpectConforms(
        [n](DeviceTestRig& rig) {
          const Buf x = rig.Random(n, rig.statistics_dtype());
          rig.device().Cast(rig.Output("y", n), x, 0.3, StreamKind::kHostToDevice);
          rig.device().Wait(StreamKind::kCompute, rig.device().Record(StreamKind::kHostToDevice));
        },
        kElementwise);
  }
}

TEST_P(DeviceConformanceTest, DropsWhatTheMaskSays) {
  for (int64_t n : kSizes) {
    for (const DropoutMask& mask :
         {DropoutMask{.rate = 0.0, .key = 1}, DropoutMask{.rate = 0.2, .key = 7, .stream = 3},
          DropoutMask{
              .rate = 0.5, .key = ~uint64_t{0}, .stream = 5, .first_element = 0x7fff'ffff'fffd}}) {
      ExpectConforms(
          [&](DeviceTestRig& rig) {
            const Buf x = rig.Random(n);
            rig.device().Dropout(rig.Output("y", n), x, mask);
            const Buf in_place = rig.InOut("in_place", n);
            rig.device().Dropout(in_place, in_place, mask);
            // Applies the mask to the same tensor, divided into two pieces.
            const Buf cut = rig.Output("cut", n);
            const int64_t first = n / 3;
            DropoutMask rest = mask;
            rest.first_element += first;
            rig.device().Dropout(cut.Slice(0, first), x.Slice(0, first), mask);
            rig.device().Dropout(cut.Slice(first, n - first), x.Slice(first, n - first), rest);
          },
          kElementwise);
    }
  }
}

TEST_P(DeviceConformanceTest, AddsScaled) {
  for (int64_t n : kSizes) {
    ExpectConforms(
        [n](DeviceTestRig& rig) {
          const DType dtype = rig.statistics_dtype();
          rig.device().AddScaled(rig.InOut("y", n, dtype), rig.Random(n, dtype), 0.75);
        },
        kElementwise);
  }
}

TEST_P(DeviceConformanceTest, SubtractsIntoEitherArgument) {
  for (int64_t n : kSizes) {
    ExpectConforms(
        [n](DeviceTestRig& rig) {
          const DType dtype = rig.statistics_dtype();
          rig.device().Subtract(rig.Output("z", n, dtype), rig.Random(n, dtype),
                                rig.Random(n, dtype));
          const Buf x = rig.InOut("x", n, dtype);
          rig.device().Subtract(x, x, rig.Random(n, dtype));
          const Buf y = rig.InOut("y", n, dtype);
          rig.device().Subtract(y, rig.Random(n, dtype), y);
        },
        kElementwise);
  }
}

TEST_P(DeviceConformanceTest, SumsSquares) {
  for (int64_t n : kSizes) {
    ExpectConforms(
        [n](DeviceTestRig& rig) {
          rig.device().SumOfSquares(rig.Output("sum", 1, DType::kF64),
                                    rig.Random(n, rig.statistics_dtype()));
        },
        kElementwise);
  }
}

// Tests vectors that are aligned, and vectors that begin at any address.
TEST_P(DeviceConformanceTest, EncodesToTheSameBytesAndKnowsWhatIsLost) {
  for (params::Encoding encoding :
       {params::Encoding::kBf16, params::Encoding::kFp16, params::Encoding::kInt8,
        params::Encoding::kInt4, params::Encoding::TopK(64, 2), params::Encoding::TopK(5, 4)}) {
    for (int64_t n : kSizes) {
      for (int64_t offset : {0, 1}) {
        ExpectConforms(
            [&](DeviceTestRig& rig) {
              const int64_t bytes = params::EncodedBytes(encoding, n);
              const Buf values = rig.Random(offset + n, DType::kF32).Slice(offset, n);
              const Buf residual = rig.InOut("residual", offset + n, DType::kF32).Slice(offset, n);
              const Rounding rounding = {.key = 7, .stream = 3, .first_element = 256 + offset};
              const auto encode = [&](const std::string& name, float scale, Buf added) {
                const Buf to = rig.Output(name, 4 * offset + bytes, DType::kU8);
                void* const encoded = to.Slice(4 * offset, bytes).data;
                rig.device().Encode(encoding, encoded, values, scale, added, rounding,
                                    StreamKind::kDeviceToHost);
                return encoded;
              };
              encode("alone", 1.0f, {});
              const void* const encoded = encode("with_residual", 0.37f, residual);
              rig.device().Wait(StreamKind::kCompute,
                                rig.device().Record(StreamKind::kDeviceToHost));
              const Buf next = rig.Output("next_residual", n, DType::kF32);
              const Buf at_once = rig.Output("at_once", bytes, DType::kU8);
              rig.device().EncodeAndUpdate(encoding, at_once.data, next, values, 0.37f, residual,
                                           rounding, 0.95f, StreamKind::kCompute);
              rig.device().UpdateResidual(encoding, residual, values, 0.37f, encoded, 0.95f,
                                          StreamKind::kCompute);
            },
            kExact);
      }
    }
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
            const DType dtype = rig.statistics_dtype();
            const Buf weights = rig.InOut("weights", n, dtype);
            const Buf state = rig.InOut("state", n, dtype);
            rig.device().MomentumUpdate(weights, state, rig.Random(n, dtype), {}, step);
            rig.device().MomentumUpdate(rig.InOut("sgd_weights", n, dtype), {},
                                        rig.Random(n, dtype), {}, step);
          },
          kElementwise);
    }
  }
}

TEST_P(DeviceConformanceTest, AdamWMatchesTheFormula) {
  for (int64_t n : kSizes) {
    ExpectConforms(
        [&](DeviceTestRig& rig) {
          const DType dtype = rig.statistics_dtype();
          const Buf weights = rig.InOut("weights", n, dtype);
          const Buf m = rig.Output("first_moment", n, dtype);
          const Buf v = rig.Output("second_moment", n, dtype);
          rig.device().Fill(m, 0.0);
          rig.device().Fill(v, 0.0);
          for (int64_t step = 1; step <= 3; ++step) {
            rig.device().AdamWUpdate(weights, m, v, rig.Random(n, dtype), {},
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

// The narrow weights must equal a cast of the new weights, whatever the update does with its other
// outputs.
TEST_P(DeviceConformanceTest, OptimizersWriteTheNarrowWeights) {
  for (int64_t n : kSizes) {
    DeviceTestRig rig(device_.get(), DType::kF32);
    const DType dtype = rig.statistics_dtype();
    const DType narrow = dtype == DType::kF64 ? DType::kF32 : DType::kBf16;
    const Buf momentum = rig.InOut("momentum", n, dtype);
    const Buf adamw = rig.InOut("adamw", n, dtype);
    const Buf gradient = rig.Random(n, dtype);
    const Buf zeros = rig.Output("zeros", 3 * n, dtype);
    device_->Fill(zeros, 0.0);
    device_->MomentumUpdate(momentum, zeros.Slice(0, n), gradient,
                            rig.Output("momentum_narrow", n, narrow),
                            {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.05});
    device_->AdamWUpdate(
        adamw, zeros.Slice(n, n), zeros.Slice(2 * n, n), gradient,
        rig.Output("adamw_narrow", n, narrow),
        {.learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.05});
    device_->Cast(rig.Output("momentum_cast", n, narrow), momentum, 1.0, StreamKind::kCompute);
    device_->Cast(rig.Output("adamw_cast", n, narrow), adamw, 1.0, StreamKind::kCompute);
    Outputs outputs = rig.Collect();
    EXPECT_EQ(outputs["momentum_narrow"], outputs["momentum_cast"]);
    EXPECT_EQ(outputs["adamw_narrow"], outputs["adamw_cast"]);
  }
}

TEST_P(DeviceConformanceTest, MeasuresTimeOrLeavesItToTheHost) {
  const EventId from = device_->RecordTimed(StreamKind::kCompute);
  const EventId to = device_->RecordTimed(StreamKind::kCompute);
  EXPECT_TRUE(device_->Synchronize(to).ok());
  const absl::StatusOr<double> seconds = device_->SecondsBetween(from, to);
  if (seconds.ok()) {
    EXPECT_GE(*seconds, 0.0);
  } else {
    EXPECT_EQ(seconds.status().code(), absl::StatusCode::kUnimplemented);
  }
}

TEST_P(DeviceConformanceTest, GraphsRunWhenLaunchedAndEachTime) {
  if (!device_->supports_graphs()) {
    EXPECT_EQ(device_->EndGraph().status().code(), absl::StatusCode::kUnimplemented);
    return;
  }
  constexpr int64_t kSize = 100;
  DeviceTestRig rig(device_.get(), DType::kF32);
  const Buf y = rig.Output("y", kSize, rig.statistics_dtype());
  const Buf x = rig.Output("x", kSize, rig.statistics_dtype());
  device_->Fill(y, 1.0);
  device_->Fill(x, 2.0);
  device_->BeginGraph();
  device_->AddScaled(y, x, 0.5);
  device_->AddScaled(x, y, 1.0);
  const absl::StatusOr<GraphId> graph = device_->EndGraph();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(rig.Collect()["y"], std::vector<double>(kSize, 1.0));
  device_->LaunchGraph(*graph);
  device_->LaunchGraph(*graph);
  Outputs outputs = rig.Collect();
  EXPECT_EQ(outputs["y"], std::vector<double>(kSize, 4.0));
  EXPECT_EQ(outputs["x"], std::vector<double>(kSize, 8.0));
}

}  // namespace lodestar::kernels
