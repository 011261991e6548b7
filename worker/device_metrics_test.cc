// SPDX-License-Identifier: Apache-2.0

#include "worker/device_metrics.h"

#include <memory>
#include <string>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/oracle/oracle_device.h"

namespace lodestar::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

class RefusingDevice : public oracle::OracleDevice {
 public:
  explicit RefusingDevice(int64_t refused) : refused_(refused) {}
  int64_t num_refused_outputs() const override { return refused_; }

 private:
  const int64_t refused_;
};

kernels::DeviceSet Devices(int64_t first, int64_t second) {
  kernels::DeviceSet devices;
  devices.devices.push_back(std::make_unique<RefusingDevice>(first));
  devices.devices.push_back(std::make_unique<RefusingDevice>(second));
  return devices;
}

TEST(DeviceMetricsTest, TellsHowManyOutputsAllDevicesHaveRefused) {
  messages::Metrics metrics;
  AddDeviceMetrics(Devices(0, 0), &metrics);
  EXPECT_THAT(metrics, IsEmpty());
  AddDeviceMetrics(Devices(1, 2), &metrics);
  EXPECT_THAT(metrics, ElementsAre(Pair(kRefusedOutputsMetric, 3.0)));
  EXPECT_OK(messages::CheckMetricName(kRefusedOutputsMetric));
}

// The metrics of a program have priority: a server refuses reports with more than kMaxMetrics
// metrics.
TEST(DeviceMetricsTest, LeavesMetricsOfProgramsTheirRoom) {
  messages::Metrics metrics;
  for (size_t i = 0; i < messages::kMaxMetrics; ++i) metrics[std::to_string(i)] = 1.0;
  AddDeviceMetrics(Devices(1, 0), &metrics);
  EXPECT_THAT(metrics, SizeIs(messages::kMaxMetrics));
}

}  // namespace
}  // namespace lodestar::worker
