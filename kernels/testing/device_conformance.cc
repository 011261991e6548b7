// SPDX-License-Identifier: Apache-2.0

#include "kernels/testing/device_conformance.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <vector>

#include "absl/strings/str_split.h"
#include "kernels/oracle/oracle_device.h"

namespace lodestar::kernels {
namespace {

// Limit between bf16 and f32: the rounding unit of bf16 is larger, that of f32 is smaller.
constexpr double kNarrowUnit = 0x1p-12;

bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

struct Run {
  Outputs outputs;
  double rounding_unit;
};

Run RunOf(const std::function<void(DeviceTestRig&)>& operation, Device* device, DType inputs) {
  DeviceTestRig rig(device, inputs);
  operation(rig);
  return {rig.Collect(), rig.rounding_unit()};
}

void ExpectNear(const std::string& name, const std::vector<double>& got,
                const std::vector<double>& want, const Tolerance& tolerance, double unit) {
  ASSERT_EQ(got.size(), want.size()) << name;
  double largest = tolerance.terms;
  for (double value : want) largest = std::max(largest, std::abs(value));
  const double units =
      unit > kNarrowUnit ? std::min(tolerance.units, kMostBf16Units) : tolerance.units;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    ASSERT_LE(std::abs(got[i] - want[i]), units * unit * largest)
        << name << "[" << i << "] of " << got.size() << ": got " << got[i] << ", want " << want[i];
  }
}

}  // namespace

DeviceConformanceTest::DeviceConformanceTest()
    : device_(GetParam().make()), reference_(oracle::MakeOracleDevice()) {}

void DeviceConformanceTest::TearDown() {
  if (device_ == nullptr) return;
  for (absl::string_view choice :
       absl::StrSplit(device_->DescribeChoices(), '\n', absl::SkipEmpty())) {
    std::cout << "choice: " << choice << std::endl;
  }
}

void DeviceConformanceTest::ExpectConforms(const Operation& operation, const Tolerance& tolerance) {
  const DType compute = device_->capabilities().compute;
  const auto [got, unit] = RunOf(operation, device_.get(), compute);
  const Outputs again = RunOf(operation, device_.get(), compute).outputs;
  const Outputs want = RunOf(operation, reference_.get(), compute).outputs;
  ASSERT_FALSE(want.empty());
  for (const auto& [name, values] : want) {
    EXPECT_TRUE(SameBits(got.at(name), again.at(name))) << name << " differs between two runs";
    ExpectNear(name, got.at(name), values, tolerance, unit);
  }
}
}  // namespace lodestar::kernels
