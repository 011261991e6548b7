// SPDX-License-Identifier: Apache-2.0

// Metrics about the devices. A worker adds them to each round report, like the metrics of programs.
#pragma once

#include "common/messages/program_metrics.h"
#include "kernels/device_set.h"

namespace lodestar::worker {

// Metric for the number of operations for which the worker does not use a library, because its
// outputs differ from those of our kernels. See Device::num_refused_outputs().
inline constexpr char kRefusedOutputsMetric[] = "device/refused_outputs";

// Adds kRefusedOutputsMetric, summed over all devices. Does nothing if the sum is 0, or if *metrics
// has the maximum number of entries.
void AddDeviceMetrics(const kernels::DeviceSet& devices, messages::Metrics* metrics);

}  // namespace lodestar::worker
