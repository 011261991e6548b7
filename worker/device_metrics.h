// What a worker tells of its devices with each round, among the metrics of programs.
#pragma once

#include "common/messages/program_metrics.h"
#include "kernels/device_set.h"

namespace lodestar::worker {

// Number of shapes for which a library's outputs were refused because they are not those of our
// kernels; see Device::num_refused_outputs().
inline constexpr char kRefusedOutputsMetric[] = "device/refused_outputs";

// Adds that number, over all devices, unless it is 0 or there is no room for another metric.
void AddDeviceMetrics(const kernels::DeviceSet& devices, Metrics* metrics);

}  // namespace lodestar::worker
