#include "kernels/testing/device_conformance.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/oracle/oracle_device.h"
#include "kernels/simd/loops.h"

namespace lodestar {
namespace {

// The CPU with every instruction set that runs here; one, two and an odd number of threads.
std::vector<DeviceCase> CpuCases() {
  std::vector<DeviceCase> cases;
  for (int threads : {1, 2, 3}) {
    cases.push_back({absl::StrCat("Cpu", threads), [threads] { return MakeCpuDevice(threads); }});
  }
  for (int i = 1; simd::SupportedLoops(i) != nullptr; ++i) {
    const simd::Loops& loops = *simd::SupportedLoops(i);
    cases.push_back({absl::StrCat("Cpu", loops.name), [&loops]() -> std::unique_ptr<Device> {
                       return std::make_unique<CpuDevice>(2, loops);
                     }});
  }
  return cases;
}

std::string CaseName(const testing::TestParamInfo<DeviceCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformanceTest, testing::ValuesIn(CpuCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Oracle, DeviceConformanceTest,
                         testing::Values(DeviceCase{"Oracle", MakeOracleDevice}), CaseName);

}  // namespace
}  // namespace lodestar
