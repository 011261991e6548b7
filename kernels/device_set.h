// DeviceSet: what one process computes on: a device, or several that compute parts of every step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/device_group.h"

namespace lodestar::kernels {

struct DeviceSet {
  std::vector<std::unique_ptr<Device>> devices = {};  // at least one
  std::unique_ptr<DeviceGroup> group = nullptr;       // of all of them; null: there is but one

  // Has the weights that are pulled, and the gradients that are pushed.
  Device& first() const { return *devices.front(); }
  // "NVIDIA H200"; "4 x NVIDIA H200"; "NVIDIA H200, NVIDIA L4": for people.
  std::string Name() const;
};

}  // namespace lodestar::kernels
