// The HostMemoryRegistry of a Device.
#pragma once

#include <memory>

#include "kernels/device.h"
#include "worker/client/device_payload.h"

namespace lodestar::trainer {

// Returns null if the device's memory is the host's, which needs none. `device` outlives it.
std::unique_ptr<client::HostMemoryRegistry> MakeDeviceRegistry(kernels::Device* device);

}  // namespace lodestar::trainer
