// SPDX-License-Identifier: Apache-2.0

// DeviceSet holds the devices of a process: one device, or several that compute parts of every
// step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/device_group.h"

namespace lodestar::kernels {

struct DeviceSet {
  std::vector<std::unique_ptr<Device>> devices = {};  // has at least one device
  // Group of all devices. Null means that there is only one device.
  std::unique_ptr<DeviceGroup> group = nullptr;

  // Returns the device into which weights are pulled, and from which gradients are pushed.
  Device& first() const { return *devices.front(); }
  // Returns the devices' names for messages: "NVIDIA H200", "4 x NVIDIA H200", "NVIDIA H200, NVIDIA
  // L4".
  std::string Name() const;
};

}  // namespace lodestar::kernels
