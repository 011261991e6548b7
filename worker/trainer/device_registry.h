// SPDX-License-Identifier: Apache-2.0

// Makes the HostMemoryRegistry of a Device.
#pragma once

#include <memory>

#include "kernels/device.h"
#include "worker/client/device_payload.h"

namespace lodestar::trainer {

// Returns null if the device's memory is host memory, which needs no registry. `device` must
// outlive the result.
std::unique_ptr<client::HostMemoryRegistry> MakeDeviceRegistry(kernels::Device* device);

}  // namespace lodestar::trainer
