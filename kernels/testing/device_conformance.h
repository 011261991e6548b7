// SPDX-License-Identifier: Apache-2.0

// Tests what every implementation of Device must do, against the fp64 oracle. One line adds a
// device:
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
// output, or `terms` if that is larger: inputs are uniform in [-1, 1), and their sums may cancel.
struct Tolerance {
  double units;
  double terms;
};

// Allows one rounding of the result, and one or two of intermediate products.
inline constexpr Tolerance kElementwise{4.0, 0.0};
// Allows an exponential and a division, 2 ulp each, followed by a product or two.
inline constexpr Tolerance kTranscendental{16.0, 0.0};
// The rounding error of a sum of k products grows like a random walk, sqrt(k) / 2 units on average.
// The largest result grows with the same root, so that the quotient is constant. 16 is several
// standard deviations.
inline constexpr Tolerance kSumOfProducts{16.0, 1.0};
// Allows several of the operations above in a row: attention (scores, softmax, mix), normalisation.
inline constexpr Tolerance kComposite{32.0, 1.0};
inline constexpr Tolerance kExact{0.0, 0.0};
// Maximum number of units with bf16. Only stored values are rounded to bf16, and sums are f32. So
// there are a few roundings in a row, however long the sums are.
inline constexpr double kMostBf16Units = 4.0;

struct DeviceCase {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
};

inline void PrintTo(const DeviceCase& device_case, std::ostream* os) { *os << device_case.name; }

class DeviceConformanceTest : public testing::TestWithParam<DeviceCase> {
 protected:
  DeviceConformanceTest();
  // Prints what the device has chosen, one line "choice: ..." each, so that a log says which code
  // ran.
  void TearDown() override;

  using Operation = std::function<void(DeviceTestRig&)>;
  // Runs the operation twice on the device, which must give equal bits, and once on the reference,
  // which must be near.
  void ExpectConforms(const Operation& operation, const Tolerance& tolerance);

  std::unique_ptr<Device> device_;
  std::unique_ptr<Device> reference_;
};

// Runs operations at the shapes of GPT-2, which take hours on an emulated card. Link
// :gpt2_conformance to get these tests.
class Gpt2ConformanceTest : public DeviceConformanceTest {
 protected:
  // Checks like ExpectConforms(), but against the CPU device, because the oracle's plain loops
  // would take too long. For fp32, several times the tolerance is allowed.
  void ExpectNearCpu(const Operation& operation, const Tolerance& tolerance);
};

}  // namespace lodestar::kernels
