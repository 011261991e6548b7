// SPDX-License-Identifier: Apache-2.0

// Tests of all implementations of Device against the fp64 oracle. One line adds a device:
//   INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformanceTest, testing::Values(DeviceCase{"Cuda",
//   MakeIt}));
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "kernels/testing/device_test_rig.h"

namespace lodestar::kernels {

// An output may differ from the oracle's by at most units * rounding unit * scale. The rounding
// unit is that of the narrowest type among the arguments. The scale is the largest value of the
// output, or `terms` if that is larger. `terms` is for sums whose terms cancel: the output is
// small, but the rounding errors are not.
struct Tolerance {
  double units;
  double terms;
};

// Allows one rounding of the result, and one or two roundings of intermediate products.
inline constexpr Tolerance kElementwise{4.0, 0.0};
// Allows an exponential and a division, 2 ulp each, followed by a product or two.
inline constexpr Tolerance kTranscendental{16.0, 0.0};
// The rounding error of a sum of k products grows like a random walk: it is sqrt(k) / 2 units on
// average. The largest result also grows with sqrt(k), so the error relative to it does not depend
// on k. 16 is several standard deviations.
inline constexpr Tolerance kSumOfProducts{16.0, 1.0};
// Allows several of the operations above, one after the other: attention (scores, softmax, mix), or
// normalisation.
inline constexpr Tolerance kComposite{32.0, 1.0};
inline constexpr Tolerance kExact{0.0, 0.0};
// Largest allowed error with bf16, in units of bf16's rounding error. Only stored values are
// rounded to bf16, and sums are in f32. So there are only a few roundings one after the other, even
// in long sums.
inline constexpr double kMostBf16Units = 4.0;

struct DeviceCase {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
};

inline void PrintTo(const DeviceCase& device_case, std::ostream* os) { *os << device_case.name; }

class DeviceConformanceTest : public testing::TestWithParam<DeviceCase> {
 protected:
  DeviceConformanceTest();
  // Prints the choices of the device, as lines "choice: ...", so that the log says which code ran.
  void TearDown() override;

  using Operation = std::function<void(DeviceTestRig&)>;
  // Runs the operation twice on the device and once on the reference. Both results of the device
  // must have the same bits, and must be near the result of the reference.
  void ExpectConforms(const Operation& operation, const Tolerance& tolerance);

  std::unique_ptr<Device> device_;
  std::unique_ptr<Device> reference_;
};

// Runs operations at the shapes of GPT-2, which would take hours on an emulated card. Only tests
// that link :gpt2_conformance have these cases.
class Gpt2ConformanceTest : public DeviceConformanceTest {
 protected:
  // Does the same as ExpectConforms() with the CPU device as the reference, because the oracle's
  // plain loops would take too long. For fp32, allows several times the tolerance.
  void ExpectNearCpu(const Operation& operation, const Tolerance& tolerance);
};

}  // namespace lodestar::kernels
