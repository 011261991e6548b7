// SPDX-License-Identifier: Apache-2.0

// Metrics of the devices. A worker reports them with each round, beside the metrics of programs.
#pragma once

#include "common/messages/program_metrics.h"
#include "kernels/device_set.h"

namespace lodestar::worker {

// Number of shapes for which the outputs of a library were refused because they differ from those
// of our kernels; see Device::num_refused_outputs().
inline constexpr char kRefusedOutputsMetric[] = "device/refused_outputs";

// Adds kRefusedOutputsMetric, summed over all devices. Does nothing if the sum is 0, or if *metrics
// has the maximum number of entries.
void AddDeviceMetrics(const kernels::DeviceSet& devices, messages::Metrics* metrics);

}  // namespace lodestar::worker
