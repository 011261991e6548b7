// What every implementation of Device must do, checked against the fp64 oracle. A device joins by
// one line:
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

// An output may differ from the oracle's by `units` of the rounding of the narrowest type among the
// arguments, of the largest value of that output or of `terms`, whichever is larger: inputs are
// uniform in [-1, 1), and a sum of such terms may cancel.
struct Tolerance {
  double units;
  double terms;
};

// One rounding of the result, one or two of intermediate products.
inline constexpr Tolerance kElementwise{4.0, 0.0};
// Exp and division: 2 ulp each, through a product or two.
inline constexpr Tolerance kTranscendental{16.0, 0.0};
// A sum of k products rounds like a random walk, sqrt(k) / 2 units in the mean, and the largest
// result grows by the same root, so that the quotient is constant; 16 is several standard
// deviations.
inline constexpr Tolerance kSumOfProducts{16.0, 1.0};
// Several of the above in a row: attention (scores, softmax, mix), normalisation.
inline constexpr Tolerance kComposite{32.0, 1.0};
inline constexpr Tolerance kExact{0.0, 0.0};
// With bf16 only what is stored rounds, and sums are f32: a few roundings in a row, however long
// the sums.
inline constexpr double kMostBf16Units = 4.0;

struct DeviceCase {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
};

inline void PrintTo(const DeviceCase& device_case, std::ostream* os) { *os << device_case.name; }

class DeviceConformanceTest : public testing::TestWithParam<DeviceCase> {
 protected:
  DeviceConformanceTest();
  // Prints what the device has chosen, a line "choice: ..." each, so that a log says what ran.
  void TearDown() override;

  using Operation = std::function<void(DeviceTestRig&)>;
  // Runs the operation twice on the device (equal bits) and once on the reference (near).
  void ExpectConforms(const Operation& operation, const Tolerance& tolerance);

  std::unique_ptr<Device> device_;
  std::unique_ptr<Device> reference_;
};

// The same at the shapes of GPT-2, which an emulated card takes hours for: link :gpt2_conformance.
class Gpt2ConformanceTest : public DeviceConformanceTest {
 protected:
  // As ExpectConforms(), but near the CPU device, where the oracle's plain loops take too long;
  // fp32 within several times the tolerance.
  void ExpectNearCpu(const Operation& operation, const Tolerance& tolerance);
};

}  // namespace lodestar::kernels
