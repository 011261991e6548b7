// SPDX-License-Identifier: Apache-2.0

#include "worker/device_metrics.h"

namespace lodestar::worker {

void AddDeviceMetrics(const kernels::DeviceSet& devices, messages::Metrics* metrics) {
  int64_t refused = 0;
  for (const auto& device : devices.devices) refused += device->num_refused_outputs();
  if (refused == 0 || metrics->size() >= messages::kMaxMetrics) return;
  (*metrics)[kRefusedOutputsMetric] = static_cast<double>(refused);
}

}  // namespace lodestar::worker
